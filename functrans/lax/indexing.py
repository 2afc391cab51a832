"""`jax.lax` names over primitives/indexing/gather.py, scatter.py and dynamic_slice.py."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.lax import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers

from functrans.ir.types import dtype_class
from functrans.lax.arguments import (
    as_array,
    axis_index,
    check_sizes,
    integers,
    invalid,
    mismatch,
    mode_of,
    promises,
    sizes_of,
)
from functrans.primitives.elementwise.conversion import convert_element_type, strong
from functrans.primitives.elementwise.families import add, lt
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing import gather as indexing
from functrans.primitives.indexing import scatter as scatters
from functrans.primitives.indexing.dynamic_slice import dynamic_slice as _dynamic_slice
from functrans.primitives.indexing.dynamic_slice import dynamic_update_slice as _dynamic_update_slice
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import reshape, slice_axis
from functrans.trace import Tracer, typeof
from functrans.typing import Array, ArrayLike, PyTree

__all__ = [
    "GatherDimensionNumbers",
    "GatherScatterMode",
    "ScatterDimensionNumbers",
    "dynamic_index_in_dim",
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "gather",
    "index_take",
    "scatter",
    "scatter_add",
    "scatter_apply",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
]


# --- dynamic slices -------------------------------------------------------------------------------


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


def dynamic_slice_in_dim(
    operand: ArrayLike,
    start_index: ArrayLike,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Apply `dynamic_slice` along one axis.

    Source: `jax.lax.dynamic_slice_in_dim`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.dynamic_slice_in_dim(jnp.arange(5), -2, 2))
      [3 4]
    """
    operand = as_array(operand)
    shape = typeof(operand).shape
    axis = axis_index(axis, len(shape), "dynamic_slice_in_dim")
    sizes = (*shape[:axis], operator.index(slice_size), *shape[axis + 1 :])
    starts = _at_axis(start_index, axis, len(shape))
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_update_slice_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    start_index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Apply `dynamic_update_slice` along one axis.

    Source: `jax.lax.dynamic_update_slice_in_dim`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.dynamic_update_slice_in_dim(jnp.zeros(4), jnp.ones(2), 2, axis=0))
      [0. 0. 1. 1.]
    """
    operand = as_array(operand)
    ndim = typeof(operand).ndim
    axis = axis_index(axis, ndim, "dynamic_update_slice_in_dim")
    starts = _at_axis(start_index, axis, ndim)
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(
    operand: ArrayLike,
    index: ArrayLike,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Return the slice at a dynamic index of one axis, with or without that axis.

    Source: `jax.lax.dynamic_index_in_dim`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.dynamic_index_in_dim(jnp.arange(5), 3, keepdims=False))
      3
    """
    row = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    if keepdims:
        return row
    shape = typeof(row).shape
    axis = axis_index(axis, len(shape), "dynamic_index_in_dim")
    return reshape(row, shape=(*shape[:axis], *shape[axis + 1 :]))


def dynamic_update_index_in_dim(
    operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """Return an array with the slice at a dynamic index of one axis replaced.

    Source: `jax.lax.dynamic_update_index_in_dim`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.dynamic_update_index_in_dim(jnp.zeros(3), 7.0, 1, axis=0))
      [0. 7. 0.]
    """
    operand, update = as_array(operand), as_array(update)
    shape = typeof(update).shape
    ndim = typeof(operand).ndim
    axis = axis_index(axis, ndim, "dynamic_update_index_in_dim")
    if len(shape) != ndim:
        update = reshape(update, shape=(*shape[:axis], 1, *shape[axis:]))
    return dynamic_update_slice_in_dim(
        operand, update, index, axis, allow_negative_indices=allow_negative_indices
    )


def _at_axis(start: Any, axis: int, ndim: int) -> list[Any]:
    starts: list[Any] = [np.int32(0)] * ndim
    starts[axis] = start
    return starts


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


# --- gather and scatter ---------------------------------------------------------------------------


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: GatherScatterMode | str | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Gather slices of an array at dynamic indices.

    Arguments:
      operand: the array to read.
      start_indices: integers; the last axis holds one index per entry of `start_index_map`.
      dimension_numbers: the roles of the axes, as XLA's `GatherDimensionNumbers`.
      slice_sizes: size of the slice along each axis of `operand`.
      unique_indices, indices_are_sorted: promises that allow compiler optimizations.
      mode: a `GatherScatterMode` or its name; None: "promise_in_bounds".
      fill_value: value of out-of-bounds slices in mode "fill"; None: NaN, or the lowest integer.

    Returns:
      The slices.

    Source: `jax.lax.gather`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> numbers = lax.GatherDimensionNumbers((), (0,), (0,))
      >>> print(lax.gather(jnp.arange(5) * 10, jnp.array([[3], [1]]), numbers, (1,)))
      [30 10]
    """
    operand, start_indices = as_array(operand), as_array(start_indices)
    d, sizes = dimension_numbers, check_sizes(sizes_of(slice_sizes), "gather")
    axes = _axes(
        operand,
        start_indices,
        d.offset_dims,
        d.collapsed_slice_dims,
        d.start_index_map,
        d.operand_batching_dims,
        d.start_indices_batching_dims,
    )
    how = promises(mode_of(mode, indexing.PROMISE, "gather"), indices_are_sorted, unique_indices)
    if how["mode"] == indexing.FILL and fill_value is not None:
        how["fill"] = np.asarray(fill_value).item()
    return indexing.gather(operand, start_indices, **axes, sizes=sizes, **how)


class _Scatter(Protocol):
    def __call__(
        self,
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: GatherScatterMode | str | None = None,
    ) -> Array: ...


def _scatter(name: str, primitive: Any, does: str) -> _Scatter:
    def scatter(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: GatherScatterMode | str | None = None,
    ) -> Array:
        operand, indices = as_array(operand), as_array(scatter_indices)
        updates, d = as_array(updates), dimension_numbers
        axes = _axes(
            operand,
            indices,
            d.update_window_dims,
            d.inserted_window_dims,
            d.scatter_dims_to_operand_dims,
            d.operand_batching_dims,
            d.scatter_indices_batching_dims,
        )
        how = promises(mode_of(mode, indexing.FILL, name), indices_are_sorted, unique_indices)
        sizes = _window_sizes(operand, updates, axes)
        return primitive(operand, indices, updates, **axes, sizes=sizes, **how)

    scatter.__name__ = scatter.__qualname__ = name
    scatter.__doc__ = f"""An array with slices at computed places {does}.

    Arguments:
      operand: the array to write to.
      scatter_indices: integers; the last axis holds one index per entry of
        `scatter_dims_to_operand_dims`.
      updates: the slices.
      dimension_numbers: what each axis of the three arrays is, as in XLA.
      indices_are_sorted, unique_indices: promises that let the compiler do better.
      mode: a `GatherScatterMode` or its name; None: slices out of bounds are dropped.

    Returns:
      An array of the type of `operand`.

    Source: `jax.lax.{name}`.
    """
    return scatter


scatter: _Scatter = _scatter("scatter", scatters.scatter, "replaced")
scatter_add: _Scatter = _scatter("scatter_add", scatters.scatter_add, "added to")
scatter_sub: _Scatter = _scatter("scatter_sub", scatters.scatter_sub, "subtracted from")
scatter_mul: _Scatter = _scatter("scatter_mul", scatters.scatter_mul, "multiplied")
scatter_min: _Scatter = _scatter("scatter_min", scatters.scatter_min, "lowered to the updates")
scatter_max: _Scatter = _scatter("scatter_max", scatters.scatter_max, "raised to the updates")


def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[PyTree], PyTree],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """Apply a function to the elements at dynamic indices.

    Arguments: as in `scatter`; `func`: function of one element; `update_shape`: the shape that the
    updates would have.

    Source: `jax.lax.scatter_apply`.
    """
    operand, indices = as_array(operand), as_array(scatter_indices)
    zeros, ones = np.zeros(typeof(operand).shape, np.int32), np.ones(update_shape, np.int32)
    known: Any = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
    touched = scatter_add(zeros, indices, ones, dimension_numbers, mode=mode, **known)
    changed = func(operand)
    return select_n(lt(0, touched), operand, changed)


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[int]) -> Array:
    """Return `src[..., idxs[0], ..., idxs[1], ...]`: elements at dynamic indices of some axes.

    Arguments:
      src: array.
      idxs: one integer array of shape (n,) per axis.
      axes: the axes they index.

    Returns:
      An array whose first axis runs over the n indices, followed by the axes that are not indexed.

    Source: `jax.lax.index_take`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> places = jnp.array([1, 0]), jnp.array([2, 1])
      >>> print(lax.index_take(jnp.arange(6).reshape(2, 3), places, (0, 1)))
      [5 1]
    """
    src = as_array(src)
    t = typeof(src)
    axes = [axis_index(a, t.ndim, "index_take") for a in axes]
    columns = [reshape(as_array(i), shape=(*typeof(i).shape, 1)) for i in idxs]
    i = columns[0] if len(columns) == 1 else concatenate(*columns, dimension=1)
    sizes = tuple([1 if d in axes else n for d, n in enumerate(t.shape)])
    offsets = tuple(range(1, 1 + t.ndim - len(axes)))
    numbers = GatherDimensionNumbers(offsets, tuple(sorted(axes)), tuple(axes))
    return gather(src, i, numbers, sizes, mode="clip")


def _axes(
    operand: Any, indices: Any, windows: Any, dropped: Any, indexed: Any, batch: Any, batch_of: Any
) -> dict[str, tuple[int, ...]]:
    """Convert XLA's dimension numbers to axis names: 0.. for the operand, and further names for the
    axes of the indices that are not batch axes."""
    n, m = typeof(operand).ndim, typeof(indices).ndim - 1
    windows, dropped, indexed, batch, batch_of = [
        integers(given, "gather and scatter", "the dimension numbers")
        for given in (windows, dropped, indexed, batch, batch_of)
    ]
    shared = dict(zip(batch_of, batch, strict=True))
    index_names = [shared.get(j, n + j) for j in range(m)]
    kept = [d for d in range(n) if d not in dropped and d not in batch]
    total = m + len(kept)
    places = {k for k in windows if 0 <= k < total}
    if not len(windows) == len(kept) == len(places):
        raise mismatch(
            "gather and scatter",
            f"{len(kept)} axes of {typeof(operand)} are not collapsed, inserted or batching: each "
            f"needs a place among the {total} axes of the slices, got {windows}",
        )
    rest = iter(index_names)
    window = iter(kept)
    slices = [next(window) if k in windows else next(rest) for k in range(total)]
    named = {"operand": tuple(range(n)), "indices": tuple(index_names), "slices": tuple(slices)}
    return {**named, "indexed": indexed}


def _window_sizes(operand: Any, updates: Any, axes: dict[str, Any]) -> tuple[int, ...]:
    shape = typeof(updates).shape
    if len(shape) != len(axes["slices"]):
        raise mismatch(
            "scatter",
            f"updates {typeof(updates)} must have {len(axes['slices'])} axes: all but the last of "
            "the indices, and the window's",
        )
    size = dict(zip(axes["slices"], shape, strict=True))
    return tuple([size[d] if d in size and d not in axes["indices"] else 1 for d in axes["operand"]])
