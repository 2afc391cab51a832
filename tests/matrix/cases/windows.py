"""Cases of primitives/reductions/windows.py and primitives/reductions/windows_general.py."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from functrans.ir import parse
from tests.matrix.cases.case import Case, fixed, normal

PLAIN = {
    "window_dimensions": (2, 3),
    "window_strides": (2, 1),
    "padding": ((0, 0), (1, 1)),
    "base_dilation": (1, 1),
    "window_dilation": (1, 1),
}
SPREAD = PLAIN | {"padding": ((1, 0), (0, 2)), "base_dilation": (2, 1), "window_strides": (1, 2)}
CUT = SPREAD | {"padding": ((1, -1), (-1, 2))}  # which JAX's gradients of extrema do not take
DILATED = PLAIN | {"window_dilation": (2, 2), "padding": ((1, 0), (2, 1))}
NONE = PLAIN | {"window_dimensions": (9, 3)}
WINDOWS = {"plain": PLAIN, "spread": SPREAD, "cut": CUT, "dilated": DILATED, "none": NONE}
SHAPE = (4, 5)
COUNTS = {name: lax.reduce_window_shape_tuple(SHAPE, *window.values()) for name, window in WINDOWS.items()}


def by_jax(x: Any, computation: Callable[..., Any], start: Any, window: dict[str, Any]) -> Any:
    return lax.reduce_window(x, start, computation, **window)


def extreme(dtype: Any, end: str) -> Any:
    if jnp.issubdtype(dtype, np.integer):
        return getattr(jnp.iinfo(dtype), end)
    return jnp.inf if end == "max" else -jnp.inf


def total(name: str, dtypes: tuple[str, ...]) -> Case:
    window = WINDOWS[name]

    def same(x: Any) -> Any:
        return by_jax(x, lax.add, 0, window)

    return Case("reduce_window_sum", [normal(*SHAPE)], same, window, dtypes, (0,), {}, name)


def extremum(which: str, name: str, dtypes: tuple[str, ...]) -> Case:
    window, end = WINDOWS[name], "min" if which == "max" else "max"

    def same(x: Any) -> Any:
        return by_jax(x, getattr(lax, which), np.asarray(extreme(x.dtype, end), x.dtype), window)

    primitive = f"reduce_window_{which}"
    # JAX has no transpose for dilated windows
    differentiable = () if name == "dilated" else (0,)
    return Case(primitive, [normal(*SHAPE)], same, window, dtypes, differentiable, {}, name)


def gathered(name: str, select: str) -> Case:
    """The tangent of the window's extremum, with ties."""
    window = WINDOWS[name]
    which, start = ("max", -np.inf) if select == "ge" else ("min", np.inf)

    def same(dx: Any, x: Any) -> Any:
        fold = lambda v: by_jax(v, getattr(lax, which), start, window)  # noqa: E731
        return jax.jvp(fold, (x,), (dx,))[1]

    ties = fixed(np.arange(20).reshape(SHAPE) * 7 % 5)
    return Case(
        "select_and_gather_add",
        [normal(*SHAPE), ties],
        same,
        {"select": select, **window},
        ("float32", "bfloat16"),
        () if name == "dilated" else (0,),
        {},
        f"{name}-{select}",
    )


def scattered(name: str, select: str) -> Case:
    window, counts = WINDOWS[name], COUNTS[name]
    which, start = ("max", -np.inf) if select == "ge" else ("min", np.inf)

    def same(ct: Any, x: Any) -> Any:
        if name != "dilated":
            fold = lambda v: by_jax(v, getattr(lax, which), start, window)  # noqa: E731
            return jax.vjp(fold, x)[1](ct)[0]
        # column by column of the jacobian, which JAX has forward only
        fold = lambda v: by_jax(v, getattr(lax, which), start, window)  # noqa: E731
        return jnp.tensordot(ct, jax.jacfwd(fold)(x), 2)

    ties = fixed(np.arange(20).reshape(SHAPE) * 7 % 5)
    return Case(
        "select_and_scatter_add",
        [normal(*counts), ties],
        same,
        {"select": select, **window},
        ("float32",),
        () if name == "dilated" else (0,),
        {},
        f"{name}-{select}",
    )


PRODUCT = parse("program (a: f32[], b: f32[]) { c: f32[] = mul a b; return c }")
ARGMAX = parse(
    "program (a: f32[], i: i32[], b: f32[], j: i32[]) { c: bool[] = ge a b; "
    "d: f32[] = select_n c b a; e: i32[] = select_n c j i; return d, e }"
)


def product(name: str) -> Case:
    window = WINDOWS[name]

    def same(x: Any, start: Any) -> Any:
        return by_jax(x, lax.mul, start, window)

    return Case(
        "reduce_window",
        [normal(*SHAPE), fixed(1.0)],
        same,
        {"computation": PRODUCT, **window},
        ("float32",),
        (),
        {},
        f"product-{name}",
    )


def _better(left: Any, right: Any) -> Any:
    first = left[0] >= right[0]
    return tuple([lax.select(first, a, b) for a, b in zip(left, right, strict=True)])


ARG = Case(
    "reduce_window",
    [normal(*SHAPE), fixed(np.arange(20).reshape(SHAPE), np.int32), fixed(-np.inf), fixed(-1, np.int32)],
    lambda x, i, start, none: lax.reduce_window((x, i), (start, none), _better, **DILATED),
    {"computation": ARGMAX, **DILATED},
    ("float32",),
    (),
    {},
    "argmax",
)

CASES = [
    total("plain", ("float32", "bfloat16", "float64", "complex64", "int32")),
    total("cut", ("float64",)),
    total("dilated", ("float32",)),
    total("none", ("float32",)),
    extremum("max", "plain", ("float32", "bfloat16", "float64", "int32", "uint8")),
    extremum("max", "spread", ("float64",)),
    extremum("min", "plain", ("float64", "int32")),
    extremum("min", "dilated", ("float32",)),
    gathered("plain", "ge"),
    gathered("dilated", "le"),
    scattered("plain", "le"),
    scattered("spread", "ge"),
    scattered("dilated", "ge"),
    product("cut"),
    product("none"),
    ARG,
]
