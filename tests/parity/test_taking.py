"""Products at places, dynamic masks, arrays from outside."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from tests.parity.indices import I, data
from tests.support.closeness import assert_close


def test_products_at_places_that_may_be_one_are_not_differentiated():
    x = jnp.asarray(data())
    with pytest.raises(NotImplementedError, match="unique_indices"):
        ft.grad(lambda y: x.at[I].multiply(y).sum())(2.0)


def test_dynamic_masks():
    """Un-jitted code sees values: a mask computed from the argument selects."""
    x = jnp.asarray(data())
    assert_close(
        ft.grad(lambda x: (x[x > 0] ** 2).sum())(x), jax.grad(lambda x: (x[x > 0] ** 2).sum())(x), 1e-6
    )


def test_concrete_arrays():
    """Arrays from outside of the traced function, indexed or updated by what is traced in it."""
    x = jnp.asarray(data())
    made = ft.jit(lambda i: (x[i], x[0, i], x[1:, i]))(1)
    assert_close(made, (x[1], x[0, 1], x[1:, 1]), 0)
    assert_close(ft.vmap(lambda i: x[i])(I), x[I], 0)
    assert_close(ft.jit(lambda i, y: x.at[i].set(y))(1, 2.0), x.at[1].set(2.0), 0)
    for f in (
        lambda y: (x.at[0].set(y) ** 2).sum(),
        lambda y: x.at[I].multiply(y, unique_indices=True).sum(),
        lambda y: x.at[0].divide(y).sum(),
        lambda y: x.at[1:].add(values=y).sum(),
    ):
        assert_close(ft.grad(f)(2.0), jax.grad(f)(2.0), 1e-5)
        assert_close(ft.jit(ft.grad(f))(2.0), jax.grad(f)(2.0), 1e-5)
    assert_close(ft.grad(lambda y: x.at[1:, 0].apply(lambda e: e * y).sum())(2.0), x[1:, 0].sum(), 1e-5)


@pytest.mark.parametrize("method", ["multiply", "divide"])
def test_products_at_one_traced_place_are_differentiated(method):
    """One index falls on no element twice, whatever slices stand beside it."""
    x = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)

    def slope(lib: Any) -> Any:
        def f(x: Any, i: Any) -> Any:
            return getattr(x.at[i, ::-1], method)(2 * x[0]).sum()

        return lib.jit(lib.grad(f))

    np.testing.assert_allclose(slope(ft)(x, 1), slope(jax)(x, 1), rtol=1e-6)
