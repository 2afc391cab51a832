"""Means, variances and averages over axes, with JAX's result dtypes."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_inexact, promote
from functrans.numpy import prims
from functrans.numpy.promotion import (
    SCALARS,
    align,
    array_of,
    axes_of,
    cast,
    inexact_dtype,
    invalid,
    promote_inexact,
    scalar,
    user_dtype,
    value_of,
)
from functrans.numpy.reductions import computed_in, included, sum, with_axes_kept
from functrans.primitives.call import composite
from functrans.primitives.conversion import real_dtype
from functrans.trace import full, literal, materialize, typeof
from functrans.typing import Array, ArrayLike, Axis, DTypeLike, PyTree

__all__ = ["average", "mean", "std", "var"]


def _count(t: ArrayType, axes: tuple[int, ...]) -> int:
    return math.prod([t.shape[i] for i in axes])


@composite
def mean(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The arithmetic mean over axes; arguments as in `sum`.

    Source: `jax.numpy.mean`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.mean(jnp.arange(4.0)))
      1.5
    """
    a = value_of(a, "mean")
    t = typeof(a)
    out_dtype = inexact_dtype(t.dtype) if dtype is None else user_dtype(dtype)
    wide = computed_in(out_dtype) if dtype is None else out_dtype
    axes = axes_of(axis, t.ndim, "mean")
    total = sum(a, axes, wide, where=where)
    if where is None:
        n = scalar(_count(t, axes), typeof(total))
    else:
        n = cast(sum(included(where, t, "mean"), axes, canonical_dtype(np.dtype("int64"))), wide)
    result = cast(prims.div(total, n), out_dtype)
    return materialize(with_axes_kept(result, t.shape, axes) if keepdims and axes else result)


def _less(n: Any, ddof: Any, kind: ArrayType) -> Any:
    """n - ddof, at the type of the sum of squares; NaN if nothing is left to divide by."""
    if isinstance(n, int):
        if ddof.__class__ in SCALARS:
            return scalar(operator.sub(n, ddof) if operator.sub(n, ddof) > 0 else math.nan, kind)
        n = literal(n, kind)
    ddof = ddof if ddof.__class__ in SCALARS else cast(array_of(ddof, "var"), kind.dtype)
    left = prims.sub(*align(n, ddof, "var"))
    none, nan = (literal(x, typeof(left)) for x in (0, math.nan))
    return prims.select_n(prims.gt(left, none), nan, left)


@composite
def var(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: int | float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    mean: ArrayLike | None = None, correction: int | float | None = None,
) -> Array:  # fmt: skip
    """The mean squared distance from the mean, over axes.

    Arguments:
      a, axis, keepdims, where: as in `sum`.
      dtype: of the result.
      ddof, correction: subtracted from the number of elements.
      mean: the mean, if it is known.

    Source: `jax.numpy.var`.
    """
    if correction is not None:
        if ddof != 0:
            raise invalid("var", "ddof and correction can't be provided simultaneously")
        ddof = correction
    a = value_of(a, "var")
    t = typeof(a)
    axes = axes_of(axis, t.ndim, "var")
    own = inexact_dtype(t.dtype)
    if dtype is not None and dtype_class(own) == "complex" != dtype_class(user_dtype(dtype)):
        raise invalid("var", f"of complex numbers has no dtype {dtype}", "Pass a complex dtype.")
    asked = own if dtype is None else user_dtype(dtype)
    wide = computed_in(promote((ArrayType((), own), ArrayType((), asked)))[0])
    x = cast(a, wide)
    if mean is None:
        centre = _mean(x, axes, wide, None, where is not None, where=where)
        if where is None:  # straight to the full shape
            kept = tuple([i for i in range(t.ndim) if i not in axes])
            centre = prims.broadcast_in_dim(centre, shape=t.shape, dimensions=kept)
        mean = centre
    distance = prims.sub(*align(x, mean, "var"))
    if dtype_class(wide) == "complex":
        squares = prims.real(prims.mul(distance, prims.conj(distance)))
    else:
        squares = prims.square(distance)
    total = sum(squares, axes, where=where)
    kind = typeof(total)
    if where is None:
        n: Any = _count(t, axes)
    else:
        n = sum(included(where, t, "var"), axes, kind.dtype)
    result = prims.div(total, _less(n, ddof, kind))
    result = cast(result, real_dtype(own) if dtype is None else user_dtype(dtype))
    return materialize(with_axes_kept(result, t.shape, axes) if keepdims and axes else result)


_mean = mean


@composite
def std(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: int | float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    mean: ArrayLike | None = None, correction: int | float | None = None,
) -> Array:  # fmt: skip
    """The square root of `var`; arguments as there.

    Source: `jax.numpy.std`.
    """
    if dtype is not None and not is_inexact(user_dtype(dtype)):
        raise invalid("std", f"dtype must be a float type, got {dtype!r}", "Cast jnp.var's result.")
    return prims.sqrt(
        var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    )


def average(
    a: ArrayLike, axis: Axis = None, weights: ArrayLike | None = None, returned: bool = False,
    keepdims: bool = False,
) -> PyTree:  # fmt: skip
    """The weighted mean over axes.

    Arguments:
      a: array.
      axis: an int, several, or None for all.
      weights: of a's shape, or one per element of the axis.
      returned: also return the sum of the weights.
      keepdims: leave the axes there, with size 1.

    Source: `jax.numpy.average`.
    """
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        if not returned:
            return result
        n = _count(typeof(a), axes_of(axis, typeof(a).ndim, "average"))
        return result, full(n, typeof(result))
    a, weights = [cast(x, typeof(x).dtype) for x in promote_inexact((a, weights), "average")]
    shape = typeof(a).shape
    axes = axes_of(axis, len(shape), "average")
    if typeof(weights).shape != shape:
        if axis is None or typeof(weights).shape != tuple([shape[i] for i in axes]):
            raise invalid(
                "average",
                f"weights {typeof(weights)} must have the shape of a, {shape}, or one number per "
                "element of the axis",
            )
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        weights = prims.transpose(weights, permutation=tuple(order))
        weights = prims.broadcast_in_dim(weights, shape=shape, dimensions=tuple(sorted(axes)))
    total = sum(weights, axes, keepdims=keepdims)
    result = prims.div(sum(prims.mul(a, weights), axes, keepdims=keepdims), total)
    return (result, total) if returned else result
