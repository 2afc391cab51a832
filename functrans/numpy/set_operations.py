"""Two vectors as sets: union, intersection, differences; the array API's `unique_*`; zeros at ends.

The size of each result depends on values: concrete arrays tell it, for traced ones `size` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class
from functrans.numpy import prims
from functrans.numpy.indexing import nonzero, take
from functrans.numpy.joining import concatenate
from functrans.numpy.promotion import (
    array_of,
    axes_of,
    cast,
    expand,
    invalid,
    promote_dtypes,
    strong,
    value_of,
)
from functrans.numpy.reading import read
from functrans.numpy.sets import differs_from_previous, isin, unique
from functrans.numpy.shaping import ravel
from functrans.numpy.sorting import argsort, searchsorted
from functrans.trace import concrete_value, literal, materialize, typeof

__all__ = [
    "intersect1d", "setdiff1d", "setxor1d", "trim_zeros", "union1d", "unique_all", "unique_counts",
    "unique_inverse", "unique_values",
]  # fmt: skip


# --- the distinct elements ------------------------------------------------------------------------


class UniqueAllResult(NamedTuple):
    """What `unique_all` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` gives."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` gives."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAllResult:
    """The distinct elements, where each occurs first, each element's place among them, and counts.

    Arguments:
      x: array; each NaN is distinct.
      size, fill_value: as in `unique`.

    Source: `jax.numpy.unique_all`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.unique_all(jnp.array([3, 1, 3])).counts)
      [1 2]
    """
    how: dict[str, Any] = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueAllResult(*unique(x, True, True, True, **how))


def unique_counts(
    x: Any, /, *, size: int | None = None, fill_value: Any = None
) -> UniqueCountsResult:
    """The distinct elements, and how often each occurs; arguments as in `unique_all`.

    Source: `jax.numpy.unique_counts`.
    """
    how: dict[str, Any] = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueCountsResult(*unique(x, return_counts=True, **how))


def unique_inverse(
    x: Any, /, *, size: int | None = None, fill_value: Any = None
) -> UniqueInverseResult:
    """The distinct elements, and each element's place among them; arguments as in `unique_all`.

    Source: `jax.numpy.unique_inverse`.
    """
    how: dict[str, Any] = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueInverseResult(*unique(x, return_inverse=True, **how))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements; arguments as in `unique_all`.

    Source: `jax.numpy.unique_values`.
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# --- two sets -------------------------------------------------------------------------------------


def _two(name: str, ar1: Any, ar2: Any, size: int | None = None) -> tuple[Any, Any]:
    """Two vectors of one dtype. Floats alone stay weak, where nothing is filled up."""
    ar1, ar2 = promote_dtypes((array_of(ar1, name), array_of(ar2, name, 1)), name)
    if size is not None or dtype_class(typeof(ar1).dtype) != "float":
        ar1, ar2 = strong(ar1), strong(ar2)
    return ravel(ar1), ravel(ar2)


def _sorted(x: Any, assume_unique: bool) -> tuple[Any, Any, Any]:
    """A vector in order, where its elements were, and which are the first of their value."""
    order = argsort(x)
    n = typeof(x).shape[0]
    ordered = take(x, order, mode="clip") if n else x
    distinct = typeof(x).update(dtype=np.dtype(bool), weak_type=False)
    new = literal(True, distinct) if assume_unique else differs_from_previous(ordered, n, True)
    return ordered, order, new


def _kept(name: str, keep: Any, size: int | None) -> tuple[Any, Any]:
    """The places where `keep` holds, `size` of them, and which of these are real ones."""
    n = typeof(keep).shape[0]
    if size is None:
        value = concrete_value(keep)
        if value is None:
            raise _unknown_size(name, "Pass size=.")
        size = int(np.count_nonzero(np.asarray(value)))
    (places,) = nonzero(keep, size=size, fill_value=n)
    return places, prims.lt(places, literal(n, typeof(places)))


def _unknown_size(name: str, fix: str) -> Exception:
    return errors.AbstractValueError(
        f"{name}: the size of the result depends on traced values, at\n"
        f"    {describe(user_source())}\n{fix}"
    )


def _filled(values: Any, places: Any, real: Any, fill: Any) -> Any:
    """values[places], and the fill at places that are not real, at the dtype of both; by default
    the first value."""
    t, to = typeof(values), typeof(places).shape
    if t.shape[0] == 0 or to == (0,):
        values, fill = promote_dtypes((values, 0 if fill is None else fill), "fill_value")
        t = typeof(values)
        return materialize(expand(cast(fill, t.dtype, t.weak_type), to))
    found = take(values, places, mode="clip")
    if fill is None:
        any_real = read(real, 0)
        first = read(found, 0)
        fill = prims.select_n(any_real, literal(0, typeof(first)), first)
    else:
        found, fill = promote_dtypes((found, fill), "fill_value")
    return materialize(prims.select_n(real, expand(fill, to), found))


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements of both arrays, in order; size and fill_value as in `unique`.

    Source: `jax.numpy.union1d`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.union1d(jnp.array([1, 3]), jnp.array([2, 3])))
      [1 2 3]
    """
    both = concatenate(_two("union1d", ar1, ar2))
    if size is None and concrete_value(both) is None:
        raise _unknown_size("union1d", "Pass size=.")
    return unique(both, size=size, fill_value=fill_value)


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *,
    size: int | None = None, fill_value: Any = None,
) -> Any:  # fmt: skip
    """The distinct elements that are in both arrays, in order.

    Arguments:
      ar1, ar2: arrays.
      assume_unique: promise that the elements of each differ.
      return_indices: also where each occurs first in either array.
      size: the size of the result, needed for traced arrays.
      fill_value: what to fill up with; by default the smallest common element.

    Source: `jax.numpy.intersect1d`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.intersect1d(jnp.array([1, 3, 4]), jnp.array([4, 3])))
      [3 4]
    """
    name = "intersect1d"
    ar1, ar2 = _two(name, ar1, ar2, size)
    ordered, order, new = _sorted(ar1, assume_unique)
    places, real = _kept(name, prims.and_(new, isin(ordered, ar2)), size)
    values = _filled(ordered, places, real, None if size is None else fill_value)
    if not return_indices:
        return values
    n1, n2 = typeof(ar1).shape[0], typeof(ar2).shape[0]
    first = _filled(order, places, real, n1)
    other, other_order, _ = _sorted(ar2, True)
    second = _filled(other_order, searchsorted(other, values), real, n2)
    return values, first, second


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """The distinct elements of the first array that are not in the second, in order.

    Arguments:
      ar1, ar2: arrays.
      assume_unique: take the elements of ar1 as they are, in their order.
      size: the size of the result, needed for traced arrays.
      fill_value: what to fill up with; by default 0.

    Source: `jax.numpy.setdiff1d`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.setdiff1d(jnp.array([5, 1, 3]), jnp.array([3])))
      [1 5]
    """
    name = "setdiff1d"
    values, ar2 = _two(name, ar1, ar2)
    keep = None
    if not assume_unique:
        values, _, keep = _sorted(values, False)
    absent = isin(values, ar2, invert=True)
    t = typeof(array_of(ar1, name))
    values = cast(values, t.dtype, t.weak_type and dtype_class(t.dtype) != "complex")
    places, real = _kept(name, absent if keep is None else prims.and_(keep, absent), size)
    fill = cast(value_of(0 if fill_value is None else fill_value, name), t.dtype)
    return _filled(values, places, real, cast(fill, t.dtype, typeof(values).weak_type))


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """The distinct elements that are in one array only, in order; arguments as in `intersect1d`.

    Source: `jax.numpy.setxor1d`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.setxor1d(jnp.array([1, 3]), jnp.array([3, 4])))
      [1 4]
    """
    name = "setxor1d"
    ar1, ar2 = _two(name, ar1, ar2, size)
    keeps = [isin(ar1, ar2, invert=True), isin(ar2, ar1, invert=True)]
    values, order, new = _sorted(concatenate([ar1, ar2]), assume_unique)
    keep = concatenate(keeps)
    if typeof(values).shape[0]:
        keep = prims.and_(take(keep, order, mode="clip"), new)
    places, real = _kept(name, keep, size)
    return _filled(values, places, real, None if size is None else fill_value)


# --- zeros at the ends ----------------------------------------------------------------------------


def trim_zeros(filt: Any, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Any:
    """The array without the zeros at its ends.

    Arguments:
      filt: array whose values are known.
      trim: "f" in it trims the front, "b" the back.
      axis: the axes along which to trim; None for all.

    Raises:
      AbstractValueError: the array is traced, so that the size of the result is unknown.

    Source: `jax.numpy.trim_zeros`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.trim_zeros(jnp.array([0, 0, 1, 0, 2, 0])))
      [1 0 2]
    """
    filt = array_of(filt, "trim_zeros")
    if not set(trim.lower()) <= {"f", "b"}:
        raise invalid("trim_zeros", f"trim must be made of 'f' and 'b', got {trim!r}")
    value = concrete_value(filt)
    if value is None:
        raise _unknown_size("trim_zeros", "Call it outside of jit and vmap.")
    if typeof(filt).ndim == 0:
        return filt
    found = np.nonzero(np.asarray(value))
    index = [slice(None)] * typeof(filt).ndim
    for i in axes_of(axis, len(index), "trim_zeros"):
        first, last = (found[i].min(), found[i].max() + 1) if found[i].size else (0, 0)
        front, back = "f" in trim.lower(), "b" in trim.lower()
        if found[i].size or front or back:
            index[i] = slice(int(first) if front else 0, int(last) if back or not last else None)
    return read(filt, tuple(index))
