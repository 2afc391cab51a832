"""x[index], and x.at[index].get(...)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import promises
from functrans.numpy.index_plans import Reading, index_array, index_dtype, reading, wrapped
from functrans.numpy.index_structure import structure
from functrans.numpy.primitives import reshape, rev, slice_
from functrans.numpy.promotion import array_of, cast_to, invalid
from functrans.primitives.indexing.dynamic_slice import dynamic_slice
from functrans.primitives.indexing.gather import FILL, PROMISE, gather
from functrans.trace import concrete_value, literal, materialize, typeof
from functrans.typing import Array, ArrayLike, PyTree

_WINDOW_MODES = (PROMISE, "clip")


def getitem(x: ArrayLike, index: PyTree) -> Array:
    """Return the elements x[index], by NumPy's rules.

    Out-of-bounds indices are clamped, as in JAX; `x.at[index].get(mode=...)` has other modes.
    Source: `jax.Array.__getitem__`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.indexing.getitem(jnp.arange(5), slice(1, None, 2)))
      [1 3]
    """
    return read(x, index)


def read(
    x: Any,
    index: Any,
    mode: Any = PROMISE,
    fill: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap: bool = True,
) -> Any:
    """Run `getitem` with the options of `x.at[index].get`; mode and fill value as in `gather`."""
    t = typeof(x)
    parts, arrays = structure(index)
    by_window = mode in _WINDOW_MODES
    if not by_window:
        parts, arrays = _ints_as_arrays(parts, arrays)
    plan = reading(t.shape, parts, by_window, wrap)
    if plan.expand is not None:
        x = reshape(x, shape=plan.expand)
    if plan.cut is not None:
        x = slice_(x, **plan.cut)
    if plan.reverse:
        x = rev(x, dimensions=plan.reverse)
    if plan.window is not None:
        x = _window(x, plan, arrays, wrap)
    elif plan.axes is not None:
        how = promises(mode, indices_are_sorted, unique_indices)
        if mode == FILL and fill is not None:
            how["fill"] = fill
        i = index_array(plan.columns, plan.index_shape, 0, arrays, wrap, index_dtype(t.shape))
        x = gather(x, i, **plan.axes, **how)
    return x if plan.out is None else reshape(x, shape=plan.out)


def _ints_as_arrays(parts: Sequence[Any], arrays: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Convert static ints to scalar arrays: in mode "fill_or_drop" they may be out of bounds."""
    given = iter(arrays)
    kept, made = [], []
    for part in parts:
        if part.__class__ is int:
            kept.append(("array", ()))
            made.append(np.array(part))
        else:
            kept.append(part)
            if part.__class__ is tuple and part[0].__class__ is str:
                made.append(next(given))
    return tuple(kept), made


def _window(x: Any, plan: Reading, arrays: Sequence[Any], wrap: bool) -> Any:
    starts, sizes = plan.window  # type: ignore[misc]
    dtype = index_dtype(typeof(x).shape)
    given = iter(zip(arrays, plan.columns, strict=True))
    made: list[Any] = []
    for start in starts:
        if start is None:
            i, n = next(given)
            signed = dtype_class(typeof(i).dtype) == "int"
            i = cast_to(i, dtype)
            start = wrapped(i, (n,)) if wrap and signed else i
        made.append(start)
    return dynamic_slice(x, *made, sizes=sizes)


def fill_of(fill_value: Any, dtype: Any, name: str) -> Any:
    """Convert a user's fill value to a parameter: a Python number, or None for the default."""
    if fill_value is None or dtype_class(dtype) == "key":
        return None
    value = concrete_value(fill_value)
    if value is None or np.ndim(value) != 0:
        raise invalid(
            name,
            f"fill_value must be a concrete scalar, got {fill_value!r:.60}",
            "Use jnp.where(in_bounds, x.at[i].get(mode='clip'), value) for a computed value.",
            errors.AbstractValueError if value is None else errors.InvalidArgument,
        )
    number = literal(value, ArrayType((), dtype)).value
    return None if number != number else number  # NaN is the default


def as_array(x: Any, name: str, position: int = 0) -> Any:
    """Convert an argument to an array."""
    return materialize(array_of(x, name, position))
