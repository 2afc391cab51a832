"""Cumulative sums and products."""

from __future__ import annotations

from typing import Any

from functrans.numpy import primitives
from functrans.numpy.promotion import (
    BOOL,
    array_of,
    axis_index,
    cast,
    strong,
    user_dtype,
)
from functrans.numpy.reductions import wide_integer
from functrans.numpy.ufuncs import truth
from functrans.primitives.base import Primitive
from functrans.trace import typeof
from functrans.typing import Array, ArrayLike, Axis, DTypeLike

__all__ = ["cumprod", "cumsum"]


def _running(name: str, primitive: Primitive, a: Any, axis: Any, dtype: Any) -> Any:
    a = array_of(a, name)
    t = typeof(a)
    if axis is None:
        a = primitives.reshape(a, shape=(t.size,))
        axis = 0
    i = axis_index(axis, typeof(a).ndim, name)
    out = t.dtype if dtype is None else user_dtype(dtype)
    if dtype is None and out is BOOL:
        out = wide_integer(out)
    if out is BOOL:  # truth values, accumulated as integers
        a = truth(a, name)
    a = strong(cast(a, wide_integer(out) if out is BOOL else out))
    return cast(primitive(a, axis=i, reverse=False), out)


def cumsum(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Return the cumulative sum along an axis; of the flattened array if axis is None.

    Source: `jax.numpy.cumsum`.
    """
    return _running("cumsum", primitives.cumsum, a, axis, dtype)


def cumprod(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Return the cumulative product along an axis; of the flattened array if axis is None.

    Source: `jax.numpy.cumprod`.
    """
    return _running("cumprod", primitives.cumprod, a, axis, dtype)
