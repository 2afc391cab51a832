"""Sums and their kin over segments of an array, with the names and signatures of `jax.ops`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard
from functrans.ir.types import dtype_class
from functrans.lax.arguments import integer, placed
from functrans.loading import hand_on as _hand_on
from functrans.numpy import reductions
from functrans.numpy.indexing import At, getitem
from functrans.numpy.joining import stack
from functrans.numpy.promotion import array_of, cast, invalid, mismatch
from functrans.trace import concrete_value, full, typeof

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _smallest(dtype: Any) -> Any:
    kind = dtype_class(dtype)
    if kind == "bool":
        return False
    return -np.inf if kind in ("float", "complex") else int(jax.numpy.iinfo(dtype).min)


def _largest(dtype: Any) -> Any:
    kind = dtype_class(dtype)
    if kind == "bool":
        return True
    return np.inf if kind in ("float", "complex") else int(jax.numpy.iinfo(dtype).max)


def _segments(name: str, segment_ids: Any, num_segments: Any) -> int:
    if num_segments is not None:
        num_segments = integer(num_segments, name, "num_segments")
        if num_segments < 0:
            raise invalid(name, f"num_segments must not be negative, got {num_segments}")
        return num_segments
    value = concrete_value(segment_ids)
    if value is None:
        raise errors.AbstractValueError(
            f"{name}: the number of segments depends on traced values, at\n"
            f"    {describe(user_source())}\nPass num_segments=."
        )
    value = np.asarray(value)
    return max(int(value.max()) + 1, 0) if value.size else 0


def _segmented(
    name: str, summary: str, method: str, unit: Callable[[Any], Any], over: Callable[..., Any]
) -> Callable[..., Any]:
    """A reduction of the rows of each segment: `method` of `x.at[ids]`, from `unit(dtype)` on."""

    def of(
        data: Any, segment_ids: Any, num_segments: int | None = None,
        indices_are_sorted: bool = False, unique_indices: bool = False,
        bucket_size: int | None = None, mode: Any = None, out_sharding: Any = None,
    ) -> Any:  # fmt: skip
        data, ids = array_of(data, name), array_of(segment_ids, name, 1)
        t, ti = typeof(data), typeof(ids)
        if dtype_class(ti.dtype) not in ("int", "uint"):
            raise mismatch(name, f"segment_ids are integers, got {ti}")
        if t.shape[: ti.ndim] != ti.shape:
            raise invalid(name, f"segment_ids {ti} must have the leading axes of the data {t}")
        n = _segments(name, ids, num_segments)
        start = full(unit(t.dtype), t.update(shape=(n, *t.shape[ti.ndim :]), weak_type=False))
        how: dict[str, Any] = {
            "indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices,
            "mode": mode, "wrap_negative_indices": False,
        }  # fmt: skip

        def reduced(rows: Any, places: Any) -> Any:
            return getattr(At(start)[places], method)(rows, **how)

        if n == 0:
            return start
        if bucket_size is None:
            return placed(reduced(data, ids), out_sharding)
        if bucket_size < 1:
            raise invalid(name, f"bucket_size must be at least 1, got {bucket_size}")
        parts = [slice(k, k + bucket_size) for k in range(0, ti.shape[0], bucket_size)]
        sums = [reduced(getitem(data, p), getitem(ids, p)) for p in parts]
        made = cast(over(stack(sums), axis=0), t.dtype) if sums else start
        return placed(made, out_sharding)

    of.__name__ = of.__qualname__ = name
    of.__doc__ = f"""{summary}

    Arguments:
      data: array.
      segment_ids: integers for the leading axes of data: the segment of each row. Rows of segments
        below 0, or from num_segments on, are left out.
      num_segments: their number; needed where the ids are traced. By default the largest id + 1.
      indices_are_sorted, unique_indices: promises about the ids that let XLA do faster things.
      bucket_size: reduce so many rows by themselves first, which loses less to rounding.
      mode: what becomes of ids out of range, as in `x.at`.

    Returns:
      An array with the segments along axis 0.

    Source: `jax.ops.{name}`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.ops.{name}(jnp.array([1, 2, 3]), jnp.array([0, 0, 1])))
      {_EXAMPLES[name]}
    """
    return of


_EXAMPLES = {
    "segment_sum": "[3 3]", "segment_prod": "[2 3]", "segment_max": "[2 3]", "segment_min": "[1 3]",
}  # fmt: skip

segment_sum = _segmented(
    "segment_sum", "Sum the rows of each segment.", "add", lambda dtype: 0, reductions.sum
)
segment_prod = _segmented(
    "segment_prod", "Multiply the rows of each segment.", "multiply", lambda dtype: 1,
    reductions.prod,
)  # fmt: skip
segment_max = _segmented(
    "segment_max", "The largest element of each segment.", "max", _smallest, reductions.max
)
segment_min = _segmented(
    "segment_min", "The smallest element of each segment.", "min", _largest, reductions.min
)


guard(sys.modules[__name__])

_hand_on(__name__)
