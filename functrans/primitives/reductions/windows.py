"""Reductions over sliding windows, and the gradients of those that select an element.

    reduce_window_sum / max / min    x                -> one number per window
    select_and_gather_add            dx, x            -> per window the dx at its largest x
    select_and_scatter_add           ct, x            -> its transpose

All take the parameters of a window, one entry per axis: element k of window o is element

    o * window_strides + k * window_dilation - padding[0]

of x, whose elements are first spread by base_dilation. Elements outside or in between have the
initial value of the reduction. (windows_general.py has reductions by any computation.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo, ir
from functrans.primitives.base import Cost, Primitive, bytes_of
from functrans.primitives.reductions.folds import Reduction, reduce_max, reduce_min, reduce_sum, wide_dtype
from functrans.primitives.shape import joining
from functrans.trace import literal, typeof

Window = dict[str, Any]
PARAMETERS = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


# --- the parameters of a window -------------------------------------------------------------------


def dilated(n: int, dilation: int) -> int:
    """Return the extent of n elements that are `dilation` apart."""
    return 0 if n == 0 else 1 + dilation * (n - 1)


def window_counts(
    shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> tuple[int, ...]:
    """Return the number of windows along each axis of an array."""
    counts = []
    rows = zip(shape, window_dimensions, window_strides, padding, base_dilation, window_dilation, strict=True)
    for n, size, stride, (low, high), spread, apart in rows:
        left = dilated(n, spread) + low + high - dilated(size, apart)
        counts.append(0 if left < 0 else left // stride + 1)
    return tuple(counts)


def check_window(primitive: Primitive, types: Sequence[ArrayType], x: ArrayType, w: Window) -> Any:
    """Return the numbers of windows; raise if the parameters are invalid for x."""
    for name in PARAMETERS:
        if len(w[name]) != x.ndim:
            raise primitive.mismatch(types, f"{name} {w[name]} must have {x.ndim} entries, one per axis")
        if name != "padding" and any(n < 1 for n in w[name]):
            raise primitive.mismatch(types, f"{name} {w[name]} must be positive")
    return window_counts(x.shape, **w)


def spread_out(w: Window) -> tuple[tuple[int, int, int], ...]:
    """Return the configuration of `pad` that makes the array over which the windows slide."""
    return tuple(
        [
            (low, high, spread - 1)
            for (low, high), spread in zip(w["padding"], w["base_dilation"], strict=True)
        ]
    )


def places(w: Window, counts: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (start, limit) in that array of the elements k of all windows, for each k."""
    found = []
    for k in np.ndindex(*w["window_dimensions"]):
        start = tuple([int(i) * d for i, d in zip(k, w["window_dilation"], strict=True)])
        limit = tuple([a + dilated(n, s) for a, n, s in zip(start, counts, w["window_strides"], strict=True)])
        found.append((start, limit))
    return found


def _patches(x: np.ndarray, fill: Any, w: Window, counts: Sequence[int]) -> list[np.ndarray]:
    """Return element k of every window, for each k."""
    wide = joining.pad.reference(x, np.asarray(fill).astype(x.dtype), config=spread_out(w))
    return [wide[tuple(map(slice, start, limit, w["window_strides"]))] for start, limit in places(w, counts)]


def emit_window(ctx: Any, xs: Sequence[Any], starts: Sequence[Any], w: Window) -> Any:
    """Return the StableHLO operation with an empty body, and the block for the body."""
    made = hlo.ReduceWindowOp(
        [ctx.type(t) for t in ctx.out_types],
        xs,
        starts,
        w["window_dimensions"],
        window_strides=w["window_strides"],
        base_dilations=w["base_dilation"],
        window_dilations=w["window_dilation"],
        padding=ir.DenseElementsAttr.get(np.asarray(w["padding"], np.int64).reshape(-1, 2).data),
    )
    scalars = [ctx.type(ArrayType((), t.dtype)) for t in ctx.out_types]
    return made, made.regions[0].blocks.append(*scalars, *scalars)


def emit_fold(ctx: Any, fold: Reduction, x: Any, w: Window) -> Any:
    """Return the StableHLO operation that reduces each window of x."""
    dtype = ctx.in_types[0].dtype
    made, block = emit_window(ctx, [x], [ctx.full(fold.start(dtype), ArrayType((), dtype))], w)
    with ir.InsertionPoint(block):
        hlo.return_([fold.chooser(dtype)(*block.arguments).result])
    return made.result


class Windowed(Primitive):
    """Base class of the family. Along a new axis nothing slides."""

    axis_params: tuple[str, ...] = ()
    per_axis: dict[str, Any] = {name: (0, 0) if name == "padding" else 1 for name in PARAMETERS}

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        per_window = prod(params["window_dimensions"])
        return Cost(per_window * out_types[0].size, bytes_of(*in_types, *out_types))


# --- sums and extrema -----------------------------------------------------------------------------


class WindowFold(Windowed):
    """One number per window, by a reduction."""

    in_kernel = True

    def __init__(self, fold: Reduction):
        self.fold: Reduction = fold
        self.takes: tuple[str, ...] = fold.takes
        self.linear_in: tuple[int, ...] = fold.linear_in
        super().__init__(fold.name.replace("reduce", "reduce_window"))

    def abstract_eval(self, x: ArrayType, **w: Any) -> ArrayType:
        return x.update(shape=check_window(self, (x,), x, w))

    def reference(self, x: Any, **w: Any) -> Any:
        counts, wide = window_counts(x.shape, **w), wide_dtype(x.dtype)
        start = np.asarray(self.fold.start(x.dtype)).astype(wide)
        out = np.full(counts, start, wide)
        for patch in _patches(x.astype(wide), start, w, counts):
            out = self.fold.numpy(out, patch)
        return out.astype(x.dtype)

    def lower(self, ctx: Any, x: Any, **w: Any) -> Any:
        if 0 in (*ctx.in_types[0].shape, *ctx.out_types[0].shape):
            return ctx.full(self.fold.start(ctx.in_types[0].dtype), ctx.out_types[0])
        return emit_fold(ctx, self.fold, x, w)


class ReduceWindowSum(WindowFold):
    """The sum of each window."""

    def transpose(self, ct: Any, x: Any, **w: Any) -> Any:
        """Element i is in the windows o with i * base == o * stride + k * apart - low: again a
        window sum, with strides and base dilations swapped."""
        counts = typeof(ct).shape
        if 0 in (*x.shape, *counts):
            return (literal(0, ArrayType(x.shape, x.dtype)),)
        padding = []
        rows = zip(*[w[name] for name in PARAMETERS], x.shape, counts, strict=True)
        for size, stride, (low, _), spread, apart, n, m in rows:
            before = (size - 1) * apart - low
            whole = dilated(n, spread) + (size - 1) * apart
            padding.append((before, whole - dilated(m, stride) - before))
        back = w | {
            "window_strides": w["base_dilation"],
            "base_dilation": w["window_strides"],
            "padding": tuple(padding),
        }
        return (self(ct, **back),)


class WindowExtremum(WindowFold):
    """The maximum or minimum of each window; NaN propagates."""

    def jvp(self, primals: Any, tangents: Any, out: Any, **w: Any) -> Any:
        """Of equal elements the first one determines the tangent."""
        select = "ge" if self.fold is reduce_max else "le"
        return select_and_gather_add(tangents[0], primals[0], select=select, **w)


# --- their gradients ------------------------------------------------------------------------------


class Selecting(Windowed):
    """Base class: linear in the first operand. The second one determines which element of a window
    is selected: of two, the first if `select` ("ge" or "le") holds against the second."""

    linear_in: tuple[int, ...] = (0,)

    def check(self, types: Sequence[ArrayType], select: str) -> None:
        if select not in ("ge", "le"):
            raise self.mismatch(types, f"select must be 'ge' or 'le', not {select!r}")
        if types[0].dtype != types[1].dtype or dtype_class(types[0].dtype) != "float":
            raise self.mismatch(types, "both operands must be floats of one dtype")


_COMPARE = {"ge": np.greater_equal, "le": np.less_equal}
_OUTSIDE = {"ge": -np.inf, "le": np.inf}


def _extremum(x: jax.Array, select: str, w: Window) -> jax.Array:
    """Return, in JAX, the maximum or minimum of windows, whose derivatives are these operations."""
    fold = jax.lax.max if select == "ge" else jax.lax.min
    return jax.lax.reduce_window(x, x.dtype.type(_OUTSIDE[select]), fold, **w)


def _unpadded(w: Window) -> Window:
    """Return the parameters for the array over which the windows slide."""
    n = len(w["padding"])
    return w | {"padding": ((0, 0),) * n, "base_dilation": (1,) * n}


def _chosen(x: np.ndarray, select: str, w: Window) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the index that each window selects in the array over which the windows slide (its
    size: none), and the shape of that array."""
    counts = window_counts(x.shape, **w)
    shape = joining.pad.reference(x, x.dtype.type(0), config=spread_out(w)).shape
    numbers = np.arange(prod(shape)).reshape(shape)
    best = np.full(counts, _OUTSIDE[select], x.dtype)
    where = np.full(counts, prod(shape))
    candidates = _patches(x, _OUTSIDE[select], w, counts)
    for y, i in zip(candidates, _patches(numbers, 0, _unpadded(w), counts), strict=True):
        keep = _COMPARE[select](best, y)
        best, where = np.where(keep, best, y), np.where(keep, where, i)
    return where, shape


class SelectAndGatherAdd(Selecting):
    """Per window, the element of dx at the position where x is largest ("ge") or smallest."""

    name = "select_and_gather_add"

    def abstract_eval(self, dx: ArrayType, x: ArrayType, *, select: str, **w: Any) -> ArrayType:
        self.check((dx, x), select)
        if dx.shape != x.shape:
            raise self.mismatch((dx, x), "operands must have equal shapes")
        return dx.update(shape=check_window(self, (dx, x), x, w))

    def reference(self, dx: Any, x: Any, *, select: str, **w: Any) -> Any:
        where, _ = _chosen(x, select, w)
        moved = joining.pad.reference(dx, dx.dtype.type(0), config=spread_out(w))
        return np.append(moved.ravel(), moved.dtype.type(0))[where]

    def lower(self, ctx: Any, dx: Any, x: Any, *, select: str, **w: Any) -> Any:
        t = ctx.out_types[0]
        if 0 in (*ctx.in_types[0].shape, *t.shape):
            return ctx.full(0, t)

        def first(a: Any, b: Any) -> Any:  # pairs: JAX 0.10 packs them into one number on a GPU
            is_first = a[0] >= b[0] if select == "ge" else a[0] <= b[0]
            return tuple([jax.numpy.where(is_first, *pair) for pair in zip(a, b, strict=True)])

        def moved(dx: jax.Array, x: jax.Array) -> jax.Array:
            starts = x.dtype.type(_OUTSIDE[select]), dx.dtype.type(0)
            return jax.lax.reduce_window((x, dx), starts, first, **w)[1]

        return ctx.via_jax(moved, dx, x)[0]

    def transpose(self, ct: Any, dx: Any, x: Any, **how: Any) -> Any:
        return select_and_scatter_add(ct, x, **how), None


class SelectAndScatterAdd(Selecting):
    """Zeros of the shape of x, plus the number of each window at the position where x is largest
    ("ge") or smallest in that window."""

    name = "select_and_scatter_add"

    def abstract_eval(self, ct: ArrayType, x: ArrayType, *, select: str, **w: Any) -> ArrayType:
        self.check((ct, x), select)
        counts = check_window(self, (ct, x), x, w)
        if ct.shape != counts:
            raise self.mismatch((ct, x), f"there are {counts} windows, got shape {ct.shape}")
        return ct.update(shape=x.shape)

    def reference(self, ct: Any, x: Any, *, select: str, **w: Any) -> Any:
        where, shape = _chosen(x, select, w)
        wide = np.zeros(prod(shape) + 1, wide_dtype(ct.dtype))
        np.add.at(wide, where, ct.astype(wide.dtype))
        return _taken_back(wide[:-1].reshape(shape), w, joining.pad.reference).astype(ct.dtype)

    def lower(self, ctx: Any, ct: Any, x: Any, *, select: str, **w: Any) -> Any:
        t = ctx.out_types[0]
        if 0 in (*ctx.in_types[0].shape, *t.shape):
            return ctx.full(0, t)
        apart = any(d != 1 for d in w["window_dilation"])  # not supported by XLA's operation
        if apart or ctx.has_small_windows(w["window_dimensions"]):
            return ctx.via_jax(lambda ct, x: _scatter_by_places(ct, x, select, w), ct, x)[0]

        def selected(x: jax.Array) -> jax.Array:
            wide = jax.lax.pad(x, x.dtype.type(_OUTSIDE[select]), spread_out(w))
            return _extremum(wide, select, _unpadded(w))

        return ctx.via_jax(lambda ct, x: jax.vjp(selected, x)[1](ct)[0], ct, x)[0]

    def transpose(self, ct: Any, source: Any, x: Any, **how: Any) -> Any:
        return select_and_gather_add(ct, x, **how), None


def _taken_back(wide: Any, w: Window, pad: Callable[..., Any]) -> Any:
    """Return the elements of x from the array over which the windows slide."""
    back = tuple([(-low, -high, 0) for low, high in w["padding"]])
    narrow = pad(wide, wide.dtype.type(0), back)
    return narrow[tuple([slice(None, None, d) for d in w["base_dilation"]])]


def _scatter_by_places(ct: jax.Array, x: jax.Array, select: str, w: Window) -> jax.Array:
    """Compute the same in JAX without a scatter: find the element that each window selects, then
    for each element of a window shift the numbers of the windows that select it to its position,
    and sum.

    Elements whose positions have the same remainder by the strides are summed without gaps; the
    remainders are interleaved at the end.
    """
    outside = x.dtype.type(_OUTSIDE[select])
    wide = jax.lax.pad(x, outside, spread_out(w))
    strides, zero = w["window_strides"], ct.dtype.type(0)
    elements = places(w, ct.shape)
    best: Any = None
    chosen: Any = None
    for k, (start, limit) in enumerate(elements):
        element = jax.lax.slice(wide, start, limit, strides)
        if best is None:
            best, chosen = element, jax.numpy.zeros(ct.shape, np.int32)
            continue
        stays = (jax.lax.ge if select == "ge" else jax.lax.le)(best, element)
        best = jax.lax.select(stays, best, element)
        chosen = jax.numpy.where(stays, chosen, np.int32(k))

    counts = [-(-n // s) for n, s in zip(wide.shape, strides, strict=True)]
    sums: dict[tuple[int, ...], Any] = {}
    for k, (start, _) in reversed([*enumerate(elements)]):  # the order of XLA's operation
        rest = tuple([a % s for a, s in zip(start, strides, strict=True)])
        edges = [
            (a // s, n - m - a // s, 0) for a, s, n, m in zip(start, strides, counts, ct.shape, strict=True)
        ]
        moved = jax.lax.pad(jax.numpy.where(chosen == k, ct, zero), zero, edges)
        sums[rest] = sums[rest] + moved if rest in sums else moved
    nothing = jax.numpy.zeros(counts, ct.dtype)

    def interleaved(rest: tuple[int, ...]) -> jax.Array:
        axis = len(rest)
        if axis == ct.ndim:
            return sums.get(rest, nothing)
        parts = [interleaved((*rest, i)) for i in range(strides[axis])]
        if len(parts) == 1:
            return parts[0]
        sizes = list(parts[0].shape)
        sizes[axis] *= strides[axis]
        return jax.numpy.stack(parts, axis + 1).reshape(sizes)

    made = jax.lax.slice(interleaved(()), [0] * ct.ndim, wide.shape)
    return _taken_back(made, w, jax.lax.pad)


reduce_window_sum: ReduceWindowSum = ReduceWindowSum(reduce_sum)
reduce_window_max: WindowExtremum = WindowExtremum(reduce_max)
reduce_window_min: WindowExtremum = WindowExtremum(reduce_min)
select_and_gather_add: SelectAndGatherAdd = SelectAndGatherAdd()
select_and_scatter_add: SelectAndScatterAdd = SelectAndScatterAdd()
