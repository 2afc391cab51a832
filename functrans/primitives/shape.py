"""Operations that move, repeat or drop elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo as hlo

from functrans.ir.program import Literal
from functrans.ir.types import ArrayType
from functrans.primitives import reduction  # repeating and summing are each other's transposes
from functrans.primitives.base import PRIMITIVES, LinearInput, Primitive, sum_of
from functrans.trace import Tracer, bind, literal, typeof

Axes = tuple[int, ...]


class Structural(Primitive):
    """Moves elements, one operand. Of a literal it makes another literal, not an equation."""

    linear_in = (0,)

    def __call__(self, x: Any, **params: Any) -> Any:
        if x.__class__ is Literal:
            return Literal(x.value, self.type(x.type, **params))
        if x.__class__ is Tracer and x.ref.__class__ is Literal:
            made = Literal(x.ref.value, self.type(x.type, **params))
            return Tracer(x.trace, made.type, made)
        return bind(self, (x,), params)


class Transpose(Structural):
    """Permute axes: axis i of the result is axis `permutation[i]` of x."""

    name = "transpose"

    def type(self, x: ArrayType, *, permutation: tuple[int, ...]) -> ArrayType:
        if sorted(permutation) != list(range(x.ndim)):
            raise self.mismatch((x,), f"permutation {permutation} must name each axis once")
        return x.update(shape=tuple([x.shape[i] for i in permutation]))

    def reference(self, x: Any, *, permutation: Any) -> Any:
        return np.transpose(x, permutation)

    def lower(self, ctx: Any, x: Any, *, permutation: Any) -> Any:
        return hlo.transpose(x, ir.DenseI64ArrayAttr.get(permutation))

    def transpose(self, ct: Any, x: Any, *, permutation: Any) -> Any:
        return (self(ct, permutation=tuple(np.argsort(permutation).tolist())),)

    def batch(self, t: Any, args: Any, dims: Any, *, permutation: Any) -> Any:
        (x,), (d,) = args, dims
        return self(x, permutation=(d, *[i + (i >= d) for i in permutation])), 0


class BroadcastInDim(Structural):
    """Axis i of x becomes axis `dimensions[i]` of the result, of the same size; along the others x
    is repeated. (An axis of size 1 that is to grow is dropped first.)"""

    name = "broadcast_in_dim"

    def type(
        self, x: ArrayType, *, shape: tuple[int, ...], dimensions: tuple[int, ...]
    ) -> ArrayType:
        if len(dimensions) != x.ndim or list(dimensions) != sorted(set(dimensions)):
            raise self.mismatch((x,), f"dimensions {dimensions} must increase, one per axis")
        if any(not 0 <= d < len(shape) or shape[d] != n for n, d in zip(x.shape, dimensions)):  # noqa: B905
            raise self.mismatch((x,), f"does not fit shape {shape} at axes {dimensions}")
        return x.update(shape=shape)

    def reference(self, x: Any, *, shape: Any, dimensions: Any) -> Any:
        aligned = [1] * len(shape)
        for n, d in zip(x.shape, dimensions, strict=True):
            aligned[d] = n
        return np.broadcast_to(np.reshape(x, aligned), shape)

    def lower(self, ctx: Any, x: Any, *, shape: Any, dimensions: Any) -> Any:
        return hlo.broadcast_in_dim(
            ctx.type(ctx.out_types[0]), x, ir.DenseI64ArrayAttr.get(dimensions)
        )

    def transpose(self, ct: Any, x: Any, *, shape: Any, dimensions: Any) -> Any:
        repeated = tuple([i for i in range(len(shape)) if i not in dimensions])
        return (reduction.reduce_sum(ct, axes=repeated),)

    def batch(self, t: Any, args: Any, dims: Any, *, shape: Any, dimensions: Any) -> Any:
        x = t.move(args[0], dims[0], 0)
        moved = (0, *[d + 1 for d in dimensions])
        return self(x, shape=(t.size, *shape), dimensions=moved), 0


class Reshape(Structural):
    """The same elements in row-major order under another shape."""

    name = "reshape"

    def type(self, x: ArrayType, *, shape: tuple[int, ...]) -> ArrayType:
        if prod(shape) != x.size or any(n < 0 for n in shape):
            raise self.mismatch(
                (x,), f"{x.size} elements do not fill shape {shape} of {prod(shape)} elements"
            )
        return x.update(shape=shape)

    def reference(self, x: Any, *, shape: Any) -> Any:
        return np.reshape(x, shape)

    def lower(self, ctx: Any, x: Any, *, shape: Any) -> Any:
        return hlo.reshape(ctx.type(ctx.out_types[0]), x)

    def transpose(self, ct: Any, x: Any, *, shape: Any) -> Any:
        return (self(ct, shape=x.shape),)

    def batch(self, t: Any, args: Any, dims: Any, *, shape: Any) -> Any:
        return self(t.move(args[0], dims[0], 0), shape=(t.size, *shape)), 0


class Slice(Structural):
    """Elements `start, start + stride, ...` below `limit` along each axis."""

    name = "slice"

    def type(self, x: ArrayType, *, start: Axes, limit: Axes, strides: Axes) -> ArrayType:
        if not len(start) == len(limit) == len(strides) == x.ndim:
            raise self.mismatch((x,), f"start {start}, limit {limit}, strides {strides}: one per axis")
        for i, (a, b, s, n) in enumerate(zip(start, limit, strides, x.shape, strict=True)):
            if not (0 <= a <= b <= n and s > 0):
                raise self.mismatch((x,), f"slice {a}:{b}:{s} does not fit axis {i} of size {n}")
        shape = [-(-(b - a) // s) for a, b, s in zip(start, limit, strides, strict=True)]
        return x.update(shape=tuple(shape))

    def reference(self, x: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        return x[tuple([slice(*one) for one in zip(start, limit, strides, strict=True)])]

    def lower(self, ctx: Any, x: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        return hlo.slice(x, *[ir.DenseI64ArrayAttr.get(a) for a in (start, limit, strides)])

    def transpose(self, ct: Any, x: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        config = tuple([
            (a, n - (a + (m - 1) * s + 1) if m else n - a, s - 1)
            for a, s, n, m in zip(start, strides, x.shape, typeof(ct).shape, strict=True)
        ])  # fmt: skip
        return (pad(ct, literal(0, ArrayType((), x.dtype)), config=config),)

    def batch(self, t: Any, args: Any, dims: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        (x,), (d,) = args, dims
        return self(
            x,
            start=(*start[:d], 0, *start[d:]),
            limit=(*limit[:d], t.size, *limit[d:]),
            strides=(*strides[:d], 1, *strides[d:]),
        ), d


class Pad(Primitive):
    """Put `(low, high, interior)` copies of a scalar before, after and between the elements along
    each axis; negative low and high remove elements."""

    name, linear_in = "pad", (0, 1)

    def type(self, x: ArrayType, value: ArrayType, *, config: tuple) -> ArrayType:
        if value.shape != () or value.dtype != x.dtype:
            raise self.mismatch((x, value), f"the padding value must be a scalar of {x.dtype}")
        if len(config) != x.ndim or any(inside < 0 for _, _, inside in config):
            raise self.mismatch((x, value), f"config {config}: (low, high, interior >= 0) per axis")
        shape = []
        for n, (low, high, inside) in zip(x.shape, config, strict=True):
            shape.append(max(0, low + high + n + inside * max(0, n - 1)))
        return x.update(shape=tuple(shape), weak_type=x.weak_type and value.weak_type)

    def reference(self, x: Any, value: Any, *, config: Any) -> Any:
        sizes = [n + inside * max(0, n - 1) for n, (_, _, inside) in zip(x.shape, config, strict=True)]
        spread = np.full(sizes, value, x.dtype)
        spread[tuple([slice(None, None, inside + 1) for _, _, inside in config])] = x
        shape = [max(0, low + high + n) for n, (low, high, _) in zip(sizes, config, strict=True)]
        out = np.full(shape, value, x.dtype)
        into, from_ = [], []
        for n, m, (low, _, _) in zip(sizes, shape, config, strict=True):
            a, b = max(0, low), min(m, low + n)
            into.append(slice(a, max(a, b)))
            from_.append(slice(a - low, max(a, b) - low))
        out[tuple(into)] = spread[tuple(from_)]
        return out

    def lower(self, ctx: Any, x: Any, value: Any, *, config: Any) -> Any:
        columns = list(zip(*config, strict=True)) or [(), (), ()]
        return hlo.pad(x, value, *[ir.DenseI64ArrayAttr.get(c) for c in columns])

    def transpose(self, ct: Any, x: Any, value: Any, *, config: Any) -> Any:
        t = typeof(ct)
        if not isinstance(x, LinearInput):
            raise self.missing("transpose")
        nothing = literal(0, ArrayType((), t.dtype))
        unpadded = self(
            ct, nothing, config=tuple([(-low, -high, 0) for low, high, _ in config])
        )
        n = typeof(unpadded).shape
        ct_x = slice_(
            unpadded, start=(0,) * t.ndim, limit=n, strides=tuple([i + 1 for _, _, i in config])
        )
        if not isinstance(value, LinearInput):
            return ct_x, None
        axes = tuple(range(t.ndim))
        everything, inside = reduction.reduce_sum(ct, axes=axes), reduction.reduce_sum(ct_x, axes=axes)
        return ct_x, sum_of(everything, PRIMITIVES["neg"](inside))

    def batch(self, t: Any, args: Any, dims: Any, *, config: Any) -> Any:
        (x, value), (d, dv) = args, dims
        if dv is None:
            return self(x, value, config=(*config[:d], (0, 0, 0), *config[d:])), d
        # a padding value per example: pad with nothing, and choose by a padded mask
        x = t.at(x, d, 0)
        wide = ((0, 0, 0), *config)
        ty = typeof(x)
        mask = self(
            literal(True, ArrayType(ty.shape, np.dtype(bool))),
            literal(False, ArrayType((), np.dtype(bool))),
            config=wide,
        )
        padded = self(x, literal(0, ArrayType((), ty.dtype)), config=wide)
        values = broadcast_in_dim(value, shape=typeof(padded).shape, dimensions=(0,))
        return PRIMITIVES["select_n"](mask, values, padded), 0


transpose = Transpose()
slice_ = Slice()
pad = Pad()
broadcast_in_dim = BroadcastInDim()
reshape = Reshape()


# --- helpers of rules and libraries ---------------------------------------------------------------


def move_axis(x: Any, source: int, to: int) -> Any:
    """x with one axis moved, the others in order."""
    if source == to:
        return x
    order = [i for i in range(typeof(x).ndim) if i != source]
    order.insert(to, source)
    return transpose(x, permutation=tuple(order))


def broadcast_to_axis(x: Any, axis: int, size: int) -> Any:
    """x repeated `size` times along a new axis."""
    shape = typeof(x).shape
    new = (*shape[:axis], size, *shape[axis:])
    kept = tuple([i for i in range(len(new)) if i != axis])
    return broadcast_in_dim(x, shape=new, dimensions=kept)


def slice_axis(x: Any, axis: int, start: int, stop: int) -> Any:
    """x[..., start:stop, ...] along one axis."""
    shape = typeof(x).shape
    if (start, stop) == (0, shape[axis]):
        return x
    low, high = [0] * len(shape), list(shape)
    low[axis], high[axis] = start, stop
    return slice_(x, start=tuple(low), limit=tuple(high), strides=(1,) * len(shape))


def kept_axes(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes that are not in `axes`."""
    return tuple([i for i in range(ndim) if i not in axes])
