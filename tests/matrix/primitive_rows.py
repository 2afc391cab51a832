"""Rows of the primitive table as functions, and how those of a primitive are compiled together."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.ir import Program
from functrans.primitives.base import PRIMITIVES
from functrans.trace import typeof
from tests.matrix.cases import CASES
from tests.matrix.cases.case import Case

Row = tuple[Case, str]  # a row at a dtype
Made = tuple[Callable[..., Any], Sequence[Any]]  # a function and its arguments

WIDE = {"int64", "uint64", "float64", "complex128"}


def by_primitive(rows: Iterable[Row]) -> Any:
    """A test for each primitive, with its rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0].primitive, []).append(row)
    return pytest.mark.parametrize("rows", [pytest.param(g, id=n) for n, g in groups.items()])


def some_or_all(name: str, some: int) -> Any:
    """How many rows of a primitive are compiled: some by default, all of them in the heavy run."""
    everything = pytest.param(None, id="all", marks=pytest.mark.heavy)
    return pytest.mark.parametrize(name, [pytest.param(some, id="some"), everything])


def apply(case: Case) -> Callable[..., list[Any]]:
    """The row's operation as a function to a list of results."""
    primitive = PRIMITIVES[case.primitive]

    def run(*operands: Any) -> list[Any]:
        out = primitive(*operands, **case.params)
        return list(out) if primitive.multiple_results else [out]

    run.__name__ = case.primitive
    return run


def expected(case: Case, *operands: Any) -> list[Any]:
    """The same by JAX."""
    return jax.tree_util.tree_leaves(case.jax(*map(jnp.asarray, operands)))


@contextmanager
def precision(case: Case, dtype: str) -> Iterator[None]:
    """64-bit types are on where the dtype asks for them, or the row has others of its own."""
    with jax.enable_x64(is_wide(case, dtype)):
        yield


@functools.cache
def is_wide(case: Case, dtype: str) -> bool:
    with jax.enable_x64(True):
        operands = case.make(case.rng(), dtype)
        types = PRIMITIVES[case.primitive].result_types(list(map(typeof, operands)), case.params)
    return any(str(x.dtype) in WIDE for x in [*operands, *types])


def all_of(calls: Sequence[Callable[..., Any]]) -> Callable[[Any], list[Any]]:
    """A function of a list of arguments to a list of results."""
    return lambda args: [call(*x) for call, x in zip(calls, args, strict=True)]


def run_together(rows: Sequence[Row], make: Callable[[Case, str], Made], **options: Any) -> dict[Row, Any]:
    """Of each row a function at its arguments, compiled as one program for each width of types;
    where that fails, each alone when it is asked for. `options` are those of `jax.jit`."""
    results: dict[Row, Any] = {}
    for wide in (False, True):
        chosen = [row for row in rows if is_wide(*row) == wide]
        with jax.enable_x64(wide):
            made = {row: make(*row) for row in chosen}
            together = jax.jit(all_of([f for f, _ in made.values()]), **options)
            try:
                found = together([args for _, args in made.values()])
                results |= zip(made, found, strict=True)
            except Exception:
                results |= {row: None for row in chosen}
    return results


def interpreted(program: Program, args: Sequence[Any]) -> list[Any]:
    return ft.interpret(program, *args)


Results = tuple[list[Any], list[Any]]  # of functrans, of JAX


def compiled(ours: Callable[..., Any], theirs: Callable[..., Any], **options: Any) -> Callable[..., Results]:
    """A function of functrans and one of JAX in one compilation."""
    return jax.jit(lambda *args: (ft.jit(ours)(*args), theirs(*args)), **options)


def one_of_each_kind(case: Case) -> list[str]:
    """The first dtype of each kind: halves, floats, complex and whole numbers, booleans."""
    kinds = {"float16": "half", "bfloat16": "half", "bool": "bool"}
    found: dict[str, str] = {}
    for dtype in case.dtypes:
        found.setdefault(kinds.get(dtype, dtype.rstrip("0123456789")), dtype)
    return list(found.values())


def every_dtype() -> list[Row]:
    """The first row of a primitive at all its dtypes; others at one in three, at other ones in turn."""
    turns: dict[str, int] = {}
    rows = []
    for case in CASES:
        turn = turns[case.primitive] = turns.get(case.primitive, -1) + 1
        rows += [(case, dtype) for dtype in (case.dtypes[turn % 3 :: 3] if turn else case.dtypes)]
    return rows


EVERY_DTYPE = every_dtype()
NOT_QUICK = ("clamp-bool", "clamp-complex-", "reduce_precision-5-0-")  # for XLA:CPU's older emitters
SOME_DTYPES = [
    (case, dtype)
    for case in CASES
    for dtype in one_of_each_kind(case)
    if not f"{case}-{dtype}".startswith(NOT_QUICK)
]


@dataclass(frozen=True)
class Point:
    """A row as a function of its differentiable operands alone, and where to differentiate it."""

    case: Case
    dtype: str
    operands: list[Any]
    x: list[Any]  # the differentiable operands
    dx: list[Any]
    inexact: list[int]  # results that have a tangent
    ct: list[Any]

    def of(self, function: Callable[..., Sequence[Any]]) -> Callable[..., list[Any]]:
        """`function` with the other operands fixed; its results that have a tangent."""

        def run(*given: Any) -> list[Any]:
            full = list(self.operands)
            for i, x in zip(self.case.differentiable, given, strict=True):
                full[i] = x
            out = function(*full)
            return [out[i] for i in self.inexact]

        return run

    @property
    def ours(self) -> Callable[..., list[Any]]:
        return self.of(apply(self.case))

    @property
    def jax(self) -> Callable[..., list[Any]]:
        return self.of(functools.partial(expected, self.case))

    def tolerance(self) -> float:
        """Derivatives compound a few roundings, of the coarsest type that takes part."""
        if str(self.x[0].dtype) in self.case.tolerance:
            return 10 * self.case.tolerance[str(self.x[0].dtype)]
        return max(1e-10, *(10 * self.case.close(str(y.dtype)) for y in [*self.ct, *self.x]))


def derivative_dtypes(case: Case) -> list[str]:
    """The finest real and the finest complex dtype of the row."""
    if not case.differentiable:
        return []
    finest = []
    for kinds in (("float64", "float32", "bfloat16", "float16"), ("complex128", "complex64")):
        finest += [dtype for dtype in kinds if dtype in case.dtypes][:1]
    return finest


EVERY_DERIVATIVE = [(case, dtype) for case in CASES for dtype in derivative_dtypes(case)]


def direction(rng: np.random.Generator, like: Any) -> np.ndarray:
    like = np.asarray(like)
    v = rng.normal(size=like.shape)
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        v = v + 1j * rng.normal(size=like.shape)
    return np.asarray(v).astype(like.dtype)


def point(case: Case, dtype: str) -> Point:
    rng = case.rng("derivative" + dtype)
    operands = case.make(rng, dtype)
    x = [operands[i] for i in case.differentiable]
    types = PRIMITIVES[case.primitive].result_types([typeof(o) for o in operands], case.params)
    inexact = [i for i, t in enumerate(types) if jnp.issubdtype(t.dtype, jnp.inexact)]
    ct = [direction(rng, np.zeros(types[i].shape, types[i].dtype)) for i in inexact]
    return Point(case, dtype, operands, x, [direction(rng, y) for y in x], inexact, ct)


def pushed(library: Any, f: Callable[..., Any], x: Sequence[Any], dx: Sequence[Any]) -> list[Any]:
    """Values and tangents along dx."""
    out, tangents = library.jvp(f, tuple(x), tuple(dx))
    return [*out, *tangents]


def pulled(library: Any, f: Callable[..., Any], x: Sequence[Any], ct: Sequence[Any]) -> list[Any]:
    """Cotangents of x."""
    return list(library.vjp(f, *x)[1](list(ct)))


def both_ways(library: Any, f: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda x, dx, ct: [*pushed(library, f, x, dx), *pulled(library, f, x, ct)]
