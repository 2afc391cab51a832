"""Factorizations and triangular solves in kernels, beside LAPACK's: small ones, whose steps are
written out, and larger ones, which are loops."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.passes.kernel_factorizations import FEW, MANY_LU
from tests.support.closeness import assert_close
from tests.support.matrices import alternately

MATRICES = 220


def matrices(*shape: int, dtype: Any = "float32") -> Any:
    """Square ones are well conditioned, and pivoting has work to do."""
    rng = np.random.default_rng(sum(shape))
    parts = [rng.normal(size=(MATRICES, *shape)) for _ in range(2)]
    x = parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]
    return (x + 2 * np.eye(*shape[-2:])[rng.permutation(shape[-2])]).astype(dtype)


def definite(x: Any) -> Any:
    return x @ np.swapaxes(x, -1, -2) + np.eye(x.shape[-1], dtype=x.dtype)


def one_kernel(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The results for each matrix, by a kernel and by the library."""

    def each(*args: Any) -> Any:
        return lax.map(lambda xs: f(*xs), args)

    jitted = ft.jit(each)
    assert 'xla_cpu_small_call = "true"' in jitted.lower(*args).as_text()
    return jitted(*args), ft.jit(each, cpu="plain")(*args)


SIZES = [FEW, FEW + 1, 13, MANY_LU]
DTYPES = ["float32", "float64", "complex64"]
SHAPES = [(n, n) for n in SIZES] + [(9, 12), (12, 9), (2, 8, 8)]


@pytest.mark.parametrize(
    ("shape", "dtype"), alternately([pytest.param(s, d) for s in SHAPES for d in DTYPES])
)
def test_lu(shape: tuple[int, ...], dtype: str):
    with jax.enable_x64(dtype == "float64"):
        found, expected = one_kernel(lax.linalg.lu, matrices(*shape, dtype=dtype))
    for a, b in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    assert_close(found[0], expected[0], 1e-4)


@pytest.mark.parametrize("n", [FEW, 10])
def test_lu_of_a_singular_matrix(n: int):
    x = np.ones((MATRICES, n, n), "float32")
    found, expected = one_kernel(lax.linalg.lu, x)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(n, n) for n in (*SIZES, 33)] + [(3, 7, 7)], ids=str)
def test_cholesky(shape: tuple[int, ...], dtype: str):
    with jax.enable_x64(dtype == "float64"):
        x = definite(matrices(*shape, dtype=dtype))
        x[1] -= 3 * x[0]  # not positive definite
        x += np.triu(np.full_like(x, np.nan), 1)  # not read
        found, expected = one_kernel(lambda x: jnp.tril(lax.linalg.cholesky(x, symmetrize_input=False)), x)
    assert np.isnan(expected[1]).any()
    assert np.isfinite(expected[2:]).all()
    assert_close(found, expected, 1e-4)


@pytest.mark.parametrize(("n", "columns"), [(FEW, 5), (FEW + 1, 1), (18, 5), (33, 1)])
@pytest.mark.parametrize(("lower", "transpose_a"), list(itertools.product([True, False], repeat=2)))
def test_triangular_solve(n: int, columns: int, lower: bool, transpose_a: bool):
    """From the left, from the right, and with a diagonal of ones."""
    rest = np.triu(np.full((n, n), np.nan, "float32"), 1)  # not read
    triangle = np.tril(matrices(n, n)) / np.sqrt(n) + 3 * np.eye(n, dtype="float32") + rest
    a = triangle if lower else np.swapaxes(triangle, -1, -2)

    def solved(a: Any, left: Any, right: Any) -> Any:
        solve = functools.partial(lax.linalg.triangular_solve, a, lower=lower, transpose_a=transpose_a)
        ones = solve(left, left_side=True, unit_diagonal=True)
        return solve(left, left_side=True), solve(right, left_side=False), ones

    found, expected = one_kernel(solved, a, matrices(n, columns), matrices(columns, n))
    assert_close(found, expected, 1e-4)


def test_triangular_solve_of_complex_stacks():
    a = np.triu(matrices(2, 9, 9, dtype="complex64")) + 5 * np.eye(9, dtype="complex64")
    how = {"left_side": True, "transpose_a": True, "conjugate_a": True}
    solve = functools.partial(lax.linalg.triangular_solve, **how)
    assert_close(*one_kernel(solve, a, matrices(2, 9, 3, dtype="complex64")), 1e-4)
