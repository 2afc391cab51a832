"""Factorisations as SciPy writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans import errors, lax
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import integers
from functrans.numpy import shaping
from functrans.numpy.grids import diag, eye, tril, triu
from functrans.numpy.linalg.factors import inexact, shape_error
from functrans.numpy.padding import pad
from functrans.numpy.promotion import (
    array_of,
    cast,
    expand,
    invalid,
    mismatch,
    promote_inexact,
    strong,
)
from functrans.primitives.call import composite
from functrans.primitives.complex_numbers import complex_dtype
from functrans.primitives.conversion import real_dtype
from functrans.primitives.linalg import DTYPES
from functrans.primitives.linalg_products import adjoint, einsum, matmul, scaled_columns
from functrans.trace import full, typeof

__all__ = [
    "eigh",
    "eigh_tridiagonal",
    "hessenberg",
    "lu",
    "polar",
    "qr",
    "qr_multiply",
    "schur",
    "svd",
]


@composite
def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, ...]:
    """a = p l u.

    Arguments:
      a: [m, n].
      permute_l: return p l for p and l.

    Returns:
      (p, l, u), p a matrix of zeros and ones; or (p l, u).

    Source: `jax.scipy.linalg.lu`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> p, l, u = linalg.lu(jnp.array([[1.0, 2.0], [2.0, 2.0]]))
      >>> print(p @ l @ u)
      [[1. 2.]
       [2. 2.]]
    """
    a = inexact(a, "lu")
    t = typeof(a)
    if t.ndim != 2:
        raise shape_error("lu", f"takes a matrix, got {t}")
    factors, _, order = lax.linalg.lu(a)
    m, n = t.shape
    k = min(m, n)
    lower = tril(factors, -1)[:, :k] + eye(m, k, dtype=t.dtype)
    upper = triu(factors)[:k, :]
    rows = lax.broadcasted_iota(np.int32, (m, m), 0)
    p = cast(lax.eq(rows, expand(order, (m, m))), t.dtype if permute_l else real_dtype(t.dtype))
    return (matmul(p, lower), upper) if permute_l else (p, lower, upper)


@composite
def qr(
    a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full",
    pivoting: bool = False, check_finite: bool = True,
) -> tuple[Any, ...]:  # fmt: skip
    """a = q r, or a[:, p] = q r.

    Arguments:
      a: [..., m, n].
      mode: "full", q is square; "economic", q has min(m, n) columns; "r", no q.
      pivoting: choose the columns in an order p, so that the diagonal of r falls.

    Returns:
      (q, r), (r,), (q, r, p) or (r, p).

    Raises:
      InvalidArgument: another mode.

    Source: `jax.scipy.linalg.qr`.
    """
    if mode not in ("full", "r", "economic"):
        raise invalid("qr", f"unsupported mode {mode!r}", "Modes: 'full', 'economic', 'r'.")
    made = lax.linalg.qr(inexact(a, "qr"), pivoting=pivoting, full_matrices=mode != "economic")
    return made[1:] if mode == "r" else made


@composite
def qr_multiply(
    a: Any, c: Any, mode: str = "right", pivoting: bool = False, conjugate: bool = False,
    overwrite_a: bool = False, overwrite_c: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Multiply by the q of a = q r.

    Arguments:
      a: [..., m, n].
      c: vector or matrices.
      mode: "left", q c with the min(m, n) columns of q; "right", c q.
      pivoting: as in `qr`.
      conjugate: multiply by the conjugate of q.

    Returns:
      (q c or c q, r), and p with `pivoting`.

    Raises:
      InvalidArgument: another mode, or shapes that do not fit.

    Source: `jax.scipy.linalg.qr_multiply`.
    """
    if mode not in ("left", "right"):
        raise invalid("qr_multiply", f"mode must be 'left' or 'right', got {mode!r}")
    a, c = promote_inexact([array_of(a, "qr_multiply"), array_of(c, "qr_multiply", 1)],
                           "qr_multiply")  # fmt: skip
    vector = typeof(c).ndim == 1
    if vector:
        c = shaping.expand_dims(c, -1 if mode == "left" else 0)
    q, r, *order = lax.linalg.qr(strong(a), pivoting=pivoting, full_matrices=False)
    have, need = (-2, -1) if mode == "left" else (-1, -2)
    if typeof(c).shape[have] != typeof(q).shape[need]:
        raise invalid("qr_multiply", f"q is {typeof(q)}, which does not fit c {typeof(c)}")
    if conjugate and dtype_class(typeof(q).dtype) == "complex":
        q = lax.conj(q)
    made = q @ c if mode == "left" else c @ q
    return (shaping.ravel(made) if vector else made, r, *order)


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False,
    check_finite: bool = True, lapack_driver: str = "gesdd",
) -> Any:  # fmt: skip
    """a = u diag(s) v^H -> (u, s, v^H), or s.

    Source: `jax.scipy.linalg.svd`.
    """
    return lax.linalg.svd(inexact(a, "svd"), full_matrices=full_matrices, compute_uv=compute_uv)


def eigh(
    a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False,
    overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True, eigvals: None = None,
    type: int = 1, check_finite: bool = True,
) -> Any:  # fmt: skip
    """Eigenvalues and eigenvectors of hermitian matrices, or of pairs: a v = b v diag(w).

    Arguments:
      a: [..., n, n]; it is taken for the mean of itself and its adjoint.
      b: None, or positive definite matrices like a.
      eigvals_only: return w alone.
      eigvals: must be None: all values are found.
      type: must be 1.

    Returns:
      (w, v), w ascending; or w.

    Raises:
      InvalidArgument: `eigvals` or `type` ask for something else.

    Source: `jax.scipy.linalg.eigh`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> print(linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]), eigvals_only=True).round(1))
      [1. 3.]
    """
    if eigvals is not None or type != 1:
        raise errors.NotSupported(
            f"eigh: takes eigvals=None and type=1 only, got {eigvals} and {type}, at\n"
            f"    {describe(user_source())}"
        )
    return _eigh(a, bool(eigvals_only)) if b is None else _eigh_of_pair(a, b, bool(eigvals_only))


@composite
def _eigh(a: Any, eigvals_only: bool) -> Any:
    v, w = lax.linalg.eigh(inexact(a, "eigh"))
    return w if eigvals_only else (w, v)


@composite
def _eigh_of_pair(a: Any, b: Any, eigvals_only: bool) -> Any:
    """b = l l^H makes it the equation of l^-1 a l^-H, whose vectors are l^H v."""
    a, b = promote_inexact([array_of(a, "eigh"), array_of(b, "eigh", 1)], "eigh")
    factor = lax.linalg.cholesky(b)
    how: dict[str, Any] = {"lower": True}
    half = lax.linalg.triangular_solve(factor, a, left_side=True, **how)
    whole = lax.linalg.triangular_solve(factor, half, transpose_a=True, conjugate_a=True, **how)
    v, w = lax.linalg.eigh(whole)
    if eigvals_only:
        return w
    return w, lax.linalg.triangular_solve(
        factor, v, left_side=True, transpose_a=True, conjugate_a=True, **how
    )


def eigh_tridiagonal(
    d: Any, e: Any, *, eigvals_only: bool = False, select: str = "a",
    select_range: tuple[float, float] | None = None, tol: float | None = None, key: Any = None,
) -> Any:  # fmt: skip
    """Eigenvalues and eigenvectors of a hermitian tridiagonal matrix.

    Arguments:
      d: [n], the diagonal, of which the real part counts.
      e: [n - 1], the diagonal above it, of the dtype of d.
      eigvals_only: return the eigenvalues alone.
      select: "a", all; "i", those of index `select_range[0]` to `select_range[1]`.
      tol, key: not used: all eigenvalues are found to rounding, by `eigh`.

    Returns:
      (w, v), w ascending; or w.

    Raises:
      TypeMismatch: d and e have unlike dtypes, or are not inexact.
      InvalidArgument: an unknown `select`, or no range for "i".

    Source: `jax.scipy.linalg.eigh_tridiagonal`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> print(linalg.eigh_tridiagonal(jnp.zeros(2), jnp.ones(1), eigvals_only=True).round(2))
      [-1.  1.]
    """
    name = "eigh_tridiagonal"
    d, e = array_of(d, name), array_of(e, name, 1)
    if typeof(d).dtype != typeof(e).dtype or typeof(d).dtype.name not in DTYPES:
        raise mismatch(name, f"takes two of one dtype among {DTYPES}, got {typeof(d)}, {typeof(e)}")
    if typeof(d).ndim != 1 or typeof(e).shape != (max(typeof(d).size - 1, 0),):
        raise shape_error(name, f"takes n elements and n - 1, got {typeof(d)} and {typeof(e)}")
    if select == "v":
        raise errors.MissingRule(
            f"{name}: values cannot be selected by size, at\n    {describe(user_source())}\n"
            "Their number must be known: use select='i', or all of them."
        )
    if select not in ("a", "i") or (select == "i" and select_range is None):
        raise invalid(name, f"takes select='a', or 'i' and a select_range, got {select!r}")
    span = None
    if select == "i" and select_range is not None:
        first, last = integers(select_range, name, "select_range")
        span = first, last + 1
        if span[0] >= span[1]:
            raise invalid(name, f"select_range {select_range} holds no index")
    return _eigh_tridiagonal(d, e, bool(eigvals_only), span)


@composite
def _eigh_tridiagonal(d: Any, e: Any, eigvals_only: bool, span: tuple[int, int] | None) -> Any:
    if _complex(d):
        d = cast(lax.real(d), typeof(d).dtype)
    beside = lax.conj(e) if _complex(e) else e
    a = diag(d) + diag(e, 1) + diag(beside, -1)
    if typeof(d).size > 1:
        a = cast(a, typeof(a).dtype)
    v, w = lax.linalg.eigh(a, symmetrize_input=False, subset_by_index=span)
    return w if eigvals_only else (w, v)


@composite
def schur(a: Any, output: str = "real") -> tuple[Any, Any]:
    """a = z t z^H, z unitary -> (t, z).

    Arguments:
      a: [..., n, n].
      output: "real", t of a real matrix is real and has 2 by 2 blocks for pairs of conjugate
        eigenvalues; "complex", t is upper triangular.

    Raises:
      InvalidArgument: another output.

    Source: `jax.scipy.linalg.schur`.
    """
    if output not in ("real", "complex"):
        raise invalid("schur", f"output must be 'real' or 'complex', got {output!r}")
    a = inexact(a, "schur")
    if output == "complex":
        a = cast(a, complex_dtype(typeof(a).dtype))
    t, z = lax.linalg.schur(a)
    return t, z


@composite
def hessenberg(
    a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """a = q h q^H, with zeros below the first subdiagonal of h -> h, or (h, q) with `calc_q`.

    Source: `jax.scipy.linalg.hessenberg`.
    """
    a = inexact(a, "hessenberg")
    n = typeof(a).shape[-1]
    if n == 0:
        return (a, a) if calc_q else a
    made, taus = lax.linalg.hessenberg(a)
    h = triu(made, -1)
    if not calc_q:
        return h
    inner = lax.linalg.householder_product(made[..., 1:, : n - 1], taus)
    widths = [(0, 0)] * (typeof(a).ndim - 2) + [(1, 0), (1, 0)]
    corner = full(0, ArrayType((n, n), typeof(a).dtype))
    first = pad(inner, widths) + corner.at[0, 0].set(1)
    return h, first


@composite
def polar(
    a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """a = u p, or a = p u with `side="left"`: u has orthonormal columns or rows, p is positive
    semidefinite.

    Arguments:
      a: [..., m, n].
      method: "qdwh", by an iteration, for m >= n on the right and m < n on the left; or "svd".
      eps, max_iterations: when the iteration stops.

    Returns:
      (u, p).

    Raises:
      InvalidArgument: another side or method.

    Source: `jax.scipy.linalg.polar`.
    """
    a = inexact(a, "polar")
    t = typeof(a)
    if t.ndim < 2 or side not in ("right", "left") or method not in ("qdwh", "svd"):
        raise invalid("polar", f"takes matrices, side 'right' or 'left' and method 'qdwh' or 'svd',"
                      f" got {t}, {side!r}, {method!r}")  # fmt: skip
    if method == "svd":
        u, s, vh = lax.linalg.svd(a, full_matrices=False)
        s = cast(s, typeof(s).dtype)
        positive = einsum("ij,kj->ik", scaled_columns(u, s), lax.conj(u) if _complex(u) else u)
        if side == "right":
            positive = matmul(scaled_columns(adjoint(vh), s), vh)
        return matmul(u, vh), positive
    m, n = t.shape[-2:]
    if (m >= n) != (side == "right"):
        raise errors.MissingRule(
            f"polar: method 'qdwh' takes side 'right' for m >= n and 'left' for m < n, got {t}, at"
            f"\n    {describe(user_source())}\nUse method='svd'."
        )
    if side == "right":
        u, h, _, _ = lax.linalg.qdwh(a, eps=eps, max_iterations=max_iterations)
        return u, h
    u, h, _, _ = lax.linalg.qdwh(adjoint(a), eps=eps, max_iterations=max_iterations)
    return adjoint(u), adjoint(h)


def _complex(x: Any) -> bool:
    return dtype_class(typeof(x).dtype) == "complex"
