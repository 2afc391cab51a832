"""Linear algebra under the names of `jax.numpy.linalg`: norms and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.ir.types import dtype_class
from functrans.numpy import linear, prims, reductions, shaping
from functrans.numpy.grids import eye
from functrans.numpy.linear import cross as cross
from functrans.numpy.linear import matmul as matmul
from functrans.numpy.linear import outer as outer
from functrans.numpy.linear import tensordot as tensordot
from functrans.numpy.linear import vecdot as vecdot
from functrans.numpy.promotion import (
    array_of,
    axes_of,
    cast,
    invalid,
    promote_dtypes,
    promote_inexact,
)
from functrans.numpy.reductions import max as max_over
from functrans.numpy.reductions import min as min_over
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.shaping import matrix_transpose as matrix_transpose
from functrans.trace import literal, typeof

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "multi_dot",
    "norm", "outer", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors (one axis) or matrices (two axes); of the flattened array by default.

    Arguments:
      x: array.
      ord: of vectors any number, inf or -inf; of matrices "fro", 1, -1, inf or -inf.
      axis: an int, a pair, or None.
      keepdims: leave the axes there, with size 1.

    Raises:
      InvalidArgument: an order that the axes do not have.

    Source: `jax.numpy.linalg.norm`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.norm(jnp.array([3.0, 4.0])))
      5.0
    """
    (x,) = promote_inexact((array_of(x, "norm"),), "norm")
    n = typeof(x).ndim
    if axis is None:
        if ord is None:
            return prims.sqrt(_sum_of_squares(x, tuple(range(n)), keepdims))
        axes = tuple(range(n))
    else:
        axes = axes_of(axis, n, "norm")
    if len(axes) == 1:
        return _vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise invalid("norm", f"takes one or two axes, got axes {axes} of {typeof(x)}")


def _sum_of_squares(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if dtype_class(typeof(x).dtype) == "complex":
        squares = prims.real(prims.mul(x, prims.conj(x)))
    else:
        squares = prims.mul(x, x)
    return sum_over(squares, axes, keepdims=keepdims)


def _vector_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord == 2:
        return prims.sqrt(_sum_of_squares(x, axes, keepdims))
    size = prims.abs_(x)
    if ord == np.inf:
        return max_over(size, axes, keepdims=keepdims)
    if ord == -np.inf:
        return min_over(size, axes, keepdims=keepdims)
    if ord == 1:
        return sum_over(size, axes, keepdims=keepdims)
    if ord == 0:
        nonzero = prims.ne(x, literal(0, typeof(x)))
        return sum_over(cast(nonzero, typeof(size).dtype), axes, keepdims=keepdims)
    if isinstance(ord, str):
        raise invalid("norm", f"invalid order {ord!r} for a vector norm")
    power = prims.pow_(size, literal(ord, typeof(size)))
    total = sum_over(power, axes, keepdims=keepdims)
    return prims.pow_(total, literal(1 / ord, typeof(total)))


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord in (None, "fro", "f"):
        return prims.sqrt(_sum_of_squares(x, axes, keepdims))
    rows, columns = axes
    if ord in (1, -1, np.inf, -np.inf):
        summed, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
        choose = max_over if ord > 0 else min_over
        totals = sum_over(prims.abs_(x), summed, keepdims=True)
        y = choose(totals, kept, keepdims=True)
        return y if keepdims else prims.squeeze(y, dimensions=tuple(sorted(axes)))
    raise invalid(
        "norm", f"invalid order {ord!r} for a matrix norm", "Orders are 'fro', 1, -1, inf, -inf."
    )


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm over axes, taken as one vector.

    Source: `jax.numpy.linalg.vector_norm`.
    """
    (x,) = promote_inexact((array_of(x, "vector_norm"),), "vector_norm")
    return _vector_norm(x, ord, axes_of(axis, typeof(x).ndim, "vector_norm"), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of the matrices in the last two axes.

    Source: `jax.numpy.linalg.matrix_norm`.
    """
    return norm(x, ord, (-2, -1), keepdims)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonals of the matrices in the last two axes.

    Source: `jax.numpy.linalg.diagonal`.
    """
    return linear.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The traces of the matrices in the last two axes.

    Source: `jax.numpy.linalg.trace`.
    """
    return reductions.trace(x, offset, -2, -1, dtype)


def matrix_power(a: Any, n: int) -> Any:
    """A square matrix multiplied by itself, by repeated squaring.

    Source: `jax.numpy.linalg.matrix_power`.
    """
    a = array_of(a, "matrix_power")
    t = typeof(a)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise invalid("matrix_power", f"takes square matrices, got {t}")
    if n < 0:
        raise invalid("matrix_power", f"takes n >= 0, got {n}", "Invert the matrix first.")
    if n == 0:
        return shaping.broadcast_to(eye(t.shape[-1], dtype=t.dtype), t.shape)
    result = None
    while n:
        if n & 1:
            result = a if result is None else matmul(result, a)
        n >>= 1
        if n:
            a = matmul(a, a)
    return result


def multi_dot(arrays: Any, *, precision: Any = None) -> Any:
    """The product of matrices in the cheapest order; the first and last may be vectors.

    Source: `jax.numpy.linalg.multi_dot`.
    """
    xs = promote_dtypes(list(arrays), "multi_dot")
    if len(xs) < 2:
        raise invalid("multi_dot", "needs at least two arrays")
    sizes = _chain_sizes([typeof(x).shape for x in xs])
    return _chain(xs, _splits(sizes), 0, len(xs) - 1, precision)


def _chain_sizes(shapes: list[tuple[int, ...]]) -> list[int]:
    """The sizes p of matrices [p0, p1], [p1, p2], ...; vectors have a side of 1."""
    first = (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]
    last = (*shapes[-1], 1) if len(shapes[-1]) == 1 else shapes[-1]
    whole = [first, *shapes[1:-1], last]
    if any(len(s) != 2 for s in whole):
        raise invalid("multi_dot", f"takes matrices, and vectors at the ends, got {shapes}")
    return [whole[0][0], *[s[1] for s in whole]]


def _splits(p: list[int]) -> dict[tuple[int, int], int]:
    """Where to split the product of matrices i..j: dynamic programming over lengths."""
    n = len(p) - 1
    cost = {(i, i): 0 for i in range(n)}
    split = {}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            options = [
                (cost[i, k] + cost[k + 1, j] + p[i] * p[k + 1] * p[j + 1], k) for k in range(i, j)
            ]
            cost[i, j], split[i, j] = min(options)
    return split


def _chain(xs: list[Any], split: dict, i: int, j: int, precision: Any) -> Any:
    if i == j:
        return xs[i]
    k = split[i, j]
    left = _chain(xs, split, i, k, precision)
    return linear.matmul(left, _chain(xs, split, k + 1, j, precision), precision=precision)
