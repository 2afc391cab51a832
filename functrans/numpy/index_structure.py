"""Parsing of index expressions x[...] into a static structure and arrays.

In: an index as the user wrote it. Out: its hashable structure, a cache key for the plans of
`index_plans`, and the arrays in it, in order. Entries of a structure:

    3                       an int
    (start, stop, step)     a slice; ints or None
    None, Ellipsis          themselves
    ("array", shape)        an integer array; of a mask, one per axis, and the axis' size as a third
    ("flag", shape)         a single bool, which NumPy takes as an index along a new axis: that index
                            is of one element, or none; it is not among the arrays
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.source import brief, here
from functrans.ir.types import dtype_class
from functrans.numpy.creation import asarray
from functrans.trace import Tracer, concrete_value, typeof

Structure = tuple[Any, ...]


# --- from an index to its structure ---------------------------------------------------------------


def structure(index: Any) -> tuple[Structure, list[Any]]:
    """Return the structure of an index, and its arrays in order."""
    if not isinstance(index, tuple):
        if isinstance(index, Sequence) and not isinstance(index, str):
            raise _bare_sequence(index)
        index = (index,)
    entries: list[Any] = []
    arrays: list[Any] = []
    for item in index:
        kind = item.__class__
        if kind is int or item is None or item is Ellipsis:
            entries.append(item)
        elif kind is slice:
            entries.append(_slice(item))
        elif kind is Tracer and dtype_class(item.type.dtype) in ("int", "uint"):
            entries.append(("array", item.type.shape))
            arrays.append(item)
        else:
            _other(item, entries, arrays)
    return tuple(entries), arrays


def _slice(item: slice) -> tuple[int | None, int | None, int | None]:
    start, stop, step = item.start, item.stop, item.step
    if step.__class__ is int and step == 0:
        raise errors.InvalidArgument(
            f"the step of a slice must not be zero, {here()}\n"
            "x[::2] takes every second element, x[::-1] all of them in reverse."
        )
    try:
        return (
            start if start is None or start.__class__ is int else operator.index(start),
            stop if stop is None or stop.__class__ is int else operator.index(stop),
            step if step is None or step.__class__ is int else operator.index(step),
        )
    except (TypeError, jax.errors.ConcretizationTypeError):
        raise _bounds(start, stop, step) from None


def _bounds(*parts: Any) -> Exception:
    traced = any(isinstance(p, jax.Array) for p in parts)
    error = errors.InvalidIndex if traced else errors.TypeMismatch
    return error(
        f"the bounds of a slice must be static integers, got "
        f"{':'.join('' if p is None else str(p) for p in parts)}, {here()}\n"
        "The shape of the result would depend on values. For a window of fixed size at a "
        "computed start use x[ft.ds(start, size)] or lax.dynamic_slice; to keep the shape, "
        "use a mask and jnp.where."
    )


def _other(item: Any, entries: list[Any], arrays: list[Any]) -> None:
    """Parse an entry other than an int, a slice or a traced integer."""
    if isinstance(item, (bool, np.bool_)):
        return entries.append(("flag", (int(item),)))
    if isinstance(item, (int, np.integer)):
        return entries.append(int(item))
    if isinstance(item, (list, tuple)):
        item = from_sequence(item)
    elif not isinstance(item, (np.ndarray, jax.Array)):
        if hasattr(item, "__jax_array__"):
            item = item.__jax_array__()
        else:
            raise _unknown(item)
    kind = dtype_class(typeof(item).dtype)
    if kind in ("int", "uint") and item.__class__ is np.ndarray and not item.shape:
        entries.append(int(item))
    elif kind in ("int", "uint"):
        entries.append(("array", item.shape))
        arrays.append(item)
    elif kind == "bool":
        _mask(item, entries, arrays)
    else:
        raise errors.TypeMismatch(
            f"an index must be of integer or boolean type, got an array {typeof(item)}, {here()}\n"
            "Cast it with .astype(int)."
        )


def _mask(mask: Any, entries: list[Any], arrays: list[Any]) -> None:
    """Parse a boolean mask, as the integer arrays of the indices where it is true."""
    value = concrete_value(mask)
    if value is None:
        raise errors.NonConcreteMask(
            "the number of elements that a boolean mask selects depends on its values, but inside "
            f"jit and vmap only the type of this traced {typeof(mask)} is known, {here()}\n"
            "Keep the shape, with jnp.where(mask, x, other) for x[mask] or x.at[mask].set(other), "
            "or fix the number: x[jnp.nonzero(mask, size=n)]."
        )
    value = np.asarray(value)
    if value.ndim == 0:
        entries.append(("flag", (int(value),)))
        return
    for places, n in zip(np.nonzero(value), value.shape, strict=True):
        entries.append(("array", places.shape, n))
        arrays.append(places)


def from_sequence(items: Any) -> Any:
    """Convert a list among several indices to an array."""
    if not items:
        return np.zeros(0, np.int32)
    if not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(items)):
        return np.asarray(items)
    return asarray(items)


def _bare_sequence(index: Any) -> Exception:
    several = any(
        item is None
        or item is Ellipsis
        or isinstance(item, (slice, list, tuple))
        or (isinstance(item, (np.ndarray, jax.Array)) and np.ndim(item))
        for item in index
    )
    use = "x[tuple(index)]" if several else "x[jnp.array(index)]"
    return errors.TypeMismatch(
        f"Using a non-tuple sequence for multidimensional indexing is not allowed: "
        f"x[{brief(index)}], {here()}\nUse {use}."
    )


def _unknown(item: Any) -> Exception:
    where = f"{here()}"
    if isinstance(item, str):
        return errors.TypeMismatch(f"arrays cannot be indexed by strings, got {brief(item)}, {where}")
    if isinstance(item, (float, complex, np.generic)):
        return errors.TypeMismatch(
            f"an index must be of integer or boolean type, got {item!r} of type "
            f"{type(item).__qualname__}, {where}\nConvert it with int(...)."
        )
    return errors.InvalidIndex(
        "only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean "
        f"arrays are valid indices, got {brief(item)}, {where}"
    )
