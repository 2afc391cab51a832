"""LU and QR factorizations, and solvers of linear systems by LU.

lu                        x = p l u: l and u in one matrix, the pivots, p as a permutation of rows
lu_pivots_to_permutation  pivots -> that permutation
qr                        x = q r, or x[:, p] = q r
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.ir.types import ArrayType
from functrans.primitives.elementwise.bitwise import and_
from functrans.primitives.elementwise.complex_numbers import complex_, imag
from functrans.primitives.elementwise.families import add, eq, full_like, ge, sub
from functrans.primitives.linalg.matrices import (
    INT32,
    MatrixOperation,
    adjoint,
    conj,
    einsum,
    identity_like,
    is_complex,
    kept_where,
    lapack,
    linalg,
    lower_part,
    matmul,
    minus_adjoint,
    permuted,
    transposed,
    upper_part,
)
from functrans.primitives.linalg.triangular import solve_triangular
from functrans.primitives.shape.joining import concatenate, pad
from functrans.primitives.shape.moving import slice_axis
from functrans.trace import literal, typeof


class LU(MatrixOperation):
    """x = p l u by partial pivoting. -> (l below the diagonal and u, pivots, order): row i of l u
    is row order[i] of x; the pivots are the same permutation as row exchanges."""

    name: str = "lu"
    multiple_results: bool = True
    work: int = 1

    def shapes(self, x: ArrayType) -> Any:
        k = min(x.shape)
        return x, ArrayType((k,), INT32), ArrayType(x.shape[:1], INT32)

    def one(self, x: Any) -> Any:
        lu, pivots, _ = lapack("getrf", x)(x)
        return lu, pivots, _order(pivots, x.shape[0])

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        """d(l u) = dl u + l du. With m = l^-1 dx u^-1, the rows of dx permuted, dl is l times the
        part of m below the diagonal, and du the rest times u. A matrix that is not square is
        completed by an identity: l gets more columns, u more rows."""
        lu, _, order = out
        rows, columns = typeof(lu).shape[-2:]
        k = min(rows, columns)
        last = typeof(lu).ndim - 1
        l = _padded(lower_part(slice_axis(lu, last, 0, k), strict=True), rows)  # noqa: E741
        l = add(l, identity_like(l))  # noqa: E741
        u = _padded(upper_part(slice_axis(lu, last - 1, 0, k)), columns)
        if columns > k:
            u = add(u, kept_where(lambda i, j: and_(eq(i, j), ge(i, k)), full_like(u, 1)))
        dx = permuted(tangents[0], order, -2)
        m = solve_triangular(l, dx, unit_diagonal=True)
        m = solve_triangular(u, m, left_side=False, lower=False)
        return add(matmul(l, lower_part(m, strict=True)), matmul(upper_part(m), u)), None, None


def _padded(x: Any, n: int) -> Any:
    """Return x as the first block of an n by n matrix of zeros."""
    t = typeof(x)
    widths = [(0, n - size, 0) for size in t.shape[-2:]]
    config = (*[(0, 0, 0)] * (t.ndim - 2), *widths)
    return pad(x, literal(0, ArrayType((), t.dtype)), config=config)


def _order(pivots: np.ndarray, n: int) -> np.ndarray:
    """Exchange i with pivots[i], in sequence."""
    order = np.arange(n, dtype=np.int32)
    for i, j in enumerate(pivots):
        order[[i, j]] = order[[j, i]]
    return order


class PivotsToPermutation(MatrixOperation):
    """Row exchanges as a permutation of `permutation_size` rows."""

    name: str = "lu_pivots_to_permutation"
    ranks: tuple[int, ...] = (1,)
    dtypes: tuple[str, ...] = ("int32",)

    def shapes(self, pivots: ArrayType, *, permutation_size: int) -> ArrayType:
        if permutation_size < pivots.shape[0]:
            raise self.misfit(
                (pivots,), f"permutation_size {permutation_size} must be at least {pivots.shape[0]}"
            )
        return ArrayType((permutation_size,), INT32)

    def one(self, pivots: Any, *, permutation_size: int) -> Any:
        return _order(pivots, permutation_size)


# --- QR -------------------------------------------------------------------------------------------


class QR(MatrixOperation):
    """x = q r by Householder reflectors, q^H q = 1 and r upper triangular. For an [m, n] matrix q
    has min(m, n) columns, or m with `full_matrices`. With `pivoting` there is a column permutation
    p too, x[:, p] = q r, and the diagonal of r decreases."""

    name: str = "qr"
    multiple_results: bool = True

    def shapes(self, x: ArrayType, *, pivoting: bool, full_matrices: bool) -> Any:
        m, n = x.shape
        k = m if full_matrices else min(m, n)
        order = [ArrayType((n,), INT32)] if pivoting else []
        return [x.update(shape=(m, k)), x.update(shape=(k, n)), *order]

    def one(self, x: Any, *, pivoting: bool, full_matrices: bool) -> Any:
        mode = "full" if full_matrices else "economic"
        q, r, *order = linalg.qr(x, mode=mode, pivoting=pivoting, check_finite=False)
        return [q, r, *[p.astype(np.int32) for p in order]]

    def of_nothing(self, i: int, t: ArrayType) -> np.ndarray:
        return super().of_nothing(i, t) if i == 0 else np.zeros(t.shape, t.dtype)

    def jvp(self, primals: Any, tangents: Any, out: Any, *, pivoting: bool, full_matrices: bool) -> Any:
        """Apply `_thin`; a matrix with more columns than rows is [x1 x2] = q [r1 q^H x2]."""
        q, r = out[:2]
        dx = permuted(tangents[0], out[2], -1) if pivoting else tangents[0]
        m, n = typeof(dx).shape[-2:]
        last = typeof(q).ndim - 1
        k = min(m, n)
        dq, dr = _thin(
            slice_axis(q, last, 0, k),
            slice_axis(slice_axis(r, last, 0, k), last - 1, 0, k),
            slice_axis(dx, last, 0, k),
        )
        if m < n:
            r2, dx2 = slice_axis(r, last, k, n), slice_axis(dx, last, k, n)
            qr2 = matmul(q, r2)
            dr2 = add(einsum("ji,jk->ik", conj(dq), qr2), einsum("ji,jk->ik", conj(q), dx2))
            dr = concatenate(dr, dr2, dimension=last)
        elif typeof(q).shape[-1] > n:
            dq = concatenate(dq, _completed(q, dq, n), dimension=last)
            zeros = full_like(slice_axis(r, last - 1, n, m), 0)
            dr = concatenate(dr, zeros, dimension=last - 1)
        return [dq, dr, *[None] * pivoting]


def _thin(q: Any, r: Any, dx: Any) -> tuple[Any, Any]:
    """dx = dq r + q dr. With c = q^H dx r^-1, dr r^-1 = c - w is upper triangular with a real
    diagonal and w = q^H dq is skew: so w = low - low^H, low the part of c below the diagonal, and i
    times the imaginary part of c on it (Walter and Lehmann, 2012)."""
    dxr = solve_triangular(r, dx, left_side=False, lower=False)
    c = einsum("ji,jk->ik", conj(q), dxr)
    w = minus_adjoint(lower_part(c, strict=True))
    if is_complex(c):
        turn = imag(kept_where(eq, c))
        w = add(w, complex_(full_like(turn, 0), turn))
    return add(matmul(q, sub(w, c)), dxr), matmul(sub(c, w), r)


def _completed(q: Any, dq: Any, n: int) -> Any:
    """Return the tangent of the columns of q from n on, given that of the first n.

    Reflectors make q - 1 = -y t y^H of rank n. In blocks, n rows or columns first and p the rest,

        q[:, p] = e_p + (q[:, n] - e_n) z^H          z = q[p, n] (q[n, n] - 1)^-1

    because z = y_p y_n^-1. As q is unitary, (q[:, n] - e_n) (q[n, n] - 1)^-H is
    -(q[:, n] + q[:, p] z), so  dq[:, p] = dq[:, n] z^H - (q[:, n] + q[:, p] z) (dq[p, n] - z
    dq[n, n])^H.
    """
    t = typeof(q)
    m, last = t.shape[-1], t.ndim - 1
    q_n, q_p = slice_axis(q, last, 0, n), slice_axis(q, last, n, m)
    q_nn, q_pn = slice_axis(q_n, last - 1, 0, n), slice_axis(q_n, last - 1, n, m)
    dq_nn, dq_pn = slice_axis(dq, last - 1, 0, n), slice_axis(dq, last - 1, n, m)
    z = transposed(solve(transposed(sub(q_nn, identity_like(q_nn))), transposed(q_pn)))
    along = add(q_n, matmul(q_p, z))
    return sub(matmul(dq, adjoint(z)), matmul(along, adjoint(sub(dq_pn, matmul(z, dq_nn)))))


lu: LU = LU()
lu_pivots_to_permutation: PivotsToPermutation = PivotsToPermutation()
qr: QR = QR()


def solve(a: Any, b: Any) -> Any:
    """Solve a x = b for square matrices by LU."""
    factors, _, order = lu(a)
    y = solve_triangular(factors, permuted(b, order, -2), unit_diagonal=True)
    return solve_triangular(factors, y, lower=False)
