"""Cholesky, QR, eigenvalues and singular values of stacks of matrices [..., m, n]."""

from __future__ import annotations

from typing import Any, NamedTuple

from functrans import errors, lax
from functrans.ir.source import describe, user_source
from functrans.numpy import prims, shaping, sorting
from functrans.numpy.promotion import array_of, invalid, promote_inexact
from functrans.numpy.repeating import flip
from functrans.numpy.taking import take_along_axis
from functrans.primitives.call import composite
from functrans.primitives.linalg_factors import geqrf
from functrans.primitives.linalg_products import adjoint, permuted, scaled_columns

__all__ = ["cholesky", "eig", "eigh", "eigvals", "eigvalsh", "qr", "svd", "svdvals"]


class EigResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    Q: Any
    R: Any


class SVDResult(NamedTuple):
    U: Any
    S: Any
    Vh: Any


def inexact(a: Any, name: str) -> Any:
    """An operand as an array of floats or complex numbers."""
    return promote_inexact((array_of(a, name),), name)[0]


def shape_error(name: str, problem: str) -> errors.ShapeMismatch:
    """The error for an operand of a shape that a function does not take."""
    return errors.ShapeMismatch(f"{name}: {problem}, at\n    {describe(user_source())}")


@composite
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """The lower triangular l with a = l l^H; with `upper` the upper triangular l^H.

    Arguments:
      a: [..., n, n], hermitian and positive definite; NaN comes out where it is not.
      upper: which triangle to return.
      symmetrize_input: take the mean of a and its adjoint.

    Raises:
      ShapeMismatch: the matrices are not square.

    Source: `jax.numpy.linalg.cholesky`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]])))
      [[2. 0.]
       [1. 1.]]
    """
    made = lax.linalg.cholesky(inexact(a, "cholesky"), symmetrize_input=symmetrize_input)
    return adjoint(made) if upper else made


@composite
def qr(a: Any, mode: str = "reduced") -> Any:
    """a = q r, with orthonormal columns of q and upper triangular r.

    Arguments:
      a: [..., m, n].
      mode: "reduced", min(m, n) columns of q; "complete", m columns; "r", r alone; "raw", the
        reflectors of which q is made, transposed, and their factors.

    Returns:
      QRResult(Q, R), or r.

    Raises:
      InvalidArgument: an unknown mode.

    Source: `jax.numpy.linalg.qr`.

    Example:
      >>> import functrans.numpy as jnp
      >>> q, r = jnp.linalg.qr(jnp.array([[0.0, 2.0], [1.0, 3.0]]))
      >>> print(abs(r))
      [[1. 3.]
       [0. 2.]]
    """
    a = inexact(a, "qr")
    if mode == "raw":
        reflectors, taus = geqrf(a)
        return QRResult(shaping.matrix_transpose(reflectors), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise invalid(
            "qr", f"unsupported mode {mode!r}", "Modes: 'reduced', 'complete', 'r', 'raw'."
        )
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


# --- eigenvalues ----------------------------------------------------------------------------------


@composite
def eig(a: Any) -> EigResult:
    """Eigenvalues and right eigenvectors of square matrices, complex.

    Returns:
      EigResult(eigenvalues [..., n], eigenvectors [..., n, n]): a v[:, i] = w[i] v[:, i].

    Source: `jax.numpy.linalg.eig`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.eig(jnp.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues)
      [0.+1.j 0.-1.j]
    """
    return EigResult(*lax.linalg.eig(inexact(a, "eig"), compute_left_eigenvectors=False))


@composite
def eigvals(a: Any) -> Any:
    """Eigenvalues of square matrices, complex.

    Source: `jax.numpy.linalg.eigvals`.
    """
    return lax.linalg.eig(
        inexact(a, "eigvals"), compute_left_eigenvectors=False, compute_right_eigenvectors=False
    )[0]


@composite
def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of hermitian matrices.

    Arguments:
      a: [..., n, n].
      UPLO: "L" or "U", the triangle that is read if a is not symmetrized.
      symmetrize_input: take the mean of a and its adjoint.

    Returns:
      EighResult(eigenvalues [..., n], eigenvectors [..., n, n]).

    Raises:
      InvalidArgument: UPLO is neither.

    Source: `jax.numpy.linalg.eigh`.

    Example:
      >>> import functrans.numpy as jnp
      >>> w, v = jnp.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
      >>> print(w.round(1))
      [1. 3.]
    """
    if UPLO not in (None, "L", "U"):
        raise invalid("eigh", f"UPLO must be None, 'L' or 'U', got {UPLO!r}")
    v, w = lax.linalg.eigh(inexact(a, "eigh"), lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


@composite
def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """Eigenvalues of hermitian matrices, ascending.

    Source: `jax.numpy.linalg.eigvalsh`.
    """
    return eigh(a, UPLO, symmetrize_input=symmetrize_input).eigenvalues


# --- singular values ------------------------------------------------------------------------------


@composite
def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:  # fmt: skip
    """a = u diag(s) v^H, s falling.

    Arguments:
      a: [..., m, n].
      full_matrices: u and v are square; otherwise they have min(m, n) columns. Only these have a
        derivative.
      compute_uv: return u and v^H too.
      hermitian: a is hermitian: use its eigenvalues.
      subset_by_index: (start, stop) of the singular values wanted.

    Returns:
      SVDResult(U, S, Vh), or s.

    Source: `jax.numpy.linalg.svd`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.svd(jnp.array([[3.0, 0.0], [4.0, 5.0]]), compute_uv=False).round(3))
      [6.708 2.236]
    """
    a = inexact(a, "svd")
    if hermitian:
        return _hermitian_svd(a, compute_uv, subset_by_index)
    made = lax.linalg.svd(
        a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index
    )
    return SVDResult(*made) if compute_uv else made


@composite
def _hermitian_svd(a: Any, compute_uv: bool, subset_by_index: tuple[int, int] | None) -> Any:
    """Singular values are sizes of eigenvalues; the sign of an eigenvalue goes to v."""
    v, w = lax.linalg.eigh(a, subset_by_index=subset_by_index)
    s = prims.abs_(w)
    if not compute_uv:
        return flip(sorting.sort(s), -1)
    order = sorting.argsort(s, descending=True)
    u = permuted(v, order, -1)
    signs = take_along_axis(prims.sign(w), order, -1)
    return SVDResult(u, take_along_axis(s, order, -1), adjoint(scaled_columns(u, signs)))


@composite
def svdvals(x: Any, /) -> Any:
    """Singular values, the largest first.

    Source: `jax.numpy.linalg.svdvals`.
    """
    return svd(x, compute_uv=False)
