"""Functions with collectives, by functrans and by JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import functrans as ft

N = 4
X = np.random.default_rng(0).normal(size=(N, N, 8)).astype(np.float32)
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def mean_of_square(m: Any, x: Any) -> Any:
    return m.lax.pmean(x * x, "i")


SIZES = np.array([[1, 0, 2, 1], [0, 2, 1, 1], [1, 1, 1, 1], [2, 0, 0, 2]], np.int32)  # [from, to]


def slices(m: Any, x: Any) -> Any:
    """Rows of each go to all, in numbers that differ; behind one another in six rows of ones."""
    starts = np.cumsum(SIZES, 1) - SIZES
    places = np.cumsum(SIZES, 0) - SIZES
    me = m.lax.axis_index("i")
    mine = [m.numpy.asarray(table)[me] for table in (starts, SIZES, places, SIZES.T)]
    return m.lax.ragged_all_to_all(x, m.numpy.ones((6, 8), x.dtype), *mine, axis_name="i")


# Functions of one example x: f32[4, 8] among N; m is functrans or jax.
COLLECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda m, x: m.lax.psum(x, "i"),
    "psum of a product": lambda m, x: x * m.lax.psum(m.numpy.sin(x), "i"),
    "psum of a tree": lambda m, x: m.lax.psum({"a": x, "b": (x[0], 2.0)}, "i"),
    "psum over an own axis too": lambda m, x: m.lax.psum(m.numpy.cos(x), (0, "i")),
    "pmean": lambda m, x: x - m.lax.pmean(x, "i"),
    "pmean of squares": mean_of_square,
    "all_gather": lambda m, x: m.lax.all_gather(x, "i") * x,
    "all_gather axis=1": lambda m, x: m.lax.all_gather(x, "i", axis=1),
    "all_gather axis=-1": lambda m, x: m.lax.all_gather(x, "i", axis=-1),
    "all_gather tiled": lambda m, x: m.lax.all_gather(x, "i", axis=1, tiled=True),
    "all_to_all": lambda m, x: m.lax.all_to_all(x, "i", 0, 1),
    "all_to_all to the front": lambda m, x: m.lax.all_to_all(x.T, "i", 1, 0),
    "all_to_all tiled": lambda m, x: m.lax.all_to_all(x, "i", 1, 0, tiled=True),
    "all_to_all tiled, one axis": lambda m, x: m.lax.all_to_all(x, "i", 1, 1, tiled=True),
    "pswapaxes": lambda m, x: m.lax.pswapaxes(x, "i", 0) * x,
    "ppermute": lambda m, x: m.lax.ppermute(x, "i", RING) * x,
    "pshuffle": lambda m, x: m.lax.pshuffle(x, "i", [2, 0, 3, 1]) * x,
    "psum_scatter": lambda m, x: m.lax.psum_scatter(m.numpy.sin(x), "i"),
    "psum_scatter tiled": lambda m, x: m.lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "axis_index": lambda m, x: x * m.lax.axis_index("i"),
    "axis_size": lambda m, x: x / m.lax.axis_size("i"),
    "pbroadcast": lambda m, x: m.lax.pbroadcast(x, "i", 2) * x,
    "pcast": lambda m, x: m.lax.pcast(m.numpy.sin(x), "i", to="varying"),
    "ragged_all_to_all": lambda m, x: slices(m, m.numpy.sin(x)),
    "gather of a scatter": lambda m, x: m.lax.all_gather(m.lax.psum_scatter(x, "i"), "i") * x,
    "softmax": lambda m, x: m.numpy.exp(x) / m.lax.psum(m.numpy.exp(x), "i"),
    "one of each": lambda m, x: m.lax.psum(
        m.lax.ppermute(x, "i", RING) * m.lax.axis_index("i") + m.lax.pswapaxes(x, "i", 0), "i"
    ),
}


def scalar(m: Any, y: Any) -> Any:
    return sum(m.numpy.sum(m.numpy.cos(v) * 0.5) for v in jax.tree_util.tree_leaves(y))


def batched(m: Any, f: Any, in_axes: Any = 0, out_axes: Any = 0, **names: Any) -> Any:
    return m.vmap(f, in_axes, out_axes, axis_name="i", **names)


def the_same_in_all(m: Any, f: Any, x: Any) -> Any:
    return batched(m, lambda k: f(x[0]), axis_size=N)(m.numpy.arange(N))


def mixed(m: Any, f: Any, x: Any) -> Any:
    """A batched and an unbatched use of one collective."""
    return batched(m, lambda a, b: (f(a), f(b)), (0, None))(x, x[1])


# What may be made of `f`; each takes x: f32[N, N, 8].
COMPOSITIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap": lambda m, f, x: batched(m, f)(x),
    "vmap in_axes=1": lambda m, f, x: batched(m, f, 1, -1)(x),
    "vmap in_axes=2": lambda m, f, x: batched(m, f, -1)(x[..., :N].transpose(1, 2, 0).repeat(2, 1)),
    "vmap(jit)": lambda m, f, x: batched(m, m.jit(f))(x),
    "unbatched": the_same_in_all,
    "mixed": mixed,
    "grad(vmap)": lambda m, f, x: m.grad(lambda y: scalar(m, batched(m, f)(y)))(x),
    "vmap(grad)": lambda m, f, x: batched(m, m.grad(lambda y: scalar(m, f(y))))(x),
    "vmap(jit(grad(jit)))": lambda m, f, x: batched(m, m.jit(m.grad(lambda y: scalar(m, m.jit(f)(y)))))(x),
    "grad(unbatched)": lambda m, f, x: m.grad(lambda y: scalar(m, the_same_in_all(m, f, y)))(x),
    "jvp(vmap)": lambda m, f, x: m.jvp(batched(m, f), (x,), (x * x,)),
    "vmap(jvp)": lambda m, f, x: batched(m, lambda y: m.jvp(f, (y,), (y * y,)))(x),
    "vmap(linearize)": lambda m, f, x: batched(m, lambda y: m.linearize(f, y)[1](y * y))(x),
    "vmap(vjp)": lambda m, f, x: batched(m, lambda y: m.vjp(f, y)[1](f(y)))(x),
    "grad(vmap(grad))": lambda m, f, x: m.grad(
        lambda y: scalar(m, batched(m, m.grad(lambda z: scalar(m, f(z))))(y))
    )(x),
    "vmap(named)": lambda m, f, x: m.vmap(batched(m, f))(m.numpy.stack([x, x + 1])),
    "named(vmap)": lambda m, f, x: batched(m, m.vmap(f), 1)(m.numpy.stack([x, x + 1])),
    "named(vmap axis 1)": lambda m, f, x: batched(m, m.vmap(f, 1))(m.numpy.stack([x, x + 1], 2)),
}


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
