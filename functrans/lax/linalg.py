"""Linear algebra under the names of `jax.lax.linalg`: stacks of matrices, strict dtypes.

Operands are arrays [*batch, m, n] of floats or complex numbers of 32 or 64 bits per part, whose
batch axes are equal. Wrong shapes raise ShapeMismatch, wrong dtypes TypeMismatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax.linalg import EighImplementation as EighImplementation
from jax.lax.linalg import EigImplementation as EigImplementation
from jax.lax.linalg import SvdAlgorithm as SvdAlgorithm

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import canonical_dtype, dtype_class, is_inexact
from functrans.lax.arguments import as_array, invalid, mismatch
from functrans.lax.polar import qdwh as qdwh
from functrans.primitives import linalg_factors as _factors
from functrans.primitives import linalg_reductions as _reductions
from functrans.primitives import linalg_spectral as _spectral
from functrans.primitives import linalg_triangular as _triangular
from functrans.primitives.bitwise import or_
from functrans.primitives.conversion import convert_element_type, strong
from functrans.primitives.elementwise import add, mul
from functrans.primitives.linalg_products import (
    adjoint,
    einsum,
    lower_part,
    transposed,
)
from functrans.primitives.shape import reshape, slice_axis
from functrans.trace import typeof
from functrans.typing import Array, ArrayLike, PyTree

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update",
    "eig", "eigh", "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr",
    "qdwh", "qr", "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal",
    "tridiagonal_solve",
]  # fmt: skip


# --- triangular -----------------------------------------------------------------------------------


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with x = l l^H, of positive definite hermitian matrices.

    Arguments:
      x: [..., n, n].
      symmetrize_input: take the mean of x and its adjoint. Otherwise only the lower triangle is
        read, and a derivative is right if the tangent of x is hermitian.

    Returns:
      [..., n, n]; NaN where a matrix is not positive definite.

    Source: `jax.lax.linalg.cholesky`.

    Example:
      >>> import numpy as np
      >>> print(cholesky(np.float32([[4, 2], [2, 2]])))
      [[2. 0.]
       [1. 1.]]
    """
    x = as_array(x)
    return _triangular.cholesky(_symmetrized(x, "cholesky") if symmetrize_input else x)


def _symmetrized(x: Any, name: str) -> Any:
    """(x + x^H) / 2."""
    t = typeof(x)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise errors.ShapeMismatch(
            f"{name} takes square matrices [..., n, n], got {t}, at\n    {describe(user_source())}"
        )
    both = or_(x, adjoint(x)) if t.dtype == bool else add(x, adjoint(x))
    if not is_inexact(t.dtype):
        truth = t.dtype == bool  # of which the half is a Python number's
        wide = truth or t.dtype.itemsize == 8
        dtype = canonical_dtype(np.dtype(np.float64 if wide else np.float32))
        both = convert_element_type(both, dtype=dtype, weak_type=truth or t.weak_type)
    return mul(both, 0.5)


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The upper triangular s with s^T s = r^T r + w w^T, in a quadratic number of operations.

    Source: `jax.lax.linalg.cholesky_update`.
    """
    return _triangular.cholesky_update(as_array(r_matrix), as_array(w_vector))


def symmetric_product(
    a_matrix: ArrayLike, c_matrix: ArrayLike, *, alpha: float = 1.0, beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:  # fmt: skip
    """alpha a a^T + beta c, with c symmetric; only the lower triangle need be right, all of it is
    with `symmetrize_output`.

    Source: `jax.lax.linalg.symmetric_product`.
    """
    a, c = as_array(a_matrix), as_array(c_matrix)
    ta, tc = typeof(a), typeof(c)
    if ta.ndim < 2 or tc.shape != (*ta.shape[:-1], ta.shape[-2]):
        raise invalid(
            "symmetric_product",
            f"takes an m by n matrix and an m by m one, got {ta} and {tc}",
        )
    if ta.dtype != tc.dtype or dtype_class(ta.dtype) != "float":
        raise mismatch("symmetric_product", f"takes floats of one dtype, got {ta} and {tc}")
    if not tc.weak_type:
        a = strong(a)
    made = mul(einsum("ij,kj->ik", a, a), alpha)
    if beta:
        made = add(made, mul(c, beta))
    if symmetrize_output:
        made = add(lower_part(made), transposed(lower_part(made, strict=True)))
    return made


def triangular_solve(
    a: ArrayLike, b: ArrayLike, *, left_side: bool = False, lower: bool = False,
    transpose_a: bool = False, conjugate_a: bool = False, unit_diagonal: bool = False,
) -> Array:  # fmt: skip
    """Solve op(a) x = b if `left_side`, else x op(a) = b, for triangular matrices.

    Arguments:
      a: [..., m, m]; only one triangle is read.
      b: [..., m, n] (`left_side`) or [..., n, m]; or [..., m], a vector for each matrix.
      lower: which triangle.
      transpose_a, conjugate_a: what op does.
      unit_diagonal: take the diagonal for ones.

    Returns:
      x, of the shape of b.

    Source: `jax.lax.linalg.triangular_solve`.

    Example:
      >>> import numpy as np
      >>> a = np.float32([[2, 0], [1, 4]])
      >>> print(triangular_solve(a, np.float32([4, 6]), left_side=True, lower=True))
      [2. 1.]
    """
    a, b = as_array(a), as_array(b)
    vector = typeof(a).ndim - typeof(b).ndim == 1
    how = {"left_side": left_side, "lower": lower, "transpose_a": transpose_a,
           "conjugate_a": conjugate_a, "unit_diagonal": unit_diagonal}  # fmt: skip
    if not vector:
        return _triangular.triangular_solve(a, b, **how)
    axis = typeof(b).ndim - (0 if left_side else 1)
    x = _triangular.triangular_solve(a, _with_axis(b, axis), **how)
    return reshape(x, shape=typeof(b).shape)


def _with_axis(x: Any, axis: int) -> Any:
    """x with a new axis of size 1."""
    shape = typeof(x).shape
    return reshape(x, shape=(*shape[:axis], 1, *shape[axis:]))


def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """Solve a x = b for tridiagonal matrices.

    Arguments:
      dl, d, du: [..., m], with dl[i] = a[i, i-1], d[i] = a[i, i], du[i] = a[i, i+1]; dl[0] and
        du[m-1] are zero.
      b: [..., m, n].
      perturb_singular: move pivots near zero away from it, so that the result is finite.

    Source: `jax.lax.linalg.tridiagonal_solve`.

    Example:
      >>> import numpy as np
      >>> d, e = np.full(3, 2, np.float32), np.float32([0, 1, 1])
      >>> print(tridiagonal_solve(e, d, e[::-1], np.float32([[3], [4], [3]])).T)
      [[1. 1. 1.]]
    """
    xs = [as_array(x) for x in (dl, d, du, b)]
    return _triangular.tridiagonal_solve(*xs, perturb_singular=perturb_singular)


# --- factors --------------------------------------------------------------------------------------


def lu(x: ArrayLike) -> list[Array]:
    """x = p l u, by exchanging rows.

    Returns:
      l (below its diagonal of ones) and u in one matrix [..., m, n]; the pivots [..., min(m, n)]:
      row i was exchanged with row pivots[i]; the same as an order [..., m] of the rows of x.

    Source: `jax.lax.linalg.lu`.

    Example:
      >>> import numpy as np
      >>> factors, pivots, order = lu(np.float32([[1, 2], [2, 2]]))
      >>> print(factors, pivots, order)
      [[2.  2. ]
       [0.5 1. ]] [1 1] [1 0]
    """
    return list(_factors.lu(as_array(x)))


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """Exchanges of rows, [..., k], as an order of `permutation_size` of them.

    Source: `jax.lax.linalg.lu_pivots_to_permutation`.
    """
    return _factors.lu_pivots_to_permutation(as_array(pivots), permutation_size=permutation_size)


def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Array, ...]:
    """x = q r with orthonormal columns of q and upper triangular r.

    Arguments:
      x: [..., m, n].
      pivoting: choose the columns in an order p, so that x[:, p] = q r and the diagonal of r falls.
      full_matrices: q is square; otherwise it has min(m, n) columns.
      use_magma: a hint for another library, not used.

    Returns:
      (q, r), or (q, r, p).

    Source: `jax.lax.linalg.qr`.

    Example:
      >>> import numpy as np
      >>> q, r = qr(np.float32([[0, 2], [1, 3]]))
      >>> print(abs(r))
      [[1. 3.]
       [0. 2.]]
    """
    return tuple(_factors.qr(as_array(x), pivoting=pivoting, full_matrices=full_matrices))


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The first columns of the product of reflectors 1 - tau v v^H, v below the diagonal of a.

    Source: `jax.lax.linalg.householder_product`.
    """
    return _factors.householder_product(as_array(a), as_array(taus))


def ormqr(
    a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False
) -> Array:
    """q c, or c q unless `left`, with q^H for `transpose`; q is a product of reflectors.

    Source: `jax.lax.linalg.ormqr`.
    """
    return _factors.ormqr(
        as_array(a), as_array(taus), as_array(c), left=bool(left), transpose=bool(transpose)
    )


# --- eigenvalues and singular values --------------------------------------------------------------


def eigh(
    x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True,
    sort_eigenvalues: bool = True, subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Eigenvectors and eigenvalues of hermitian matrices.

    Arguments:
      x: [..., n, n].
      lower: which triangle is read, if x is not symmetrized.
      symmetrize_input: take the mean of x and its adjoint.
      sort_eigenvalues: in ascending order; otherwise in any.
      subset_by_index: (start, stop) of the values wanted.
      implementation: see `EighImplementation`.

    Returns:
      (v, w): x v[:, i] = w[i] v[:, i].

    Source: `jax.lax.linalg.eigh`.

    Example:
      >>> import numpy as np
      >>> v, w = eigh(np.float32([[2, 1], [1, 2]]))
      >>> print(w.round(1))
      [1. 3.]
    """
    x = as_array(x)
    v, w = _spectral.eigh(
        _symmetrized(x, "eigh") if symmetrize_input else x,
        lower=lower,
        sort_eigenvalues=sort_eigenvalues,
        **_choice("implementation", implementation),
    )
    axis = typeof(v).ndim - 1
    span = _span("eigh", subset_by_index, typeof(w).shape[-1])
    return slice_axis(v, axis, *span), slice_axis(w, axis - 1, *span)


def eig(
    x: ArrayLike, *, compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True, enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None, use_magma: bool | None = None,
) -> list[Array]:  # fmt: skip
    """Eigenvalues of general matrices, and their eigenvectors of length one.

    Arguments:
      x: [..., n, n].
      compute_left_eigenvectors, compute_right_eigenvectors: which vectors to return.
      enable_eigvec_derivs: permit derivatives of the vectors, which are right where the eigenvalues
        differ from each other.
      implementation, use_magma: see `EigImplementation`.

    Returns:
      [w, left vectors, right vectors], complex, without those not asked for.

    Raises:
      MissingRule: a derivative of vectors that was not permitted.

    Source: `jax.lax.linalg.eig`.

    Example:
      >>> import numpy as np
      >>> print(eig(np.float32([[0, 1], [-1, 0]]))[0])
      [0.+1.j 0.-1.j]
    """
    if implementation is None and use_magma is not None:
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    return list(
        _spectral.eig(
            as_array(x),
            compute_left_eigenvectors=compute_left_eigenvectors,
            compute_right_eigenvectors=compute_right_eigenvectors,
            enable_eigvec_derivs=enable_eigvec_derivs,
            **_choice("implementation", implementation),
        )
    )


def svd(
    x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None, algorithm: SvdAlgorithm | None = None,
) -> PyTree:  # fmt: skip
    """x = u diag(s) v^H.

    Arguments:
      x: [..., m, n].
      full_matrices: u and v are square; otherwise they have min(m, n) columns.
      compute_uv: return u and v^H too.
      subset_by_index: (start, stop) of the singular values wanted.
      algorithm: see `SvdAlgorithm`.

    Returns:
      (u, s, v^H), or s alone; s falls.

    Source: `jax.lax.linalg.svd`.

    Example:
      >>> import numpy as np
      >>> print(svd(np.float32([[3, 0], [4, 5]]), compute_uv=False).round(3))
      [6.708 2.236]
    """
    x = as_array(x)
    shape = typeof(x).shape
    if subset_by_index is not None and full_matrices and compute_uv:
        raise invalid("svd", "full_matrices and subset_by_index cannot both be set")
    made = _spectral.svd(
        x,
        full_matrices=full_matrices and shape[-1:] != shape[-2:-1],
        compute_uv=compute_uv,
        **_choice("algorithm", algorithm),
    )
    axis = typeof(made[0]).ndim - 1
    if subset_by_index is not None:
        span = _span("svd", subset_by_index, min(shape[-2:]))
        made = [slice_axis(y, axis + at, *span) for y, at in zip(made, (0, 1, 0), strict=False)]
    if not compute_uv:
        return made[0]
    s, u, vh = made
    return u, s, vh


def _span(name: str, subset: Any, n: int) -> tuple[int, int]:
    """(start, stop) of the n values that are wanted; all for None."""
    if subset is None:
        return 0, n
    start, stop = subset
    if not 0 <= start <= stop <= n:
        raise invalid(name, f"subset_by_index {subset} must lie in 0..{n}")
    return start, stop


def _choice(name: str, choice: Any) -> dict[str, str]:
    """An algorithm chosen by the user, as a parameter; none for None."""
    if choice is None:
        return {}
    if not hasattr(choice, "name"):
        raise invalid(name, f"takes a member of its enumeration, got {choice!r}")
    return {name: choice.name}


# --- simpler forms --------------------------------------------------------------------------------


def schur(
    x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
    select_callable: Callable[..., PyTree] | None = None,
) -> list[Array]:  # fmt: skip
    """x = q t q^H with unitary q and upper triangular t, real ones of a real matrix: then t has
    2 by 2 blocks for pairs of conjugate eigenvalues.

    Returns:
      [t, q], or [t].

    Raises:
      InvalidArgument: the eigenvalues are to be sorted.

    Source: `jax.lax.linalg.schur`.
    """
    if sort_eig_vals:
        raise invalid(
            "schur", "cannot sort the eigenvalues", "Leave sort_eig_vals False.",
            errors.UnsupportedChoice,
        )  # fmt: skip
    return list(_reductions.schur(as_array(x), compute_schur_vectors=compute_schur_vectors))


def hessenberg(a: ArrayLike) -> list[Array]:
    """Reduce square matrices to Hessenberg form by reflectors.

    Returns:
      [the form, with the reflectors below its subdiagonal; their factors].

    Source: `jax.lax.linalg.hessenberg`.
    """
    return list(_reductions.hessenberg(as_array(a)))


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> list[Array]:
    """Reduce hermitian matrices, of which one triangle is read, to tridiagonal form by reflectors.

    Returns:
      [the form with reflectors beyond its diagonals, its diagonal, the one beside it, the factors].

    Source: `jax.lax.linalg.tridiagonal`.
    """
    return list(_reductions.tridiagonal(as_array(a), lower=lower))
