"""Convolution: a contraction in which some axes are windows."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo, ir
from functrans.primitives.base import Cost, LinearInput, Primitive, bytes_of, type_of
from functrans.primitives.contractions.dot_general import (
    Axes,
    accumulation_dtype,
    precision_config,
    with_batch_axis,
)
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.reductions.windows import dilated
from functrans.primitives.shape.joining import pad
from functrans.primitives.shape.moving import rev
from functrans.trace import typeof

Pairs = tuple[tuple[int, int], ...]


class Convolution(Primitive):
    """An einsum of two operands in which the axes named in `spatial` slide over each other.

    As in `dot_general`, a name in both operands and in `out` is a batch (group) axis, one in both
    operands only is summed (input features), one in a single operand is kept (examples, output
    features). A spatial name is in all three, and the indices o of the result, k of the kernel and
    i of the input satisfy

        i * lhs_dilation == o * strides + k * rhs_dilation - padding[0]

    So every kind of grouping and batching is one more name, and the transposes are convolutions.
    """

    name: str = "conv_general_dilated"
    linear_in: tuple[int, ...] = (0, 1)
    multilinear: bool = True

    def abstract_eval(
        self,
        x: ArrayType,
        y: ArrayType,
        *,
        lhs: Axes,
        rhs: Axes,
        out: Axes,
        spatial: Axes,
        strides: Axes,
        padding: Pairs,
        lhs_dilation: Axes,
        rhs_dilation: Axes,
        precision: Any = None,
        preferred: Any = None,
    ) -> ArrayType:
        self.check_one_dtype((x, y))
        n, k = _sizes(lhs, x.shape), _sizes(rhs, y.shape)
        if not set(lhs) ^ set(rhs) | set(spatial) <= set(out) <= {*lhs, *rhs}:
            raise self.mismatch((x, y), f"axes {lhs}, {rhs} do not fit the operands and {out}")
        for name in n.keys() & k.keys() - set(spatial):
            if n[name] != k[name]:
                i, j = lhs.index(name), rhs.index(name)
                raise self.mismatch(
                    (x, y),
                    f"axis {i} of the input and axis {j} of the kernel are contracted and "
                    f"must have equal sizes, got {n[name]} and {k[name]}",
                )
        size = n | k
        windows = zip(spatial, strides, padding, lhs_dilation, rhs_dilation, strict=True)
        for name, stride, (low, high), spread, dilation in windows:
            padded = low + high + dilated(n[name], spread)
            if padded < 0:
                problem = f"padding {padding} removes more elements than the input has"
                raise self.mismatch((x, y), problem, error=errors.InvalidArgument)
            size[name] = max(0, (padded - dilated(k[name], dilation)) // stride + 1)
        shape = tuple([size[name] for name in out])
        return ArrayType(shape, preferred or x.dtype, x.weak_type and y.weak_type)

    def reference(
        self, x: Any, y: Any, *, lhs: Any, rhs: Any, out: Any, preferred: Any = None, **how: Any
    ) -> Any:
        dtype = np.dtype(preferred or x.dtype)
        wide = accumulation_dtype(x.dtype, dtype)
        x, y = x.astype(wide), y.astype(wide)
        names, kernel = list(lhs), list(rhs)
        for name, stride, pads, spread, dilation in _windows(how):
            axis, k = names.index(name), y.shape[rhs.index(name)]
            config = [(*pads, spread - 1) if i == axis else (0, 0, 0) for i in range(x.ndim)]
            x = pad.reference(x, wide.type(0), config=config)
            width = dilated(k, dilation)
            if width > x.shape[axis] or k == 0:  # the window does not fit, or is empty
                size = max(0, (x.shape[axis] - width) // stride + 1)
                x = np.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :], k), wide)
            else:
                x = np.lib.stride_tricks.sliding_window_view(x, width, axis)
                places = [slice(None)] * x.ndim
                places[axis], places[-1] = slice(None, None, stride), slice(None, None, dilation)
                x = x[tuple(places)]
            inside = 1 + max(*names, *kernel, *out)
            names.append(inside)
            kernel[rhs.index(name)] = inside
        short = {name: i for i, name in enumerate(dict.fromkeys((*names, *kernel)))}
        x_names, y_names, out_names = [[short[n] for n in ns] for ns in (names, kernel, out)]
        made = np.einsum(x, x_names, y, y_names, out_names, optimize=True)
        return np.asarray(made).astype(dtype)

    def lower(
        self, ctx: Any, x: Any, y: Any, *, precision: Any = None, preferred: Any = None, **axes: Any
    ) -> Any:
        t = ctx.out_types[0]
        if 0 in (*ctx.in_types[0].shape, *ctx.in_types[1].shape, *t.shape):
            return ctx.full(0, t)
        if preferred is None and (made := ctx.faster_convolution(x, y, axes, precision)) is not None:
            return made
        plan = _Plan(ctx, axes)
        if dtype_class(t.dtype) != "complex" or ctx.platform == "tpu":
            return plan.emit(x, y, t.dtype, precision)
        # Three real products: XLA:CPU has only a slow loop for complex ones, XLA:GPU has none:
        #   re = (a + b) c - b (c + d)    im = (a + b) c + a (d - c)    where x = a + ib, y = c + id
        a, b, c, d = hlo.real(x), hlo.imag(x), hlo.real(y), hlo.imag(y)
        real = np.finfo(t.dtype).dtype
        one = plan.emit(hlo.add(a, b), c, real, precision)
        two = plan.emit(a, hlo.subtract(d, c), real, precision)
        three = plan.emit(b, hlo.add(c, d), real, precision)
        return hlo.complex(hlo.subtract(one, three), hlo.add(one, two))

    def transpose(self, ct: Any, x: Any, y: Any, *, lhs: Axes, rhs: Axes, out: Axes, **how: Any) -> Any:
        t = typeof(ct)
        if t.size == 0:
            return None, None
        n, k, o = [_sizes(axes, type_of(v).shape) for axes, v in ((lhs, x), (rhs, y), (out, ct))]
        for_x, for_y = [], []  # the padding
        for a, stride, (low, _), spread, dilation in _windows(how):
            full_n, full_k, full_o = dilated(n[a], spread), dilated(k[a], dilation), dilated(o[a], stride)
            for_x.append((full_k - low - 1, full_n - full_o + low))
            for_y.append((low, full_o - full_n + full_k - low - 1))
        if isinstance(x, LinearInput):
            # i * lhs_dilation = o * strides with the kernel reversed: it slides over the dilated
            # cotangent, with the former dilation as strides.
            y = cast(rev(y, dimensions=tuple([rhs.index(a) for a in how["spatial"]])), t.dtype)
            slides = {"strides": how["lhs_dilation"], "lhs_dilation": how["strides"], "padding": tuple(for_x)}
            made = self(ct, y, lhs=out, rhs=rhs, out=lhs, **{**how, **slides})
            return cast(made, x.dtype), None
        slides = {"strides": how["rhs_dilation"], "rhs_dilation": how["strides"], "padding": tuple(for_y)}
        made = self(cast(x, t.dtype), ct, lhs=lhs, rhs=out, out=rhs, **{**how, **slides})
        return None, cast(made, y.dtype)

    def batch(self, t: Any, args: Any, dims: Any, *, lhs: Any, rhs: Any, out: Any, **how: Any) -> Any:
        new = 1 + max(*lhs, *rhs)
        lhs, rhs = with_batch_axis(lhs, dims[0], new), with_batch_axis(rhs, dims[1], new)
        return self(*args, lhs=lhs, rhs=rhs, out=(new, *out), **how), 0

    def cost(self, in_types: Any, out_types: Any, *, lhs: Any, rhs: Any, out: Any, **how: Any) -> Cost:
        """Count a multiply-add per pair of elements that meet, without padding and dilation holes."""
        types = (*in_types, *out_types)
        n, k, o = [_sizes(axes, t.shape) for axes, t in zip((lhs, rhs, out), types, strict=True)]
        spatial = how["spatial"]
        channels = prod([size for a, size in k.items() if a not in out and a not in spatial])
        channels *= prod([size for a, size in o.items() if a not in spatial])
        met = [_meetings(n[a], k[a], o[a], *window) for a, *window in _windows(how)]
        return Cost(2 * channels * prod(met), bytes_of(*types))


conv_general_dilated: Convolution = Convolution()


def is_group(params: dict[str, Any], name: int) -> bool:
    """Return whether an axis of a convolution is in both operands and the result, and not spatial."""
    everywhere = all([name in params[side] for side in ("lhs", "rhs", "out")])
    return everywhere and name not in params["spatial"]


def _meetings(
    n: int, k: int, o: int, stride: int, padding: tuple[int, int], spread: int, dilation: int
) -> int:
    """Count the pairs (result, kernel) of indices along an axis that read an element of x."""
    few, many = sorted([(k, dilation), (o, stride)])
    places = many[1] * np.arange(many[0]) - padding[0]
    total = 0
    for i in range(few[0]):
        at = places + i * few[1]
        total += int(np.count_nonzero((at % spread == 0) & (at >= 0) & (at <= (n - 1) * spread)))
    return total


def _windows(how: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Return (spatial name, stride, padding, dilation of the input, dilation of the kernel) for each."""
    names = ("spatial", "strides", "padding", "lhs_dilation", "rhs_dilation")
    return zip(*[how[name] for name in names], strict=True)


def _sizes(names: Axes, shape: tuple[int, ...]) -> dict[int, int]:
    return dict(zip(names, shape, strict=True))


# --- lowering -------------------------------------------------------------------------------------

Groups = list[tuple[int, ...]]


class _Plan:
    """The mapping of our axes to those of StableHLO, which has one of each kind: groups are merged
    into the features or the examples, as the major part."""

    def __init__(self, ctx: Any, axes: dict[str, Any]):
        self.ctx, self.axes = ctx, axes
        self.lhs, self.rhs, self.out = lhs, rhs, out = axes["lhs"], axes["rhs"], axes["out"]
        self.spatial = spatial = axes["spatial"]
        self.size = size = _sizes(out, ctx.out_types[0].shape)

        def kind(here: Axes, *sides: bool) -> tuple[int, ...]:
            return tuple([n for n in here if n not in spatial and (n in lhs, n in rhs, n in out) == sides])

        examples = kind(out, True, False, True)
        summed = kind(rhs, True, True, False)
        features = kind(out, False, True, True)
        groups = kind(out, True, True, True)
        n_groups = prod([size[n] for n in groups])
        # Groups can be merged into the examples or the input features; prefer adjacent axes.
        by_batch = bool(groups) and _adjacent(lhs, groups + examples) and not _adjacent(lhs, groups + summed)
        self.feature_groups, self.batch_groups = (1, n_groups) if by_batch else (n_groups, 1)
        slides: Groups = [(n,) for n in spatial]
        x_first, x_last = (groups + examples, summed) if by_batch else (examples, groups + summed)
        self.x_kinds = [x_first, *slides, x_last]
        self.y_kinds = [*slides, summed, groups + features]
        self.out_kinds = [examples, *slides, groups + features]

    def emit(self, x: Any, y: Any, dtype: Any, precision: Any) -> Any:
        """Emit the convolution of two values with the operands' shapes."""
        x, x_order = self._merged(x, self.lhs, self.x_kinds)
        y, y_order = self._merged(y, self.rhs, self.y_kinds)
        out_order = self._order(self.out, self.out_kinds)
        n = len(self.spatial)
        at_x, at_y, at_out = [np.argsort(order).tolist() for order in (x_order, y_order, out_order)]
        numbers = hlo.ConvDimensionNumbers.get(
            input_batch_dimension=at_x[0],
            input_spatial_dimensions=at_x[1:-1],
            input_feature_dimension=at_x[-1],
            kernel_spatial_dimensions=at_y[:n],
            kernel_input_feature_dimension=at_y[n],
            kernel_output_feature_dimension=at_y[n + 1],
            output_batch_dimension=at_out[0],
            output_spatial_dimensions=at_out[1:-1],
            output_feature_dimension=at_out[-1],
        )
        split = [name for i in out_order for name in self.out_kinds[i]]
        shape = [prod([self.size[n] for n in self.out_kinds[i]]) for i in out_order]
        made = hlo.convolution(
            self.ctx.type(ArrayType(tuple(shape), dtype)),
            x,
            y,
            numbers,
            self.feature_groups,
            self.batch_groups,
            precision_config=precision_config(precision),
            window_strides=self.axes["strides"],
            padding=ir.DenseElementsAttr.get(np.array(self.axes["padding"], np.int64).reshape(-1, 2).data),
            lhs_dilation=self.axes["lhs_dilation"],
            rhs_dilation=self.axes["rhs_dilation"],
        )
        made = self._reshape(made, [self.size[n] for n in split])
        order = [split.index(n) for n in self.out]
        return made if order == sorted(order) else hlo.transpose(made, order)

    def _order(self, names: Axes, kinds: Groups) -> list[int]:
        """Return the order of the merged axes."""
        if self.ctx.platform == "cpu" and not (self.ctx.in_main and self.lhs[-1] in self.spatial):
            # The layout of XLA:CPU's fast path. XLA transposes by itself, but only in the outermost
            # computation, not in a called function or the body of a loop. There it arranges what is
            # between convolutions of images channel by channel as the convolutions need it.
            return list(range(len(kinds)))
        return sorted(range(len(kinds)), key=lambda i: [names.index(n) for n in kinds[i]] or [-1])

    def _merged(self, x: Any, names: Axes, kinds: Groups) -> tuple[Any, list[int]]:
        order, size = self._order(names, kinds), _sizes(names, x.type.shape)
        moves = [names.index(n) for i in order for n in kinds[i]]
        if moves != sorted(moves):
            x = self.ctx.transposed_copy(x, moves)
        return self._reshape(x, [prod([size[n] for n in kinds[i]]) for i in order]), order

    def _reshape(self, x: Any, shape: list[int]) -> Any:
        same = list(x.type.shape) == shape
        return x if same else hlo.reshape(ir.RankedTensorType.get(shape, x.type.element_type), x)


def _adjacent(names: Axes, wanted: tuple[int, ...]) -> bool:
    first = names.index(wanted[0])
    return names[first : first + len(wanted)] == wanted
