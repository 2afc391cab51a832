"""Cases of primitives/linalg*.py and primitives/contractions/fft.py.

Rows are differentiable where the result is a function of all numbers of an operand. The derivatives
of `cholesky` and `eigh` take their operand for hermitian, and those of complex vectors leave their
phase alone; test_linalg.py checks both against JAX.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.lax import linalg

from tests.matrix.cases.case import COMPLEX, Case, fixed, normal

REAL = ("float32", "float64")
ALL = (*REAL, *COMPLEX)
MIXED = ("float32", "complex128")
ONE = {"float32": 2e-5, "complex64": 2e-5}  # a few roundings of a condition number of ten
STEEP = {"float32": 2e-4, "float64": 1e-11, "complex64": 2e-4, "complex128": 1e-11}

Make = Callable[..., np.ndarray]


def spread(*shape: int) -> Make:
    """Matrices whose singular and eigenvalues lie well apart: 1, 2, 3, ... and some noise."""

    def make(rng: np.random.Generator, dtype: Any) -> np.ndarray:
        noise = normal(*shape, scale=0.2)(rng, dtype)
        eye = np.eye(*shape[-2:]) * np.arange(1, shape[-1] + 1)
        return (noise + eye).astype(dtype)

    return make


def hermitian(*shape: int) -> Make:
    """Positive definite, with eigenvalues well apart."""

    def make(rng: np.random.Generator, dtype: Any) -> np.ndarray:
        x = spread(*shape)(rng, dtype)
        return ((x + np.conj(np.swapaxes(x, -1, -2))) / 2).astype(dtype)

    return make


def traced(x: Any) -> Any:
    """JAX's rules of lu and qr index the tangent by a traced order, which a NumPy array refuses."""
    return x * 1


def solved(label: str, a: Make, b: Make, dtypes: Any = ALL, differentiable: Any = (0, 1), **how):
    usual = {
        "left_side": True,
        "lower": True,
        "transpose_a": False,
        "conjugate_a": False,
        "unit_diagonal": False,
    }
    params = usual | how
    return Case(
        "triangular_solve",
        (a, b),
        lambda a, b: linalg.triangular_solve(a, b, **params),
        params,
        dtypes,
        differentiable,
        tolerance=ONE,
        label=label,
    )


def svd(label: str, x: Make, dtypes: Any, differentiable: Any = (), **how: Any) -> Case:
    params = {"full_matrices": False, "compute_uv": True} | how

    def by_jax(x: Any) -> Any:
        if not params["compute_uv"]:
            return linalg.svd(x, **params)
        u, s, vh = linalg.svd(x, **params)
        return s, u, vh

    return Case("svd", (x,), by_jax, params, dtypes, differentiable, STEEP, label)


def eig(label: str, x: Make, dtypes: Any, left: bool, right: bool, differentiable: Any = ()):
    params = {
        "compute_left_eigenvectors": left,
        "compute_right_eigenvectors": right,
        "enable_eigvec_derivs": True,
    }
    return Case("eig", (x,), lambda x: linalg.eig(x, **params), params, dtypes, differentiable, STEEP, label)


def qr(label: str, x: Make, dtypes: Any, differentiable: Any = (), **how: Any) -> Case:
    params = {"pivoting": False, "full_matrices": False} | how
    return Case(
        "qr", (x,), lambda x: linalg.qr(traced(x), **params), params, dtypes, differentiable, STEEP, label
    )


def lu(label: str, x: Make, dtypes: Any, differentiable: Any = ()) -> Case:
    return Case("lu", (x,), lambda x: linalg.lu(traced(x)), {}, dtypes, differentiable, STEEP, label)


def fft(kind: str, label: str, x: Make, dtypes: Any, *lengths: int) -> Case:
    return Case(
        "fft",
        (x,),
        lambda x: jax.lax.fft(x, kind, lengths),
        {"kind": kind, "lengths": lengths},
        dtypes,
        (0,),
        label=f"{kind.lower()}-{label}",
        tolerance={"float32": 2e-5, "complex64": 2e-5},
    )


CASES: list[Case] = [
    Case("cholesky", (hermitian(3, 3),), lambda x: linalg.cholesky(x, symmetrize_input=False),
         {}, ALL, (), ONE),
    Case("cholesky", (fixed([[1.0, 2.0], [2.0, 1.0]]),), linalg.cholesky, {}, REAL, label="not"),
    solved("lower", spread(3, 3), normal(3, 2)),
    solved("upper-right", spread(2, 2), normal(3, 2), REAL[1:], (), lower=False, left_side=False,
           unit_diagonal=True),
    solved("adjoint", spread(3, 3), normal(2, 3), COMPLEX[1:], (), left_side=False,
           transpose_a=True, conjugate_a=True),
    Case("tridiagonal_solve", (normal(4), normal(4, shift=4), normal(4), normal(4, 2)),
         linalg.tridiagonal_solve, {"perturb_singular": False}, REAL, (1, 2, 3), ONE),
    Case("tridiagonal_solve", (normal(4), normal(4, shift=4), normal(4), normal(4, 2)),
         linalg.tridiagonal_solve, {"perturb_singular": False}, COMPLEX, (), ONE, "complex"),
    lu("square", normal(3, 3), REAL, (0,)),
    lu("complex", normal(3, 3), COMPLEX[1:]),
    lu("tall", normal(4, 2), REAL[1:]),
    lu("wide", normal(2, 4), REAL[1:]),
    Case("lu_pivots_to_permutation", (fixed([1, 3, 2], np.int32),),
         lambda p: linalg.lu_pivots_to_permutation(p, 5), {"permutation_size": 5}, ("int32",)),
    qr("tall", normal(4, 2), REAL, (0,)),
    qr("complex", normal(4, 2), COMPLEX[:1]),
    qr("full", normal(4, 2), REAL[1:], full_matrices=True),
    qr("wide", normal(2, 3), REAL[1:]),
    qr("pivoting", spread(3, 3), REAL, pivoting=True),
    Case("eigh", (hermitian(3, 3),), lambda x: linalg.eigh(x, symmetrize_input=False),
         {"lower": True, "sort_eigenvalues": True}, MIXED, (), STEEP),
    eig("values", spread(3, 3), ("float64",), False, False, (0,)),
    eig("vectors", spread(3, 3), MIXED, True, True),
    svd("values", spread(3, 2), REAL, (0,), compute_uv=False),
    svd("thin", spread(3, 2), MIXED),
    svd("wide", spread(2, 3), ("float64",)),
    svd("full", spread(3, 2), REAL[:1], full_matrices=True),
    fft("FFT", "two-axes", normal(3, 4), COMPLEX, 3, 4),
    fft("IFFT", "one-axis", normal(2, 3), COMPLEX[1:], 3),
    fft("RFFT", "odd", normal(2, 5), REAL, 5),
    fft("RFFT", "even", normal(3, 4), REAL[1:], 3, 4),
    fft("IRFFT", "odd", normal(2, 3), COMPLEX, 5),
    fft("IRFFT", "even", normal(3, 3), COMPLEX[1:], 3, 4),
]  # fmt: skip
