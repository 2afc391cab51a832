"""functrans.numpy against jax.numpy: a table of expressions.

Each expression runs at top level, under jit, under vmap and through grad, with our library and with
JAX's, on the arrays named below. Values, dtypes, weak types and shapes must be equal. The rows of a
group are compiled together, and what transformations make of ours is interpreted by NumPy.
"""

import functools
import pathlib
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import errors
from functrans.passes.pipeline import optimize
from tests.support.versions import EXPRESSIONS, NOT_DERIVED, QUICK

_rng = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape).astype(np.float32)


def _between(low: float, high: float, *shape: int) -> np.ndarray:
    return _rng.uniform(low, high, size=shape).astype(np.float32)


def _with_nan(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[0, 1] = x[2, 3] = x[2, 0] = np.nan
    return x


ARRAYS: dict[str, np.ndarray] = {
    "x": _normal(3, 4),
    "y": _normal(3, 4),
    "p": _between(0.5, 2, 3, 4),
    "u": _between(-0.9, 0.9, 3, 4),
    "v": _normal(4),
    "v6": _normal(6),
    "up": np.sort(_normal(6)),
    "col": _normal(3, 1),
    "s": np.float32(0.7),
    "q": _normal(2, 3, 4),
    "q1": _normal(1, 4, 5),
    "w": _normal(4, 5),
    "m": _normal(4, 4),
    "a3": _normal(5, 3),
    "b3": _normal(5, 3),
    "none": _normal(0, 4),
    "nans": _with_nan(_normal(3, 4)),
    "i": _rng.integers(-5, 6, size=(3, 4)).astype(np.int32),
    "j": _rng.integers(1, 6, size=(3, 4)).astype(np.int32),
    "iv": _rng.integers(0, 5, size=(7,)).astype(np.int32),
    "i8": _rng.integers(-5, 6, size=(3, 4)).astype(np.int8),
    "n8": _rng.integers(0, 6, size=(3, 4)).astype(np.uint8),
    "n32": _rng.integers(0, 6, size=(3, 4)).astype(np.uint32),
    "b": _rng.random((3, 4)) < 0.5,
    "b2": _rng.random((3, 4)) < 0.5,
    "h": _normal(3, 4).astype(np.float16),
    "g": np.asarray(_normal(3, 4), jax_numpy.bfloat16),
    "z": (_normal(3, 4) + 1j * _normal(3, 4)).astype(np.complex64),
    "z2": (_normal(3, 4) + 1j * _normal(3, 4)).astype(np.complex64),
    "inf": np.array([1, np.inf, -np.inf, np.nan, -0.0], np.float32),
}


def read_table(library: str) -> dict[str, list[str]]:
    """group -> expressions, of the files `tables/{library}_*.txt`."""
    table: dict[str, list[str]] = {}
    for path in sorted((pathlib.Path(__file__).parent / "tables").glob(f"{library}_*.txt")):
        for line in path.read_text().splitlines():
            if re.fullmatch(r"\[[a-z ]+\]", line):
                rows = table[line.strip("[]")] = []
            elif line and not line.startswith("#"):
                rows.append(line)
    return table


TABLE = read_table("numpy")
X64 = TABLE.pop("under enabled x")  # with 64-bit types

# Closed over by rows: operands on the left that are not ours.
CONSTANTS = {
    "np_ones": np.full((3, 4), 1.5, np.float32),
    "np_two": np.float32(2),
    "jax_ones": jax_numpy.full((3, 4), 1.5),
}

# Where NumPy-like float rounding differs by more than the default tolerance, and why.
LOOSE = {
    "h": 4e-3,  # float16 keeps 11 bits
    "g": 3e-2,  # bfloat16 keeps 8
}


def names_in(row: str, arrays: dict[str, np.ndarray] = ARRAYS) -> list[str]:
    """The arrays that an expression reads, lambdas in it too."""
    read, codes = set(re.findall(r"(?<![\w.'])([a-z]\w*)\b", row)), [compile(row, row, "eval")]
    found = set()
    for code in codes:
        found |= set(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    return [n for n in arrays if n in read & found]


def function_of(row: str, xp: Any) -> Callable[..., Any]:
    names = names_in(row)
    code = compile(row, row, "eval")

    def run(*arrays: Any) -> Any:
        scope = {"jnp": xp, **CONSTANTS, **dict(zip(names, arrays, strict=True))}
        return eval(code, scope)

    return run


def arguments(row: str, arrays: dict[str, np.ndarray] = ARRAYS) -> list[np.ndarray]:
    return [arrays[n] for n in names_in(row)]


def tolerance(row: str) -> float:
    names = [*names_in(row), *["h"] * ("float16" in row)]
    return max([2e-5, *[LOOSE[n] for n in names if n in LOOSE]])


def compare(row: str, ours: Any, theirs: Any, weak: bool = True) -> str | None:
    """What differs, or None."""
    mine, other = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    if len(mine) != len(other):
        return f"{row}: {len(mine)} results, JAX has {len(other)}"
    for a, b in zip(mine, other, strict=True):
        if weak and not isinstance(a, jax.Array):
            return f"{row}: result of type {type(a)}"
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{row}: {a.dtype}{a.shape}, JAX has {b.dtype}{b.shape}"
        # (that some of JAX's booleans are weak has no meaning)
        if weak and a.weak_type != b.weak_type and a.dtype != bool:
            return f"{row}: weak_type {a.weak_type}, JAX has {b.weak_type}"
        one, two = (
            np.asarray(v).astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (a, b)
        )
        t = tolerance(row)
        if not np.allclose(one, two, rtol=t, atol=t, equal_nan=True):
            return f"{row}:\n{a}\nJAX:\n{b}"
    return None


def check(rows: list[str], ours: dict[str, Any], theirs: dict[str, Any], **options: Any) -> None:
    problems = []
    for row in rows:
        mine, other = ours.get(row), theirs.get(row)
        if row in EXPRESSIONS:
            continue
        if isinstance(other, Exception):
            if not isinstance(mine, Exception) and "subtypes of integer" not in str(other):
                problems.append(f"{row}: JAX raises {other!r:.200}")
        elif isinstance(mine, Exception):
            problems.append(f"{row}: {type(mine).__name__}: {mine}")
        else:
            problems.append(compare(row, mine, other, **options))
    found = [p for p in problems if p]
    assert not found, f"{len(found)} of {len(rows)}\n" + "\n".join(found)


GROUPS = list(TABLE)


@pytest.mark.every(5)
@pytest.mark.parametrize("group", GROUPS)
def test_values(group):
    rows = TABLE[group]
    check(rows, together(rows, ft_numpy, ft.jit, lambda f: f)(), by_jax(group)())


@pytest.mark.parametrize("every", [10, pytest.param(3, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("group", GROUPS)
def test_at_top_level(group, every):
    """Operation by operation: the same code as under jit, so some of the rows."""
    rows = TABLE[group][::every]
    ours = {}
    for row in rows:
        try:
            ours[row] = function_of(row, ft_numpy)(*map(jax_numpy.asarray, arguments(row)))
        except Exception as error:
            ours[row] = error
    check(rows, ours, by_jax(group)())


Results = dict[str, Any]  # of rows, or the exceptions that they raised


def together(rows: list[str], xp: Any, jit: Any, transform: Callable[[Any], Any]) -> Callable[..., Results]:
    """All rows as one jitted function of all arrays."""
    failed: Results = {}

    def everything(arrays: dict[str, Any]) -> Results:
        results = {}
        for row in rows:
            try:
                results[row] = transform(function_of(row, xp))(*arguments(row, arrays))
            except Exception as error:
                failed[row] = error
        return results

    names = sorted({n for row in rows for n in names_in(row)})
    jitted = jit(everything, compiler_options=QUICK)
    return lambda arrays=ARRAYS: {**jitted({n: arrays[n] for n in names}), **failed}


def interpreted(
    rows: list[str], transform: Callable[[Any], Any], arrays: dict[str, np.ndarray] = ARRAYS
) -> Results:
    """Each row by itself, transformed, optimized and interpreted."""
    results: Results = {}
    for row in rows:
        given = arguments(row, arrays)
        try:
            program = ft.make_ir(transform(function_of(row, ft_numpy)))(*given)
            results[row] = ft.interpret(optimize(program), *given)
        except Exception as error:
            results[row] = error
    return results


# Differences between dtypes are those of the primitives, which have a table of their own; the
# transformations are tested on the common ones.
NARROW = {"h", "g", "i8", "n8", "n32", "inf", "z2"}


def common(group: str) -> list[str]:
    return [row for row in TABLE[group] if names_in(row) and not NARROW & set(names_in(row))]


@functools.cache
def by_jax(group: str) -> Callable[..., Results]:
    return together(TABLE[group], jax_numpy, jax.jit, lambda f: f)


# One elementwise primitive each, whose batching rule is tested with the primitives.
ELEMENTWISE = {"unary", "two floats", "comparison", "logic", "rounding"}


FLIPPED = {n: np.flip(x) for n, x in ARRAYS.items()}


def stacked(*xs: Any) -> np.ndarray:
    return np.stack(xs)


@pytest.mark.parametrize("group", [g for g in GROUPS if g not in ELEMENTWISE])
def test_vmap(group):
    """vmap over two examples is what JAX makes of each."""
    rows = common(group)
    both = {n: stacked(x, FLIPPED[n]) for n, x in ARRAYS.items()}
    ours = interpreted(rows, ft.vmap, both)
    one, other = (by_jax(group)(arrays) for arrays in (ARRAYS, FLIPPED))
    theirs = {
        row: one[row] if isinstance(one[row], Exception) else jax.tree.map(stacked, one[row], other[row])
        for row in rows
    }
    check(rows, ours, theirs, weak=False)


# Groups without derivatives, and rows whose derivative is another valid one at a point of choice.
NOT_DIFFERENTIATED = {"comparison", "logic", "nothing left to divide by"}


def scalar_loss(f: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """A weighted sum of the inexact results."""

    def loss(*args: Any) -> Any:
        total = xp.zeros((), xp.float32)
        for y in jax.tree.leaves(f(*args)):
            if xp.issubdtype(y.dtype, xp.inexact):
                y = xp.real(y) + xp.imag(y) if xp.issubdtype(y.dtype, xp.complexfloating) else y
                weights = np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)
                total = total + (y.astype(xp.float32) * weights).sum()
        return total

    return loss


def has_inexact(row: str) -> bool:
    return any(jax_numpy.issubdtype(ARRAYS[n].dtype, jax_numpy.inexact) for n in names_in(row))


@pytest.mark.every(5)
@pytest.mark.parametrize("group", [g for g in GROUPS if g not in NOT_DIFFERENTIATED])
def test_gradient(group):
    rows = [row for row in common(group) if has_inexact(row) and row not in NOT_DERIVED]

    def gradient(grad, xp):
        def of(f):
            def call(*args):
                real = tuple(k for k, x in enumerate(args) if xp.issubdtype(x.dtype, xp.inexact))
                return grad(scalar_loss(f, xp), real)(*args) if real else ()

            return call

        return of

    ours = interpreted(rows, gradient(ft.grad, ft_numpy))
    theirs = together(rows, jax_numpy, jax.jit, gradient(jax.grad, jax_numpy))()
    check(rows, ours, theirs, weak=False)


def test_lean_traces():
    """What costs one equation in JAX costs one here."""

    def count(f, *shapes):
        return len(ft.make_ir(f)(*[ft.ShapeDtypeStruct(s, "float32") for s in shapes]).equations)

    jnp = ft_numpy
    assert count(lambda x: jnp.sum(x), (3, 4)) == 1
    assert count(lambda x: x.mean(), (3, 4)) == 2
    assert count(lambda x, w: x @ w, (2, 3, 4), (4, 5)) == 1
    assert count(lambda x, w: jnp.matmul(x, w), (2, 3, 4), (2, 4, 5)) == 1
    assert count(lambda x, w: jnp.einsum("bij,kj->bki", x, w), (2, 3, 4), (5, 4)) == 1
    assert count(lambda x: jnp.zeros((3, 4)) + x * 2.0, (3, 4)) == 2
    assert count(lambda x: jnp.maximum(x, 0), (3, 4)) == 1
    assert count(lambda x, y: x + y, (3, 4), (4,)) == 2


def test_values_that_are_known_while_a_gradient_is_taken():
    seen = []

    def f(x):
        seen.append((2.0 in x, 7.0 in x, x.block_until_ready() is x, x.to_device(None) is x))
        return (x * x).sum()

    np.testing.assert_array_equal(ft.grad(f)(np.float32([1, 2])), [2, 4])
    assert seen == [(True, False, True, True)]
    with pytest.raises(errors.AbstractBoolError, match=r"bool\[\]"):
        ft.jit(f)(np.float32([1, 2]))


def test_the_method_trace():
    x = jax_numpy.arange(6.0).reshape(2, 3)
    assert ft.jit(lambda x: x.trace(1))(x) == x.trace(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: ft_numpy.array([1.0], device=d),
        lambda d: ft_numpy.zeros(3, device=d),
        lambda d: ft_numpy.full_like(jax_numpy.ones(2), 3, device=d),
        lambda d: ft_numpy.eye(2, device=d),
        lambda d: ft_numpy.arange(3, device=d),
        lambda d: ft_numpy.linspace(0, 1, 3, device=d),
        lambda d: ft_numpy.astype(jax_numpy.ones(2), int, device=d),
        lambda d: ft.lax.full((2,), 1.0, sharding=d),
    ],
)
def test_arrays_are_made_on_a_device(make):
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert make(where).committed
    assert not make(None).committed
    np.testing.assert_array_equal(ft.jit(lambda: make(where))(), make(None))


def test_64_bit_types():
    """Sums, means and Python scalars under x64."""
    with jax.enable_x64(True):
        check(
            X64,
            *(
                together(X64, xp, jit, lambda f: f)()
                for xp, jit in ((ft_numpy, ft.jit), (jax_numpy, jax.jit))
            ),
        )


def test_scalar_types_make_arrays_of_traced_values():
    assert ft_numpy.float32 == jax_numpy.float32
    assert {ft_numpy.int8: 1}[jax_numpy.int8] == 1
    assert isinstance(np.float32(1), ft_numpy.float32)
    y = ft.jit(lambda x: (ft_numpy.float16(x), ft_numpy.bool_(x)))(jax_numpy.arange(3))
    assert [str(z.dtype) for z in y] == ["float16", "bool"]
    assert ft.grad(lambda x: ft_numpy.float32(x) ** 2)(3.0) == 6.0
    assert repr(ft_numpy.uint8(3)) == repr(jax_numpy.uint8(3))
