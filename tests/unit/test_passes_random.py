"""Random algebra on special numbers before and after every pass. (Other random programs:
matrix/test_random_programs.py.)"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.lax as lax
import functrans.numpy as fnp
from functrans.backends import reference
from functrans.ir import Program, check
from functrans.ir.types import dtype_class
from tests.unit.rewriting import ALONE, EXACT

SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
TOGETHER = {
    "default": lambda p: ft.passes.optimize(p, ("default",)),
    "exact": lambda p: ft.passes.optimize(p, ("exact",)),
}


def agree(after: Any, before: Any, what: str, tolerance: float, wanted: Any = None) -> None:
    """NaN, infinities and the signs of zeros alike; other numbers up to a tolerance, relative to
    the largest. `wanted`: the reference's results; a zero may have its sign, because XLA takes the
    sum of n constants -0.0 for n * -0.0."""
    assert len(after) == len(before)
    for x, y, z in zip(after, before, before if wanted is None else wanted, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype), what
        if dtype_class(x.dtype) == "float":
            x, y = (v.astype(np.promote_types(v.dtype, np.float32)) for v in (x, y))
        else:
            np.testing.assert_array_equal(x, y, what)
            continue
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y), what)
        ok = np.isfinite(y)
        largest = max(1.0, float(np.max(np.abs(y[ok]), initial=0.0)))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * largest, err_msg=what)
        zeros = (x == 0) & (y == 0)
        zeros &= np.signbit(x) != np.signbit(np.asarray(z).astype(x.dtype))
        np.testing.assert_array_equal(np.signbit(x)[zeros], np.signbit(y)[zeros], what)


def try_all(program: Program, xs: list[Any], tolerance: float, compiled: bool) -> None:
    """Each pass alone, and all together, against the program as it is."""
    wanted = reference.run(program, xs)
    for kind, group in (("alone", ALONE), ("exact", EXACT), ("all", TOGETHER)):
        for name, run in group.items():
            made = run(program)
            if made is program:
                continue
            check(made)
            assert made.children == list(dict.fromkeys([p for e in made.equations for p in e.programs]))
            assert made.in_types == program.in_types
            assert made.out_types == program.out_types
            agree(reference.run(made, xs), wanted, f"{kind} {name}\n{program}\n{made}", tolerance)
    if compiled:
        plain = ft.jit(lambda *ys: ft.evaluate(program, ys), passes=())(*xs)
        for group in ("default", "exact"):
            run = ft.jit(lambda *ys: ft.evaluate(program, ys), passes=(group,))
            agree(run(*xs), plain, f"XLA, {group}\n{program}", tolerance, wanted)


# Algebra on special numbers: operations that rules speak of, literals that they look for.

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -3.25, 1e30]
LITERALS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 4.0, 0.5, 3.0, 0.1]
WHOLE = [0, 1, -1, 2, 3, 7]
P = ft.ir.PRIMITIVES


Draw = Any


def is_whole(x: Any) -> bool:
    return dtype_class(x.dtype) in ("int", "uint")


def converted(draw: Draw, x: Any, y: Any) -> Any:
    """There and back."""
    wide = draw(st.sampled_from(["float64", "int32", "uint8", "float32", "bfloat16"]))
    return lax.convert_element_type(lax.convert_element_type(x, wide), x.dtype)


OPERATIONS: dict[str, Callable[[Draw, Any, Any], Any]] = {
    **{name: lambda _, x, y, name=name: P[name](x, y) for name in ("add", "sub", "mul", "max", "min")},
    "div": lambda _, x, y: x if is_whole(x) else P["div"](x, y),
    "neg": lambda _, x, y: P["neg"](x),
    "abs": lambda _, x, y: x if dtype_class(x.dtype) == "uint" else P["abs"](x),
    "power": lambda draw, x, y: P["integer_pow"](x, y=draw(st.integers(0, 3))),
    "select": lambda _, x, y: P["select_n"](P["lt"](x, y), x, y),
    "convert": converted,
    "broadcast": lambda _, x, y: fnp.broadcast_to(x, (2, *x.shape)) if x.ndim < 3 else x,
    "transpose": lambda draw, x, y: fnp.transpose(x, draw(st.permutations(range(x.ndim)))),
    "slice": lambda _, x, y: x[::2] if x.ndim and x.shape[0] > 2 else x,
    "sum": lambda draw, x, y: fnp.sum(x, axis=draw(st.integers(0, x.ndim - 1))) if x.ndim > 1 else x,
    "flatten": lambda _, x, y: x.reshape(-1),
    "largest": lambda _, x, y: fnp.max(x, axis=tuple(range(x.ndim - 1))),
}
KINDS = [
    "add", "add", "sub", "sub", "mul", "mul", "mul", "neg", "neg", "div", "abs", "power", "max", "select",
    "convert", "broadcast", "transpose", "slice", "sum", "flatten", "largest",
]  # fmt: skip


@st.composite
def algebra(draw: Draw, dtype: str, length: int) -> Program:
    """A program of arithmetic, moves and conversions over one vector of special numbers."""

    def trace(*given: Any) -> list[Any]:
        values = list(given)
        for _ in range(draw(st.integers(1, length))):
            values.append(one(values))
        return values[len(given) :][-3:]

    def literal(x: Any) -> Any:
        return fnp.full(x.shape, draw(st.sampled_from(WHOLE if is_whole(x) else LITERALS)), x.dtype)

    def one(values: list[Any]) -> Any:
        x = draw(st.sampled_from(values))
        same = [v for v in values if v.shape == x.shape]
        y = literal(x) if draw(st.booleans()) else draw(st.sampled_from(same))
        if draw(st.booleans()):
            x, y = y, x
        return OPERATIONS[draw(st.sampled_from(KINDS))](draw, x, y)

    t = ft.ShapeDtypeStruct((len(SPECIAL),), np.dtype(dtype))
    return ft.make_ir(trace)(t, t)


def try_algebra(program: Program, dtype: str, compiled: bool = False) -> None:
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.1}.get(dtype, 0)
    with np.errstate(all="ignore"):
        xs = [np.asarray(SPECIAL).astype(dtype), np.asarray(SPECIAL[::-1]).astype(dtype)]
        try_all(program, xs, tolerance, compiled)


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_special_numbers(dtype, many):
    how = {"max_examples": 200} if many else {"max_examples": 40, "derandomize": True, "database": None}

    @settings(**how, **SETTINGS)
    @given(st.data())
    def run(data: Any) -> None:
        with jax.enable_x64(True):
            try_algebra(data.draw(algebra(dtype, 15 if many else 8)), dtype, compiled=many)

    run()


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (1, 1), (3, 1)])
def test_zero_size_and_one_size_axes(shape):
    def f(x):
        y = fnp.broadcast_to(x[None], (2, *shape)).sum(0) * 2.0 * 4.0
        z = fnp.transpose(fnp.transpose(y)).reshape(-1)[::-1][::-1]
        w = fnp.concatenate([z, z[:0]])
        return fnp.sum(w), fnp.sum(fnp.broadcast_to(w, (0, *w.shape)), 0), lax.squeeze(y[None], [0])

    x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    try_all(ft.make_ir(f)(x), [x], 1e-6, compiled=True)


def test_a_rectifier_is_a_maximum():
    x = np.array([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan], np.float32)
    program = ft.make_ir(ft.nn.relu)(x)
    made = ft.passes.dead_code(ft.passes.simplify(program))
    assert [e.primitive.name for e in made.equations] == ["max"]
    np.testing.assert_array_equal(ft.interpret(made, x), ft.interpret(program, x))
    np.testing.assert_array_equal(ft.jit(ft.nn.relu)(x), jax.nn.relu(x))
    assert ft.passes.simplify(program, exact=True) is program
