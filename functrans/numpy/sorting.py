"""Functions that order elements or look them up in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype, dtype_class
from functrans.numpy import prims
from functrans.numpy.indexing import take
from functrans.numpy.promotion import (
    array_of,
    axis_index,
    invalid,
    mismatch,
    promote_dtypes,
    user_dtype,
)
from functrans.numpy.shaping import ravel
from functrans.numpy.ufuncs import greater_equal
from functrans.trace import full, literal, typeof
from functrans.typing import Array, ArrayLike, DTypeLike, PyTree

__all__ = ["argsort", "digitize", "lexsort", "searchsorted", "sort"]


def _along(name: str, a: Any, axis: int | None) -> tuple[Any, int]:
    a = array_of(a, name)
    if axis is None:
        return ravel(a), 0
    n = typeof(a).ndim
    if n == 0:
        raise invalid(name, "needs at least one axis, got a scalar")
    return a, axis_index(axis, n, name)


def sort(
    a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
    stable: bool = True, descending: bool = False,
) -> Array:  # fmt: skip
    """Put the elements in order along an axis; NaN last.

    Arguments:
      a: array.
      axis: None sorts the flattened array.
      stable: equal elements keep their order.
      descending: the largest first.

    Source: `jax.numpy.sort`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.sort(jnp.array([3, 1, 2])))
      [1 2 3]
    """
    _refuse_numpys("sort", kind, order)
    a, i = _along("sort", a, axis)
    (y,) = prims.sort(a, dimension=i, is_stable=stable, num_keys=1)
    return prims.rev(y, dimensions=(i,)) if descending else y


def argsort(
    a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
    stable: bool = True, descending: bool = False, dtype: DTypeLike | None = None,
) -> Array:  # fmt: skip
    """The indices that put the elements in order along an axis; arguments as in `sort`.

    Arguments:
      dtype: of the indices, an integer type; by default the default one.

    Source: `jax.numpy.argsort`.
    """
    _refuse_numpys("argsort", kind, order)
    a, i = _along("argsort", a, axis)
    shape = typeof(a).shape
    index = canonical_dtype(np.dtype("int64")) if dtype is None else user_dtype(dtype)
    places = prims.iota(dtype=index, shape=shape, dimension=i)
    if descending:  # equal elements keep their order: sort the reversed array, then reverse
        a, places = (prims.rev(x, dimensions=(i,)) for x in (a, places))
    _, found = prims.sort(a, places, dimension=i, is_stable=stable, num_keys=1)
    return prims.rev(found, dimensions=(i,)) if descending else found


def _refuse_numpys(name: str, kind: Any, order: Any) -> None:
    if kind is not None or order is not None:
        given = f"kind={kind!r}" if kind is not None else f"order={order!r}"
        raise mismatch(name, f"{given} is not supported", "Pass stable=True or stable=False.")


def lexsort(keys: Sequence[PyTree], axis: int = -1) -> Array:
    """The indices that sort by the last key, then by the one before it, ...

    Source: `jax.numpy.lexsort`.
    """
    xs = [array_of(k, "lexsort", i) for i, k in enumerate(keys)]
    if not xs:
        raise mismatch("lexsort", "needs at least one key")
    shape = typeof(xs[0]).shape
    if any(typeof(x).shape != shape for x in xs):
        raise invalid("lexsort", f"keys must have one shape, got {[typeof(x) for x in xs]}")
    if not shape:
        return full(0, ArrayType((), canonical_dtype(np.dtype("int64"))))
    i = axis_index(axis, len(shape), "lexsort")
    places = prims.iota(dtype=canonical_dtype(np.dtype("int64")), shape=shape, dimension=i)
    *_, found = prims.sort(*xs[::-1], places, dimension=i, is_stable=True, num_keys=len(xs))
    return found


SEARCHES = ("compare_all", "scan", "scan_unrolled", "sort")


def check_method(name: str, method: str, known: tuple[str, ...]) -> None:
    if method not in known:
        raise invalid(
            name, f"method must be one of {', '.join(known)}, got {method!r}",
            "Leave it out: the result is the same.",
        )  # fmt: skip


def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
    *,
    method: str = "scan",
) -> Array:
    """Where elements would go in a sorted array: the number of elements before them.

    Arguments:
      a: sorted vector.
      v: array of values.
      side: "left", before equal elements; "right", after them.
      sorter: indices that sort a.
      method: one of JAX's; values are found by binary search, all at once, whatever is asked for.

    Source: `jax.numpy.searchsorted`.
    """
    check_method("searchsorted", method, SEARCHES)
    if side not in ("left", "right"):
        raise invalid("searchsorted", f"side must be 'left' or 'right', got {side!r}")
    a, v = promote_dtypes((a, v), "searchsorted")
    a, v = array_of(a, "searchsorted"), array_of(v, "searchsorted", 1)
    t = typeof(a)
    if t.ndim != 1:
        raise invalid("searchsorted", f"a must be a vector, got {t}")
    if sorter is not None:
        a = take(a, sorter)
    return _binary_search(a, t.shape[0], v, side)


def _binary_search(a: Any, n: int, v: Any, side: str) -> Any:
    """Count the elements before each value bit by bit, from the highest: a bit stays if that many
    stand before the value."""
    index = ArrayType(typeof(v).shape, np.dtype("int32"))
    before = _before(v, side)
    count = array_of(literal(0, index), "searchsorted")
    for bit in reversed(range(n.bit_length())):
        more = prims.add(count, literal(1 << bit, index))
        last = prims.add(count, literal((1 << bit) - 1, index))
        stays = prims.and_(before(take(a, last, mode="clip")), prims.le(more, literal(n, index)))
        count = prims.select_n(stays, count, more)
    return count


def _before(v: Any, side: str) -> Callable[[Any], Any]:
    """Does an element stand before v in the order of `sort`, with NaN last? Complex numbers go by
    their real parts, and where these are equal by the imaginary ones."""
    kind = dtype_class(typeof(v).dtype)
    if kind == "complex":
        less, not_more = _before(prims.real(v), "left"), _before(prims.real(v), "right")
        last = _before(prims.imag(v), side)
        return lambda x: prims.or_(
            less(prims.real(x)), prims.and_(not_more(prims.real(x)), last(prims.imag(x)))
        )
    compare = prims.lt if side == "left" else prims.le
    if kind != "float":
        return lambda x: compare(x, v)
    v_is_nan = prims.ne(v, v)
    if side == "right":
        return lambda x: prims.or_(compare(x, v), v_is_nan)
    return lambda x: prims.or_(compare(x, v), prims.and_(v_is_nan, prims.eq(x, x)))


def digitize(
    x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None
) -> Array:
    """The index of the bin of each value; bins may rise or fall.

    Source: `jax.numpy.digitize`.
    """
    if method is not None:
        check_method("digitize", method, SEARCHES)
    bins = array_of(bins, "digitize", 1)
    t = typeof(bins)
    if t.ndim != 1:
        raise invalid("digitize", f"bins must be a vector, got {t}")
    side = "right" if not right else "left"
    if t.shape[0] == 0:
        zero = ArrayType(typeof(array_of(x, "digitize")).shape, np.dtype("int32"))
        return array_of(literal(0, zero), "digitize")
    first = prims.slice_(bins, start=(0,), limit=(1,), strides=(1,))
    last = prims.slice_(bins, start=(t.shape[0] - 1,), limit=(t.shape[0],), strides=(1,))
    rises = prims.squeeze(greater_equal(last, first), dimensions=(0,))
    found = searchsorted(prims.select_n(rises, prims.rev(bins, dimensions=(0,)), bins), x, side)
    from_end = prims.sub(literal(t.shape[0], typeof(found)), found)
    return prims.select_n(rises, from_end, found)
