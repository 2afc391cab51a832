"""Primitives that move, broadcast or drop elements without computing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.program import Literal
from functrans.ir.types import ArrayType
from functrans.mlir import hlo
from functrans.primitives.base import PRIMITIVES, Primitive
from functrans.trace import Tracer, bind, literal, out_types, typeof

Axes = tuple[int, ...]


def check_sizes(primitive: Primitive, types: Sequence[ArrayType], shape: tuple[int, ...]) -> None:
    """Raise if a size is negative."""
    if min(shape, default=0) < 0:
        problem = f"the shape {shape} has a negative size"
        raise primitive.mismatch(types, problem, "Sizes must be >= 0.", errors.NegativeSize)


class Moving(Primitive):
    """Base class of data movement, which moves typed PRNG keys like numbers: a program has the
    operation on `key[*shape]`; the backends give its rules `uint32[*shape, n]` and the parameters of
    `under_trailing_axis`."""

    def under_trailing_axis(self, n: int, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters for an additional last axis of size n that is moved whole."""
        more = {name: n if whole is None else whole for name, whole in self.per_axis.items()}
        return {**params, **{name: (*params[name], last) for name, last in more.items()}}


class Structural(Moving):
    """Base class of data movement of one operand; of a literal it makes a literal, no equation."""

    in_kernel = True
    linear_in: tuple[int, ...] = (0,)

    def __call__(self, x: Any, **params: Any) -> Any:
        if x.__class__ is Literal:
            return Literal(x.value, *out_types(self, (x.type,), params))
        if x.__class__ is Tracer and x.ref.__class__ is Literal:
            made = Literal(x.ref.value, *out_types(self, (x.type,), params))
            return Tracer(x.owner, made.type, made)
        return bind(self, (x,), params)


class Transpose(Structural):
    """Permute axes: axis i of the result is axis `permutation[i]` of x."""

    name = "transpose"

    def abstract_eval(self, x: ArrayType, *, permutation: Axes) -> ArrayType:
        if sorted(permutation) != list(range(x.ndim)):
            raise self.mismatch((x,), f"permutation {permutation} must name each axis once")
        return x.update(shape=tuple([x.shape[i] for i in permutation]))

    def reference(self, x: Any, *, permutation: Any) -> Any:
        return np.transpose(x, permutation)

    def numpy_source(self, w: Any, x: Any, *, permutation: Any) -> Any:
        backwards = list(permutation) == list(range(x.ndim))[::-1] and x.full.isidentifier()
        return f"{x.full}.T" if backwards else f"np.transpose({x.full}, {permutation})"

    def lower(self, ctx: Any, x: Any, *, permutation: Any) -> Any:
        return ctx.op("stablehlo.transpose", [x], ctx.axes(permutation, "permutation"))

    def under_trailing_axis(self, n: int, params: Any) -> Any:
        return {"permutation": (*params["permutation"], len(params["permutation"]))}

    def transpose(self, ct: Any, x: Any, *, permutation: Any) -> Any:
        return (self(ct, permutation=tuple(np.argsort(permutation).tolist())),)

    def batch(self, t: Any, args: Any, dims: Any, *, permutation: Any) -> Any:
        (x,), (d,) = args, dims
        return self(x, permutation=(d, *[i + (i >= d) for i in permutation])), 0


class BroadcastInDim(Structural):
    """Axis i of x becomes axis `dimensions[i]` of the result, with the same size; along the others
    x is repeated. (Axes of size 1 that are to grow are dropped first.)"""

    name = "broadcast_in_dim"

    def abstract_eval(self, x: ArrayType, *, shape: tuple[int, ...], dimensions: Axes) -> ArrayType:
        if len(dimensions) != x.ndim or list(dimensions) != sorted(set(dimensions)):
            raise self.mismatch((x,), f"dimensions {dimensions} must increase, one per axis")
        check_sizes(self, (x,), shape)
        if any(not 0 <= d < len(shape) or shape[d] != n for n, d in zip(x.shape, dimensions)):  # noqa: B905
            raise self.mismatch((x,), f"does not fit shape {shape} at axes {dimensions}")
        return x.update(shape=shape)

    def reference(self, x: Any, *, shape: Any, dimensions: Any) -> Any:
        aligned = [1] * len(shape)
        for n, d in zip(x.shape, dimensions, strict=True):
            aligned[d] = n
        return np.broadcast_to(np.reshape(x, aligned), shape)

    def numpy_source(self, w: Any, x: Any, *, shape: Any, dimensions: Any) -> Any:
        return f"np.broadcast_to({x.full}{with_axes(shape, dimensions)}, {shape})"

    def lower(self, ctx: Any, x: Any, *, shape: Any, dimensions: Any) -> Any:
        return ctx.op("stablehlo.broadcast_in_dim", [x], ctx.axes(dimensions))

    def under_trailing_axis(self, n: int, params: Any) -> Any:
        shape, dimensions = params["shape"], params["dimensions"]
        return {"shape": (*shape, n), "dimensions": (*dimensions, len(shape))}

    def transpose(self, ct: Any, x: Any, *, shape: Any, dimensions: Any) -> Any:
        repeated = tuple([i for i in range(len(shape)) if i not in dimensions])
        return (PRIMITIVES["reduce_sum"](ct, axes=repeated),)

    def batch(self, t: Any, args: Any, dims: Any, *, shape: Any, dimensions: Any) -> Any:
        x = t.move(args[0], dims[0], 0)
        moved = (0, *[d + 1 for d in dimensions])
        return self(x, shape=(t.size, *shape), dimensions=moved), 0


def with_axes(shape: Sequence[int], dimensions: Sequence[int]) -> str:
    """Return the index that adds the other axes of a shape to an array with these: `[:, None]`."""
    new = [":" if d in dimensions else "None" for d in range(len(shape))]
    while new and new[0] == "None":  # NumPy adds leading axes by itself
        new.pop(0)
    return f"[{', '.join(new)}]" if "None" in new else ""


class Reshape(Structural):
    """The same elements in row-major order with another shape."""

    name = "reshape"
    axis_params: tuple[str, ...] = ()
    per_axis: dict[str, Any] = {"shape": None}

    def abstract_eval(self, x: ArrayType, *, shape: tuple[int, ...]) -> ArrayType:
        check_sizes(self, (x,), shape)
        if prod(shape) != x.size:
            raise self.mismatch(
                (x,), f"{x.size} elements do not fill shape {shape} of {prod(shape)} elements"
            )
        return x.update(shape=shape)

    def reference(self, x: Any, *, shape: Any) -> Any:
        return np.reshape(x, shape)

    def numpy_source(self, w: Any, x: Any, *, shape: Any) -> Any:
        return f"np.reshape({x.full}, {shape})"

    def lower(self, ctx: Any, x: Any, *, shape: Any) -> Any:
        return ctx.op("stablehlo.reshape", [x])

    def transpose(self, ct: Any, x: Any, *, shape: Any) -> Any:
        return (self(ct, shape=x.shape),)


class Squeeze(Structural):
    """Drop axes of size 1."""

    name = "squeeze"
    axis_params: tuple[str, ...] = ("dimensions",)
    drops_axes = True

    def abstract_eval(self, x: ArrayType, *, dimensions: Axes) -> ArrayType:
        for d in dimensions:
            if x.shape[d] != 1:
                problem = f"only axes of size 1 can be dropped, not axis {d} of shape {x.shape}"
                fix = "Index it, x[..., 0], or reduce over it."
                raise self.mismatch((x,), problem, fix, errors.InvalidArgument)
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in dimensions]))

    def reference(self, x: Any, *, dimensions: Any) -> Any:
        return np.squeeze(x, dimensions)

    def numpy_source(self, w: Any, x: Any, *, dimensions: Any) -> Any:
        return f"np.squeeze({x.full}, {dimensions[0] if len(dimensions) == 1 else dimensions})"

    def lower(self, ctx: Any, x: Any, *, dimensions: Any) -> Any:
        return ctx.op("stablehlo.reshape", [x])

    def transpose(self, ct: Any, x: Any, *, dimensions: Any) -> Any:
        return (reshape(ct, shape=x.shape),)


class Rev(Structural):
    """Reverse axes."""

    name = "rev"
    axis_params: tuple[str, ...] = ("dimensions",)
    symmetric = True

    def abstract_eval(self, x: ArrayType, *, dimensions: Axes) -> ArrayType:
        return x

    def reference(self, x: Any, *, dimensions: Any) -> Any:
        return np.flip(x, dimensions)

    def numpy_source(self, w: Any, x: Any, *, dimensions: Any) -> Any:
        return f"np.flip({x.full}, {dimensions})"

    def lower(self, ctx: Any, x: Any, *, dimensions: Any) -> Any:
        return hlo.reverse(x, dimensions)


class Slice(Structural):
    """Elements `start, start + stride, ...` below `limit` along each axis."""

    name = "slice"
    per_axis: dict[str, Any] = {"start": 0, "limit": None, "strides": 1}

    def abstract_eval(self, x: ArrayType, *, start: Axes, limit: Axes, strides: Axes) -> ArrayType:
        if not len(start) == len(limit) == len(strides) == x.ndim:
            raise self.mismatch((x,), f"start {start}, limit {limit}, strides {strides}: one per axis")
        for i, (a, b, s, n) in enumerate(zip(start, limit, strides, x.shape, strict=True)):
            if not (0 <= a <= b <= n and s > 0):
                raise self.mismatch((x,), f"slice {a}:{b}:{s} does not fit axis {i} of size {n}")
        shape = [-(-(b - a) // s) for a, b, s in zip(start, limit, strides, strict=True)]
        return x.update(shape=tuple(shape))

    def reference(self, x: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        return x[tuple([slice(*one) for one in zip(start, limit, strides, strict=True)])]

    def numpy_source(self, w: Any, x: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        places = [
            f"{a or ''}:{'' if b == n else b}{f':{s}' if s > 1 else ''}"
            for a, b, s, n in zip(start, limit, strides, x.shape, strict=True)
        ]
        return f"{x.full}[{', '.join(places) or '()'}]"

    def lower(self, ctx: Any, x: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        return hlo.slice(x, start, limit, strides)

    def transpose(self, ct: Any, x: Any, *, start: Any, limit: Any, strides: Any) -> Any:
        config = tuple(
            [
                (a, n - (a + (m - 1) * s + 1) if m else n - a, s - 1)
                for a, s, n, m in zip(start, strides, x.shape, typeof(ct).shape, strict=True)
            ]
        )
        return (PRIMITIVES["pad"](ct, literal(0, ArrayType((), x.dtype)), config=config),)


transpose: Transpose = Transpose()
slice_: Slice = Slice()
squeeze: Squeeze = Squeeze()
rev: Rev = Rev()
broadcast_in_dim: BroadcastInDim = BroadcastInDim()
reshape: Reshape = Reshape()


# --- helpers for rules and libraries --------------------------------------------------------------


def move_axis(x: Any, source: int, to: int) -> Any:
    """Return x with one axis moved, the others in order."""
    if source == to:
        return x
    order = [i for i in range(typeof(x).ndim) if i != source]
    order.insert(to, source)
    return transpose(x, permutation=tuple(order))


def broadcast_to_axis(x: Any, axis: int, size: int) -> Any:
    """Return x broadcast along a new axis of the given size."""
    shape = typeof(x).shape
    new = (*shape[:axis], size, *shape[axis:])
    kept = tuple([i for i in range(len(new)) if i != axis])
    return broadcast_in_dim(x, shape=new, dimensions=kept)


def slice_axis(x: Any, axis: int, start: int, stop: int, step: int = 1) -> Any:
    """Return x[..., start:stop:step, ...] along one axis."""
    shape = typeof(x).shape
    if (start, stop, step) == (0, shape[axis], 1):
        return x
    low, high, steps = [0] * len(shape), list(shape), [1] * len(shape)
    low[axis], high[axis], steps[axis] = start, stop, step
    return slice_(x, start=tuple(low), limit=tuple(high), strides=tuple(steps))


def index_axis(x: Any, axis: int, i: int) -> Any:
    """Return x[..., i, ...] at one index along an axis, which is dropped."""
    return reshape(slice_axis(x, axis, i, i + 1), shape=without(typeof(x).shape, axis))


def without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the sizes of the other axes."""
    return (*shape[:axis], *shape[axis + 1 :])


def kept_axes(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the axes that are not in `axes`."""
    return tuple([i for i in range(ndim) if i not in axes])
