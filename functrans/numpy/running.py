"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

from functrans.numpy import prims
from functrans.numpy.promotion import (
    BOOL,
    array_of,
    axis_index,
    cast,
    invalid,
    strong,
    user_dtype,
)
from functrans.numpy.reductions import wide_integer
from functrans.numpy.ufuncs import truth
from functrans.primitives.base import Primitive
from functrans.trace import full, typeof
from functrans.typing import Array, ArrayLike, Axis, DTypeLike

__all__ = [
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
]  # fmt: skip


def _running(name: str, primitive: Primitive, a: Any, axis: Any, dtype: Any) -> Any:
    a = array_of(a, name)
    t = typeof(a)
    if axis is None:
        a = prims.reshape(a, shape=(t.size,))
        axis = 0
    i = axis_index(axis, typeof(a).ndim, name)
    out = t.dtype if dtype is None else user_dtype(dtype)
    if dtype is None and out is BOOL:
        out = wide_integer(out)
    if out is BOOL:  # of truth values, counted
        a = truth(a, name)
    a = strong(cast(a, wide_integer(out) if out is BOOL else out))
    return cast(primitive(a, axis=i, reverse=False), out)


def cumsum(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """The running sum along an axis; of the flattened array if axis is None.

    Source: `jax.numpy.cumsum`.
    """
    return _running("cumsum", prims.cumsum, a, axis, dtype)


def cumprod(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """The running product along an axis; of the flattened array if axis is None.

    Source: `jax.numpy.cumprod`.
    """
    return _running("cumprod", prims.cumprod, a, axis, dtype)


def _cumulative(
    name: str, primitive: Primitive, unit: int, x: Any, axis: Any, dtype: Any, initial: bool
) -> Any:
    x = array_of(x, name)
    t = typeof(x)
    if axis is None:
        if t.ndim != 1:
            raise invalid(name, f"axis is needed for an array of {t.ndim} axes", "Pass axis=.")
        axis = 0
    if dtype is None and unit == 0:  # sums are widened, products are not
        dtype = wide_integer(t.dtype)
    y = _running(name, primitive, x, axis, dtype)
    if include := initial:
        i = axis_index(axis, t.ndim, name)
        first = full(unit, typeof(y).update(shape=(*t.shape[:i], int(include), *t.shape[i + 1 :])))
        y = prims.concatenate(first, y, dimension=i)
    return y


def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The running sum along an axis, with a leading 0 if `include_initial`.

    Source: `jax.numpy.cumulative_sum`.
    """
    return _cumulative("cumulative_sum", prims.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The running product along an axis, with a leading 1 if `include_initial`.

    Source: `jax.numpy.cumulative_prod`.
    """
    return _cumulative("cumulative_prod", prims.cumprod, 1, x, axis, dtype, include_initial)
