"""Reductions over windows by any computation: `lax.reduce_window` of a user's function.

    reduce_window[computation]       *xs, *starts     -> the reduction of each array, per window

The derivative is that of the reduction expanded into the computation, by halves, on arrays, so reverse
mode works too, unlike in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from functrans import runtime
from functrans.caching import memo_as
from functrans.ir.program import Program
from functrans.ir.types import ArrayType, same_types
from functrans.mlir import hlo, ir
from functrans.primitives.base import HigherOrderPrimitive, past_batch_axis
from functrans.primitives.calls.jit import jit
from functrans.primitives.elementwise.bitwise import or_
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.reductions import windows
from functrans.primitives.shape import joining
from functrans.primitives.shape.moving import broadcast_in_dim, reshape, slice_, slice_axis
from functrans.trace import evaluate, literal, stage, typeof


class ReduceWindow(HigherOrderPrimitive, windows.Windowed):
    """Reduce n arrays by `computation`, a program of 2n scalars (accumulators, then elements) to n,
    from n initial scalars. It has no constants and must be associative."""

    in_kernel = True
    name = "reduce_window"

    def abstract_eval(self, *types: ArrayType, computation: Program, **w: Any) -> Sequence[ArrayType]:
        n = len(types) // 2
        xs, starts = types[:n], types[n:]
        scalars = [ArrayType((), x.dtype) for x in xs]
        if not n or len(types) % 2 or any(x.shape != xs[0].shape for x in xs):
            raise self.mismatch(types, "takes arrays of equal shapes, and for each a start")
        if any(not t.same(s) for t, s in zip(starts, scalars, strict=True)):
            raise self.mismatch(types, "the starts must be scalars of the arrays' dtypes")
        if not same_types(computation.in_types, scalars * 2) or not same_types(
            computation.out_types, scalars
        ):
            raise self.mismatch(
                types,
                f"the computation takes {computation.in_types} and returns "
                f"{computation.out_types}; it must fold {', '.join(map(str, scalars))}",
            )
        counts = windows.check_window(self, types, xs[0], w)
        return [ArrayType(counts, x.dtype) for x in xs]

    def interpret(self, run: Any, values: Sequence[Any], params: windows.Window) -> Sequence[Any]:
        kinds = params["computation"].in_types  # the values may be wider, as in a float64 run
        types = [ArrayType(np.shape(x), t.dtype) for x, t in zip(values, kinds, strict=True)]
        return run(self._patched(types, params), values)

    def lower(self, ctx: Any, *operands: Any, computation: Program, **w: Any) -> Any:
        n = len(operands) // 2
        types, shape = list(ctx.out_types), ctx.in_types[0].shape
        if 0 in (*shape, *types[0].shape):
            starts = zip(types, operands[n:], strict=True)
            return [hlo.broadcast_in_dim(ctx.type(t), x, []) for t, x in starts]
        made, block = windows.emit_window(ctx, operands[:n], operands[n:], w)
        with ir.InsertionPoint(block):
            hlo.return_(ctx.emit(computation, list(block.arguments)))
        return list(made.results)

    def differentiate(
        self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], params: windows.Window
    ) -> tuple[Any, Any]:
        """Differentiate the expanded reduction, in either mode."""
        program = self._patched([typeof(x) for x in primals], params)
        return jit.differentiate(t, primals, tangents, {"program": program})

    def batch(self, t: Any, args: Any, dims: Any, *, computation: Program, **w: Any) -> Any:
        n = len(args) // 2
        if any(d is not None for d in dims[n:]):  # the initial values are batched
            types = [typeof(x).without_axis(d) for x, d in zip(args, dims, strict=True)]
            program = self._patched(types, w | {"computation": computation})
            return jit.batch(t, args, dims, program=program)
        xs = [t.at(x, d, 0) for x, d in zip(args[:n], dims[:n], strict=True)]
        outs = self(*xs, *args[n:], computation=computation, **past_batch_axis(self, 0, w))
        return outs, [0] * n

    def _patched(self, types: Sequence[ArrayType], params: windows.Window) -> Program:
        """Return the reduction as a program of operations on the elements k of all windows."""
        types = [t.strong() for t in types]
        return memo_as(
            params["computation"],
            (_by_patches, *types, *[params[name] for name in windows.PARAMETERS]),
            lambda: stage(lambda *xs: _by_patches(xs, **params), types, self.name),
        )


def _by_patches(operands: Sequence[Any], *, computation: Program, **w: Any) -> list[Any]:
    """Stack element k of all windows along a first axis, and reduce it by halves: neighbours are
    combined, which keeps the order of the elements. Elements outside of the array or between its
    elements are skipped, as in XLA; the last of the stacks marks the elements inside."""
    n = len(operands) // 2
    shape = operands[0].shape
    counts = windows.window_counts(shape, **w)
    starts = [broadcast_in_dim(x, shape=counts, dimensions=()) for x in operands[n:]]
    if 0 in counts:
        return starts

    def fold(left: Sequence[Any], right: Sequence[Any], shape: tuple[int, ...]) -> list[Any]:
        folded = _on_arrays(computation, [*left[:n], *right[:n]], shape)
        if len(left) == n:
            return folded
        inside, too = left[n], right[n]
        kept = [
            select_n(too, x, select_n(inside, y, xy))
            for x, y, xy in zip(left[:n], right[:n], folded, strict=True)
        ]
        return [*kept, or_(inside, too)]

    stacks = [_stacked(*both, w, counts) for both in zip(operands[:n], operands[n:], strict=True)]
    if any(low or high or inner for low, high, inner in windows.spread_out(w)):
        yes, no = [literal(v, ArrayType(s, np.dtype(bool))) for v, s in ((1, shape), (0, ()))]
        stacks.append(_stacked(yes, no, w, counts))
        starts.append(literal(1, ArrayType(counts, np.dtype(bool))))
    while (k := typeof(stacks[0]).shape[0]) > 1:
        left, right = [[slice_axis(x, 0, i, k - k % 2, 2) for x in stacks] for i in (0, 1)]
        folded = fold(left, right, (k // 2, *counts))
        if k % 2:
            last = [slice_axis(x, 0, k - 1, k) for x in stacks]
            both = zip(folded, last, strict=True)
            folded = [joining.concatenate(x, y, dimension=0) for x, y in both]
        stacks = folded
    return fold(starts, [reshape(x, shape=counts) for x in stacks], counts)[:n]


def _stacked(x: Any, start: Any, w: windows.Window, counts: Any) -> Any:
    wide = joining.pad(x, start, config=windows.spread_out(w))
    strides = w["window_strides"]
    return joining.stack(
        [slice_(wide, start=a, limit=b, strides=strides) for a, b in windows.places(w, counts)], 0
    )


def _on_arrays(program: Program, args: Sequence[Any], shape: tuple[int, ...]) -> list[Any]:
    """Run a program of scalars on arrays of a shape."""
    size = prod(shape)
    flat = [reshape(x, shape=(size,)) for x in args]
    return [reshape(y, shape=shape) for y in evaluate(runtime.batch_program(program, size), flat)]


reduce_window: ReduceWindow = ReduceWindow()
