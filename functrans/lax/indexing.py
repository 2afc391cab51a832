"""`jax.lax` names over primitives/indexing/dynamic_slice.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans.ir.types import dtype_class
from functrans.lax.arguments import as_array, invalid, mismatch, sizes_of
from functrans.primitives.elementwise.conversion import convert_element_type, strong
from functrans.primitives.elementwise.families import add, lt
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.dynamic_slice import dynamic_slice as _dynamic_slice
from functrans.primitives.indexing.dynamic_slice import dynamic_update_slice as _dynamic_update_slice
from functrans.primitives.shape.moving import reshape, slice_axis
from functrans.trace import Tracer, typeof
from functrans.typing import Array, ArrayLike

__all__ = ["dynamic_slice", "dynamic_update_slice"]


def dynamic_slice(
    operand: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """Return a slice of static size that starts at dynamic indices.

    Arguments:
      operand: array of n axes.
      start_indices: n integer scalars, or an integer array of shape (n,). A start is clamped so
        that the slice is in bounds.
      slice_sizes: n Python ints.
      allow_negative_indices: count negative starts from the end; one bool for all or one per axis.

    Returns:
      An array of shape `slice_sizes`.

    Source: `jax.lax.dynamic_slice`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.dynamic_slice(jnp.arange(5), (2,), (2,)))
      [2 3]
    """
    operand, sizes = as_array(operand), sizes_of(slice_sizes)
    starts = _starts("dynamic_slice", operand, start_indices, allow_negative_indices)
    return _dynamic_slice(operand, *starts, sizes=sizes)


def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """Return an array with the slice that starts at dynamic indices replaced.

    Arguments:
      operand: array of n axes.
      update: array of n axes, no larger than `operand` along any.
      start_indices, allow_negative_indices: as in `dynamic_slice`.

    Returns:
      An array of the type of `operand`.

    Source: `jax.lax.dynamic_update_slice`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.dynamic_update_slice(jnp.zeros(4), jnp.ones(2), (1,)))
      [0. 1. 1. 0.]
    """
    operand, update = strong(as_array(operand)), as_array(update)
    starts = _starts("dynamic_update_slice", operand, start_indices, allow_negative_indices)
    return _dynamic_update_slice(operand, update, *starts)


def _starts(name: str, operand: Any, starts: Any, negative: bool | Sequence[bool]) -> list[Any]:
    """Return one integer scalar per axis, all of one dtype, with negative indices wrapped."""
    t = typeof(operand)
    if isinstance(starts, (Tracer, jax.Array, np.ndarray)):
        if typeof(starts).ndim != 1:
            raise invalid(
                name, f"start_indices must be a vector or a sequence of scalars, got {typeof(starts)}"
            )
        starts = [
            reshape(slice_axis(starts, 0, i, i + 1), shape=())
            if not isinstance(starts, np.ndarray)
            else starts[i]
            for i in range(typeof(starts).shape[0])
        ]
    if len(starts) != t.ndim:
        raise invalid(name, f"{len(starts)} start indices for an operand {t} of {t.ndim} axes")
    wraps = [negative] * t.ndim if isinstance(negative, bool) else list(negative)
    types = [typeof(s) for s in starts]
    dtype = _index_dtype(name, types)
    return [_start(s, n, wrap, dtype) for s, n, wrap in zip(starts, t.shape, wraps, strict=True)]


def _index_dtype(name: str, types: Sequence[Any]) -> Any:
    """Return the common dtype of the indices: that of the strongly typed ones, else int32."""
    for t in types:
        if dtype_class(t.dtype) not in ("int", "uint"):
            raise mismatch(name, f"indices must be integers, got {t}")
        if t.shape:
            raise mismatch(name, f"each start index must be a scalar, got {t}")
    strong = {t.dtype for t in types if not t.weak_type} or {t.dtype for t in types}
    return max(strong, key=lambda d: np.dtype(d).itemsize, default=np.dtype(np.int32))


def _start(start: Any, size: int, wrap: bool, dtype: Any) -> Any:
    if isinstance(start, (int, np.integer)):
        at = int(start)
        if at < 0 and not wrap:
            raise invalid("dynamic_slice", f"negative start {at} with allow_negative_indices=False")
        return np.asarray(at + size if at < 0 else at, dtype)
    if typeof(start).dtype != dtype or typeof(start).weak_type:
        start = convert_element_type(as_array(start), dtype=np.dtype(dtype), weak_type=False)
    if not wrap or dtype_class(dtype) == "uint":
        return start
    return select_n(lt(start, 0), start, add(start, size))
