"""take, take_along_axis, nonzero; wrong indices; dynamic masks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from tests.parity.indices import MASK2, SHAPE, I, data
from tests.support.closeness import assert_close

TAKES = [
    {},
    {"axis": 0},
    {"axis": 1},
    {"axis": -1},
    {"axis": 0, "mode": "clip"},
    {"axis": 1, "mode": "wrap"},
    {"axis": 0, "mode": "fill", "fill_value": 7.0},
    {"mode": "wrap"},
    {"axis": 2, "indices_are_sorted": True, "unique_indices": True},
]


def test_take():
    x = jnp.asarray(data())
    indices = [np.array([0, -1, 2]), np.array([[9], [-9]]), np.array(1), 1, np.array([], int)]

    def run(library: Any, x: Any) -> list[Any]:
        return [library.take(x, library.asarray(i), **how) for how in TAKES for i in indices]

    def back(library: Any, numpy: Any) -> Any:
        v = [jnp.ones(y.shape) for y in wanted]
        return library.jit(lambda x: library.vjp(lambda x: run(numpy, x), x)[1](v))(x)

    wanted = jax.jit(run, static_argnums=0)(jnp, x)
    assert_close(ft.jit(run, static_argnums=0)(fnp, x), wanted, 0)
    assert_close(fnp.take(x, indices[0], axis=1), wanted[10], 0)
    assert_close(back(ft, fnp), back(jax, jnp), 1e-6)


def test_take_along_axis():
    x = jnp.asarray(data())
    rng = np.random.default_rng(3)
    cases: list[Any] = []
    for axis in (0, 1, -1):
        for shape in (SHAPE, (1, 4, 3), (5, 1, 1), (1, 1, 1), (5, 4, 1)):
            shape = tuple(2 if d == axis % 3 else n for d, n in enumerate(shape))
            mode = (None, "clip")[len(cases) % 2]
            cases.append((rng.integers(-4, 6, size=shape), axis, mode))

    def run(library: Any, x: Any) -> list[Any]:
        return [library.take_along_axis(x, i, axis, mode) for i, axis, mode in cases]

    wanted = jax.jit(run, static_argnums=0)(jnp, x)
    assert_close(ft.jit(run, static_argnums=0)(fnp, x), wanted, 0)
    assert_close(fnp.take_along_axis(x, *cases[0]), wanted[0], 0)
    i = np.argsort(data(), 1)
    assert_close(fnp.take_along_axis(x, i, 1), np.sort(data(), 1), 0)
    assert_close(fnp.take_along_axis(x[:1], i, 1), jnp.take_along_axis(x[:1], i, 1), 0)
    assert_close(
        fnp.take_along_axis(x, np.array([3, 59, 60]), None),
        jnp.take_along_axis(x, np.array([3, 59, 60]), None),
        0,
    )
    g = ft.jit(ft.grad(lambda x: (fnp.take_along_axis(x, i[:, :2], 1) ** 2).sum()))(x)
    assert_close(g, jax.grad(lambda x: (jnp.take_along_axis(x, i[:, :2], 1) ** 2).sum())(x), 1e-6)


def test_nonzero():
    x = jnp.asarray(MASK2.astype(int) * 3)
    assert_close(fnp.nonzero(x), jnp.nonzero(x), 0)
    hows: list[Any] = [{"size": n, "fill_value": f} for n in (0, 3, 7, 12) for f in (None, -1, (7, -2))]

    def run(library: Any, x: Any) -> list[Any]:
        return [library.nonzero(x, **how) for how in hows]

    assert_close(ft.jit(run, static_argnums=0)(fnp, x), jax.jit(run, static_argnums=0)(jnp, x), 0)
    assert_close(fnp.nonzero(x, size=7, fill_value=-1), jnp.nonzero(x, size=7, fill_value=-1), 0)
    both = jnp.stack([x, x.T.reshape(5, 4)])
    ours = ft.jit(ft.vmap(lambda x: fnp.nonzero(x, size=8, fill_value=-1)))(both)
    assert_close(ours, jax.vmap(lambda x: jnp.nonzero(x, size=8, fill_value=-1))(both), 0)


def test_wrong_uses():
    x = jnp.asarray(data())
    for index in (slice(None, None, 0), (np.array([1, 2]), np.array([1, 2, 3]))):
        for read in (lambda x, i=index: x[i], ft.jit(lambda x, i=index: x[i])):
            with pytest.raises(ValueError, match=r"zero|shapes"):
                read(x)
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
