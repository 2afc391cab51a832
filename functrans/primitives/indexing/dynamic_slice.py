"""Read or write one window of an array at dynamic start indices.

There is one start index per axis, scalars of one integer dtype. Start indices are clamped so that
the window lies inside the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo
from functrans.primitives.base import Cost, LinearInput, bytes_of, type_of
from functrans.primitives.elementwise.families import full_like
from functrans.primitives.indexing.gather import gather
from functrans.primitives.indexing.scatter import scatter
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import Moving, reshape, without
from functrans.trace import bind, literal, typeof


class Window(Moving):
    """Base class: checks window and start indices. The backends' arrays may have one more axis, of
    the words of keys, along which the window starts at 0."""

    in_kernel = True

    def check_window(self, types: Sequence[ArrayType], sizes: Any, starts: Any) -> None:
        x = types[0]
        if not len(starts) == len(sizes) == x.ndim:
            raise self.mismatch(
                types,
                "it needs one start index and one window size per axis of the operand, got "
                f"{len(starts)} and {len(sizes)}",
            )
        for s in starts:
            if s.shape != () or dtype_class(s.dtype) not in ("int", "uint"):
                raise self.mismatch(types, "start indices must be scalar integers")
            if s.dtype != starts[0].dtype:
                raise self.mismatch(types, "start indices must have one dtype")
        for axis, (n, k) in enumerate(zip(x.shape, sizes, strict=True)):
            if not 0 <= k <= n:
                raise self.mismatch(types, f"a window of size {k} does not fit axis {axis} of size {n}")


def _box(shape: Any, starts: Any, sizes: Any) -> tuple[slice, ...]:
    """Return the window as NumPy slices, clamped into an array of a shape."""
    starts = (*starts, *[0] * (len(shape) - len(starts)))
    places = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple([slice(s, s + k) for s, k in zip(places, sizes, strict=True)])


class DynamicSlice(Window):
    """The window of x of the given sizes at the start indices."""

    name: str = "dynamic_slice"
    per_axis: dict[str, Any] = {"sizes": None}
    linear_in: tuple[int, ...] = (0,)

    def __call__(self, x: Any, *starts: Any, sizes: tuple[int, ...]) -> Any:
        if x.__class__ is Literal:
            return Literal(x.value, self.abstract_eval(x.type, *map(typeof, starts), sizes=sizes))
        return bind(self, (x, *starts), {"sizes": sizes})

    def abstract_eval(self, x: ArrayType, *starts: ArrayType, sizes: tuple[int, ...]) -> ArrayType:
        self.check_window((x, *starts), sizes, starts)
        return x.update(shape=sizes)

    def reference(self, x: Any, *starts: Any, sizes: Any) -> Any:
        return x[_box(x.shape, starts, sizes)]

    def lower(self, ctx: Any, x: Any, *starts: Any, sizes: Any) -> Any:
        t = ctx.out_types[0]
        if not t.size:
            return ctx.full(0, t)
        return hlo.dynamic_slice(x, _signed(ctx, starts, t.ndim), sizes) if sizes else x

    def transpose(self, ct: Any, x: Any, *starts: Any, sizes: Any) -> Any:
        nothing = literal(0, x.type.strong())
        return dynamic_update_slice(nothing, ct, *starts), *[None] * len(starts)

    def batch(self, t: Any, args: Any, dims: Any, *, sizes: Any) -> Any:
        (x, *starts), (d, *ds) = args, dims
        if all(s is None for s in ds):
            zero = _start_zero(starts)
            return self(x, *starts[:d], zero, *starts[d:], sizes=(*sizes[:d], t.size, *sizes[d:])), d
        i, windows = _as_indices(t, starts, ds, typeof(x).without_axis(d).shape, sizes)
        return gather.batch(t, (x, i), (d, 0), **windows)

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(0, 2 * bytes_of(*out_types))


class DynamicUpdateSlice(Window):
    """x with the window at the start indices replaced by the second operand."""

    name: str = "dynamic_update_slice"
    linear_in: tuple[int, ...] = (0, 1)

    def abstract_eval(self, x: ArrayType, u: ArrayType, *starts: ArrayType) -> ArrayType:
        if x.dtype != u.dtype:
            raise self.mismatch((x, u, *starts), f"the update must be of dtype {x.dtype}, got {u.dtype}")
        self.check_window((x, u, *starts), u.shape, starts)
        return x

    def reference(self, x: Any, u: Any, *starts: Any) -> Any:
        out = np.array(x)
        out[_box(x.shape, starts, u.shape)] = u
        return out

    def lower(self, ctx: Any, x: Any, u: Any, *starts: Any) -> Any:
        t, u_type = ctx.in_types[:2]
        if not t.shape:
            return u
        if not u_type.size:
            return x
        return hlo.dynamic_update_slice(x, u, _signed(ctx, starts, t.ndim))

    def transpose(self, ct: Any, x: Any, u: Any, *starts: Any) -> Any:
        ct_x = ct_u = None
        if isinstance(x, LinearInput):
            ct_x = self(ct, literal(0, type_of(u).strong()), *starts)
        if isinstance(u, LinearInput):
            ct_u = dynamic_slice(ct, *starts, sizes=u.shape)
        return ct_x, ct_u, *[None] * len(starts)

    def batch(self, t: Any, args: Any, dims: Any) -> Any:
        (x, u, *starts), (d, du, *ds) = args, dims
        sizes = typeof(u).without_axis(du).shape
        if all(s is None for s in ds):
            at = du if d is None else d
            return self(t.at(x, d, at), t.at(u, du, at), *starts[:at], _start_zero(starts), *starts[at:]), at
        i, windows = _as_indices(t, starts, ds, typeof(x).without_axis(d).shape, sizes)
        promises = {"indices_are_sorted": True, "unique_indices": True}
        return scatter.batch(t, (x, i, u), (d, 0, du), **windows, **promises)

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(0, bytes_of(*in_types[:2], *out_types))


def _signed(ctx: Any, starts: Any, n: int) -> list[Any]:
    """Return, in StableHLO, n start indices as signed integers. (XLA's simplifier reads the highest
    bit of a constant unsigned start as a sign.)"""
    t = ctx.in_types[-1] if starts else ArrayType((), np.dtype(np.int32))
    if dtype_class(t.dtype) == "uint":
        t = t.update(dtype=np.dtype(np.int32 if t.dtype.itemsize < 4 else np.int64))
        starts = [hlo.convert(ctx.type(t), s) for s in starts]
    return [*starts, *[ctx.full(0, t) for _ in range(n - len(starts))]]


def _start_zero(starts: Sequence[Any]) -> Literal:
    dtype = typeof(starts[0]).dtype if starts else np.dtype(np.int32)
    return literal(0, ArrayType((), dtype))


def _as_indices(t: Any, starts: Any, dims: Any, shape: Any, sizes: Any) -> tuple[Any, dict[str, Any]]:
    """Return the start indices of a batch as one array [examples, axes], and the parameters of the gather
    at one of them. The axes along which the window is as wide as the array, so that it starts at 0, are
    left out."""
    indexed = tuple([a for a, (n, k) in enumerate(zip(shape, sizes, strict=True)) if k < n])
    columns = [reshape(t.at(starts[a], dims[a], 0), shape=(t.size, 1)) for a in indexed]
    if not columns:
        i = literal(0, ArrayType((t.size, 0), typeof(starts[0]).dtype))
    else:
        i = columns[0] if len(columns) == 1 else concatenate(*columns, dimension=1)
    names = tuple(range(len(sizes)))
    axes = {"operand": names, "indices": (), "slices": names, "indexed": indexed}
    return i, {**axes, "sizes": sizes, "mode": "clip"}


dynamic_slice: DynamicSlice = DynamicSlice()
dynamic_update_slice: DynamicUpdateSlice = DynamicUpdateSlice()


# --- along one axis -------------------------------------------------------------------------------


def part_of(x: Any, axis: int, start: Any, size: int) -> Any:
    """Return the elements from `start` on along an axis."""
    shape = typeof(x).shape
    sizes = tuple([size if d == axis else n for d, n in enumerate(shape)])
    return dynamic_slice(x, *_starts(axis, start, len(shape)), sizes=sizes)


def element_of(x: Any, axis: int, i: Any) -> Any:
    """Return element i along an axis, which is dropped."""
    return reshape(part_of(x, axis, i, 1), shape=without(typeof(x).shape, axis))


def with_element(x: Any, axis: int, i: Any, new: Any) -> Any:
    """Return x with another element i along an axis."""
    shape = typeof(new).shape
    update = reshape(new, shape=(*shape[:axis], 1, *shape[axis:]))
    return dynamic_update_slice(x, update, *_starts(axis, i, len(shape) + 1))


def _starts(axis: int, start: Any, ndim: int) -> list[Any]:
    return [start if d == axis else full_like(start, 0) for d in range(ndim)]
