"""Equations, determinants and pseudo-inverses: derivatives simpler than those of their factors.

    solve    (a, lu, order, b)             -> x          a x = b
    det      (a, lu, order, sign)          -> det a
    slogdet  (a, lu, order, sign, logabs)  -> sign, logabs
    pinv     (a, p)                        -> p

They are given what was computed from a already, and say how the result moves with a. So a user's
`solve` or `slogdet` factors a once, for the value and for its derivatives, and never differentiates
the factors: those of solve, slogdet and pinv may have had their gradients stopped. `lu` and `order`
are results of the primitive `lu`.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType
from functrans.primitives.base import Cost, bytes_of, sum_of
from functrans.primitives.complex_numbers import complex_, imag
from functrans.primitives.elementwise import add, div, eq, full_like, mul, ne, neg, sub
from functrans.primitives.joining import iota
from functrans.primitives.linalg import INT32, ColumnSolver, MatrixOperation
from functrans.primitives.linalg_products import (
    adjoint,
    conj,
    diagonal,
    einsum,
    identity_like,
    is_complex,
    matmul,
    per_column,
    per_row,
    permuted,
    real,
    upper_part,
)
from functrans.primitives.linalg_triangular import solve_triangular
from functrans.primitives.reduction import reduce_prod, reduce_sum
from functrans.primitives.selection import select_n
from functrans.primitives.shape import broadcast_to_axis
from functrans.trace import typeof


class Solve(ColumnSolver):
    """x with a x = b, or a^T x = b if `transposed`, for square matrices."""

    name: str = "solve"
    ranks: tuple[int, ...] = (2, 2, 1, 2)
    int_operands: tuple[int, ...] = (2,)
    linear_in: tuple[int, ...] = (3,)

    def shapes(
        self, a: ArrayType, lu: ArrayType, order: ArrayType, b: ArrayType, *, transposed: bool
    ) -> ArrayType:
        self.check_square(a)
        if a.shape[0] != b.shape[0]:
            raise self.misfit((a, b), f"b must have {a.shape[0]} rows, got {b.shape[0]}")
        return b

    def one(self, a: Any, lu: Any, order: Any, b: Any, *, transposed: bool) -> Any:
        lower, upper = np.tril(lu, -1) + np.eye(len(lu), dtype=lu.dtype), np.triu(lu)
        with np.errstate(all="ignore"):
            if not transposed:
                return _substituted(upper, _substituted(lower, b[order], 1), -1)
            x = np.empty_like(b)
            x[order] = _substituted(lower.T, _substituted(upper.T, b, 1), -1)
        return x

    def by_jax(self, a: Any, lu: Any, order: Any, b: Any, *, transposed: bool) -> Any:
        how: dict[str, Any] = {"left_side": True, "transpose_a": transposed}
        solve = jax.lax.linalg.triangular_solve
        if not transposed:
            b = jax.numpy.take_along_axis(b, order[..., None], -2)
            return solve(lu, solve(lu, b, lower=True, unit_diagonal=True, **how), **how)
        x = solve(lu, solve(lu, b, **how), lower=True, unit_diagonal=True, **how)
        return jax.numpy.take_along_axis(x, jax.numpy.argsort(order)[..., None], -2)

    def jvp(self, primals: Any, tangents: Any, x: Any, *, transposed: bool) -> Any:
        """a dx = db - da x."""
        da, db = tangents[0], tangents[3]
        if da is not None:
            db = sum_of(db, neg(einsum("ji,jk->ik" if transposed else "ij,jk->ik", da, x)))
        return None if db is None else self(*primals[:3], db, transposed=transposed)

    def transpose(self, ct: Any, a: Any, lu: Any, order: Any, b: Any, *, transposed: bool) -> Any:
        return None, None, None, self(a, lu, order, ct, transposed=not transposed)

    def cost(self, in_types: Any, out_types: Any, **how: Any) -> Cost:
        return Cost(2 * in_types[3].size * in_types[0].shape[-1], bytes_of(*in_types, *out_types))


def _substituted(a: np.ndarray, b: np.ndarray, step: int) -> np.ndarray:
    """x with a x = b, rows from the first on (a lower triangular), or from the last with -1."""
    x = b.copy()
    for i in range(len(a))[::step]:
        done = slice(0, i) if step > 0 else slice(i + 1, None)
        x[i] = (b[i] - a[i, done] @ x[done]) / a[i, i]
    return x


class Det(MatrixOperation):
    """The determinant: `sign`, that of the order, times the product of the diagonal of `lu`."""

    name: str = "det"
    ranks: tuple[int, ...] = (2, 2, 1, 0)
    int_operands: tuple[int, ...] = (2,)

    def shapes(self, a: ArrayType, lu: ArrayType, order: ArrayType, sign: ArrayType) -> ArrayType:
        self.check_square(a)
        return sign

    def one(self, a: Any, lu: Any, order: Any, sign: Any) -> Any:
        return sign * np.prod(np.diagonal(lu), dtype=lu.dtype)

    def by_jax(self, a: Any, lu: Any, order: Any, sign: Any) -> Any:
        return sign * jax.numpy.prod(jax.numpy.diagonal(lu, axis1=-2, axis2=-1), -1)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        """d det = trace(det u^-1 l^-1 da), the rows of da in order, for a singular matrix too.

        det u^-1 y is found without a division by the last d of u's diagonal d: with 1 / (det / d_n)
        in its place, and the other rows of y times det. Where one of the others is zero the
        derivative is taken for zero; it is, where the rank is less than n - 1.
        """
        if tangents[0] is None:
            return None
        _, lu, order, sign = primals
        d = diagonal(lu)
        axis, n = typeof(d).ndim - 1, typeof(d).shape[-1]
        at = iota(dtype=INT32, shape=typeof(d).shape, dimension=axis)
        last = eq(at, full_like(at, n - 1))
        others = mul(sign, reduce_prod(select_n(last, d, full_like(d, 1)), axes=(axis,)))
        regular = broadcast_to_axis(ne(others, full_like(others, 0)), axis, n)
        pivot = div(full_like(d, 1), broadcast_to_axis(others, axis, n))
        d = select_n(regular, full_like(d, 1), select_n(last, d, pivot))
        u = upper_part(lu, strict=True)
        u = add(u, mul(identity_like(u), per_column(d, u)))
        y = solve_triangular(lu, permuted(tangents[0], order, -2), unit_diagonal=True)
        scale = select_n(last, broadcast_to_axis(out, axis, n), full_like(d, 1))
        moved = diagonal(solve_triangular(u, mul(y, per_row(scale, y)), lower=False))
        return reduce_sum(select_n(regular, full_like(moved, 0), moved), axes=(axis,))


class SlogDet(MatrixOperation):
    """`sign` and `logabs` of the determinant of a, which were computed from it, however that was
    done."""

    name: str = "slogdet"
    ranks: tuple[int, ...] = (2, 2, 1, 0, 0)
    int_operands: tuple[int, ...] = (2,)
    real_operands: tuple[int, ...] = (4,)
    multiple = True

    def shapes(
        self, a: ArrayType, lu: ArrayType, order: ArrayType, sign: ArrayType, logabs: ArrayType
    ) -> Any:
        self.check_square(a)
        return sign, logabs

    def one(self, a: Any, lu: Any, order: Any, sign: Any, logabs: Any) -> Any:
        return sign, logabs

    def by_jax(self, a: Any, lu: Any, order: Any, sign: Any, logabs: Any) -> Any:
        return sign, logabs

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        """d log det = trace(a^-1 da): its real part moves the size, its imaginary one the sign."""
        a, lu, order = primals[:3]
        if tangents[0] is None:
            return None, None
        moved = diagonal(solve(a, lu, order, tangents[0], transposed=False))
        moved = reduce_sum(moved, axes=(typeof(moved).ndim - 1,))
        if not is_complex(moved):
            return None, moved
        turn = imag(moved)
        return mul(out[0], complex_(full_like(turn, 0), turn)), real(moved)


class Pinv(MatrixOperation):
    """The pseudo-inverse p of a, which was computed from it."""

    name: str = "pinv"
    ranks: tuple[int, ...] = (2, 2)

    def shapes(self, a: ArrayType, p: ArrayType) -> ArrayType:
        if p.shape != a.shape[::-1]:
            raise self.misfit((a, p), "p must have the shape of the transpose of a")
        return p

    def one(self, a: Any, p: Any) -> Any:
        return p

    def by_jax(self, a: Any, p: Any) -> Any:
        return p

    def jvp(self, primals: Any, tangents: Any, p: Any) -> Any:
        """dp = -p da p + p p^H da^H (1 - a p) + (1 - p a) da^H p^H p, where the rank is constant
        (Golub and Pereyra, 1973)."""
        a, da = primals[0], tangents[0]
        if da is None:
            return None
        left = matmul(einsum("ij,kj->ik", p, conj(p)), adjoint(da))
        right = matmul(adjoint(da), einsum("ji,jk->ik", conj(p), p))
        outside = sub(left, matmul(left, matmul(a, p)))
        inside = sub(right, matmul(matmul(p, a), right))
        return sub(add(outside, inside), matmul(matmul(p, da), p))


solve: Solve = Solve()
det: Det = Det()
slogdet: SlogDet = SlogDet()
pinv: Pinv = Pinv()
