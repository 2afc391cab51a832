"""Operations that fold axes away."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend.mlir.dialects import stablehlo as hlo

from functrans.ir.types import ArrayType
from functrans.primitives import shape as shapes
from functrans.primitives.base import Cost, Primitive, bytes_of


class Reduction(Primitive):
    """Fold the axes `axes` with one associative operation."""

    def type(self, x: ArrayType, *, axes: tuple[int, ...]) -> ArrayType:
        if any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
            raise self.mismatch((x,), f"axes {axes} must be distinct and lie in 0..{x.ndim - 1}")
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in axes]))

    def batch(self, t: Any, args: Any, dims: Any, *, axes: tuple[int, ...]) -> Any:
        (x,), (d,) = args, dims
        inner = tuple([a + (a >= d) for a in axes])
        return self(x, axes=inner), d - sum(a < d for a in inner)

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(in_types[0].size, bytes_of(*in_types, *out_types))


class ReduceSum(Reduction):
    """Sum over axes."""

    name, linear_in = "reduce_sum", (0,)

    def reference(self, x: Any, *, axes: Any) -> Any:
        return np.asarray(np.sum(x, axis=axes, dtype=x.dtype))

    def lower(self, ctx: Any, x: Any, *, axes: Any) -> Any:
        return ctx.reduce(hlo.AddOp, x, 0, axes)

    def transpose(self, ct: Any, x: Any, *, axes: Any) -> Any:
        kept = shapes.kept_axes(x.ndim, axes)
        return (shapes.broadcast_in_dim(ct, shape=x.shape, dimensions=kept),)


reduce_sum = ReduceSum()
