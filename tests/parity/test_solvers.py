"""custom_linear_solve and custom_root: what is solved, and how often; types. Their derivatives of all orders:
`matrix/test_finite_differences.py`."""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import lax

MINE = (ft, lax, ft_numpy)
JAX = (jax, jax.lax, jax_numpy)

rng = np.random.default_rng(0)
W = 0.4 * rng.normal(size=(3, 3))
X = rng.normal(size=(3, 3))


def test_the_solver_itself_is_not_differentiated():
    def by_numpy(matrix):
        def solve(_, b):
            return ft.pure_callback(
                lambda a, b: np.linalg.solve(a, b), ft.ShapeDtypeStruct(b.shape, b.dtype), matrix, b
            )

        return solve

    def f(a, b):
        return lax.custom_linear_solve(lambda x: a @ x, b, by_numpy(a), by_numpy(a.T)).sum()

    a, b = (X + 3 * np.eye(3)).astype("float32"), W[0].astype("float32")
    for g in (ft.grad(f, (0, 1)), ft.jit(ft.grad(f, (0, 1)))):
        da, db = g(a, b)
        lam = np.linalg.solve(a.T, np.ones(3))
        np.testing.assert_allclose(db, lam, rtol=1e-5)
        np.testing.assert_allclose(da, -np.outer(lam, np.linalg.solve(a, b)), rtol=1e-4, atol=1e-6)


def test_gradient_solves_twice():
    calls = []

    def solve(matvec, b):
        ft.debug.callback(lambda: calls.append(1))
        return b / matvec(1.0)

    def f(a, b):
        return lax.custom_linear_solve(lambda x: a * x, b, solve, symmetric=True)

    ft.jit(ft.grad(f, (0, 1)))(2.0, 3.0)
    ft.effects_barrier()
    assert len(calls) == 2


@pytest.mark.smoke
def test_the_guess_has_no_derivative_and_types_are_those_of_jax():
    def f(lax, a, guess):
        return lax.custom_root(lambda x: x * x - a, guess, lambda f, x: x * 0 + 3.0, lambda g, y: y / g(1.0))

    a = np.float32(9.0)
    g = ft.grad(lambda a, guess: f(lax, a, guess), (0, 1))(a, 1.0)
    np.testing.assert_allclose(g, (1 / 6, 0.0), rtol=1e-6)
    for given in ((a, 1.0), (9.0, 1.0), (a, np.float32(1.0))):
        mine, theirs = f(lax, *given), f(jax.lax, *given)
        assert (mine.dtype, mine.weak_type) == (theirs.dtype, theirs.weak_type)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32"])
def test_integers_are_solved_for_in_floats(dtype):
    def solved(lax, b):
        return lax.custom_linear_solve(lambda x: 2 * x, b, lambda f, b: b / 2, symmetric=True)

    b = jax.numpy.arange(3).astype(dtype)
    ours, theirs = solved(lax, b), solved(jax.lax, b)
    np.testing.assert_array_equal(ours, theirs)
    assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
    np.testing.assert_array_equal(ft.jit(lambda b: solved(lax, b))(b), theirs)  # JAX has no code
