"""Triangular systems, the Cholesky factorization, and tridiagonal systems.

triangular_solve   op(a) x = b or x op(a) = b, op(a) one of a, a^T, conj(a), a^H
cholesky           x = l l^H
tridiagonal_solve  a system given by its three diagonals
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType
from functrans.primitives.base import Cost, bytes_of, sum_of
from functrans.primitives.elementwise.families import mul, neg, sub
from functrans.primitives.linalg import matrices
from functrans.primitives.shape.joining import pad
from functrans.primitives.shape.moving import reshape
from functrans.trace import literal, typeof

_LOWER_ONLY = jax.__version_info__ >= (0, 11)


class TriangularSolve(matrices.MatrixOperation):
    """Solve op(a) x = b, or x op(a) = b unless `left_side`, for a triangular matrix. Only the
    triangle is read; with `unit_diagonal` the diagonal is taken to be ones.

    `transpose_a`, `conjugate_a`: op is one of them, or both.
    """

    name: str = "triangular_solve"
    ranks: tuple[int, ...] = (2, 2)
    linear_in: tuple[int, ...] = (1,)
    # no LAPACK routine takes 16 bits: XLA has its own substitution
    dtypes: tuple[str, ...] = (*matrices.DTYPES, "float16", "bfloat16")

    def shapes(self, a: ArrayType, b: ArrayType, *, left_side: bool, **how: bool) -> ArrayType:
        self.check_square(a)
        i = 0 if left_side else 1
        if a.shape[0] != b.shape[i]:
            side = "rows" if left_side else "columns"
            raise self.misfit((a, b), f"b must have {a.shape[0]} {side}, got {b.shape[i]}")
        return b

    def one(
        self,
        a: Any,
        b: Any,
        *,
        left_side: bool,
        lower: bool,
        transpose_a: bool,
        conjugate_a: bool,
        unit_diagonal: bool,
    ) -> Any:
        dtype = b.dtype
        if a.dtype.itemsize == 2:
            a, b = a.astype(np.float32), b.astype(np.float32)
        if conjugate_a:
            a = np.conj(a)
        if left_side == transpose_a:  # trtrs solves a x = b
            a, lower = a.T, not lower
        x, _ = matrices.lapack("trtrs", a)(
            _without_zeros(a, unit_diagonal), b if left_side else b.T, lower=lower, unitdiag=unit_diagonal
        )
        return (x if left_side else x.T).astype(dtype, copy=False)

    def jvp(self, primals: Any, tangents: Any, x: Any, *, left_side: bool, lower: bool, **how: bool) -> Any:
        """op(a) x = b: op(da) x + op(a) dx = db."""
        (a, _), (da, db) = primals, tangents
        how = {"left_side": left_side, "lower": lower, **how}
        if da is None:
            return self(a, db, **how)
        part = matrices.lower_part if lower else matrices.upper_part
        da = part(da, strict=how["unit_diagonal"])
        if how["transpose_a"]:
            da = matrices.transposed(da)
        if how["conjugate_a"]:
            da = matrices.conj(da)
        moved = neg(matrices.matmul(da, x) if left_side else matrices.matmul(x, da))
        return self(a, sum_of(db, moved), **how)

    def transpose(self, ct: Any, a: Any, b: Any, *, transpose_a: bool, **how: bool) -> Any:
        return None, self(a, ct, transpose_a=not transpose_a, **how)

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        """Solve for the columns (or rows) of all examples at once if they share the matrix."""
        (a, b), (da, db) = args, dims
        if da is not None:
            return super().batch(t, args, dims, **params)
        n = typeof(b).ndim - 1
        free = n - 1 if params["left_side"] else n - 2  # the new place of the batch axis
        b = t.move(b, db, free)
        shape = typeof(b).shape
        joined = (*shape[:free], shape[free] * shape[free + 1], *shape[free + 2 :])
        return reshape(self(a, reshape(b, shape=joined), **params), shape=shape), free

    def cost(self, in_types: Any, out_types: Any, **how: bool) -> Cost:
        a, b = in_types
        return Cost(b.size * a.shape[-1], bytes_of(*in_types, *out_types))


def _without_zeros(a: np.ndarray, unit_diagonal: bool) -> np.ndarray:
    """Replace zeros on the diagonal by the smallest number. With a zero trtrs leaves b unchanged;
    the smallest number overflows as a division by zero does."""
    zero = np.diagonal(a) == 0
    if unit_diagonal or not zero.any():
        return a
    a = a.copy()
    np.fill_diagonal(a, np.where(zero, np.finfo(a.dtype).smallest_subnormal, np.diagonal(a)))
    return a


class Cholesky(matrices.MatrixOperation):
    """The lower triangular l with l l^H = x; the lower triangle is read; NaN if x is not positive
    definite. The derivative reads both triangles of dx, assumed hermitian; from JAX 0.11 on the
    lower one only, as for x."""

    name = "cholesky"

    def shapes(self, x: ArrayType) -> ArrayType:
        self.check_square(x)
        return x

    def one(self, x: Any) -> Any:
        y, info = matrices.lapack("potrf", x)(x, lower=True, clean=True)
        return np.tril(np.full_like(x, np.nan)) if info else y

    def by_jax(self, x: Any) -> Any:
        return jax.lax.linalg.cholesky(x, symmetrize_input=False)

    def jvp(self, primals: Any, tangents: Any, l: Any) -> Any:  # noqa: E741 - its name
        """dl = l phi(l^-1 dx l^-H), phi the lower triangle with half the diagonal (Murray,
        Differentiation of the Cholesky decomposition, 2016)."""
        dx = tangents[0]
        if _LOWER_ONLY:
            dx = matrices.plus_adjoint(mul(matrices.lower_part(dx), _halved_diagonal(dx)))
        m = solve_triangular(l, dx)
        m = solve_triangular(l, m, left_side=False, transpose_a=True, conjugate_a=True)
        return matrices.matmul(l, matrices.lower_part(mul(m, _halved_diagonal(m))))


def _halved_diagonal(x: Any) -> Any:
    """Return 1/2 on the diagonal, 1 elsewhere."""
    eye = matrices.identity_like(x)
    return sub(literal(1, typeof(eye)), mul(eye, 0.5))


class TridiagonalSolve(matrices.MatrixOperation):
    """Solve a x = b, a[i, i-1] = dl[i], a[i, i] = d[i], a[i, i+1] = du[i]; dl[0] and du[-1] are
    ignored. `perturb_singular`: a pivot near zero is moved away from it."""

    name: str = "tridiagonal_solve"
    ranks: tuple[int, ...] = (1, 1, 1, 2)
    linear_in: tuple[int, ...] = (3,)

    def shapes(
        self, dl: ArrayType, d: ArrayType, du: ArrayType, b: ArrayType, *, perturb_singular: bool
    ) -> ArrayType:
        if not dl.shape == d.shape == du.shape == b.shape[:1]:
            raise self.misfit((dl, d, du, b), "the diagonals and the columns of b must be equally long")
        return b

    def one(self, dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool) -> Any:
        if perturb_singular:  # pivots are at least about eps times the largest element of the LU factors
            a = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
            lu, pivots = matrices.linalg.lu_factor(a, check_finite=False)
            tiny = np.finfo(a.dtype).eps * np.abs(np.triu(lu)).max()
            pivot = np.diagonal(lu)
            np.fill_diagonal(lu, np.where(np.abs(pivot) < tiny, tiny, pivot))
            return matrices.linalg.lu_solve((lu, pivots), b, check_finite=False)
        if len(d) == 1:
            return b / d
        return matrices.lapack("gtsv", d)(dl[1:], d, du[:-1], b)[3]

    def jvp(self, primals: Any, tangents: Any, x: Any, *, perturb_singular: bool) -> Any:
        """da x + a dx = db."""
        moved = _product(tangents[:3], x)
        rhs = sum_of(tangents[3], None if moved is None else neg(moved))
        return self(*primals[:3], rhs, perturb_singular=perturb_singular)

    def transpose(self, ct: Any, dl: Any, d: Any, du: Any, b: Any, **how: bool) -> Any:
        """Solve with the transposed matrix: the off-diagonals swap."""
        back = self(_shifted(du, 1), d, _shifted(dl, -1), ct, **how)
        return None, None, None, back

    def cost(self, in_types: Any, out_types: Any, **how: bool) -> Cost:
        return Cost(8 * in_types[3].size, bytes_of(*in_types, *out_types))


def _product(diagonals: Any, x: Any) -> Any:
    """Multiply a tridiagonal matrix, whose diagonals may be zero (None), with x."""
    total = None
    for d, by in zip(diagonals, (1, 0, -1), strict=True):
        if d is not None:
            total = sum_of(total, mul(matrices.per_row(d, x), _shifted(x, by, axis=-2)))
    return total


def _shifted(x: Any, by: int, axis: int = -1) -> Any:
    """Shift x by one element along an axis, filling with zero."""
    if not by:
        return x
    config = [(0, 0, 0)] * typeof(x).ndim
    config[axis] = (by, -by, 0)
    return pad(x, literal(0, ArrayType((), typeof(x).dtype)), config=tuple(config))


triangular_solve: TriangularSolve = TriangularSolve()
cholesky: Cholesky = Cholesky()
tridiagonal_solve: TridiagonalSolve = TridiagonalSolve()


_USUAL = {
    "left_side": True,
    "lower": True,
    "transpose_a": False,
    "conjugate_a": False,
    "unit_diagonal": False,
}


def solve_triangular(a: Any, b: Any, **how: bool) -> Any:
    """Apply `triangular_solve`; by default to a lower triangle on the left side."""
    return triangular_solve(a, b, **{**_USUAL, **how})
