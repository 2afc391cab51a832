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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_jax(name):
    f = FUNCTIONS[name]
    i, y = jnp.int32(2), 1.5
    want = jax.value_and_grad(f, 2)(jnp, i, y)
    ours = ft.value_and_grad(lambda i, y: f(fnp, i, y), 1)
    np.testing.assert_allclose(ours(i, y), want)
    np.testing.assert_allclose(ft.jit(ours)(i, y), want)
    many = jnp.array([0, 2, 1])
    np.testing.assert_allclose(
        ft.vmap(ours, (0, None))(many, y), jax.vmap(lambda i: jax.value_and_grad(f, 2)(jnp, i, y))(many)
    )


def test_jax_is_left_alone():
    assert float(TABLE[1, 2]) == 5.0
    assert TABLE.at[0].set(7.0)[0, 0] == 7.0
    assert jax.jit(lambda i: TABLE[i])(1)[0] == 3.0
    assert float(jax.grad(lambda y: jnp.zeros(3).at[1].set(y).sum())(2.0)) == 1.0
