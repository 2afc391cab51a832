"""Gather: read slices at dynamic indices. Also the axes that gather and scatter share.

The axes of the three arrays have names (small integers), as those of `dot_general`:

    operand   a name per axis of x
    indices   a name per axis of the index array except the last, which holds one start index for
              each name in `indexed`, a name of the operand
    slices    a name per axis of the slices: those of `indices` and of the windows that are kept
    sizes     the size of a window along each axis of x

A name of the operand that is in `slices` is a window of x. One that is also in `indices` is a batch
axis (slice b is taken from x[b]). One that is in neither is dropped (its size is 1).

                           operand  indices  slices  indexed  sizes
    x[i]        [n,m], [k]  (0, 1)   (2,)     (2, 1)  (0,)     (1, m)
    x[b, i[b]]  [b,n], [b]  (0, 1)   (0,)     (0,)    (1,)     (1, 1)

The same parameters say where `scatter` writes what `gather` reads, so each is the other's
transpose.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from functrans import errors
from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo
from functrans.primitives.base import PRIMITIVES, Cost, bytes_of
from functrans.primitives.elementwise.families import compare
from functrans.primitives.shape.moving import Moving
from functrans.records import NamedTuple
from functrans.trace import bind, literal

Names = tuple[int, ...]

# How a window that is not inside x is handled. In "promise_in_bounds" XLA clips the reads of a
# gather and drops the writes of a scatter.
MODES = ("clip", "fill_or_drop", "promise_in_bounds")
CLIP = "clip"
FILL = "fill_or_drop"
PROMISE = "promise_in_bounds"


class Windows(NamedTuple):
    """Which windows of x the indices name: five of the parameters of gather and the scatters."""

    operand: Names
    indices: Names
    slices: Names
    indexed: Names
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, params: dict[str, Any]) -> Windows:
        return cls(*[params[name] for name in cls._fields])

    def dimension_numbers(self) -> tuple[Any, ...]:
        """Return the arguments of StableHLO's `GatherDimensionNumbers` and `ScatterDimensionNumbers`:
        windows in the slices, dropped axes of x, batch axes of x and of the indices, indexed axes of
        x, the axis of the indices that holds the numbers of one."""
        operand, indices, slices, indexed, _ = self
        batch = [n for n in operand if n in indices]
        return (
            [d for d, n in enumerate(slices) if n not in indices],
            [d for d, n in enumerate(operand) if n not in slices],
            [operand.index(n) for n in batch],
            [indices.index(n) for n in batch],
            [operand.index(n) for n in indexed],
            len(indices),
        )


class Indexed(Moving):
    """Base class of gather and the scatters: checks the axes."""

    def under_trailing_axis(self, n: int, params: dict[str, Any]) -> dict[str, Any]:
        new = 1 + max((*params["operand"], *params["indices"]), default=-1)
        more = {"operand": new, "slices": new, "sizes": n}
        return {**params, **{name: (*params[name], last) for name, last in more.items()}}

    def slices_shape(self, types: tuple[ArrayType, ...], mode: str, windows: Windows) -> tuple[int, ...]:
        """Return the shape of the slices; raise if the mode is unknown or the axes are inconsistent."""
        if mode not in MODES:
            raise self.mismatch(types, f"mode {mode!r} must be one of {MODES}")
        operand, indices, slices, indexed, sizes = windows
        x, i = types[:2]
        if dtype_class(i.dtype) not in ("int", "uint"):
            raise self.mismatch(
                types,
                f"indices must be integers, got {i.dtype}",
                "Cast them with x.astype(int).",
                errors.NotIntegers,
            )
        if not len(operand) == len(sizes) == x.ndim or len(indices) != i.ndim - 1:
            raise self.mismatch(
                types,
                f"operand {operand}, sizes {sizes}, indices {indices}: one "
                "per axis (but none for the last of the indices)",
            )
        if i.shape[-1] != len(indexed) or not set(indexed) <= set(operand) - set(indices):
            raise self.mismatch(
                types,
                f"indexed {indexed}: an axis of the operand for each of the "
                f"{i.shape[-1]} numbers of an index",
            )
        size = dict(zip(indices, i.shape, strict=False))
        for name, n, k in zip(operand, x.shape, sizes, strict=True):
            if name in size and size[name] != n:
                raise self.mismatch(types, f"batch axes of sizes {n} and {size[name]} must agree")
            if (name in size or name not in slices) and k != 1:
                raise self.mismatch(types, f"a window of size {k} along an axis that is not kept")
            dropped = len(types) == 3 and not x.size  # updates of an array without elements
            if k > n and name not in size and i.size and not dropped:
                raise self.mismatch(types, f"a window of size {k} does not fit an axis of size {n}")
            size.setdefault(name, k)
        kept = [n for n in operand if n in slices and n not in indices]
        if sorted(slices) != sorted((*indices, *kept)) or kept != [n for n in slices if n in kept]:
            raise self.mismatch(
                types, f"slices {slices} must hold indices {indices} and windows {kept}, each in order"
            )
        return tuple([size[n] for n in slices])


def last_places(shape: Any, dtype: Any, windows: Any) -> np.ndarray:
    """Return the largest start index along each indexed axis of x whose window is inside x."""
    operand, _, _, indexed, sizes = windows
    axes = [operand.index(name) for name in indexed]
    top = ml_dtypes.iinfo(dtype).max
    return np.array([min(top, max(0, shape[d] - sizes[d])) for d in axes], dtype)


def places(shape: Any, i: np.ndarray, windows: Any) -> tuple[np.ndarray, ...]:
    """For each element of the slices, return its flat index in x, with start indices clipped into
    x, and whether its window is inside x."""
    operand, indices, slices, indexed, sizes = windows

    def along(values: Any, *names: int) -> np.ndarray:
        aligned = [1] * len(slices)
        for name, n in zip(names, values.shape, strict=True):
            aligned[slices.index(name)] = n
        return values.reshape(aligned)

    last = last_places(shape, i.dtype, windows)
    inside = along(((i >= 0) & (i <= last)).all(-1), *indices)
    starts = np.minimum(np.maximum(i, 0), last).astype(np.int64)
    place = np.zeros([1] * len(slices), np.int64)
    for name, n, k in zip(operand, shape, sizes, strict=True):
        place = place * n
        if name in indices:
            place = place + along(np.arange(n), name)
        elif name in slices:
            place = place + along(np.arange(k), name)
        if name in indexed:
            place = place + along(starts[..., indexed.index(name)], *indices)
    return np.broadcast_arrays(place, inside)


def rows(numbers: np.ndarray, t: ArrayType, ctx: Any) -> Any:
    """Return, in StableHLO, a vector broadcast along all axes of a type but its last."""
    return hlo.broadcast_in_dim(ctx.type(t), ctx.constant(numbers), [t.ndim - 1])


def default_fill(dtype: Any) -> Any:
    """Return what `fill_or_drop` fills in: NaN, the lowest integer, the largest unsigned, True."""
    kind = dtype_class(dtype)
    if kind == "bool":
        return True
    if kind in ("int", "uint"):
        return ml_dtypes.iinfo(dtype).min if kind == "int" else ml_dtypes.iinfo(dtype).max
    return float("nan")


class Gather(Indexed):
    """Slices of x at dynamic indices; the module docstring explains the parameters.

    `fill`: the value of a window outside of x in mode "fill_or_drop"; None: see `default_fill`.
    `unique_indices`, `indices_are_sorted`: promises of the caller, also used by the transpose.
    """

    in_kernel = True
    name: str = "gather"
    linear_in: tuple[int, ...] = (0,)

    def numpy_source(self, w: Any, x: Any, i: Any, **params: Any) -> Any:
        axis = None if params["mode"] == FILL else taken_axis(x.shape, Windows.of(params))
        if axis is None:
            how = {"windows": Windows.of(params), "mode": params["mode"], "fill": params.get("fill")}
            return w.copied(_gathered, (x, i), how)
        last = x.shape[axis] - 1
        return f"np.take({x.full}, np.clip({i.full}[..., 0], 0, {last}), axis={axis})"

    def __call__(self, x: Any, i: Any, **params: Any) -> Any:
        if x.__class__ is Literal and i.__class__ is Literal and params["mode"] != FILL:
            return Literal(x.value, self.abstract_eval(x.type, i.type, **params))
        if params.get("fill") != params.get("fill"):
            params["fill"] = None  # the default; NaN, not equal to itself, cannot be a cache key
        return bind(self, (x, i), params)

    def abstract_eval(
        self,
        x: ArrayType,
        i: ArrayType,
        *,
        mode: str,
        fill: Any = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        **axes: Any,
    ) -> ArrayType:
        return x.update(shape=self.slices_shape((x, i), mode, Windows(**axes)))

    def reference(self, x: Any, i: Any, **params: Any) -> Any:
        return _gathered(x, i, Windows.of(params), params["mode"], params.get("fill"))

    def lower(self, ctx: Any, x: Any, i: Any, **params: Any) -> Any:
        (t, i_type), out = ctx.in_types, ctx.out_types[0]
        if not out.size:
            return ctx.full(0, out)
        windows, is_sorted = Windows.of(params), params.get("indices_are_sorted", False)
        numbers = hlo.GatherDimensionNumbers.get(*windows.dimension_numbers())
        made = hlo.gather(x, i, numbers, windows.sizes, indices_are_sorted=is_sorted)
        if params["mode"] != FILL:
            return made
        kind, last = dtype_class(i_type.dtype), last_places(t.shape, i_type.dtype, windows)
        not_below = compare(i, ctx.full(0, i_type), "GE", kind)
        each = hlo.and_(not_below, compare(i, rows(last, i_type, ctx), "LE", kind))
        bools = ArrayType(i_type.shape, np.dtype(bool))
        ctx.in_types, ctx.out_types = [bools], [bools.update(shape=bools.shape[:-1])]
        inside = hlo.broadcast_in_dim(
            ctx.type(bools.update(shape=out.shape)),
            ctx.reduce(hlo.AndOp, each, True, [bools.ndim - 1]),  # whether all numbers are in 0..last
            [windows.slices.index(n) for n in windows.indices],
        )
        fill = params.get("fill")
        return hlo.select(inside, made, ctx.full(default_fill(t.dtype) if fill is None else fill, out))

    def jvp(self, primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        if tangents[0] is None:
            return None
        return self(tangents[0], primals[1], **filled_with_zero(params))

    def transpose(self, ct: Any, x: Any, i: Any, **params: Any) -> Any:
        params.pop("fill", None)
        return PRIMITIVES["scatter_add"](literal(0, x.type.strong()), i, ct, **params), None

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        (x, i), (d, di) = args, dims
        axes = batched_axes(t, d is not None, di is not None, params)
        if d is None:  # examples may read the same element
            axes.pop("indices_are_sorted", None)
            axes.pop("unique_indices", None)
        return self(t.move(x, d, 0), t.move(i, di, 0), **axes), 0

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(0, bytes_of(in_types[1], *out_types, *out_types))


def _gathered(x: Any, i: Any, windows: Any, mode: str, fill: Any) -> Any:
    """Return slices of x at indices."""
    place, inside = places(x.shape, i, windows)
    out = x.reshape(-1)[place]
    if mode != FILL:
        return out
    fill = np.asarray(default_fill(x.dtype) if fill is None else fill).astype(x.dtype)
    return np.where(inside, out, fill)


def taken_axis(shape: Any, windows: Windows) -> int | None:
    """Return the axis along which whole slices are taken, if NumPy's `take` suffices."""
    operand, indices, slices, indexed, sizes = windows
    if len(indexed) != 1 or not set(operand).isdisjoint(indices):
        return None
    d = operand.index(indexed[0])
    whole = (*shape[:d], 1, *shape[d + 1 :])
    taken = (*operand[:d], *indices, *operand[d + 1 :])
    return d if shape[d] and tuple(sizes) == whole and tuple(slices) == taken else None


def filled_with_zero(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the gather of tangents or cotangents: outside they are zero."""
    return {**params, "fill": 0} if params["mode"] == FILL else params


def batched_axes(
    t: Any, operand_batched: bool, indices_batched: bool, params: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters with a leading batch axis on the slices and on what else is batched."""
    new = 1 + max((*params["operand"], *params["indices"]), default=-1)
    made = {**params, "slices": (new, *params["slices"])}
    if operand_batched:
        made["operand"] = (new, *params["operand"])
        made["sizes"] = (1 if indices_batched else t.size, *params["sizes"])
    if indices_batched:
        made["indices"] = (new, *params["indices"])
    return made


gather: Gather = Gather()
