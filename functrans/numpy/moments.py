"""Moments over axes: mean, variance and standard deviation, with JAX's result dtypes."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_inexact, promote
from functrans.numpy.promotion import (
    SCALARS,
    align,
    array_of,
    axes_of,
    cast,
    expand,
    inexact_dtype,
    invalid,
    mask_of,
    scalar,
    user_dtype,
    value_of,
)
from functrans.numpy.reductions import sum, with_axes
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise.complex_numbers import conj, real
from functrans.primitives.elementwise.conversion import real_dtype
from functrans.primitives.elementwise.families import div, gt, mul, square, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import sqrt
from functrans.primitives.reductions.folds import wide_dtype
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import literal, materialize, typeof
from functrans.typing import Array, ArrayLike, Axis, DTypeLike

__all__ = ["mean", "std", "var"]


def _count(t: ArrayType, axes: tuple[int, ...]) -> int:
    return math.prod([t.shape[i] for i in axes])


@composite
def mean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Return the arithmetic mean over axes; arguments as in `sum`.

    Source: `jax.numpy.mean`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.mean(jnp.arange(4.0)))
      1.5
    """
    a = value_of(a, "mean")
    t = typeof(a)
    out_dtype = inexact_dtype(t.dtype) if dtype is None else user_dtype(dtype)
    wide = wide_dtype(out_dtype) if dtype is None else out_dtype
    axes = axes_of(axis, t.ndim, "mean")
    total = sum(a, axes, wide, where=where)
    if where is None:
        n = scalar(_count(t, axes), typeof(total))
    else:
        n = cast(sum(included(where, t, "mean"), axes, canonical_dtype(np.dtype("int64"))), wide)
    result = cast(div(total, n), out_dtype)
    return materialize(with_axes(result, t.shape, axes) if keepdims and axes else result)


def included(where: Any, t: ArrayType, name: str) -> Any:
    """Return the mask `where`, broadcast to the shape of the operand."""
    return expand(mask_of(where, name), t.shape)


def _by_degrees(total: Any, n: Any, ddof: Any) -> Any:
    """Return total / (n - ddof); NaN, with a gradient of zero, where that is not positive."""
    kind = typeof(total)
    if isinstance(n, int):
        if ddof.__class__ in SCALARS:
            left = operator.sub(n, ddof)
            return div(total, scalar(left, kind)) if left > 0 else literal(math.nan, kind)
        n = literal(n, kind)
    ddof = ddof if ddof.__class__ in SCALARS else cast(array_of(ddof, "var"), kind.dtype)
    left = sub(*align(n, ddof, "var"))
    none, one = (literal(x, typeof(left)) for x in (0, 1))
    enough = gt(left, none)
    result = div(*align(total, select_n(enough, one, left), "var"))
    nan = literal(math.nan, typeof(result))
    return select_n(expand(enough, typeof(result).shape), nan, result)


@composite
def var(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: Any = None,
) -> Array:
    """Return the variance over axes.

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
        raise invalid("var", f"complex numbers need a complex dtype, got {dtype}")
    asked = own if dtype is None else user_dtype(dtype)
    wide = wide_dtype(promote((ArrayType((), own), ArrayType((), asked)))[0])
    x = cast(a, wide)
    if mean is None:
        centre = _mean(x, axes, wide, None, where is not None, where=where)
        if where is None:  # straight to the full shape
            kept = tuple([i for i in range(t.ndim) if i not in axes])
            centre = broadcast_in_dim(centre, shape=t.shape, dimensions=kept)
        mean = centre
    distance = sub(*align(x, mean, "var"))
    if dtype_class(wide) == "complex":
        squares = real(mul(distance, conj(distance)))
    else:
        squares = square(distance)
    total = sum(squares, axes, where=where)
    kind = typeof(total)
    if where is None:
        n: Any = _count(t, axes)
    else:
        n = sum(included(where, t, "var"), axes, kind.dtype)
    result = cast(_by_degrees(total, n, ddof), real_dtype(own) if dtype is None else user_dtype(dtype))
    return materialize(with_axes(result, t.shape, axes) if keepdims and axes else result)


_mean = mean


@composite
def std(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: Any = None,
) -> Array:
    """Return the standard deviation over axes; arguments as in `var`.

    Source: `jax.numpy.std`.
    """
    if dtype is not None and not is_inexact(user_dtype(dtype)):
        raise invalid("std", f"dtype must be a float type, got {dtype!r}", "Cast the result instead.")
    return sqrt(var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))
