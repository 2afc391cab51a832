"""Linear algebra against JAX: values, types, gradients, stacks; and what bad input is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans import lax
from tests.support.closeness import assert_close
from tests.support.versions import NEWER

RNG = np.random.default_rng(0)


def matrix(*shape: int) -> np.ndarray:
    """Complex numbers; singular values and eigenvalues lie well apart."""
    noise = RNG.normal(size=shape) + 1j * RNG.normal(size=shape)
    return 0.3 * noise + np.eye(*shape[-2:]) * np.arange(1, shape[-1] + 1)


A, B, TALL, WIDE = matrix(4, 4), matrix(4, 2), matrix(4, 3), matrix(3, 4)
STACK, VECTOR = matrix(2, 3, 3), matrix(4, 1)[:, 0]
HERMITIAN = (A + A.conj().T) / 2
POSITIVE = A @ A.conj().T + np.eye(4)
OURS = {"np": fnp, "lax": lax.linalg}
THEIRS = {"np": jnp, "lax": jax.lax.linalg}

Function = Callable[..., Any]

# name: (function of the libraries, operands), differentiable in all of them
SMOOTH: dict[str, tuple[Function, tuple]] = {
    "solve": (lambda m: m["np"].linalg.solve, (A, B)),
    "solve vector": (lambda m: m["np"].linalg.solve, (STACK, VECTOR[:3])),
    "solve stack": (lambda m: m["np"].linalg.solve, (A[:3, :3], matrix(2, 3, 2))),
    "inv": (lambda m: m["np"].linalg.inv, (STACK,)),
    "det 1": (lambda m: m["np"].linalg.det, (A[:1, :1],)),
    "det 2": (lambda m: m["np"].linalg.det, (A[:2, :2],)),
    "det 3": (lambda m: m["np"].linalg.det, (STACK,)),
    "det 4": (lambda m: m["np"].linalg.det, (A,)),
    "slogdet 2": (lambda m: m["np"].linalg.slogdet, (-A[:2, :2],)),
    "slogdet 3": (lambda m: m["np"].linalg.slogdet, (STACK,)),
    "cholesky": (lambda m: m["np"].linalg.cholesky, (POSITIVE,)),
    "cholesky upper": (lambda m: lambda x: m["np"].linalg.cholesky(x, upper=True), (POSITIVE,)),
    "cholesky as given": (
        lambda m: lambda x: m["lax"].cholesky(x, symmetrize_input=False), (POSITIVE,),
    ),
    "qr": (lambda m: m["np"].linalg.qr, (TALL,)),
    "qr complete": (lambda m: lambda x: m["np"].linalg.qr(x, "complete"), (TALL,)),
    "qr wide": (lambda m: lambda x: m["np"].linalg.qr(x, "r"), (WIDE,)),
    "qr pivoting": (lambda m: lambda x: m["lax"].qr(x, pivoting=True)[:2], (A,)),
    "lu wide": (lambda m: lambda x: m["lax"].lu(x)[0], (WIDE,)),
    "eigh": (lambda m: m["np"].linalg.eigh, (HERMITIAN,)),
    "eigvals": (lambda m: m["np"].linalg.eigvals, (A,)),
    "eig": (lambda m: lambda x: m["lax"].eig(x, enable_eigvec_derivs=True), (A,)),
    "svd": (lambda m: lambda x: m["np"].linalg.svd(x, full_matrices=False), (TALL,)),
    "svd wide": (lambda m: lambda x: m["np"].linalg.svd(x, full_matrices=False), (WIDE,)),
    "svdvals": (lambda m: m["np"].linalg.svdvals, (WIDE,)),
    "svd hermitian": (lambda m: lambda x: m["np"].linalg.svd(x, hermitian=True), (HERMITIAN,)),
    "pinv": (lambda m: m["np"].linalg.pinv, (TALL,)),
    "pinv wide": (lambda m: m["np"].linalg.pinv, (np.stack([WIDE, 2 * WIDE]),)),
    "pinv of less rank": (lambda m: m["np"].linalg.pinv, (A @ np.diag([1, 1, 1, 0]),)),
    "pinv hermitian": (lambda m: lambda x: m["np"].linalg.pinv(x, hermitian=True), (HERMITIAN,)),
    "lstsq": (lambda m: lambda x, y: m["np"].linalg.lstsq(x, y)[:2], (TALL, B)),
    "cond": (lambda m: m["np"].linalg.cond, (TALL,)),
    "cond fro": (lambda m: lambda x: m["np"].linalg.cond(x, "fro"), (A,)),
    "nuclear norm": (lambda m: lambda x: m["np"].linalg.norm(x, "nuc"), (TALL,)),
    "spectral norm": (
        lambda m: lambda x: m["np"].linalg.norm(x, 2, axis=(2, 0), keepdims=True), (STACK,),
    ),
    "tensorinv": (lambda m: m["np"].linalg.tensorinv, (matrix(4, 4).reshape(2, 2, 4),)),
    "tensorsolve": (
        lambda m: lambda x, y: m["np"].linalg.tensorsolve(x, y, axes=(0,)),
        (matrix(4, 4).reshape(4, 2, 2), B[:2]),
    ),
    "matrix_power": (lambda m: lambda x: m["np"].linalg.matrix_power(x, -2), (A,)),
}  # fmt: skip

# Values only: without derivatives, of integers, or expensive to differentiate.
PLAIN: dict[str, tuple[Function, tuple]] = {
    "symmetric_product": (
        lambda m: lambda x, y: m["lax"].symmetric_product(
            x, y, alpha=2.0, beta=0.5, symmetrize_output=True), (A[:, :2], A),
    ),
    "tridiagonal_solve": (
        lambda m: lambda *xs: m["lax"].tridiagonal_solve(*xs, perturb_singular=True),
        (VECTOR, np.zeros(4, complex), VECTOR, B),
    ),
    "eigh subset": (lambda m: lambda x: m["lax"].eigh(x, subset_by_index=(0, 4)), (HERMITIAN,)),
    "svd full": (lambda m: m["np"].linalg.svd, (WIDE,)),
    "qr raw": (lambda m: lambda x: m["np"].linalg.qr(x, "raw"), (TALL,)),
    "matrix_rank": (lambda m: lambda x: m["np"].linalg.matrix_rank(x), (TALL,)),
    "slogdet singular": (lambda m: m["np"].linalg.slogdet, (np.diag([1.0, 0, 2]).astype(complex),)),
}  # fmt: skip
LOOSE = {"pascal", "invpascal", "invhilbert"}  # JAX computes them at single precision, by lgamma
REAL_ONLY = {"rsf2csf", "symmetric_product"}


# In every run, at the dtype that says more.
EVERYDAY = dict.fromkeys(
    ("solve", "det 4", "cholesky", "qr complete", "eigh", "eig", "svd", "lu_solve",
     "solve positive", "sqrtm"),
    "complex128",
) | dict.fromkeys(
    ("expm", "slogdet 3", "solve stack", "lu wide", "qr wide", "pinv of less rank", "matrix_rank",
     "solve_sylvester", "convolution_matrix"),
    "float64",
)  # fmt: skip


def operands(given: tuple, dtype: str) -> tuple:
    return tuple(x.astype(dtype) if dtype == "complex128" else x.real.astype(dtype) for x in given)


def leaves(x: Any) -> list[Any]:
    return ft.tree.leaves(x)


def folded(function: Function, numpy: Any) -> Function:
    """A number that every result has a part in, and no phase: tangents do not determine it."""

    def fold(*xs: Any) -> Any:
        inexact = [y for y in leaves(function(*xs)) if jnp.issubdtype(y.dtype, jnp.inexact)]
        return sum(
            (numpy.cos(numpy.abs(y) + k) + 0.3 * numpy.real(y)).sum() for k, y in enumerate(inexact)
        )

    return fold


def run(library: Any, modules: Any, numpy: Any, name: str) -> Function:
    """The results of a function, and the slope of a number made of them."""
    function, given = (SMOOTH | PLAIN)[name]
    f = function(modules)
    if name in PLAIN:
        return lambda *xs: leaves(f(*xs))
    slope = library.grad(folded(f, numpy), tuple(range(len(given))))
    return lambda *xs: [*leaves(f(*xs)), *slope(*xs)]


def rows() -> list[Any]:
    """The everyday functions at one dtype each in every run, all at both in a long one."""
    made = []
    for name in (*SMOOTH, *PLAIN):
        for dtype in ("complex128", "float64"):
            if name in REAL_ONLY and dtype == "complex128":
                continue
            often = name in EVERYDAY and dtype == EVERYDAY[name]
            marks = () if often else (pytest.mark.heavy,)
            made.append(pytest.param(name, dtype, marks=marks, id=f"{name}-{dtype}"))
    return made


@pytest.mark.parametrize(("name", "dtype"), rows())
def test_as_in_jax(name: str, dtype: str):
    """Values, dtypes, shapes and gradients, in one compilation."""
    with jax.enable_x64(True):
        xs = operands((SMOOTH | PLAIN)[name][1], dtype)
        ours, theirs = run(ft, OURS, fnp, name), run(jax, THEIRS, jnp, name)
        found = jax.jit(lambda *xs: (ft.jit(ours)(*xs), theirs(*xs)))(*xs)
        assert_close(*found, 1e-4 if name in LOOSE else 1e-8, name)


# --- what JAX does not do, or does not do right ---------------------------------------------------


def test_det_of_a_singular_matrix_has_its_gradient():
    singular = np.diag(np.float32([1, 2, 3, 0]))
    wanted = np.diag(np.float32([0, 0, 0, 6]))
    np.testing.assert_allclose(ft.grad(fnp.linalg.det)(singular), wanted, atol=1e-6)


def test_qdwh_counts_its_steps_and_knows_of_padding():
    x = np.float32(TALL.real)
    padded = np.pad(x, ((0, 2), (0, 1)), constant_values=7.0)
    u, h, steps, converged = lax.linalg.qdwh(padded, dynamic_shape=(4, 3))
    np.testing.assert_allclose(u[:4, :3].T @ u[:4, :3], np.eye(3), atol=1e-5)
    np.testing.assert_allclose(u[:4, :3] @ h[:3, :3], x, atol=1e-5)
    assert 3 <= int(steps) <= 6
    assert bool(converged)


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cholesky", "inv", "matrix_rank"])
def test_integers_and_weak_types(name):
    integers = np.array([[3, 1], [1, 2]])
    weak = jnp.where(jnp.eye(2) > 0, 2.0, 1.0)
    for x in (integers, weak):
        ours = getattr(fnp.linalg, name)(x)
        theirs = getattr(jnp.linalg, name)(x)
        assert ours.weak_type == theirs.weak_type
        assert_close(ours, theirs)


def test_results_have_names():
    x = np.eye(2, dtype=np.float32)
    assert fnp.linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert fnp.linalg.svd(x)._fields == ("U", "S", "Vh")
    assert fnp.linalg.qr(x)._fields == ("Q", "R")
    assert fnp.linalg.slogdet(x)._fields == ("sign", "logabsdet")


@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 2, 4), (0, 2)), ((4, 2, 2), (0,)), ((2, 4, 2), (1,))]
)
def test_tensorsolve_moves_the_axes_that_are_named(shape, axes):
    a = RNG.normal(size=shape).astype(np.float32)
    b = RNG.normal(size=(2, 2)).astype(np.float32)
    ours = fnp.linalg.tensorsolve(a, b, axes)
    assert_close(ours, jnp.linalg.tensorsolve(a, b, axes), 1e-4)
    assert_close(ours, np.linalg.tensorsolve(a, b, axes), 1e-4)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0)])
def test_empty_matrices(shape):
    x = np.zeros(shape, np.float32)
    for name in ("det", "inv", "cholesky", "svdvals"):
        assert_close(getattr(fnp.linalg, name)(x), getattr(jnp.linalg, name)(x), what=name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 2])
def test_determinants_of_small_matrices_of_narrow_floats(n, dtype):
    def both(L: Any, np_: Any) -> Any:
        x = jnp.asarray(A.real[:n, :n], dtype)
        logabsdet = lambda x: np_.linalg.slogdet(x).logabsdet  # noqa: E731
        return [np_.linalg.det(x), tuple(np_.linalg.slogdet(x)), L.grad(logabsdet)(x)]

    assert_close(both(ft, fnp), both(jax, jnp), 2e-2)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_determinants_of_weak_matrices(n):
    weak = jnp.full((n, n), 2.0)
    for method in (None, "qr"):
        ours, theirs = [np_.linalg.slogdet(weak, method=method) for np_ in (fnp, jnp)]
        assert [x.weak_type for x in ours] == [x.weak_type for x in theirs], method
    assert fnp.linalg.det(weak).weak_type == jnp.linalg.det(weak).weak_type


def test_products_of_weak_vectors():
    weak = jnp.full((3,), 2.0)
    for x, y in ((weak, weak), (weak, np.arange(3)), (weak[:2], weak), (weak[:2], weak[:2])):
        ours, theirs = fnp.cross(x, y), jnp.cross(x, y)
        assert_close(ours, theirs)
        assert ours.weak_type == theirs.weak_type


# --- bad input ------------------------------------------------------------------------------------

UNKNOWN_DTYPE = TypeError if NEWER else NotImplementedError
SQUARE, FLAT = np.ones((3, 3), np.float32), np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fnp.linalg.inv(FLAT), ValueError, "inv: Argument to inv must have shape"),
        (lambda: fnp.linalg.det(FLAT), ValueError, "det: takes square"),
        (lambda: fnp.linalg.cholesky(FLAT), TypeError, "incompatible shapes"),
        (lambda: fnp.linalg.eigh(SQUARE, "X"), ValueError, "UPLO must be"),
        (lambda: fnp.linalg.solve(SQUARE, FLAT.T), ValueError, "b with as many rows"),
        (lambda: fnp.linalg.qr(SQUARE, "other"), ValueError, "unsupported mode 'other'"),
        (lambda: fnp.linalg.slogdet(SQUARE, method="x"), ValueError, "unknown method"),
        (lambda: fnp.linalg.norm(SQUARE, "x"), ValueError, "invalid order 'x'"),
        (lambda: fnp.linalg.cond(FLAT, 1), ValueError, "takes square matrices for p=1"),
        (lambda: fnp.linalg.pinv(SQUARE, 0.1, rcond=0.1), ValueError, "only one of"),
        (lambda: fnp.linalg.matrix_power(FLAT, 2), TypeError, "matrix_power: takes square"),
        (lambda: fnp.linalg.matrix_power(SQUARE, 1.5), TypeError, "n must be an integer, got 1.5"),
        (lambda: fnp.linalg.multi_dot([]), ValueError, "at least two arrays, got 0"),
        (lambda: fnp.linalg.outer(SQUARE, SQUARE[0]), ValueError, "takes two vectors"),
        (lambda: fnp.linalg.cross(FLAT, FLAT), ValueError, "of three components"),
        (lambda: fnp.linalg.cross(SQUARE, SQUARE[:2]), TypeError, "incompatible shapes"),
        (lambda: fnp.linalg.vecdot(SQUARE, SQUARE, axis=5), IndexError, "axis 5 is out of bounds"),
        (lambda: fnp.linalg.svd(SQUARE.astype("float16")), UNKNOWN_DTYPE, "dtype float16"),
        (lambda: lax.linalg.lu(np.ones((2, 2), int)), TypeError, "takes float32, .* not int"),
        (lambda: lax.linalg.lu(SQUARE[0]), TypeError, "takes matrices"),
        (lambda: lax.linalg.triangular_solve(SQUARE, SQUARE + 1j), TypeError, "must have dtype"),
        (lambda: lax.linalg.triangular_solve(FLAT, FLAT), ValueError, "takes square"),
        (lambda: lax.linalg.schur(SQUARE, sort_eig_vals=True), ValueError, "cannot sort"),
        (
            lambda: ft.grad(lambda x: fnp.linalg.svd(x)[0].sum())(FLAT),
            NotImplementedError, "Use full_matrices=False",
        ),
        (
            lambda: ft.grad(lambda x: fnp.linalg.eig(x)[1].real.sum())(SQUARE),
            NotImplementedError, "enable_eigvec_derivs=True",
        ),
        (lambda: ft.grad(lambda x: lax.linalg.schur(x)[0].sum())(SQUARE), NotImplementedError,
         "the primitive schur has no rule `jvp`"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, ft.errors.FunctransError)
    assert "test_linalg.py" in str(caught.value)
