"""Softmax.

It is one primitive for transformations, because its derivative, `y * (dx - sum(y * dx))`, needs
only the result, while that of its parts also stores the exponentials. Before lowering it is
expanded (passes/inlining.py), so that other passes see the parts together with the surrounding
equations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.caching import cached
from functrans.ir.program import Program
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Cost, Primitive, bytes_of
from functrans.primitives.elementwise import families as ew
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.transcendental import exp
from functrans.primitives.reductions.folds import reduce_max, reduce_sum, wide_dtype
from functrans.primitives.shape.moving import broadcast_in_dim, kept_axes
from functrans.trace import stage, typeof

Axes = tuple[int, ...]


class Softmax(Primitive):
    """exp(x) / sum(exp(x)) over axes, without overflow."""

    in_kernel = True
    name = "softmax"

    def abstract_eval(self, x: ArrayType, *, axes: Axes) -> ArrayType:
        if dtype_class(x.dtype) not in ew.FLOATS:
            raise self.mismatch((x,), f"takes floats, not {x.dtype}", "Cast first.")
        if not axes or len(set(axes)) != len(axes) or not all(0 <= a < x.ndim for a in axes):
            raise self.mismatch((x,), f"axes {axes} must be distinct and lie in 0..{x.ndim - 1}")
        return x

    def reference(self, x: Any, *, axes: Axes) -> Any:
        wide = x.astype(wide_dtype(x.dtype))
        powers = np.exp(wide - np.max(wide, axis=axes, keepdims=True, initial=-np.inf))
        return (powers / np.sum(powers, axis=axes, keepdims=True)).astype(x.dtype)

    def parts(self, x: ArrayType, *, axes: Axes) -> Program:
        """Return the operations that it expands to."""
        return _parts(x, axes)

    def lower(self, ctx: Any, x: Any, *, axes: Axes) -> Any:
        return ctx.emit(_parts(ctx.in_types[0], axes), [x])[0]

    def jvp(self, primals: Any, tangents: Any, out: Any, *, axes: Axes) -> Any:
        dx, t = tangents[0], typeof(out)
        total = reduce_sum(ew.mul(out, dx), axes=axes)
        mean = broadcast_in_dim(total, shape=t.shape, dimensions=kept_axes(t.ndim, axes))
        return ew.mul(out, ew.sub(dx, mean))

    def batch(self, t: Any, args: Any, dims: Any, *, axes: Axes) -> Any:
        (x,), (d,) = args, dims
        return self(x, axes=tuple([a + (a >= d) for a in axes])), d

    def cost(self, in_types: Any, out_types: Any, *, axes: Axes) -> Cost:
        inner = [
            e.primitive.cost([v.type for v in e.inputs], [v.type for v in e.outputs], **e.params)
            for e in _parts(in_types[0], axes).equations
        ]
        return Cost(sum(c.flops for c in inner), bytes_of(*in_types, *out_types))


@cached("programs of softmax", 1024)
def _parts(t: ArrayType, axes: Axes) -> Program:
    kept = kept_axes(t.ndim, axes)
    wide = wide_dtype(t.dtype)

    def repeated(x: Any) -> Any:
        return broadcast_in_dim(x, shape=t.shape, dimensions=kept)

    def run(x: Any) -> list[Any]:
        powers = exp(ew.sub(x, repeated(reduce_max(x, axes=axes))))
        if wide == t.dtype:
            return [ew.div(powers, repeated(reduce_sum(powers, axes=axes)))]
        total = reduce_sum(convert_element_type(powers, dtype=wide), axes=axes)
        return [ew.div(powers, repeated(convert_element_type(total, dtype=t.dtype)))]

    return stage(run, [t], "softmax")


softmax: Softmax = Softmax()
