"""Reductions to similar matrices: Schur, Hessenberg and tridiagonal. They have no derivatives."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType
from functrans.primitives.base import Cost, bytes_of
from functrans.primitives.elementwise.conversion import real_dtype
from functrans.primitives.linalg.shared import MatrixOperation, lapack, scipy_linalg


class SimilarityReduction(MatrixOperation):
    """Reduction of a square matrix to a similar one."""

    multiple_results = True

    def cost(self, in_types: Any, out_types: Any, **how: Any) -> Cost:
        x = in_types[0]
        return Cost(10 * x.size * x.shape[-1], bytes_of(*in_types, *out_types))


class Schur(SimilarityReduction):
    """x = q t q^H -> (t,), or (t, q) with `compute_schur_vectors`. t is upper triangular; for a
    real matrix it has 2 by 2 blocks for pairs of conjugate eigenvalues."""

    name = "schur"

    def shapes(self, x: ArrayType, *, compute_schur_vectors: bool) -> Any:
        self.check_square(x)
        return [x, x] if compute_schur_vectors else [x]

    def one(self, x: Any, *, compute_schur_vectors: bool) -> Any:
        kind = "complex" if np.iscomplexobj(x) else "real"
        if not np.isfinite(x).all():  # LAPACK would write out of bounds
            t, q = np.triu(np.full_like(x, np.nan), -1), np.eye(len(x), dtype=x.dtype)
            return [t, q] if compute_schur_vectors else [t]
        t, q = scipy_linalg().schur(x, output=kind, check_finite=False)
        return [t, q] if compute_schur_vectors else [t]

    def by_jax(self, x: Any, *, compute_schur_vectors: bool) -> Any:
        return jax.lax.linalg.schur(x, compute_schur_vectors=compute_schur_vectors)


class Hessenberg(SimilarityReduction):
    """-> (the Hessenberg matrix with reflectors below its subdiagonal, their factors)."""

    name = "hessenberg"

    def shapes(self, x: ArrayType) -> Any:
        self.check_square(x)
        return x, x.update(shape=(max(x.shape[0] - 1, 0),))

    def one(self, x: Any) -> Any:
        return lapack("gehrd", x)(x)[:2]

    def by_jax(self, x: Any) -> Any:
        return jax.lax.linalg.hessenberg(x)


class Tridiagonal(SimilarityReduction):
    """The tridiagonal form of a hermitian matrix, of which one triangle is read -> (the matrix with
    reflectors outside its diagonals, the diagonal, the off-diagonal, factors of the reflectors)."""

    name = "tridiagonal"

    def shapes(self, x: ArrayType, *, lower: bool) -> Any:
        self.check_square(x)
        n, part = x.shape[0], real_dtype(x.dtype)
        beside = (max(n - 1, 0),)
        return x, ArrayType((n,), part), ArrayType(beside, part), ArrayType(beside, x.dtype)

    def one(self, x: Any, *, lower: bool) -> Any:
        routine = "hetrd" if np.iscomplexobj(x) else "sytrd"
        return lapack(routine, x)(x, lower=lower)[:4]

    def by_jax(self, x: Any, *, lower: bool) -> Any:
        return jax.lax.linalg.tridiagonal(x, lower=lower)


schur: Schur = Schur()
hessenberg: Hessenberg = Hessenberg()
tridiagonal: Tridiagonal = Tridiagonal()
