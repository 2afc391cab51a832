"""Functions that repeat, reverse, turn or shift the elements."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import is_inexact
from functrans.lax.arguments import check_sizes, sizes_of
from functrans.numpy import indexing, prims
from functrans.numpy.arithmetic import remainder
from functrans.numpy.promotion import (
    array_of,
    axes_of,
    axis_index,
    cast,
    expand,
    invalid,
)
from functrans.numpy.shaping import ndim, ravel, reshape, swapaxes
from functrans.trace import concrete_value, literal, typeof

__all__ = [
    "flip", "fliplr", "flipud", "repeat", "roll", "rot90", "tile",
]  # fmt: skip


def tile(A: Any, reps: Any) -> Any:
    """Repeat the whole array along each axis.

    Source: `jax.numpy.tile`.
    """
    a = array_of(A, "tile")
    shape = typeof(a).shape
    times = sizes_of(reps)
    n = max(len(shape), len(times))
    shape = (1,) * (n - len(shape)) + shape
    times = (1,) * (n - len(times)) + times
    if builtins.all(k == 1 for k in times):
        return reshape(a, shape)
    a = prims.reshape(a, shape=shape)
    mixed = tuple([k for pair in zip(times, shape, strict=True) for k in pair])
    a = prims.broadcast_in_dim(a, shape=mixed, dimensions=tuple(range(1, 2 * n, 2)))
    return prims.reshape(a, shape=tuple([k * m for k, m in zip(times, shape, strict=True)]))


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None,
    out_sharding: None = None,
) -> Any:  # fmt: skip
    """Repeat each element along an axis; of the flattened array if axis is None.

    Arguments:
      a: array.
      repeats: an int, or one int per element of the axis; traced only with `total_repeat_length`.
      total_repeat_length: the size of the axis in the result, when `repeats` is traced.

    Source: `jax.numpy.repeat`.
    """
    a = array_of(a, "repeat")
    if total_repeat_length is not None:
        (total_repeat_length,) = check_sizes(sizes_of(total_repeat_length), "repeat")
    if axis is None:
        a, axis = ravel(a), 0
    t = typeof(a)
    i = axis_index(axis, t.ndim, "repeat")
    if isinstance(repeats, int) and total_repeat_length is None:
        wide = (*t.shape[: i + 1], repeats, *t.shape[i + 1 :])
        kept = tuple([k for k in range(len(wide)) if k != i + 1])
        a = prims.broadcast_in_dim(a, shape=wide, dimensions=kept)
        return prims.reshape(a, shape=(*t.shape[:i], t.shape[i] * repeats, *t.shape[i + 1 :]))
    return _repeat_each(a, repeats, i, total_repeat_length)


def _repeat_each(a: Any, repeats: Any, axis: int, total: int | None) -> Any:
    """By an index array: concrete, or the running sum of traced repeats searched."""
    n = typeof(a).shape[axis]
    concrete = concrete_value(repeats)
    if concrete is not None:
        counts = np.broadcast_to(np.asarray(concrete), (n,))
        counts = counts.astype(np.int64) if counts.dtype == np.uint64 else counts
        index = np.repeat(np.arange(n), counts)
        if total is not None:
            last = index[-1] if index.size else 0
            index = np.concatenate([index, np.full(max(0, total - index.size), last)])[:total]
        return indexing.take(a, index.astype(np.int32), axis=axis)
    if total is None:
        raise errors.AbstractValueError(
            f"repeat: the values of `repeats` are unknown while tracing, and so is the size of the "
            f"result, at\n    {describe(user_source())}\nPass total_repeat_length=."
        )
    counts = expand(repeats, (n,))
    ends = prims.cumsum(counts, axis=0, reverse=False)
    place = prims.iota(dtype=typeof(ends).dtype, shape=(total, n), dimension=0)
    past = prims.le(prims.broadcast_in_dim(ends, shape=(total, n), dimensions=(1,)), place)
    found = prims.reduce_sum(cast(past, np.dtype("int32")), axes=(1,))
    found = prims.min_(found, literal(n - 1, typeof(found)))
    return indexing.take(a, found, axis=axis)


def flip(m: Any, axis: Any = None) -> Any:
    """Reverse the order along axes; all if axis is None.

    Source: `jax.numpy.flip`.
    """
    m = array_of(m, "flip")
    axes = axes_of(axis, typeof(m).ndim, "flip")
    return prims.rev(m, dimensions=axes) if axes else m


def fliplr(m: Any) -> Any:
    """Reverse the order along axis 1.

    Source: `jax.numpy.fliplr`.
    """
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Reverse the order along axis 0.

    Source: `jax.numpy.flipud`.
    """
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Turn by k quarter turns in the plane of two axes.

    Source: `jax.numpy.rot90`.
    """
    i, j = axes_of(tuple(axes), ndim(m), "rot90")
    k = k % 4
    if k == 0:
        return array_of(m, "rot90")
    if k == 2:
        return flip(m, (i, j))
    return swapaxes(flip(m, j), i, j) if k == 1 else flip(swapaxes(m, i, j), j)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Shift elements along axes; what leaves at the end comes in at the front.

    Arguments:
      a: array.
      shift: an int or one per axis; may be traced. Of a float the whole part counts.
      axis: an int, several, or None for the flattened array.

    Source: `jax.numpy.roll`.
    """
    a = array_of(a, "roll")
    shape = typeof(a).shape
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), shape)
    many = axis if isinstance(axis, (tuple, list)) else (axis,)
    if isinstance(shift, (tuple, list)) or typeof(shift).ndim:
        shifts = list(shift)
    else:
        shifts = [shift] * len(many)
    if len(many) == 1 and len(shifts) > 1:
        many = tuple(many) * len(shifts)
    if len(many) != len(shifts):
        raise invalid("roll", f"got {len(shifts)} shifts for {len(many)} axes")
    for one, s in zip(many, shifts, strict=True):
        a = _roll_one(a, s, axis_index(one, len(shape), "roll"))
    return a


def _roll_one(a: Any, shift: Any, axis: int) -> Any:
    n = typeof(a).shape[axis]
    if n == 0:
        return a
    value = concrete_value(shift)
    if value is None:
        return _roll_traced(a, shift, axis, n)
    k = int(value) % n
    if k == 0:
        return a
    first, second = prims.split(a, sizes=(n - k, k), axis=axis)
    return prims.concatenate(second, first, dimension=axis)


def _roll_traced(a: Any, shift: Any, axis: int, n: int) -> Any:
    if is_inexact(typeof(shift).dtype):
        shift = cast(shift, np.dtype("int32"))
    places = prims.iota(dtype=typeof(shift).dtype, shape=(n,), dimension=0)
    back = expand(reshape(shift, ()), (n,))
    return indexing.take(a, remainder(prims.sub(places, back), n), axis=axis)
