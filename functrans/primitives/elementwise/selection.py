"""Primitives that select between values, and identities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.program import Equation
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo
from functrans.primitives.base import LinearInput, Primitive, sum_of
from functrans.primitives.dependence import smaller
from functrans.primitives.elementwise import families as ew
from functrans.primitives.elementwise.bitwise import and_
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import typeof


class BesideScalars(ew.Elementwise):
    """Base class of operations of operands of one shape, some of which may be scalars."""

    def batch(self, t: Any, args: Any, dims: Any) -> Any:
        shapes = [typeof(x).without_axis(d).shape for x, d in zip(args, dims, strict=True)]
        whole = max(shapes, key=len)
        stays = all(d is None or shape == whole for d, shape in zip(dims, shapes, strict=True))
        to = next(d for d in dims if d is not None) if stays else 0

        def lined_up(x: Any, d: int | None, shape: tuple[int, ...]) -> Any:
            if shape == whole:
                return t.at(x, d, to)
            return x if d is None else broadcast_in_dim(x, shape=(t.size, *whole), dimensions=(0,))

        return self(*map(lined_up, args, dims, shapes)), to


class SelectN(BesideScalars):
    """Select element i of the result from `cases[which[i]]`.

    `which` is boolean (two cases) or integer (out of range: the nearest case), a scalar or of the
    shape of the cases.
    """

    name: str = "select_n"
    linear_from: int | None = 1
    takes: tuple[str, ...] = (*ew.ANY, "key")

    def abstract_eval(self, which: ArrayType, *cases: ArrayType) -> ArrayType:
        types = (which, *cases)
        if not cases:
            raise self.mismatch(types, "at least one case is needed", error=errors.InvalidArgument)
        if dtype_class(which.dtype) not in ew.BITS:
            raise self.mismatch(types, f"the selector must be bool or integer, not {which.dtype}")
        if which.dtype == bool and len(cases) > 2:
            raise self.mismatch(types, "a boolean selector chooses between two cases")
        self.check_equal(cases, "cases")
        self.check_dtype(cases)
        if which.shape not in ((), cases[0].shape):
            raise self.mismatch(
                types,
                f"the selector must be a scalar or have the shape of the cases, got {which.shape} "
                f"and {cases[0].shape}",
                "Broadcast it first (functrans.numpy.where does).",
            )
        return cases[0].update(weak_type=all([t.weak_type for t in cases]))

    def reference(self, which: Any, *cases: Any) -> Any:
        if not isinstance(cases[0], np.ndarray):
            return jax.lax.select_n(which, *cases)  # typed keys
        if which.dtype == bool:
            which = which.astype(np.int32)
        chosen = np.minimum(np.maximum(which, 0), len(cases) - 1)
        out = cases[0]
        for i, case in enumerate(cases):
            out = np.where(chosen == i, case, out)
        return np.asarray(out)

    def numpy_source(self, w: Any, which: Any, *cases: Any) -> Any:
        if len(cases) == 1:
            return cases[0].full
        if which.ndim and cases[0].ndim > which.ndim:  # the words of typed keys
            which = type(which)(f"{which.full}[..., None]", which.type)
        if which.dtype != bool:
            chosen = f"np.clip({which.full}, 0, {len(cases) - 1})"
            return f"np.choose({chosen}, [{', '.join([c.full for c in cases])}])"
        no, yes = cases
        return f"np.where({which.full}, {yes.full if no.literal else yes}, {no})"

    def lower(self, ctx: Any, which: Any, *cases: Any) -> Any:
        if dtype_class(ctx.out_types[0].dtype) == "key":
            return ctx.via_jax(jax.lax.select_n, which, *cases)[0]
        t = ctx.in_types[0]
        if t.dtype == bool:
            return ctx.op("stablehlo.select", [which, *cases[::-1]]) if cases[1:] else cases[0]

        def among(first: int, cases: Sequence[Any]) -> Any:
            if len(cases) == 1:
                return cases[0]
            half = len(cases) // 2
            below = ew.compare(which, ctx.full(first + half, t), "LT", dtype_class(t.dtype))
            return hlo.select(below, among(first, cases[:half]), among(first + half, cases[half:]))

        return among(0, cases)

    def transpose(self, ct: Any, which: Any, *cases: Any) -> Any:
        if len(cases) == 1:
            return None, ct
        none = ew.full_like(ct, 0)
        cts: list[Any] = [None]
        for i, case in enumerate(cases):
            if not isinstance(case, LinearInput):
                cts.append(None)
            elif typeof(which).dtype == bool:
                cts.append(self(which, none, ct) if i else self(which, ct, none))
            else:
                # out of range selects the first or the last case
                if i == 0:
                    mine = ew.lt(which, 1)
                elif i == len(cases) - 1:
                    mine = ew.gt(which, i - 1)
                else:
                    mine = ew.eq(which, i)
                cts.append(self(mine, none, ct))
        return cts


class Clamp(BesideScalars):
    """Clamp x to [low, high]; these are scalars or of the shape of x."""

    name = "clamp"

    def abstract_eval(self, low: ArrayType, x: ArrayType, high: ArrayType) -> ArrayType:
        types = (low, x, high)
        for t in (low, high):
            if t.shape not in ((), x.shape):
                raise self.mismatch(types, f"bounds must be scalars or of shape {x.shape}")
        self.check_equal([t.update(shape=()) for t in types])
        self.check_dtype(types)
        return x.update(weak_type=low.weak_type and x.weak_type and high.weak_type)

    def reference(self, low: Any, x: Any, high: Any) -> Any:
        return np.minimum(high, np.maximum(low, x)).astype(x.dtype, copy=False)

    def numpy_source(self, w: Any, low: Any, x: Any, high: Any) -> Any:
        return f"np.minimum({high}, np.maximum({low}, {x.full}))"

    def lower(self, ctx: Any, low: Any, x: Any, high: Any) -> Any:
        return hlo.clamp(low, x, high)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        low, x, high = [_repeated(v, typeof(primals[1]).shape) for v in primals]
        dlow, dx, dhigh = tangents
        total = None
        if dlow is not None:
            total = self._where(and_(ew.gt(low, x), ew.lt(low, high)), dlow, x)
        if dx is not None:
            total = sum_of(total, self._where(and_(ew.gt(x, low), ew.lt(x, high)), dx, x))
        if dhigh is not None:
            total = sum_of(total, self._where(ew.lt(high, x), dhigh, x))
        return total

    def _where(self, mask: Any, dv: Any, x: Any) -> Any:
        return select_n(mask, ew.full_like(x, 0), _repeated(dv, typeof(x).shape))


def _repeated(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast a scalar to a shape; return anything else unchanged."""
    if typeof(x).shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, dimensions=())


class Same(ew.Unary):
    """The identity; its derivative is zero unless it is linear."""

    def numpy_source(self, w: Any, x: Any) -> Any:
        return x.full


class OptimizationBarrier(Primitive):
    """The operands, all computed before any of the results is used; nothing is fused across."""

    in_kernel = True
    mergeable = False
    name: str = "optimization_barrier"
    multiple_results: bool = True
    linear_from: int | None = 0

    def abstract_eval(self, *types: ArrayType) -> Sequence[ArrayType]:
        return types

    def reference(self, *arrays: Any) -> Sequence[Any]:
        return list(arrays)

    def numpy_source(self, w: Any, *xs: Any) -> Any:
        return [x.full for x in xs]

    def lower(self, ctx: Any, *operands: Any) -> Sequence[Any]:
        return list(hlo.OptimizationBarrierOp(operands).results)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        return self._among(tangents)

    def transpose(self, ct: Any, *args: Any) -> Any:
        return self._among(ct)

    def _among(self, values: Sequence[Any]) -> list[Any]:
        """Apply the barrier to the values that are not None."""
        through = iter(self(*[v for v in values if v is not None]))
        return [None if v is None else next(through) for v in values]

    def batch(self, t: Any, args: Any, dims: Any) -> Any:
        return self(*args), list(dims)

    def reached(self, params: Any, moving: Sequence[bool]) -> Sequence[bool]:
        return moving

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        return smaller(equation, wanted, compress(equation.outputs, wanted))


select_n: SelectN = SelectN()
clamp: Clamp = Clamp()
stop_gradient: Same = Same("stop_gradient", (*ew.ANY, "key"), numpy=np.asarray, op=lambda x: x)
copy: Same = Same("copy", (*ew.ANY, "key"), numpy=np.array, op=lambda x: x, linear=True)
optimization_barrier: OptimizationBarrier = OptimizationBarrier()


def one_for_zero(x: Any) -> Any:
    """Return x, with 1 in place of 0: a safe divisor."""
    return select_n(ew.eq(x, 0), x, ew.full_like(x, 1))
