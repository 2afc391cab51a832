"""The functions of `functrans.lax` that read and write at computed places, against `jax.lax`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans import lax

X = jnp.arange(24.0).reshape(4, 6)
V = jnp.arange(7.0)
UPDATES = jnp.linspace(-5.0, 30.0, 18).reshape(3, 6)
KEYS = jax.random.split(jax.random.key(0), 5)

CALLS = {
    "slice": lambda lax: lax.dynamic_slice(X, (1, 2), (2, 3)),
    "slice-clamped": lambda lax: lax.dynamic_slice(X, (3, 5), (2, 3)),
    "slice-negative": lambda lax: lax.dynamic_slice(X, (-2, jnp.int32(-1)), (2, 1)),
    "slice-vector": lambda lax: lax.dynamic_slice(X, jnp.array([1, -3]), (2, 2)),
    "slice-numpy": lambda lax: lax.dynamic_slice(X, np.array([1, 1]), (1, 1)),
    "slice-unsigned": lambda lax: lax.dynamic_slice(V, (jnp.uint8(3),), (2,)),
    "slice-no-wrap": lambda lax: lax.dynamic_slice(V, (jnp.int32(-1),), (2,), allow_negative_indices=False),
    "slice-keys": lambda lax: lax.dynamic_slice(KEYS, (1,), (2,)),
    "slice-in-dim": lambda lax: lax.dynamic_slice_in_dim(X, 1, 2, axis=-1),
    "index-in-dim": lambda lax: lax.dynamic_index_in_dim(X, -1, 1, keepdims=False),
    "index-kept": lambda lax: lax.dynamic_index_in_dim(X, 2),
    "update": lambda lax: lax.dynamic_update_slice(X, jnp.ones((2, 2)), (3, 1)),
    "update-in-dim": lambda lax: lax.dynamic_update_slice_in_dim(X, jnp.ones((4, 2)), -2, 1),
    "update-index": lambda lax: lax.dynamic_update_index_in_dim(X, jnp.ones(6), 1, 0),
    "update-index-column": lambda lax: lax.dynamic_update_index_in_dim(X, jnp.ones((4, 1)), 2, 1),
    "gather-rows": lambda lax: lax.gather(
        X, jnp.array([[3], [0], [9]]), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 6)
    ),
    "gather-clip": lambda lax: lax.gather(
        X, jnp.array([[3, 1], [0, 9]]), lax.GatherDimensionNumbers((1,), (0,), (0, 1)), (1, 2), mode="clip"
    ),
    "gather-fill": lambda lax: lax.gather(
        X,
        jnp.array([[3, 1], [0, 9]]),
        lax.GatherDimensionNumbers((), (0, 1), (0, 1)),
        (1, 1),
        mode="fill",
        fill_value=-1.0,
    ),
    "gather-windows-first": lambda lax: lax.gather(
        X, jnp.array([[3], [0]]), lax.GatherDimensionNumbers((0,), (0,), (0,)), (1, 6)
    ),
    "gather-batched": lambda lax: lax.gather(
        X, jnp.array([[3], [0], [2], [5]]), lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1)
    ),
    "take": lambda lax: lax.index_take(X, (jnp.array([1, 0]), jnp.array([2, 5])), (0, 1)),
    "take-axis": lambda lax: lax.index_take(X, (jnp.array([1, 0, 4]),), (1,)),
    "scatter-apply": lambda lax: lax.scatter_apply(
        V,
        jnp.array([[1], [4]]),
        lambda v: v * v + 1,
        lax.ScatterDimensionNumbers((), (0,), (0,)),
        update_shape=(2,),
    ),
}
for _name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"):
    CALLS[_name] = lambda lax, name=_name: getattr(lax, name)(
        X, jnp.array([[3], [1], [9]]), UPDATES, lax.ScatterDimensionNumbers((1,), (0,), (0,))
    )
    CALLS[_name + "-points"] = lambda lax, name=_name: getattr(lax, name)(
        X,
        jnp.array([[3, 5], [1, 0]]),
        jnp.array([2.0, 50.0]),
        lax.ScatterDimensionNumbers((), (0, 1), (0, 1)),
        mode="clip",
        unique_indices=True,
    )


@pytest.mark.parametrize("name", CALLS)
def test_as_jax(name):
    wanted = CALLS[name](jax.lax)
    for got in (CALLS[name](lax), ft.jit(lambda: CALLS[name](lax))()):
        expected = wanted
        assert got.dtype == expected.dtype
        if name == "slice-keys":
            got, expected = jax.random.key_data(got), jax.random.key_data(expected)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_traced_starts_differentiate_and_batch():
    def window(lib):
        return lambda x, i: jnp_sum(lib, lib.dynamic_slice(x, (i,), (3,)) ** 2)

    def jnp_sum(lib, y):
        return y.sum()

    at = jnp.array([0, 2, -2])
    ours = ft.jit(ft.vmap(ft.grad(window(lax)), (None, 0)))(V, at)
    theirs = jax.vmap(jax.grad(window(jax.lax)), (None, 0))(V, at)
    np.testing.assert_array_equal(ours, theirs)
