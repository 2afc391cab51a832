"""Diagonals, powers, and chains of matrix products."""

from __future__ import annotations

import operator
from typing import Any

from functrans.numpy import linear, reductions, shaping
from functrans.numpy.grids import eye
from functrans.numpy.linalg.systems import inv
from functrans.numpy.linear import matmul
from functrans.numpy.promotion import array_of, invalid, mismatch, promote_dtypes
from functrans.primitives.call import composite
from functrans.trace import typeof

__all__ = ["diagonal", "matrix_power", "multi_dot", "trace"]


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonals of the matrices in the last two axes.

    Source: `jax.numpy.linalg.diagonal`.
    """
    return _diagonal(x, operator.index(offset))


@composite
def _diagonal(x: Any, offset: int) -> Any:
    return linear.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The traces of the matrices in the last two axes.

    Source: `jax.numpy.linalg.trace`.
    """
    return _trace(x, operator.index(offset), dtype)


@composite
def _trace(x: Any, offset: int, dtype: Any) -> Any:
    return reductions.trace(x, offset, -2, -1, dtype)


@composite
def matrix_power(a: Any, n: int) -> Any:
    """A square matrix multiplied by itself, by repeated squaring; its inverse for negative n.

    Source: `jax.numpy.linalg.matrix_power`.
    """
    a = array_of(a, "matrix_power")
    t = typeof(a)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise invalid("matrix_power", f"takes square matrices, got {t}")
    try:
        n = operator.index(n)
    except TypeError:
        raise mismatch(
            "matrix_power", f"n must be an integer, got {n!r:.60}", "For other powers take eigh."
        ) from None
    if n < 0:
        a, n = inv(a), -n
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
    return _multi_dot(*arrays, precision=precision)


@composite
def _multi_dot(*arrays: Any, precision: Any) -> Any:
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
