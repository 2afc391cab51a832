"""Functions with collectives, by functrans and by JAX."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import functrans as ft
from tests.support.tables import TABLES, functions

N = 4
X = np.random.default_rng(0).normal(size=(N, N, 8)).astype(np.float32)
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


SIZES = np.array([[1, 0, 2, 1], [0, 2, 1, 1], [1, 1, 1, 1], [2, 0, 0, 2]], np.int32)  # [from, to]


def slices(m: Any, x: Any) -> Any:
    """Rows of each go to all, in numbers that differ; behind one another in six rows of ones."""
    starts = np.cumsum(SIZES, 1) - SIZES
    places = np.cumsum(SIZES, 0) - SIZES
    me = m.lax.axis_index("i")
    mine = [m.numpy.asarray(table)[me] for table in (starts, SIZES, places, SIZES.T)]
    return m.lax.ragged_all_to_all(x, m.numpy.ones((6, 8), x.dtype), *mine, axis_name="i")


COLLECTIVES = functions(TABLES / "axis_names.txt", "one name", "m, x", globals())


def scalar(m: Any, y: Any) -> Any:
    return sum(m.numpy.sum(m.numpy.cos(v) * 0.5) for v in jax.tree_util.tree_leaves(y))


def batched(m: Any, f: Any, in_axes: Any = 0, out_axes: Any = 0, **names: Any) -> Any:
    return m.vmap(f, in_axes, out_axes, axis_name="i", **names)


def the_same_in_all(m: Any, f: Any, x: Any) -> Any:
    return batched(m, lambda k: f(x[0]), axis_size=N)(m.numpy.arange(N))


def mixed(m: Any, f: Any, x: Any) -> Any:
    """A batched and an unbatched use of one collective."""
    return batched(m, lambda a, b: (f(a), f(b)), (0, None))(x, x[1])


COMPOSITIONS = functions(TABLES / "axis_names.txt", "compositions of one name", "m, f, x", globals())


# What JAX 0.10 computes wrongly or cannot: all_to_all of a value that is the same in all examples
# (its result has axes too many) and the transpose of the untiled one; psum_scatter where another
# vmapped axis stands behind `scatter_dimension`.
UNBATCHED = {"unbatched", "mixed", "grad(unbatched)"}
TRANSPOSED = {"vmap(grad)", "vmap(jit(grad(jit)))", "vmap(vjp)", "grad(vmap(grad))"}
JAX_CANNOT = {
    "all_to_all": UNBATCHED | TRANSPOSED,
    "all_to_all to the front": UNBATCHED | TRANSPOSED,
    "all_to_all tiled": UNBATCHED,
    "all_to_all tiled, one axis": UNBATCHED,
    "pswapaxes": UNBATCHED,
    "one of each": UNBATCHED | TRANSPOSED,
    "psum_scatter": {"named(vmap axis 1)"},
    "gather of a scatter": {"named(vmap axis 1)"},
    # On CPUs or under vmap not at all.
    **{k: set(COMPOSITIONS) for k in ("pbroadcast", "pcast", "ragged_all_to_all")},
}


def both(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The results of functrans and of JAX, compiled together."""
    return jax.jit(lambda *xs: (ft.jit(ours)(*xs), theirs(*xs)))(*args)


Y = np.random.default_rng(1).normal(size=(3, 2, 6, 8)).astype(np.float32)


def nested(m: Any, f: Any, *in_axes: Any) -> Any:
    outer, inner = in_axes or (0, 0)
    return m.vmap(m.vmap(f, inner, axis_name="j"), outer, axis_name="i")


EVEN, UNEVEN = [[0, 2], [3, 1]], [[2], [0, 3, 1]]


GROUPED = {
    "psum": lambda lax, x, **how: lax.psum(x, "i", **how),
    "pmean": lambda lax, x, **how: lax.pmean(x, "i", **how),
    "pmax": lambda lax, x, **how: lax.pmax(x, "i", **how),
    "all_gather": lambda lax, x, **how: lax.all_gather(x, "i", axis=1, tiled=True, **how),
    "psum_scatter": lambda lax, x, **how: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True, **how),
    "all_to_all": lambda lax, x, **how: lax.all_to_all(x, "i", 1, 0, tiled=True, **how),
}


GROUPINGS = [
    (name, groups)
    for name in GROUPED
    for groups in ((EVEN, UNEVEN) if name in ("psum", "pmean", "pmax") else (EVEN,))
]
