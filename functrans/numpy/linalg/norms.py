"""Norms of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans import lax
from functrans.ir.types import dtype_class
from functrans.numpy import prims, shaping, ufuncs
from functrans.numpy.promotion import array_of, axes_of, cast, invalid, promote_inexact
from functrans.numpy.reductions import max as max_over
from functrans.numpy.reductions import min as min_over
from functrans.numpy.reductions import sum as sum_over
from functrans.primitives.call import composite
from functrans.trace import literal, typeof

__all__ = ["matrix_norm", "norm", "vector_norm"]


@composite
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors (one axis) or matrices (two axes); of the flattened array by default.

    Arguments:
      x: array.
      ord: of vectors any number, inf or -inf; of matrices "fro", "nuc", 1, -1, 2, -2, inf, -inf.
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
        squares = ufuncs.multiply(x, x)
    return sum_over(squares, axes, keepdims=keepdims)


def _vector_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord in (None, 2):
        return ufuncs.sqrt(_sum_of_squares(x, axes, keepdims))
    signed = dtype_class(typeof(x).dtype) not in ("bool", "uint")
    size = prims.abs_(x) if signed else x
    if ord == np.inf:
        return max_over(size, axes, keepdims=keepdims, initial=0)
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
        totals = sum_over(prims.abs_(x), summed, keepdims=True)
        if ord > 0:
            y = max_over(totals, kept, keepdims=True, initial=0)
        else:
            y = min_over(totals, kept, keepdims=True)
        return y if keepdims else prims.squeeze(y, dimensions=tuple(sorted(axes)))
    if ord in ("nuc", 2, -2):
        return _spectral_norm(x, ord, axes, keepdims)
    raise invalid(
        "norm",
        f"invalid order {ord!r} for a matrix norm",
        "Orders are 'fro', 'nuc', 1, -1, 2, -2, inf, -inf.",
    )


def _spectral_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """By singular values: the largest, the smallest, or their sum."""
    s = lax.linalg.svd(shaping.moveaxis(x, axes, (-2, -1)), compute_uv=False)
    if ord == "nuc":
        y = sum_over(s, -1)
    else:
        y = max_over(s, -1, initial=0) if ord == 2 else min_over(s, -1)
    return shaping.expand_dims(y, axes) if keepdims else y


@composite
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm over axes, taken as one vector.

    Source: `jax.numpy.linalg.vector_norm`.
    """
    x = array_of(x, "vector_norm")
    if ord not in (None, 1, 2, np.inf, -np.inf):  # which are sums and maxima of the elements
        (x,) = promote_inexact((x,), "vector_norm")
    return _vector_norm(x, ord, axes_of(axis, typeof(x).ndim, "vector_norm"), keepdims)


@composite
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of the matrices in the last two axes.

    Source: `jax.numpy.linalg.matrix_norm`.
    """
    return norm(x, ord, (-2, -1), keepdims)
