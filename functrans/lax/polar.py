"""The polar decomposition x = u h by the QDWH iteration.

    y <- (b/c) y + (a - b/c) y (1 + c y^H y)^-1         QR-based dynamically weighted Halley

(Nakatsukasa, Bai and Gygi, Optimizing Halley's iteration for computing the matrix polar
decomposition, 2010). The weights depend on a bound of the smallest singular value alone, which is
taken to be the rounding unit; so they are numbers known beforehand, and five or six steps are
enough for any matrix of full rank.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype
from functrans.lax.arguments import as_array, invalid
from functrans.primitives import linalg_factors
from functrans.primitives.arithmetic import max_
from functrans.primitives.call import composite
from functrans.primitives.complex_numbers import abs_
from functrans.primitives.conversion import cast, convert_element_type, strong
from functrans.primitives.elementwise import add, div, full_like, gt, le, mul, sub
from functrans.primitives.joining import concatenate, iota
from functrans.primitives.linalg_products import (
    adjoint,
    conj,
    einsum,
    identity_like,
    matmul,
    plus_adjoint,
    real,
)
from functrans.primitives.linalg_triangular import cholesky, solve_triangular
from functrans.primitives.reduction import reduce_max, reduce_sum
from functrans.primitives.selection import select_n
from functrans.primitives.shape import broadcast_in_dim, slice_axis
from functrans.primitives.transcendental import sqrt as root
from functrans.trace import full, literal, typeof

__all__ = ["qdwh"]

INT32 = np.dtype(np.int32)


@composite
def qdwh(
    x: Any, *, is_hermitian: bool = False, max_iterations: int | None = None,
    eps: float | None = None, dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """x = u h, u with orthonormal columns and h positive semidefinite.

    Arguments:
      x: [..., m, n] of full rank, m >= n.
      is_hermitian: not used.
      max_iterations: steps at most.
      eps: converged is what changes in a step by less than (4 eps)^(1/3) of its size; the rounding
        unit by default.
      dynamic_shape: (m, n) of the part of x that counts; the rest is padding.

    Returns:
      (u, h, steps taken until convergence, whether it converged).

    Raises:
      InvalidArgument: x is wider than high.

    Source: `jax.lax.linalg.qdwh`.

    Example:
      >>> import numpy as np
      >>> u, h, *_ = qdwh(np.float32([[0, -2], [3, 0]]))
      >>> print(h.round(1))
      [[3. 0.]
       [0. 2.]]
    """
    x = as_array(x)
    t = typeof(x)
    if t.ndim < 2 or t.shape[-2] < t.shape[-1]:
        raise invalid("qdwh", f"takes [..., m, n] with m >= n, got {t}", "Take its adjoint.")
    x = strong(x)
    if dynamic_shape is not None:
        x = _without_padding(x, dynamic_shape)
    unit = float(jax.numpy.finfo(t.dtype).eps)
    limit = (4 * (unit if eps is None else eps)) ** (1 / 3)
    weights = _weights(unit)[:max_iterations]
    y = div(x, _like_matrices(_size_bound(x), x))
    moving: Any = full(0, ArrayType(t.shape[:-2], INT32))
    converged: Any = full(False, ArrayType(t.shape[:-2], np.dtype(bool)))
    for a, b, c in weights:
        before, y = y, (_by_qr if c > 100 else _by_cholesky)(y, a, b, c)
        change, size = _norm(sub(y, before)), _norm(y)
        converged = le(change, mul(size, limit))
        moving = add(moving, cast(gt(change, mul(size, limit)), INT32))
    h = mul(plus_adjoint(matmul(adjoint(y), x)), 0.5)
    steps = select_n(gt(moving, len(weights) - 1), add(moving, 1), moving)
    counted = canonical_dtype(np.dtype(int))  # as Python counts
    return y, h, convert_element_type(steps, dtype=counted, weak_type=True), converged


def _weights(low: float) -> list[tuple[float, float, float]]:
    """a, b, c of the steps that bring singular values in [low, 1] to 1."""
    made: list[tuple[float, float, float]] = []
    while abs(1 - low) > 1e-15 and len(made) < 10:
        square = low * low
        d = (4 * (1 - square) / square**2) ** (1 / 3)
        s = sqrt(1 + d)
        a = s + sqrt(max(8 - 4 * d + 8 * (2 - square) / (square * s), 0.0)) / 2
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        low = min(1.0, low * (a + b * square) / (1 + c * square))
        made.append((a, b, c))
    return made


def _by_qr(y: Any, a: float, b: float, c: float) -> Any:
    """With [sqrt(c) y; 1] = [q1; q2] r, sqrt(c) y (1 + c y^H y)^-1 = q1 q2^H: stable for any c."""
    axis, m, n = typeof(y).ndim - 2, *typeof(y).shape[-2:]
    eye = identity_like(slice_axis(y, axis, 0, n))
    q, _ = linalg_factors.qr(
        concatenate(mul(y, sqrt(c)), eye, dimension=axis), pivoting=False, full_matrices=False
    )
    q1, q2 = slice_axis(q, axis, 0, m), slice_axis(q, axis, m, m + n)
    made = einsum("ij,kj->ik", q1, conj(q2))
    return add(mul(y, b / c), mul(made, (a - b / c) / sqrt(c)))


def _by_cholesky(y: Any, a: float, b: float, c: float) -> Any:
    """By the factor of 1 + c y^H y, whose condition is at most 1 + c."""
    gram = matmul(adjoint(y), y)
    factor = cholesky(add(mul(gram, c), identity_like(gram)))
    made = solve_triangular(factor, adjoint(y))
    made = solve_triangular(factor, made, transpose_a=True, conjugate_a=True)
    return add(mul(y, b / c), mul(adjoint(made), a - b / c))


def _size_bound(x: Any) -> Any:
    """A number per matrix that is not less than its norm: the root of those of its rows and
    columns; 1 for a zero matrix."""
    n = typeof(x).ndim
    sizes = abs_(x)
    rows, columns = [
        reduce_max(reduce_sum(sizes, axes=(axis,)), axes=(n - 2,)) for axis in (n - 1, n - 2)
    ]
    bound = root(mul(rows, columns))
    return max_(bound, full_like(bound, float(jax.numpy.finfo(typeof(bound).dtype).tiny)))


def _like_matrices(v: Any, x: Any) -> Any:
    """A number per matrix, repeated for its elements."""
    t = typeof(x)
    return cast(broadcast_in_dim(v, shape=t.shape, dimensions=tuple(range(t.ndim - 2))), t.dtype)


def _norm(x: Any) -> Any:
    n = typeof(x).ndim
    return root(reduce_sum(real(mul(x, conj(x))), axes=(n - 2, n - 1)))


def _without_padding(x: Any, shape: tuple[int, int]) -> Any:
    """Zeros outside of the first rows and columns."""
    t = typeof(x)
    for axis, size in zip((-2, -1), shape, strict=True):
        places = iota(dtype=INT32, shape=t.shape, dimension=t.ndim + axis)
        limit = cast(as_array(size), INT32)
        inside = gt(broadcast_in_dim(limit, shape=t.shape, dimensions=()), places)
        x = select_n(inside, literal(0, t), x)
    return x
