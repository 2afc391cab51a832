"""Concrete jax arrays indexed and updated by traced values, and JAX's own behaviour left alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp

pytestmark = pytest.mark.smoke

TABLE = jnp.arange(12.0).reshape(4, 3)

FUNCTIONS = {
    "index": lambda np_, i, y: TABLE[i].sum() * y,
    "index-tuple": lambda np_, i, y: TABLE[i, 1] * y,
    "index-slice": lambda np_, i, y: TABLE[1:, i].sum() * y,
    "set-value": lambda np_, i, y: (np_.zeros(3).at[1].set(y * 2) ** 2).sum(),
    "set-place": lambda np_, i, y: (TABLE.at[i].add(y) ** 2).sum(),
    "get": lambda np_, i, y: TABLE.at[i].get(mode="fill", fill_value=0.0).sum() * y,
}


def test_as_jax():
    def all_of(lib, np_):
        def run(i, y):
            return [lib.value_and_grad(lambda y, f=f: f(np_, i, y))(y) for f in FUNCTIONS.values()]

        return lambda i, y: (run(i, y), lib.vmap(run, (0, None))(np.array([0, 2, 1]), y))

    ours, wanted = ft.jit(all_of(ft, fnp))(2, 1.5), jax.jit(all_of(jax, jnp))(2, 1.5)
    jax.tree.map(np.testing.assert_allclose, ours, wanted)
    y = FUNCTIONS["set-place"](fnp, jnp.int32(2), 1.5)  # un-jitted
    np.testing.assert_allclose(
        ft.grad(lambda y: FUNCTIONS["set-place"](fnp, jnp.int32(2), y))(1.5), wanted[0][4][1]
    )
    np.testing.assert_allclose(y, wanted[0][4][0])


def test_jax_is_left_alone():
    assert float(TABLE[1, 2]) == 5.0
    assert TABLE.at[0].set(7.0)[0, 0] == 7.0
    assert jax.jit(lambda i: TABLE[i])(1)[0] == 3.0
    assert float(jax.grad(lambda y: jnp.zeros(3).at[1].set(y).sum())(2.0)) == 1.0


class Wide:
    """An array of another library, with 64-bit integers."""

    def __array__(self, dtype=None, copy=None):
        return np.array([2**40, 3])


def test_arrays_of_others_are_cast_before_they_are_narrowed():
    np.testing.assert_array_equal(fnp.array(Wide(), "float32"), jnp.array(Wide(), "float32"))
