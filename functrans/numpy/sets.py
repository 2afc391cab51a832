"""Arrays as sets: unique elements, membership, elements taken out or put in."""

from __future__ import annotations

import math
import operator
from types import SimpleNamespace
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import canonical_dtype, dtype_class
from functrans.numpy import prims
from functrans.numpy.indexing import At, take
from functrans.numpy.joining import concatenate, unstack
from functrans.numpy.promotion import (
    array_of,
    axis_index,
    cast,
    expand,
    invalid,
    promote_dtypes,
    value_of,
)
from functrans.numpy.reading import read
from functrans.numpy.repeating import repeat
from functrans.numpy.selecting import clip, where
from functrans.numpy.shaping import atleast_1d, moveaxis, ravel, reshape
from functrans.numpy.sorting import argsort, check_method, searchsorted, sort
from functrans.numpy.ufuncs import add, less, subtract
from functrans.primitives.call import composite
from functrans.trace import concrete_value, literal, materialize, typeof

__all__ = ["delete", "insert", "isin", "unique"]

INDEX = np.dtype("int64")
# what `insert` asks of NumPy, for places that are not known yet
_TRACED = SimpleNamespace(
    argsort=argsort, atleast_1d=atleast_1d, clip=clip, concatenate=concatenate, repeat=repeat,
    where=where,
)  # fmt: skip


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
    size: int | None = None, fill_value: Any = None, sorted: bool = True,
) -> Any:  # fmt: skip
    """The distinct elements of the flattened array, or the distinct parts along an axis, in order.

    Arguments:
      ar: array.
      return_index: also the index of the first of each.
      return_inverse: also the place of every element among the distinct ones.
      return_counts: also how often each occurs.
      axis: along which parts are compared; None compares elements.
      size: the size of the result, needed when `ar` is traced: more are cut off, fewer filled up.
      fill_value: what to fill up with; by default the smallest element.

    Raises:
      AbstractValueError: `ar` is traced and `size` is missing.

    Source: `jax.numpy.unique`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.unique(jnp.array([3, 1, 3])))
      [1 3]
    """
    ar = array_of(ar, "unique")
    if dtype_class(typeof(ar).dtype) == "complex":  # whose parts are put together again
        ar = cast(ar, typeof(ar).dtype)
    ordered, order, rank = _ranked(ar, axis, equal_nan)
    if size is None:
        size = _known_count(rank)
    wanted = return_index, return_inverse, return_counts
    return _distinct(ordered, order, rank, fill_value, axis, typeof(ar).shape, size, *wanted)


@composite
def _ranked(ar: Any, axis: int | None, equal_nan: bool) -> tuple[Any, Any, Any]:
    """What is compared, in order; where each was; and its place among the distinct ones."""
    rows = _rows(ar, axis)
    ordered, order = _in_order(rows)
    new = differs_from_previous(ordered, typeof(rows).shape[0], equal_nan)
    rank = prims.cumsum(cast(new, typeof(order).dtype), axis=0, reverse=False)
    return ordered, order, prims.sub(rank, literal(1, typeof(rank)))


@composite
def _distinct(
    ordered: Any, order: Any, rank: Any, fill_value: Any, axis: int | None, shape: tuple[int, ...],
    size: int, return_index: bool, return_inverse: bool, return_counts: bool,
) -> Any:  # fmt: skip
    n = typeof(rank).shape[0]
    if fill_value is not None:
        fill_value = value_of(fill_value, "unique")
    starts = _starts(rank, size, n)
    firsts = _at_starts(ordered, starts, fill_value)
    if axis is not None:
        i = axis_index(axis, len(shape), "unique")
        firsts = moveaxis(reshape(firsts, (size, *shape[:i], *shape[i + 1 :])), 0, i)
    found = [firsts]
    if return_index:
        found.append(_at_starts(order, starts, None if n else 0))
    if return_inverse:
        zeros = materialize(literal(0, typeof(rank)))
        inverse = At(zeros)[order].set(rank)
        found.append(reshape(inverse, shape) if axis is None else inverse)
    if return_counts:
        zeros = materialize(literal(0, typeof(rank).update(shape=(size,))))
        found.append(At(zeros)[rank].add(1, mode="drop"))
    return found[0] if len(found) == 1 else tuple(found)


def _rows(ar: Any, axis: int | None) -> Any:
    """What is compared, along axis 0 of a vector or matrix."""
    if axis is None:
        return ravel(ar)
    shape = typeof(ar).shape
    i = axis_index(axis, len(shape), "unique")
    size = math.prod(shape[:i] + shape[i + 1 :])
    return reshape(moveaxis(ar, i, 0), (shape[i], size))


def _in_order(rows: Any) -> tuple[Any, Any]:
    """Elements, or rows by their first elements, then by their second, ...; and where each was."""
    t = typeof(rows)
    places = prims.iota(dtype=canonical_dtype(INDEX), shape=t.shape[:1], dimension=0)
    if t.ndim == 1:
        ordered, order = prims.sort(rows, places, dimension=0, is_stable=True, num_keys=1)
        return ordered, order
    if t.size == 0:
        return rows, places
    columns = unstack(rows, axis=1)
    *_, order = prims.sort(*columns, places, dimension=0, is_stable=True, num_keys=len(columns))
    return take(rows, order, axis=0), order


def differs_from_previous(ordered: Any, n: int, equal_nan: bool) -> Any:
    """Is each element, or row, of `ordered` another one than that before it?"""
    t = typeof(ordered)
    first = literal(True, t.update(shape=(min(n, 1),), dtype=np.dtype(bool), weak_type=False))
    if n < 2:
        return materialize(first)
    before, after = read(ordered, slice(0, n - 1)), read(ordered, slice(1, n))
    differs = prims.ne(after, before)
    if equal_nan:
        both_nan = prims.and_(prims.ne(after, after), prims.ne(before, before))
        differs = prims.and_(differs, prims.not_(both_nan))
    if t.ndim > 1:
        differs = prims.reduce_or(differs, axes=(1,))
    return prims.concatenate(materialize(first), differs, dimension=0)


def _known_count(rank: Any) -> int:
    value = concrete_value(rank)
    if value is None:
        raise errors.AbstractValueError(
            f"unique: the number of distinct elements is unknown while tracing, at\n"
            f"    {describe(user_source())}\nPass size=."
        )
    return int(value[-1]) + 1 if value.size else 0


def _starts(rank: Any, size: int, n: int) -> Any:
    """Where each rank below `size` begins, in order; n where there is none."""
    nowhere = materialize(literal(n, typeof(rank).update(shape=(size,))))
    places = prims.iota(dtype=typeof(rank).dtype, shape=(n,), dimension=0)
    return At(nowhere)[rank].min(places, mode="drop")


def _at_starts(values: Any, starts: Any, fill: Any = None) -> Any:
    """The values there; where no rank begins, the fill or the first value."""
    t = typeof(values)
    n, shape = t.shape[0], (typeof(starts).shape[0], *t.shape[1:])
    if n == 0:
        if fill is None and shape[0]:
            raise invalid("unique", f"nothing to fill size={shape[0]} up with", "Pass fill_value=.")
        return materialize(expand(literal(0, t) if fill is None else cast(fill, t.dtype), shape))
    fill = take(values, 0, axis=0) if fill is None else cast(fill, t.dtype)
    real = prims.lt(starts, literal(n, typeof(starts)))
    real = prims.broadcast_in_dim(real, shape=shape, dimensions=(0,))
    return prims.select_n(real, expand(fill, shape), take(values, starts, axis=0, mode="clip"))


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
    method: str = "auto",
) -> Any:  # fmt: skip
    """Is each element one of `test_elements`?

    Arguments:
      element: array of any shape.
      test_elements: array; its shape does not matter.
      assume_unique: neither has an element twice; nothing rests on it.
      invert: True where it is none of them.
      method: one of JAX's; each element is compared with all.

    Source: `jax.numpy.isin`.
    """
    check_method("isin", method, ("auto", "compare_all", "binary_search", "sort"))
    element, tests = promote_dtypes((element, test_elements), "isin")
    tests = ravel(array_of(tests, "isin", 1))
    t, n = typeof(element), typeof(tests).shape[0]
    wide = (*t.shape, n)
    axis = len(t.shape)
    same = prims.eq(
        prims.broadcast_in_dim(element, shape=wide, dimensions=tuple(range(axis))),
        prims.broadcast_in_dim(tests, shape=wide, dimensions=(axis,)),
    )
    found = prims.reduce_or(same, axes=(axis,))
    return prims.not_(found) if invert else found


def delete(
    arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Any:
    """The array without the elements at some places of an axis.

    Arguments:
      arr: array.
      obj: an integer, a slice, an array of integers, or a mask.
      axis: along which; None takes the elements of the flat array.
      assume_unique_indices: no place of `obj` is given twice, so the size of the result is known
        where traced places are not.

    Raises:
      AbstractValueError: traced places, without `assume_unique_indices`.

    Source: `jax.numpy.delete`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> others = ft.jit(lambda x, i: jnp.delete(x, i, assume_unique_indices=True))
      >>> print(others(jnp.arange(5), jnp.array([0, 3])))
      [1 2 4]
    """
    arr = array_of(arr, "delete")
    if axis is None:
        arr, axis = ravel(arr), 0
    i = axis_index(axis, typeof(arr).ndim, "delete")
    n = typeof(arr).shape[i]
    if assume_unique_indices and not isinstance(obj, slice) and np.ndim(obj):
        obj = array_of(obj, "delete", 1)
        if dtype_class(typeof(obj).dtype) in ("int", "uint"):
            return _without(arr, obj, i)
    places = _static_places("delete", obj)
    if isinstance(places, int) and not -n <= places < n:
        raise invalid("delete", f"index {places} is out of bounds for axis {i} of size {n}")
    kept = np.delete(np.arange(n), places)
    return take(arr, kept.astype(np.int32), axis=i)


@composite
def _without(arr: Any, places: Any, axis: int) -> Any:
    """The array without some places of an axis, of which none is given twice."""
    n = typeof(arr).shape[axis]
    places = ravel(places)
    gone = sort(clip(where(less(places, 0), add(places, n), places), 0, n))
    t = typeof(gone)
    left = prims.iota(dtype=t.dtype, shape=(max(n - t.size, 0),), dimension=0)
    # so many are gone before the k-th that is left
    before = searchsorted(subtract(gone, np.arange(t.size, dtype=t.dtype)), left, side="right")
    return take(arr, add(left, cast(before, t.dtype)), axis=axis)


def _static_places(name: str, obj: Any) -> Any:
    if isinstance(obj, slice):
        return obj
    value = concrete_value(obj)
    if value is None:
        raise errors.AbstractValueError(
            f"{name}: the places are unknown while tracing, and so is the size of the result, at\n"
            f"    {describe(user_source())}\nPass concrete indices, or use jnp.where with a mask."
        )
    value = np.asarray(value)
    if not value.size:
        value = value.astype(int)
    if value.dtype.kind not in "iub":
        raise invalid(name, f"places must be integers or booleans, got {obj!r:.60}")
    return operator.index(value.item()) if value.ndim == 0 else value


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """The array with values put in before some places of an axis.

    Source: `jax.numpy.insert`.
    """
    arr = array_of(arr, "insert")
    if axis is None:
        arr, axis = ravel(arr), 0
    t = typeof(arr)
    i = axis_index(axis, t.ndim, "insert")
    n = t.shape[i]
    known = isinstance(obj, slice) or concrete_value(obj) is not None
    if known:
        found = _static_places("insert", obj)
        found = np.arange(n)[found] if isinstance(found, slice) else np.asarray(found)
    else:
        found = array_of(obj, "insert", 1)
    if dtype_class(found.dtype) == "bool":
        raise invalid("insert", f"places must be integers, got {obj!r:.60}")
    # behind the last element what lies behind it, before the first what lies before it
    lib: Any = np if known else _TRACED
    places = lib.clip(lib.atleast_1d(lib.where(found < 0, found + n, found)), 0, n)
    values = cast(array_of(values, "insert", 2), t.dtype, t.weak_type)
    values = reshape(values, (*[1] * (t.ndim - typeof(values).ndim), *typeof(values).shape))
    if np.ndim(found) == 0 and not isinstance(obj, slice):  # the first axis holds what is inserted
        values = moveaxis(values, 0, i)
    if len(places) == 1:
        places = lib.repeat(places, typeof(values).shape[i])
    added = expand(values, (*t.shape[:i], len(places), *t.shape[i + 1 :]))
    # the order of [arr, values] in which each value stands before the element of its place
    order = lib.argsort(lib.concatenate([np.arange(n) * 2 + 1, places * 2]), stable=True)
    return take(concatenate([arr, added], i), order.astype(np.int32), axis=i)
