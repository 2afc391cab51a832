"""Eigenvalue and singular value decompositions.

    eigh  x v = v diag(w), x hermitian
    eig   x v = v diag(w)
    svd   x = u diag(s) v^H

The derivatives are those of Giles (An extended collection of matrix derivative results for forward
and reverse mode, 2008), for distinct values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType
from functrans.primitives.elementwise.complex_numbers import abs_, complex_, complex_dtype, imag
from functrans.primitives.elementwise.conversion import cast, real_dtype
from functrans.primitives.elementwise.families import add, div, eq, full_like, mul, neg, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.linalg.factors import solve
from functrans.primitives.linalg.matrices import (
    MatrixOperation,
    adjoint,
    conj,
    diagonal,
    einsum,
    identity_like,
    kept_where,
    lapack,
    linalg,
    matmul,
    minus_adjoint,
    per_column,
    per_row,
    plus_adjoint,
    real,
    scaled_columns,
)
from functrans.primitives.reductions.folds import argmax, reduce_sum
from functrans.primitives.shape.joining import iota
from functrans.trace import typeof


def _reciprocal_gaps(w: Any, like: Any) -> Any:
    """Return 1 / (w_j - w_i) off the diagonal, 0 on it."""
    return _reciprocal(sub(per_column(w, like), per_row(w, like)))


def _reciprocal(gaps: Any) -> Any:
    """Return 1 / gaps off the diagonal, and 0 on it, where the gaps are 0."""
    eye = identity_like(gaps)
    return sub(div(full_like(gaps, 1), add(gaps, eye)), eye)


class Eigh(MatrixOperation):
    """-> (v, w), w ascending, for a hermitian matrix of which one triangle is read. The derivative
    reads both triangles of the tangent."""

    name: str = "eigh"
    work: int = 9
    multiple_results: bool = True

    def shapes(self, x: ArrayType, **how: Any) -> Any:
        self.check_square(x)
        return x, ArrayType(x.shape[:1], real_dtype(x.dtype))

    def one(self, x: Any, *, lower: bool, **how: Any) -> Any:
        routine = "heevd" if np.iscomplexobj(x) else "syevd"
        w, v, info = lapack(routine, x)(x, lower=lower)
        if info:
            w, v = np.full_like(w, np.nan), np.full_like(v, np.nan)
        return v, w

    def by_jax(self, x: Any, *, implementation: str | None = None, **how: Any) -> Any:
        if implementation:
            how["implementation"] = jax.lax.linalg.EighImplementation[implementation]
        return jax.lax.linalg.eigh(x, symmetrize_input=False, **how)

    def jvp(self, primals: Any, tangents: Any, out: Any, **how: Any) -> Any:
        """dw = diag(v^H dx v), dv = v (f * v^H dx v), f_ij = 1 / (w_j - w_i)."""
        v, w = out
        inner = einsum("ji,jk->ik", conj(v), matmul(tangents[0], v))
        dv = matmul(v, mul(_reciprocal_gaps(w, inner), inner))
        return dv, real(diagonal(inner))


class Eig(MatrixOperation):
    """-> (w, left vectors, right vectors), complex; the vectors only if requested. Vectors have
    norm one and a real largest element. Their derivative requires distinct eigenvalues, which is
    not checked: `enable_eigvec_derivs` permits it."""

    name: str = "eig"
    work: int = 25
    multiple_results: bool = True

    def shapes(
        self, x: ArrayType, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **how: Any
    ) -> Any:
        self.check_square(x)
        x = x.update(dtype=complex_dtype(x.dtype))
        vectors = [x] * (compute_left_eigenvectors + compute_right_eigenvectors)
        return x.update(shape=x.shape[:1]), *vectors

    def one(
        self, x: Any, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **how: Any
    ) -> Any:
        kind = complex_dtype(x.dtype)
        if not np.isfinite(x).all():  # LAPACK would write out of bounds
            vectors = compute_left_eigenvectors + compute_right_eigenvectors
            return [np.full(shape, np.nan, kind) for shape in (x.shape[:1], *[x.shape] * vectors)]
        found = linalg.eig(
            x, left=compute_left_eigenvectors, right=compute_right_eigenvectors, check_finite=False
        )
        return [y.astype(kind) for y in (found if found.__class__ is tuple else [found])]

    def by_jax(self, x: Any, *, implementation: str | None = None, **how: Any) -> Any:
        if implementation:
            how["implementation"] = jax.lax.linalg.EigImplementation[implementation]
        return jax.lax.linalg.eig(x, **how)

    def differentiate(self, t: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> tuple[Any, Any]:
        """Compute the tangents from the right vectors, which are computed for this if necessary."""
        left, right = (params[f"compute_{side}_eigenvectors"] for side in ("left", "right"))
        if (left or right) and not params["enable_eigvec_derivs"]:
            raise self.no_derivative(
                "eigenvectors by default",
                "It is valid only where the eigenvalues differ, which is not checked. To enable "
                "it: lax.linalg.eig(..., enable_eigvec_derivs=True).",
            )
        outs = t.bind_primal(self, primals, {**params, "compute_right_eigenvectors": True})
        w, v = outs[0], outs[-1]
        dx = cast(tangents[0], typeof(v).dtype)
        inner = solve(v, matmul(dx, v))
        moved = [diagonal(inner)]
        if left:
            u, dxh = outs[1], adjoint(dx)
            moved.append(_vector_tangent(conj(w), u, solve(u, matmul(dxh, u))))
        if right:
            moved.append(_vector_tangent(w, v, inner))
        return outs[: len(moved)], moved


def _vector_tangent(w: Any, v: Any, inner: Any) -> Any:
    """Return the tangent of eigenvectors, with inner = v^-1 dx v.

    dv = y + v diag(c), y = v (f * inner), where c follows from the norm and the phase of v:
    Re(v_j^H dv_j) = 0, and the imaginary part of the largest element of v_j stays zero.
    """
    y = matmul(v, mul(_reciprocal_gaps(w, inner), inner))
    rows = typeof(v).ndim - 2
    largest = argmax(abs_(v), axes=(rows,), index_dtype=np.dtype(np.int32))
    place = iota(dtype=np.dtype(np.int32), shape=typeof(v).shape, dimension=rows)
    here = eq(place, per_column(largest, place))

    def picked(x: Any) -> Any:
        return reduce_sum(select_n(here, full_like(x, 0), x), axes=(rows,))

    along = real(reduce_sum(mul(conj(v), y), axes=(rows,)))
    turn = div(imag(picked(y)), real(picked(v)))
    return add(y, scaled_columns(v, complex_(neg(along), neg(turn))))


class SVD(MatrixOperation):
    """-> (s,), or (s, u, v^H) with `compute_uv`; s descending. u and v have min(m, n) columns, or
    all with `full_matrices`."""

    name: str = "svd"
    work: int = 12
    multiple_results: bool = True

    def shapes(
        self, x: ArrayType, *, full_matrices: bool, compute_uv: bool, **how: Any
    ) -> Sequence[ArrayType]:
        m, n = x.shape
        k = min(m, n)
        s = ArrayType((k,), real_dtype(x.dtype))
        if not compute_uv:
            return (s,)
        rows, columns = (m, n) if full_matrices else (k, k)
        return s, x.update(shape=(m, rows)), x.update(shape=(columns, n))

    def one(self, x: Any, *, full_matrices: bool, compute_uv: bool, **how: Any) -> Any:
        u, s, vh, info = lapack("gesdd", x)(x, full_matrices=full_matrices, compute_uv=compute_uv)
        if info:
            s, u, vh = np.full_like(s, np.nan), np.full_like(u, np.nan), np.full_like(vh, np.nan)
        return (s, u, vh) if compute_uv else (s,)

    def by_jax(self, x: Any, *, algorithm: str | None = None, compute_uv: bool, **how: Any) -> Any:
        if algorithm:
            how["algorithm"] = jax.lax.linalg.SvdAlgorithm[algorithm]
        found = jax.lax.linalg.svd(x, compute_uv=compute_uv, **how)
        return (found[1], found[0], found[2]) if compute_uv else (found,)

    def differentiate(self, t: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> tuple[Any, Any]:
        m, n = typeof(primals[0]).shape[-2:]
        if params["compute_uv"]:
            if params["full_matrices"] and m != n:
                raise self.no_derivative(
                    "the vectors that complete the basis, which are arbitrary", "Use full_matrices=False."
                )
            return super().differentiate(t, primals, tangents, params)
        thin = {**params, "compute_uv": True, "full_matrices": False}
        s, u, vh = t.bind_primal(self, primals, thin)
        inner = einsum("ji,jk->ik", conj(u), einsum("ij,kj->ik", tangents[0], conj(vh)))
        return [s], [real(diagonal(inner))]

    def jvp(self, primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        """With p = u^H dx v and f_ij = 1 / (s_j^2 - s_i^2):

            ds = diag(p)
            du = u (f * (p s + s p^H)) + (1 - u u^H) dx v / s
            dv = v (f * (s p + p^H s)) + (1 - v v^H) dx^H u / s

        Of a complex matrix the imaginary part of diag(p) / s turns u.
        """
        (dx,), (s, u, vh) = tangents, out
        dxv = einsum("ij,kj->ik", dx, conj(vh))
        p = einsum("ji,jk->ik", conj(u), dxv)
        columns, rows = per_column(s, p), per_row(s, p)
        f = _reciprocal(mul(add(columns, rows), sub(columns, rows)))
        right, left = mul(p, columns), mul(p, rows)
        turn = mul(minus_adjoint(p), mul(_inverse_diagonal(columns), 0.5))
        du = matmul(u, add(mul(f, plus_adjoint(right)), turn))
        dvh = matmul(adjoint(mul(f, plus_adjoint(left))), vh)
        m, n = typeof(dx).shape[-2:]
        if m > n:
            outside = sub(dxv, matmul(u, p))
            du = add(du, div(outside, per_column(s, outside)))
        if n > m:
            uhdx = einsum("ji,jk->ik", conj(u), dx)
            outside = sub(uhdx, matmul(p, vh))
            dvh = add(dvh, div(outside, per_row(s, outside)))
        return real(diagonal(p)), du, dvh


def _inverse_diagonal(columns: Any) -> Any:
    """Return 1 / x on the diagonal, 0 where x is 0 and off the diagonal."""
    zero = eq(columns, full_like(columns, 0))
    inverse = div(full_like(columns, 1), select_n(zero, columns, full_like(columns, 1)))
    return kept_where(eq, select_n(zero, inverse, full_like(columns, 0)))


eigh: Eigh = Eigh()
eig: Eig = Eig()
svd: SVD = SVD()
