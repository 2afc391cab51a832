"""Sums over axes and moments, with JAX's result dtypes: the reductions that are traced most often, and
those in whose place JAX's would be slower. The others are JAX's.

Narrow integers are summed in the default integer type, half precision in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans.caching import cached
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_inexact, promote
from functrans.numpy.promotion import (
    BOOL,
    SCALARS,
    align,
    array_of,
    axes_of,
    cast,
    expand,
    inexact_dtype,
    invalid,
    mask_of,
    of_jax,
    scalar,
    user_dtype,
    value_of,
)
from functrans.numpy.selecting import where as select_where
from functrans.numpy.ufuncs import refuse_out
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise.complex_numbers import conj, real
from functrans.primitives.elementwise.conversion import real_dtype
from functrans.primitives.elementwise.families import div, gt, mul, square, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import sqrt
from functrans.primitives.reductions.folds import reduce_sum, wide_dtype
from functrans.primitives.shape.moving import broadcast_in_dim, kept_axes
from functrans.trace import literal, materialize, typeof
from functrans.typing import Array, ArrayLike, Axis, DTypeLike

__all__ = ["mean", "std", "sum", "var"]


# --- sums -----------------------------------------------------------------------------------------


def wide_integer(dtype: Any) -> Any:
    """Return the dtype of the sum of integers: the default integer type, or a wider one."""
    kind = dtype_class(dtype)
    if kind not in ("bool", "int", "uint"):
        return dtype
    wide = canonical_dtype(np.dtype("uint64" if kind == "uint" else "int64"))
    return dtype if kind != "bool" and np.dtype(dtype).itemsize >= wide.itemsize else wide


@cached("types that are summed as they are", 8192)
def _is_plain(t: ArrayType) -> bool:
    """Return whether a type is inexact, not weakly typed, and summed at its own dtype."""
    return wide_dtype(t.dtype) is t.dtype and is_inexact(t.dtype) and not t.weak_type


def with_axes(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Restore the reduced axes, with size 1."""
    wide = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return broadcast_in_dim(x, shape=wide, dimensions=kept_axes(len(shape), axes))


def _summed(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    y = reduce_sum(x, axes=axes) if axes else array_of(x, "sum")
    return with_axes(y, typeof(x).shape, axes) if keepdims and axes else y


def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Sum the elements over axes.

    Arguments:
      a: array.
      axis: an int, several, or None for all.
      dtype: dtype of the result; by default that of a, and for integers at least the default
        integer type.
      keepdims: keep the reduced axes, with size 1.
      initial: initial value.
      where: booleans that broadcast to a's shape: the elements to include.
      promote_integers: False leaves narrow integers narrow.

    Source: `jax.numpy.sum`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.sum(jnp.ones((2, 3)), axis=1))
      [3. 3.]
    """
    refuse_out("sum", out)
    a = value_of(a, "sum")
    t = typeof(a)
    axes = axes_of(axis, len(t.shape), "sum")
    if dtype is initial is where is None and _is_plain(t):
        return _summed(a, axes, keepdims)
    result = wide_integer(t.dtype) if dtype is None else user_dtype(dtype)
    if initial is not None or not promote_integers or result is BOOL:
        if where is not None:
            mask_of(where, "sum")
        if initial is not None:
            value_of(initial, "sum")
        return of_jax("sum")(
            array_of(a, "sum"), axis, dtype, None, keepdims, initial, where, promote_integers
        )
    x = cast(a, wide_dtype(result) if dtype is None else result)
    if where is not None:
        x = select_where(mask_of(where, "sum"), x, literal(0, typeof(x).update(shape=())))
    return materialize(cast(_summed(x, axes, keepdims), result))


# --- moments --------------------------------------------------------------------------------------


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
    refuse_out("mean", out)
    a = value_of(a, "mean")
    t = typeof(a)
    axes = axes_of(axis, t.ndim, "mean")
    out_dtype = inexact_dtype(t.dtype) if dtype is None else user_dtype(dtype)
    wide = wide_dtype(out_dtype) if dtype is None else out_dtype
    total = sum(a, axes, wide, where=where)
    if where is None:
        n: Any = scalar(_count(t, axes), typeof(total))
    else:
        n = _included(where, t, axes, wide, "mean")
    result = cast(div(total, n), out_dtype)
    return materialize(with_axes(result, t.shape, axes) if keepdims and axes else result)


def _included(where: Any, t: ArrayType, axes: tuple[int, ...], dtype: Any, name: str) -> Any:
    """Return the number of elements that are included, of a dtype."""
    return cast(sum(expand(mask_of(where, name), t.shape), axes), dtype)


def _by_degrees(total: Any, n: Any, ddof: Any) -> Any:
    """Return total / (n - ddof); NaN, with a gradient of zero, where that is not positive."""
    kind = typeof(total)
    if isinstance(n, int) and ddof.__class__ in SCALARS:
        left: Any = n - ddof
        return div(total, scalar(left, kind)) if left > 0 else literal(math.nan, kind)
    ddof = ddof if ddof.__class__ in SCALARS else cast(array_of(ddof, "var"), kind.dtype)
    left = sub(*align(literal(n, kind) if isinstance(n, int) else n, ddof, "var"))
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
    refuse_out("var", out)
    a = value_of(a, "var")
    t = typeof(a)
    axes = axes_of(axis, t.ndim, "var")
    if correction is not None:
        if ddof != 0:
            raise invalid("var", "ddof and correction can't be provided simultaneously")
        ddof = correction
    own = inexact_dtype(t.dtype)
    if dtype is not None and dtype_class(own) == "complex" != dtype_class(user_dtype(dtype)):
        raise invalid("var", f"complex numbers need a complex dtype, got {dtype}")
    asked = own if dtype is None else user_dtype(dtype)
    wide = wide_dtype(promote((ArrayType((), own), ArrayType((), asked)))[0])
    x = cast(a, wide)
    if mean is None:
        centre = _mean(x, axes, wide, None, where is not None, where=where)
        if where is None:  # straight to the full shape
            centre = broadcast_in_dim(centre, shape=t.shape, dimensions=kept_axes(t.ndim, axes))
        mean = centre
    distance = sub(*align(x, mean, "var"))
    if dtype_class(wide) == "complex":
        squares = real(mul(distance, conj(distance)))
    else:
        squares = square(distance)
    total = sum(squares, axes, where=where)
    n: Any = _count(t, axes) if where is None else _included(where, t, axes, typeof(total).dtype, "var")
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
    refuse_out("std", out)
    if dtype is not None and not is_inexact(user_dtype(dtype)):
        raise invalid("std", f"dtype must be a float type, got {dtype!r}", "Cast the result instead.")
    return sqrt(var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))
