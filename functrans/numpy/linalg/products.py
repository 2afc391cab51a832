"""Diagonals, powers, and chains of matrix products."""

from __future__ import annotations

import operator
from typing import Any

from functrans.numpy import linear, reductions, shaping
from functrans.numpy.grids import eye
from functrans.numpy.linalg.systems import inv, square
from functrans.numpy.linear import matmul
from functrans.numpy.promotion import array_of, axis_index, invalid, mismatch, promote_dtypes
from functrans.primitives.call import composite
from functrans.trace import concrete_value, typeof

__all__ = ["cross", "diagonal", "matrix_power", "multi_dot", "outer", "trace"]


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross products of vectors with three components, along an axis.

    Source: `jax.numpy.linalg.cross`.
    """
    types = [typeof(array_of(x, "cross", i)) for i, x in enumerate((x1, x2))]
    if any(t.shape[axis_index(axis, t.ndim, "cross")] != 3 for t in types):
        raise invalid("cross", f"takes vectors of three components, got {types[0]} and {types[1]}")
    return linear.cross(x1, x2, axis=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """All products of an element of one vector with an element of another.

    Source: `jax.numpy.linalg.outer`.
    """
    types = [typeof(array_of(x, "outer", i)) for i, x in enumerate((x1, x2))]
    if any(t.ndim != 1 for t in types):
        raise invalid(
            "outer", f"takes two vectors, got {types[0]} and {types[1]}",
            "jnp.outer flattens its operands.",
        )  # fmt: skip
    return linear.outer(x1, x2)


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
    traced = concrete_value(offset) is None
    return _trace(x, offset if traced else operator.index(offset), dtype)


@composite
def _trace(x: Any, offset: int, dtype: Any) -> Any:
    return reductions.trace(x, offset, -2, -1, dtype)


@composite
def matrix_power(a: Any, n: int) -> Any:
    """A square matrix multiplied by itself, by repeated squaring; its inverse for negative n.

    Source: `jax.numpy.linalg.matrix_power`.
    """
    a = array_of(a, "matrix_power")
    t = square(a, "matrix_power")
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
    if len(arrays) < 2:
        raise invalid("multi_dot", f"needs at least two arrays, got {len(arrays)}")
    xs = promote_dtypes(list(arrays), "multi_dot")
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
