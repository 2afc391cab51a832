"""Products summed over shared axes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from jax.extend.mlir.dialects import stablehlo as hlo

from functrans.ir.types import ArrayType
from functrans.primitives.base import Cost, LinearInput, Primitive, bytes_of

Axes = tuple[int, ...]


class DotGeneral(Primitive):
    """An einsum of two operands whose axes have names (small integers).

    A name in both operands and in `out` is a batch axis, in both only is summed, in one is kept.
    `precision`: None, or a pair of names of `jax.lax.Precision`. `preferred`: dtype of the result and
    of the accumulation, or None.
    """

    name, linear_in, multilinear = "dot_general", (0, 1), True

    def type(
        self, x: ArrayType, y: ArrayType, *, lhs: Axes, rhs: Axes, out: Axes,
        precision: Any = None, preferred: Any = None,
    ) -> ArrayType:  # fmt: skip
        size: dict[int, int] = {}
        for t, names in ((x, lhs), (y, rhs)):
            if len(names) != t.ndim or len(set(names)) != t.ndim:
                raise self.mismatch((x, y), f"axes {names} must name each axis of {t} once")
            for n, name in zip(t.shape, names, strict=True):
                if size.setdefault(name, n) != n:
                    i, j = lhs.index(name), rhs.index(name)
                    raise self.mismatch(
                        (x, y),
                        f"axis {i} of the first operand and axis {j} of the second are multiplied "
                        f"together and must have equal sizes, got {x.shape[i]} and {y.shape[j]}",
                        "Transpose or reshape one of the operands.",
                    )
        if x.dtype != y.dtype:
            raise self.mismatch((x, y), f"operands must have equal dtypes, got {x.dtype}, {y.dtype}")
        shape = tuple([size[name] for name in out])
        return ArrayType(shape, preferred or x.dtype, x.weak_type and y.weak_type)

    def reference(self, x: Any, y: Any, *, lhs: Any, rhs: Any, out: Any, precision: Any = None,
                  preferred: Any = None) -> Any:  # fmt: skip
        dtype = np.dtype(preferred or x.dtype)
        wide = np.float32 if dtype.itemsize < 4 and dtype.kind not in "iub" else dtype
        return np.einsum(x.astype(wide), lhs, y.astype(wide), rhs, out).astype(dtype)

    def lower(self, ctx: Any, x: Any, y: Any, *, lhs: Any, rhs: Any, out: Any, precision: Any = None,
              preferred: Any = None) -> Any:  # fmt: skip
        batch = [n for n in out if n in lhs and n in rhs]
        summed = [n for n in lhs if n in rhs and n not in out]
        numbers = hlo.DotDimensionNumbers.get(
            [lhs.index(n) for n in batch], [rhs.index(n) for n in batch],
            [lhs.index(n) for n in summed], [rhs.index(n) for n in summed],
        )  # fmt: skip
        natural = [*batch, *(n for n in lhs if n in out and n not in batch)]
        natural += [n for n in rhs if n in out and n not in batch]
        t = ctx.out_types[0]
        size = dict(zip(out, t.shape, strict=True))
        made = hlo.dot_general(
            ctx.type(t.update(shape=tuple([size[n] for n in natural]))), x, y, numbers,
        )  # fmt: skip
        order = [natural.index(n) for n in out]
        return made if order == sorted(order) else ctx.transpose(made, order)

    def transpose(self, ct: Any, x: Any, y: Any, *, lhs: Any, rhs: Any, out: Any, **how: Any) -> Any:
        if isinstance(x, LinearInput):
            return self(ct, y, lhs=out, rhs=rhs, out=lhs, **how), None
        return None, self(x, ct, lhs=lhs, rhs=out, out=rhs, **how)

    def batch(self, t: Any, args: Any, dims: Any, *, lhs: Any, rhs: Any, out: Any, **how: Any) -> Any:
        new = 1 + max((*lhs, *rhs), default=-1)

        def with_batch(names: Axes, d: int | None) -> Axes:
            return names if d is None else (*names[:d], new, *names[d:])

        return self(
            *args, lhs=with_batch(lhs, dims[0]), rhs=with_batch(rhs, dims[1]), out=(new, *out), **how
        ), 0

    def cost(self, in_types: Any, out_types: Any, *, lhs: Any, rhs: Any, **how: Any) -> Cost:
        sizes = dict(zip((*lhs, *rhs), (*in_types[0].shape, *in_types[1].shape), strict=True))
        return Cost(2 * prod(sizes.values()), bytes_of(*in_types, *out_types))


dot_general = DotGeneral()
