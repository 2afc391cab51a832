"""Every row of the primitive table, multiplied by everything that a primitive owes.

`test_value` sweeps the dtypes of a row. The rules are checked at one dtype, mostly on the reference
interpreter, which compiles nothing; then all that a row's test has made goes through XLA as one
program.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.backends import reference
from functrans.ir import Program, check, equal, parse, show
from functrans.passes import pipeline
from functrans.primitives.base import PRIMITIVES
from functrans.trace import typeof
from tests.cases import CASES
from tests.cases.case import Case
from tests.closeness import assert_close, plain
from tests.versions import has_no_order

# Their parameters are programs; they have tests of their own, here by name of the file.
CALLBACKS = ("debug_callback", "pure_callback", "io_callback")
COLLECTIVES = (
    "all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_scatter",
)  # fmt: skip
HIGHER_ORDER = dict.fromkeys(CALLBACKS, "test_callbacks.py") | {"jit": "test_jit.py"}
HIGHER_ORDER |= dict.fromkeys(COLLECTIVES, "test_collectives.py")
CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_lin", "custom_vmap_call", "constant")
HIGHER_ORDER |= dict.fromkeys(CUSTOM, "test_custom_rules.py")
HIGHER_ORDER |= dict.fromkeys(
    ("cond", "only_where", "scan", "while", "tangent_loop"), "test_control_flow.py"
)
HIGHER_ORDER |= dict.fromkeys(("checkpoint", "name"), "test_checkpoint.py")
HIGHER_ORDER["sharding_constraint"] = "test_shard_map.py"
PLATFORMS = ("approx_top_k", "platform_index", "rng_bit_generator", "rng_uniform")
HIGHER_ORDER |= dict.fromkeys(PLATFORMS, "test_lax_extras.py")
# whose compilation is long
GAMMA = ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "random_gamma_grad_a")
HIGHER_ORDER |= dict.fromkeys(GAMMA, "test_special.py") | {"random_gamma": "test_samplers.py"}
HIGHER_ORDER |= dict.fromkeys(("custom_linear_solve", "custom_root"), "test_solvers.py")

WIDE = {"int64", "uint64", "float64", "complex128"}
EVERY_DTYPE = [
    pytest.param(case, dtype, id=f"{case}-{dtype}") for case in CASES for dtype in case.dtypes
]
EVERY_CASE = [pytest.param(case, id=str(case)) for case in CASES]


def test_every_primitive_has_a_row():
    assert {case.primitive for case in CASES} == set(PRIMITIVES) - set(HIGHER_ORDER)


def test_rows_have_names_of_their_own():
    names = [str(case) for case in CASES]
    assert sorted(set(names)) == sorted(names)


def apply(case: Case) -> Callable[..., list[Any]]:
    """The row's operation as a function to a list of results."""
    primitive = PRIMITIVES[case.primitive]

    def run(*operands: Any) -> list[Any]:
        out = primitive(*operands, **case.params)
        return list(out) if primitive.multiple else [out]

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


def interpreted(program: Program, args: Sequence[Any]) -> list[Any]:
    return ft.interpret(program, *args)


# --- values ---------------------------------------------------------------------------------------


Results = tuple[list[Any], list[Any]]  # of functrans, of JAX


def compiled(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Results]:
    """A function of functrans and one of JAX in one compilation."""
    return jax.jit(lambda *args: (ft.jit(ours)(*args), theirs(*args)))


def run_by_both(case: Case) -> Callable[..., Results]:
    return compiled(apply(case), functools.partial(expected, case))


@functools.cache
def compiled_together(case: Case, wide: bool) -> dict[str, Results]:
    """The results at all dtypes of a row in one compilation, which is most of the time it takes;
    nothing if some dtype fails."""
    dtypes = [d for d in case.dtypes if is_wide(case, d) == wide]
    operands = {d: case.make(case.rng(d), d) for d in dtypes}
    try:
        return jax.jit(lambda xs: {d: run_by_both(case)(*xs[d]) for d in dtypes})(operands)
    except Exception:
        return {}


@pytest.mark.parametrize(("case", "dtype"), EVERY_DTYPE)
def test_value(case: Case, dtype: str):
    """XLA = reference = JAX, of the type that the type rule promised."""
    primitive = PRIMITIVES[case.primitive]
    with precision(case, dtype):
        operands = case.make(case.rng(dtype), dtype)
        found = compiled_together(case, is_wide(case, dtype)).get(dtype)
        out, theirs = found or run_by_both(case)(*operands)
        types = primitive.result_types([typeof(x) for x in operands], case.params)
        for y, t in zip(out, types, strict=True):
            assert typeof(y) == t
        with np.errstate(all="ignore"):
            twin = reference.run_one(primitive, operands, case.params)
        assert_close(twin, out, case.close(dtype), "reference against XLA,")
        assert_close(out, theirs, case.close(dtype), "XLA against JAX,")


@pytest.mark.parametrize("case", EVERY_CASE)
def test_eager(case: Case):
    """Alone it gives what it gives compiled; it has a cost."""
    dtype = case.dtypes[0]
    with precision(case, dtype):
        operands = case.make(case.rng(dtype), dtype)
        program = ft.make_ir(apply(case))(*operands)
        alone = apply(case)(*operands)
        assert list(map(typeof, alone)) == list(program.out_types)
        assert_close(alone, interpreted(program, operands), case.close(dtype))
        for eqn in program.equations:
            cost = eqn.primitive.cost(
                [v.type for v in eqn.inputs], [v.type for v in eqn.outputs], **eqn.params
            )
            assert cost.flops >= 0
            assert cost.bytes >= 0


# --- derivatives ----------------------------------------------------------------------------------


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


EVERY_DERIVATIVE = [
    pytest.param(case, dtype, id=f"{case}-{dtype}")
    for case in CASES
    for dtype in derivative_dtypes(case)
]


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


def pairing(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """<x, y>, in which tangents and cotangents are dual: the real part of sum(x * y)."""
    return sum(float(np.sum(plain(x).astype(np.complex128) * plain(y)).real)
               for x, y in zip(xs, ys, strict=True))  # fmt: skip


def slope(p: Point) -> list[np.ndarray]:
    """The derivative along dx by the five-point formula, on the reference interpreter."""
    h = step(p)
    program = ft.make_ir(p.ours)(*p.x)

    def at(k: float) -> list[np.ndarray]:
        moved = [np.asarray(x + x.dtype.type(k * h) * v).astype(x.dtype)
                 for x, v in zip(p.x, p.dx, strict=True)]  # fmt: skip
        wide = interpreted(program, moved)
        return [y.astype(np.complex128 if y.dtype.kind == "c" else np.float64) for y in wide]

    values = zip(at(1), at(-1), at(2), at(-2), strict=True)
    return [(8 * (a - b) - (c - d)) / (12 * h) for a, b, c, d in values]


def step(p: Point) -> float:
    coarse = any(np.dtype(y.dtype).itemsize < 8 or y.dtype == np.complex64 for y in [*p.x, *p.ct])
    return 2.0**-6 if coarse else 2.0**-13


@pytest.mark.parametrize(("case", "dtype"), EVERY_DERIVATIVE)
def test_derivatives(case: Case, dtype: str):
    """jvp = slope, <ct, jvp> = <vjp, dx>, both = JAX's; on both backends."""
    with precision(case, dtype):
        p = point(case, dtype)
        n = len(p.inexact)

        def both(library: Any, f: Callable[..., Any]) -> Callable[..., list[Any]]:
            return lambda x, dx, ct: [*pushed(library, f, x, dx), *pulled(library, f, x, ct)]

        args = (p.x, p.dx, p.ct)
        program = ft.make_ir(both(ft, p.ours))(*args)
        here = interpreted(program, args)
        tangents, cotangents = here[n : 2 * n], here[2 * n :]
        tolerance = p.tolerance()

        if min(np.dtype(y.dtype).itemsize for y in p.x) >= 4:  # else rounding hides the slope
            by_slope = [s.astype(t.dtype) for s, t in zip(slope(p), tangents, strict=True)]
            assert_close(tangents, by_slope, 1e-7 if step(p) < 1e-3 else 0.05, "jvp = slope,")
        left, right = pairing(p.ct, tangents), pairing(cotangents, p.dx)
        assert abs(left - right) <= 10 * tolerance * (1 + abs(left)), "<ct, jvp> = <vjp, dx>"
        oracle = both(ft, p.ours) if has_no_order(case.primitive, dtype) else both(jax, p.jax)
        by_xla, by_jax = compiled(both(ft, p.ours), oracle)(*args)
        assert_close(here, by_xla, tolerance, "reference against XLA,")
        assert_close(by_xla, by_jax, tolerance, "functrans against JAX,")


@pytest.mark.parametrize(("case", "dtype"), EVERY_DERIVATIVE)
def test_second_order(case: Case, dtype: str):
    """jvp of vjp, vjp of jvp and vjp of vjp = JAX's."""
    with precision(case, dtype):
        p = point(case, dtype)

        def second(library: Any, f: Callable[..., Any]) -> Callable[..., list[Any]]:
            def back(*x: Any) -> list[Any]:
                return pulled(library, f, x, p.ct)

            def along(*x: Any) -> list[Any]:
                return pushed(library, f, x, p.dx)[len(p.ct) :]

            return lambda *x: [
                *pushed(library, back, x, p.dx)[len(p.x) :],
                *pulled(library, along, x, p.ct),
                *pulled(library, back, x, p.dx),
            ]

        program = ft.make_ir(second(ft, p.ours))(*p.x)
        oracle = second(ft, p.ours) if has_no_order(case.primitive, dtype) else second(jax, p.jax)
        by_xla, wanted = compiled(second(ft, p.ours), oracle)(*p.x)
        tolerance = 10 * p.tolerance()
        assert_close(interpreted(program, p.x), wanted, tolerance, "reference against JAX,")
        assert_close(by_xla, wanted, tolerance, "XLA against JAX,")


# --- batching -------------------------------------------------------------------------------------

Axes = tuple[int | None, ...]
COMPILED = 5  # of the calls that are checked on the reference: nested ones and varied axes


def subsets(n: int) -> list[tuple[bool, ...]]:
    """Which of n operands are batched: all choices up to three, else alone, all but one, all."""
    if n <= 3:
        return [s for s in itertools.product((True, False), repeat=n) if any(s)]
    alone = [tuple(i == k for i in range(n)) for k in range(n)]
    return [*alone, *[tuple(not b for b in s) for s in alone], (True,) * n]


def placements(ndims: Sequence[int]) -> list[Axes]:
    """Every subset with its batch axes in front, and with them in varied places."""
    if not ndims:
        return []
    found: dict[Axes, None] = {}
    for k, chosen in enumerate(subsets(len(ndims))):
        found[tuple(0 if c else None for c in chosen)] = None
        places = [(k + i) % (n + 1) for i, n in enumerate(ndims)]
        found[tuple(d if c else None for d, c in zip(places, chosen, strict=True))] = None
    found[tuple(ndims)] = None
    return list(found)


def stacked(values: Sequence[Any], axis: int) -> Any:
    return jnp.stack(values, axis) if isinstance(values[0], jax.Array) else np.stack(values, axis)


def batched(draws: Sequence[list[Any]], axes: Axes) -> list[Any]:
    """The operands of vmap: the draws stacked where there is an axis, else the first of them."""
    return [
        columns[0] if d is None else stacked(columns, d)
        for columns, d in zip(zip(*draws, strict=True), axes, strict=True)
    ]


def looped(program: Program, draws: Sequence[list[Any]], axes: Axes) -> list[Any]:
    """What vmap should give: one example after the other on the reference, stacked in front."""
    first = draws[0]
    rows = [
        interpreted(
            program, [f if d is None else x for f, x, d in zip(first, row, axes, strict=True)]
        )
        for row in draws
    ]
    return [stacked(column, 0) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("case", EVERY_CASE)
def test_batch(case: Case):
    """vmap = a Python loop, for subsets of the operands and varied axes; vmap of vmap likewise."""
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    with precision(case, dtype):
        rng = case.rng("batch")
        draws = [case.make(rng, dtype) for _ in range(6)]
        ndims = [np.ndim(x) for x in draws[0]]
        f = apply(case)
        one = ft.make_ir(f)(*draws[0])
        calls, args, wanted = [], [], []
        if not ndims:
            calls, args = [ft.vmap(f, axis_size=3)], [[]]
            wanted = [[np.stack([y] * 3) for y in interpreted(one, [])]]
        for axes in placements(ndims):
            calls.append(ft.vmap(f, axes))
            args.append(batched(draws[:3], axes))
            wanted.append(looped(one, draws[:3], axes))
        for outer, inner in nests(ndims):
            calls.append(ft.vmap(ft.vmap(f, inner), outer))
            rows = [batched(draws[:3], inner), batched(draws[3:], inner)]
            args.append(batched(rows, outer))
            wanted.append(looped(ft.make_ir(ft.vmap(f, inner))(*rows[0]), rows, outer))

        def everything(args: Any) -> list[Any]:
            return [call(*x) for call, x in zip(calls, args, strict=True)]

        here = interpreted(ft.make_ir(everything)(args), [args])
        assert_close(here, wanted, case.close(dtype), "vmap against a loop,")
        calls, args, wanted = calls[-COMPILED:], args[-COMPILED:], wanted[-COMPILED:]
        assert_close(ft.jit(everything)(args), wanted, case.close(dtype), "XLA against a loop,")


def nests(ndims: Sequence[int]) -> list[tuple[Axes, Axes]]:
    """Axes of the outer and the inner vmap."""
    n = len(ndims)
    if not n:
        return []
    found: list[tuple[Axes, Axes]] = [((0,) * n, (0,) * n), (tuple(k + 1 for k in ndims), (0,) * n)]
    if n > 1:
        first = (0, *[None] * (n - 1))
        last = (*[None] * (n - 1), 0)
        found += [(first, last), (last, first)]
    return found


@pytest.mark.parametrize(("case", "dtype"), EVERY_DERIVATIVE)
def test_batched_derivatives(case: Case, dtype: str):
    """vmap of jvp and of vjp = a Python loop: what the rules make can be batched."""
    with precision(case, dtype):
        p = point(case, dtype)
        rng = case.rng("batched derivative")
        f = p.ours

        def both(x: Any, dx: Any, ct: Any) -> list[Any]:
            return [*pushed(ft, f, x, dx), *pulled(ft, f, x, ct)]

        draws = []
        for _ in range(2):
            row = case.make(rng, dtype)
            x = [row[i] for i in case.differentiable]
            draws.append((x, [direction(rng, y) for y in x], [direction(rng, c) for c in p.ct]))
        one = ft.make_ir(both)(*draws[0])
        args = jax.tree_util.tree_map(lambda *xs: np.stack(xs), *draws)
        wanted = [np.stack(c) for c in zip(*[interpreted(one, d) for d in draws], strict=True)]
        mapped = ft.make_ir(ft.vmap(both))(*args)
        assert_close(interpreted(mapped, args), wanted, p.tolerance(), "vmap against a loop,")


# --- programs as data -----------------------------------------------------------------------------

Made = list[tuple[Program, list[Any]]]  # programs with arguments


def value_programs(case: Case, dtype: str) -> Made:
    draws = [case.make(case.rng("programs"), dtype) for _ in range(2)]
    made: Made = [(ft.make_ir(apply(case))(*draws[0]), draws[0])]
    if case.operands:
        rows = batched(draws, (0,) * len(case.operands))
        made.append((ft.make_ir(ft.vmap(apply(case)))(*rows), rows))
    return made


def derivative_programs(case: Case, dtype: str) -> Made:
    p = point(case, dtype)
    forward, reverse = [p.x, p.dx], [p.x, p.ct]
    return [
        (ft.make_ir(lambda x, dx: pushed(ft, p.ours, x, dx))(*forward), forward),
        (ft.make_ir(lambda x, ct: pulled(ft, p.ours, x, ct))(*reverse), reverse),
    ]


@pytest.mark.parametrize("case", EVERY_CASE)
def test_programs(case: Case):
    """What transformations make is valid, goes through text and back, and means the same after
    each pass."""
    makers = [(value_programs, case.dtypes[0])]
    makers += [(derivative_programs, dtype) for dtype in derivative_dtypes(case)[:1]]
    for maker, dtype in makers:
        with precision(case, dtype):
            for program, args in maker(case, dtype):
                check(program)
                again = parse(show(program), program.values)
                assert equal(again, program)
                assert show(again) == show(program)
                wanted = interpreted(program, args)
                for one_pass in pipeline.PASSES:
                    result = one_pass(program)
                    check(result)
                    assert_close(interpreted(result, args), wanted, what=one_pass.__name__)
