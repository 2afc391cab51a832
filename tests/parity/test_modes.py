"""Every mode of everything that reads or writes at computed places, indices out of bounds included.

JAX's side of all rows is one compiled program; JAX's functions imported, and what is ours besides, are
interpreted by NumPy: values, what vmap makes of them, and gradients.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from functrans.interop import from_jax
from tests.support.closeness import assert_close
from tests.support.libraries import functions
from tests.support.versions import QUICK
from tests.support.wide import each

X = np.linspace(-2, 3, 25, dtype=np.float32).reshape(5, 5)
# Once moved into bounds, no two are the same; those of `jax.numpy` count from the end too.
I = np.array([3, -7, 9, 1, 2], np.int32)  # noqa: E741
J = np.array([3, -7, 9, 1, -3], np.int32)
INSIDE = np.array([3, 1, 4, 0, 2], np.int32)
U = np.cos(np.arange(25, dtype=np.float32)).reshape(5, 5) + 0.5
MODES = ["clip", "fill", "drop", "promise_in_bounds", "wrap"]

ROWS_OF = "ScatterDimensionNumbers((1,), (0,), (0,))"
CALLS = {
    "gather": "lax.gather(x, i[:, None], lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 5), {})",
    "gather of windows": (
        "lax.gather(x, i[:, None] // 2, lax.GatherDimensionNumbers((1, 2), (), (0,)), (2, 5), {})"
    ),
    "gather, windows in front": (
        "lax.gather(x, i[:, None], lax.GatherDimensionNumbers((0,), (0,), (0,)), (1, 5), {})"
    ),
    "gather of each row": (
        "lax.gather(x, i[:, None], lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1), {})"
    ),
    "gather with a fill value": (
        "lax.gather(x, i[:, None], lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 5), {}, fill_value=7)"
    ),
    **{
        f"scatter{end}": f"lax.scatter{end}(x, i[:, None], u, lax.{ROWS_OF}, {{}})"
        for end in ("", "_add", "_sub", "_mul", "_min", "_max")
    },
    "scatter_apply": (
        f"lax.scatter_apply(x, i[:, None], lambda t: t * t + 1, lax.{ROWS_OF}, update_shape=(5, 5), {{}})"
    ),
    "take": "jnp.take(x, i, 0, {})",
    "take with a fill value": "jnp.take(x, i, 0, {}, fill_value=7)",
    "take_along_axis": "jnp.take_along_axis(x, i[:, None], 0, {})",
    "take_along_axis, filled": "jnp.take_along_axis(x, i[:, None], 1, {}, fill_value=7)",
    "put": "jnp.put(x, i * 3, u[0], {}, inplace=False)",
    "put_along_axis": "jnp.put_along_axis(x, i[None], u[:1], 0, inplace=False, {})",
    "get": "x.at[i].get({})",
    "get with a fill value": "x.at[1:, i].get({}, fill_value=7)",
    **{f"at.{name}": f"x.at[i].{name}(u, {{}})" for name in ("set", "add", "multiply", "min")},
    **{f"at.{name}": f"x.at[:, i].{name}(2.0, {{}})" for name in ("divide", "power", "max")},
    "at.apply": "x.at[i].apply(lambda t: t * t + 1, {})",
    **{f"segment_{name}": f"ops.segment_{name}(x, i, 5, {{}})" for name in ("sum", "max", "min")},
    "choose": "jnp.choose(i, [*x], {})",
    "ravel_multi_index": "jnp.ravel_multi_index((i, i), (5, 5), {})",
}


def accepted(name: str, mode: str) -> bool:
    """Does JAX take this mode there?"""
    try:
        jax.eval_shape(evaluated(name, mode, "jax"), X, U)
    except Exception:
        return False
    return True


def evaluated(name: str, mode: str, root: str) -> Callable[[Any, Any], Any]:
    row = CALLS[name].format(f"mode={mode!r}")
    code = compile(row, row, "eval")
    places = I if row.startswith(("lax", "ops")) else J
    scope = {**functions(root), "i": INSIDE if mode == "promise_in_bounds" else places}
    return lambda x, u: eval(code, {**scope, "x": x, "u": u})


ROWS = [(name, mode) for name in CALLS for mode in MODES if accepted(name, mode)]
HALVES = [(kind, half) for kind in ("value", "batch", "gradient") for half in (0, 1)]


def made(name: str, mode: str, root: str, kind: str) -> Callable[[Any, Any], Any]:
    library: Any = jax if root == "jax" else ft
    f = evaluated(name, mode, "functrans" if root == "functrans" else "jax")
    f = from_jax(f) if root == "imported" else f
    if kind == "value":
        return f
    if kind == "batch":
        return lambda x, u: library.vmap(f)(library.numpy.stack([x, x * 2]), library.numpy.stack([u, u * 3]))
    return library.grad(lambda x, u: (f(x, u) * np.cos(f(x, u).shape[0])).sum(), (0, 1))


@pytest.mark.every(1)
@pytest.mark.parametrize(
    ("kind", "half"),
    [pytest.param(*h, marks=[pytest.mark.sweep] * (h[1] == 1 and h[0] != "value")) for h in HALVES],
)
def test_every_mode(kind: str, half: int):
    chosen = [row for row in ROWS[half::2] if kind != "gradient" or differentiable(*row)]
    assert len(chosen) > 30
    theirs = jax.jit(lambda x, u: [made(*row, "jax", kind)(x, u) for row in chosen], compiler_options=QUICK)(
        X, U
    )
    found = dict(zip(chosen, theirs, strict=True))

    def check(row: tuple[str, str]) -> None:
        for root in ("functrans", "imported") if CALLS[row[0]].startswith("x.at") else ("imported",):
            program = ft.make_ir(made(*row, root, kind))(X, U)
            assert_close(ft.interpret(program, X, U), jax.tree.leaves(found[row]), 1e-5, root)

    each(chosen, check)


def differentiable(name: str, mode: str) -> bool:
    if mode == "clip" and name.endswith(("min", "max")):
        return False  # JAX's derivative looks where the index was before it was clipped
    try:
        jax.eval_shape(made(name, mode, "jax", "gradient"), X, U)
    except Exception:
        return False
    return True
