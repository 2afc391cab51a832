"""Primitives that concatenate, split and pad arrays, and iota."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo
from functrans.primitives.base import PRIMITIVES, LinearInput, Primitive, sum_of, type_of
from functrans.primitives.shape import moving
from functrans.trace import bind, literal, typeof

FEW = 8  # of up to so many examples the axis is kept first where arrays are stacked


class Pad(Primitive):
    """Put `(low, high, interior)` copies of a scalar before, after and between the elements along
    each axis; negative low and high remove elements."""

    in_kernel = True
    name: str = "pad"
    linear_in: tuple[int, ...] = (0, 1)

    def abstract_eval(self, x: ArrayType, value: ArrayType, *, config: tuple[Any, ...]) -> ArrayType:
        if value.shape != () or value.dtype != x.dtype:
            raise self.mismatch((x, value), f"the padding value must be a scalar of {x.dtype}")
        if len(config) != x.ndim or any(inside < 0 for _, _, inside in config):
            raise self.mismatch((x, value), f"config {config}: (low, high, interior >= 0) per axis")
        shape = []
        for n, (low, high, inside) in zip(x.shape, config, strict=True):
            shape.append(low + high + n + inside * max(0, n - 1))
        if any(n < 0 for n in shape):
            raise self.mismatch((x, value), f"config {config} removes more elements than there are")
        return x.update(shape=tuple(shape), weak_type=x.weak_type and value.weak_type)

    def reference(self, x: Any, value: Any, config: Any) -> Any:
        shape, into = [], []
        kept: list[Any] = [...]  # so that the result is an array, also of no axes
        for n, (low, high, inside) in zip(x.shape, config, strict=True):
            start = max(0, low)
            stop = start + n + inside * max(0, n - 1)
            shape.append(stop + max(0, high))
            into.append(slice(start, stop, inside + 1))
            kept.append(slice(max(0, -low), shape[-1] - max(0, -high)))
        out = np.full(shape, value, x.dtype)
        out[tuple(into)] = x
        return out[tuple(kept)]

    def numpy_source(self, w: Any, x: Any, value: Any, *, config: Any) -> Any:
        if not config or any(low < 0 or high < 0 or inside for low, high, inside in config):
            return w.reference(self, (x, value), {"config": config})
        ends = ", ".join([f"({low}, {high})" for low, high, _ in config])
        return f"np.pad({x.full}, [{ends}], constant_values={value})"

    def lower(self, ctx: Any, x: Any, value: Any, *, config: Any) -> Any:
        columns = list(zip(*config, strict=True)) or [(), (), ()]
        return hlo.pad(x, value, *columns)

    def transpose(self, ct: Any, x: Any, value: Any, *, config: Any) -> Any:
        t = typeof(ct)
        removed = tuple([(max(-low, 0), max(-high, 0), 0) for low, high, _ in config])
        nothing = literal(0, ArrayType((), t.dtype))
        whole = self(ct, nothing, config=removed) if any(map(any, removed)) else ct
        ends = [n - max(high, 0) for n, (_, high, _) in zip(typeof(whole).shape, config, strict=True)]
        starts, steps = [max(low, 0) for low, _, _ in config], [i + 1 for _, _, i in config]
        ct_x = moving.slice_(whole, start=tuple(starts), limit=tuple(ends), strides=tuple(steps))
        ct_value = None
        if isinstance(value, LinearInput):  # elements that are not from x are the padding value
            axes = tuple(range(t.ndim))
            total = PRIMITIVES["reduce_sum"]
            ct_value = sum_of(total(ct, axes=axes), PRIMITIVES["neg"](total(ct_x, axes=axes)))
        return ct_x if isinstance(x, LinearInput) else None, ct_value

    def batch(self, t: Any, args: Any, dims: Any, *, config: Any) -> Any:
        (x, value), (d, dv) = args, dims
        if dv is None:
            return self(x, value, config=(*config[:d], (0, 0, 0), *config[d:])), d
        # a padding value per example: pad with zero, and select by a padded mask
        x = t.at(x, d, 0)
        wide = ((0, 0, 0), *config)
        ty = typeof(x)
        mask = self(
            literal(True, ArrayType(ty.shape, np.dtype(bool))),
            literal(False, ArrayType((), np.dtype(bool))),
            config=wide,
        )
        padded = self(x, literal(0, ArrayType((), ty.dtype)), config=wide)
        values = moving.broadcast_in_dim(value, shape=typeof(padded).shape, dimensions=(0,))
        return PRIMITIVES["select_n"](mask, values, padded), 0


class Concatenate(moving.Moving):
    """Any number of operands, concatenated along an axis."""

    in_kernel = True
    name: str = "concatenate"
    linear_from: int | None = 0

    def abstract_eval(self, *xs: ArrayType, dimension: int) -> ArrayType:
        if not xs or not 0 <= dimension < xs[0].ndim:
            raise self.mismatch(xs, f"all operands need an axis {dimension}")
        self.check_one_dtype(xs)
        first = xs[0]
        for x in xs[1:]:
            problem = ""
            if x.ndim != first.ndim:
                problem = f"arrays with different numbers of dimensions: {first}, {x}"
            elif moving.without(x.shape, dimension) != moving.without(first.shape, dimension):
                problem = f"operands may differ in size along axis {dimension} only: {first}, {x}"
            if problem:
                raise self.mismatch(xs, problem, "Pad, slice or transpose them first; x[None] adds an axis.")
        size = sum([x.shape[dimension] for x in xs])
        shape = (*first.shape[:dimension], size, *first.shape[dimension + 1 :])
        return ArrayType(shape, first.dtype, all([x.weak_type for x in xs]))

    def reference(self, *xs: Any, dimension: int) -> Any:
        return np.concatenate(xs, dimension)

    def numpy_source(self, w: Any, *xs: Any, dimension: int) -> Any:
        return f"np.concatenate([{', '.join([x.full for x in xs])}], axis={dimension})"

    def lower(self, ctx: Any, *xs: Any, dimension: int) -> Any:
        return hlo.concatenate(xs, dimension)

    def transpose(self, ct: Any, *xs: Any, dimension: int) -> Any:
        cts, at = [], 0
        for x in xs:
            n = type_of(x).shape[dimension]
            linear = isinstance(x, LinearInput)
            cts.append(moving.slice_axis(ct, dimension, at, at + n) if linear else None)
            at += n
        return cts

    def batch(self, t: Any, args: Any, dims: Any, *, dimension: int) -> Any:
        to = next(d for d in dims if d is not None)
        args = [t.at(x, d, to) for x, d in zip(args, dims, strict=True)]
        if dimension == to and t.size > FEW and all([typeof(x).shape[to + 1] == 1 for x in args]):
            # a stack: with many examples first, elements would be written one by one
            return self(*[moving.move_axis(x, to, to + 1) for x in args], dimension=to), to + 1
        return self(*args, dimension=dimension + (dimension >= to)), to


class Split(moving.Structural):
    """Split an axis into consecutive parts of the given sizes; one result per part."""

    name: str = "split"
    multiple_results: bool = True
    axis_params: tuple[str, ...] = ("axis",)

    def __call__(self, x: Any, **params: Any) -> Any:
        return bind(self, (x,), params)

    def abstract_eval(self, x: ArrayType, *, sizes: tuple[int, ...], axis: int) -> list[ArrayType]:
        if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes):
            raise self.mismatch((x,), f"sizes {sizes} must be >= 0 and sum to the size of axis {axis}")
        return [x.update(shape=(*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in sizes]

    def reference(self, x: Any, *, sizes: Any, axis: int) -> Any:
        return np.split(x, np.cumsum(sizes[:-1], dtype=int), axis)

    def numpy_source(self, w: Any, x: Any, *, sizes: Any, axis: int) -> Any:
        places = np.cumsum(sizes[:-1], dtype=int).tolist()
        return f"np.split({x.full}, {places}, axis={axis})" + ("[0]" if not places else "")

    def lower(self, ctx: Any, x: Any, *, sizes: Any, axis: int) -> Any:
        low, high, one = [0] * x.type.rank, list(x.type.shape), [1] * x.type.rank
        parts, high[axis] = [], 0
        for n in sizes:
            low[axis], high[axis] = high[axis], high[axis] + n
            parts.append(hlo.slice(x, low, high, one))
        return parts

    def transpose(self, ct: Any, x: Any, *, sizes: Any, axis: int) -> Any:
        parts = [
            literal(0, t) if part is None else part
            for part, t in zip(ct, self.abstract_eval(x.type, sizes=sizes, axis=axis), strict=True)
        ]
        return (concatenate(*parts, dimension=axis),)


class Iota(Primitive):
    """0, 1, 2, ... along one axis, broadcast along the others. No operands."""

    in_kernel = True
    name = "iota"

    def abstract_eval(self, *, dtype: Any, shape: tuple[int, ...], dimension: int) -> ArrayType:
        t = ArrayType(shape, dtype)
        if dtype_class(t.dtype) not in ("int", "uint", "float", "complex"):
            raise self.mismatch((t,), f"dtype must be numeric, not {t.dtype}")
        moving.check_sizes(self, (t,), shape)
        if not 0 <= dimension < t.ndim:
            raise self.mismatch((t,), f"dimension {dimension} must be an axis of shape {shape}")
        return t

    def reference(self, *, dtype: Any, shape: Any, dimension: int) -> Any:
        one = [-1 if i == dimension else 1 for i in range(len(shape))]
        count = np.arange(shape[dimension]).astype(dtype)
        return np.broadcast_to(np.reshape(count, one), shape)

    def numpy_source(self, w: Any, *, dtype: Any, shape: Any, dimension: int) -> Any:
        count = f"np.arange({shape[dimension]}, dtype={w.dtype(dtype)})"
        if not w.is_own(dtype):
            count = f"np.arange({shape[dimension]}).astype({w.dtype(dtype)})"
        if len(shape) == 1:
            return count
        return f"np.broadcast_to({count}{moving.with_axes(shape, (dimension,))}, {shape})"

    def lower(self, ctx: Any, *, dtype: Any, shape: Any, dimension: int) -> Any:
        return hlo.iota(ctx.type(ctx.out_types[0]), dimension)


pad: Pad = Pad()
concatenate: Concatenate = Concatenate()
split: Split = Split()
iota: Iota = Iota()


def stack(xs: Sequence[Any], axis: int) -> Any:
    """Stack arrays of one type along a new axis of the result, which may be counted from its end."""
    shapes = [typeof(x).shape for x in xs]  # those of arrays of a user may differ, which `concatenate` tells
    at = axis % (len(shapes[0]) + 1)
    rows = [
        moving.reshape(x, shape=(*shape[:at], 1, *shape[at:])) for x, shape in zip(xs, shapes, strict=True)
    ]
    return concatenate(*rows, dimension=at) if len(rows) > 1 else rows[0]
