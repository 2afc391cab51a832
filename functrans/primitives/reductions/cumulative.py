"""Cumulative sums, products, maxima and minima along one axis.

Lowered as a reduction over a window that covers all preceding elements, which XLA rewrites into a tree of
its own. Of many numbers on a CPU it is a loop over rows, a kernel, which takes a third to a tenth of the time
and of the compilation, or, of very many, a tree of slices, which takes two thirds of the time and is compiled
in up to 0.7 seconds more. Differentiated as such a tree, an `associative_scan` of pairs (value, tangent).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import numpy as np

from functrans.caching import cached
from functrans.ir.program import Program
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Params, Primitive
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.elementwise import families as ew
from functrans.primitives.elementwise.arithmetic import max_, min_, rem
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import exp
from functrans.primitives.reductions import folds
from functrans.primitives.reductions.windows import PARAMETERS, Window, emit_fold
from functrans.primitives.shape import moving as shapes
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import reshape, rev, slice_axis
from functrans.trace import literal, stage, typeof

Pair = tuple[Any, Any]
_MANY, _LONG = 4096, 8  # numbers in an array, and along the axis, above which a loop or tree is faster
_STEPS, _ROW = 2**13, 4096  # numbers along the axis and in a row, up to which a loop is
_MOVED = 2**20  # numbers in an array, up to which it is if rows have to be gathered
_BLOCK = 64  # rows that a loop sums before it adds them to the sum of those before, for accuracy


class Cumulative(Primitive):
    """Element i of the result reduces elements 0..i of x along `axis`, or i, i+1, ... with `reverse`."""

    in_kernel = True
    flops: float = 1
    axis_params: tuple[str, ...] = ("axis",)
    takes: tuple[str, ...] = ew.NUMBERS

    def abstract_eval(self, x: ArrayType, *, axis: int, reverse: bool) -> ArrayType:
        return x


class CumFold(Cumulative):
    """By a reduction along an axis, and that of two values."""

    def __init__(self, name: str, fold: folds.Reduction, of_two: ew.Binary):
        self.fold: folds.Reduction = fold
        self.of_two: ew.Binary = of_two
        super().__init__(name)

    def reference(self, x: Any, *, axis: int, reverse: bool) -> Any:
        wide = x.astype(folds.wide_dtype(x.dtype))
        wide = np.flip(wide, axis) if reverse else wide
        out = self.fold.numpy.accumulate(wide, axis, dtype=wide.dtype)
        return (np.flip(out, axis) if reverse else out).astype(x.dtype)

    def lower(self, ctx: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        t = ctx.in_types[0]
        n = t.shape[axis]
        if n == 0:
            return x
        is_many = t.size > _MANY and n > _LONG
        if ctx.platform == "cpu" and is_many and t.dtype.itemsize >= 4 and dtype_class(t.dtype) != "complex":
            if ctx.on_this_cpu and _is_by_rows(t, axis):
                return ctx.emit(_by_rows(self, t, axis, reverse), [x])[0]
            of_two = getattr(jax.lax, self.of_two.name)
            return _emit_tree(ctx, of_two, x, axis=axis, reverse=reverse)
        w: Window = dict.fromkeys(PARAMETERS, (1,) * t.ndim)
        edges = (0, n - 1) if reverse else (n - 1, 0)
        w["window_dimensions"] = [n if i == axis else 1 for i in range(t.ndim)]
        w["padding"] = [edges if i == axis else (0, 0) for i in range(t.ndim)]
        return emit_fold(ctx, self.fold, x, w)

    def jvp(self, primals: Any, tangents: Any, out: Any, *, axis: int, reverse: bool) -> Any:
        pair = primals[0], tangents[0]
        if reverse:
            pair = tuple([rev(v, dimensions=(axis,)) for v in pair])
        _, tangent = associative_scan(self._combined, pair, axis)
        return rev(tangent, dimensions=(axis,)) if reverse else tangent

    def _combined(self, x: Pair, y: Pair) -> Pair:
        """Reduce two values, and return the tangent too."""
        (a, da), (b, db) = x, y
        out = self.of_two(a, b)
        return out, self.of_two.jvp((a, b), (da, db), out)


class CumSum(CumFold):
    """Cumulative sums."""

    linear_in: tuple[int, ...] = (0,)

    def jvp(self, primals: Any, tangents: Any, out: Any, *, axis: int, reverse: bool) -> Any:
        return self(tangents[0], axis=axis, reverse=reverse)

    def transpose(self, ct: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        return (self(ct, axis=axis, reverse=not reverse),)


class CumLogSumExp(Cumulative):
    """log of cumulative sums of exp(x), without overflow."""

    name: str = "cumlogsumexp"
    takes: tuple[str, ...] = ew.FLOATS

    def reference(self, x: Any, *, axis: int, reverse: bool) -> Any:
        wide = x.astype(folds.wide_dtype(x.dtype))
        wide = np.moveaxis(np.flip(wide, axis) if reverse else wide, axis, 0)
        out = np.empty_like(wide)
        total = np.full(wide.shape[1:], -np.inf, wide.dtype)
        for i, row in enumerate(wide):
            out[i] = total = _logaddexp(total, row)
        out = np.moveaxis(out, 0, axis)
        return (np.flip(out, axis) if reverse else out).astype(x.dtype)

    def lower(self, ctx: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        """Emit a tree: XLA:CPU takes 20 times as long for JAX's window over all preceding elements."""
        how: dict[str, Any] = {"axis": axis, "reverse": reverse}
        if ctx.platform != "cpu":
            return ctx.via_jax(lambda v: jax.lax.cumlogsumexp(v, **how), x)[0]
        return _emit_tree(ctx, jax.numpy.logaddexp, x, **how)

    def jvp(self, primals: Any, tangents: Any, out: Any, *, axis: int, reverse: bool) -> Any:
        """dy_i = dy_(i-1) e^(y_(i-1) - y_i) + dx_i e^(x_i - y_i), whose factors are at most 1."""
        x, dx, y = [rev(v, dimensions=(axis,)) if reverse else v for v in (primals[0], tangents[0], out)]
        n = typeof(y).shape[axis]
        if n < 2:
            return dx
        before = concatenate(slice_axis(y, axis, 0, 1), slice_axis(y, axis, 0, n - 1), dimension=axis)
        steps = _ratio(before, y), ew.mul(dx, _ratio(x, y))
        _, dy = associative_scan(_composed, steps, axis)
        return rev(dy, dimensions=(axis,)) if reverse else dy


def _is_by_rows(t: ArrayType, axis: int) -> bool:
    n = t.shape[axis]
    return n <= _STEPS and t.size <= n * _ROW and (prod(t.shape[:axis]) == 1 or t.size <= _MOVED)


@cached("cumulative folds", 256)
def _by_rows(fold: CumFold, t: ArrayType, axis: int, reverse: bool) -> Program:
    """Return the program of a loop over the rows: reduce each block of them, and each sum so far with
    what the blocks before it made."""
    row = ArrayType(shapes.without(t.shape, axis), t.dtype)
    step = ArrayType((), np.dtype(np.int32))

    def one(i: Any, before: Any, block: Any, last: Any, x: Any) -> list[Any]:
        is_first = shapes.broadcast_in_dim(ew.eq(rem(i, _BLOCK), 0), shape=row.shape, dimensions=())
        before = select_n(is_first, before, last)
        block = select_n(is_first, fold.of_two(block, x), x)
        last = fold.of_two(before, block)
        return [ew.add(i, 1), before, block, last, last]

    def whole(x: Any) -> list[Any]:
        order = (axis, *shapes.kept_axes(t.ndim, (axis,)))
        start = literal(fold.fold.start(t.dtype), row)
        rows = shapes.transpose(x, permutation=order)
        body = stage(one, [step, row, row, row, row], fold.name)
        state = [literal(0, step), start, start, start]
        how: Params = {"length": t.shape[axis], "reverse": reverse, "unroll": max(1, 8 // row.size)}
        made = scan(*state, rows, program=body, consts=0, carry=4, **how)[-1]
        return [shapes.transpose(made, permutation=tuple(np.argsort(order).tolist()))]

    return stage(whole, [t.strong()], fold.name)


def _emit_tree(ctx: Any, of_two: Callable[..., Any], x: Any, **how: Any) -> Any:
    return ctx.via_jax(lambda v: jax.lax.associative_scan(of_two, v, **how), x)[0]


def _ratio(x: Any, y: Any) -> Any:
    """Return e^(x - y), 1 where both are the same infinity."""
    return exp(select_n(ew.eq(x, y), ew.sub(x, y), literal(0, typeof(x).strong())))


def _composed(first: Pair, then: Pair) -> Pair:
    """Compose two maps x -> a x + b."""
    (a, b), (c, d) = first, then
    return ew.mul(a, c), ew.add(ew.mul(b, c), d)


def _logaddexp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    finite = np.where(x.real > y.real, x, y)
    finite = np.where(np.isfinite(finite.real), finite, 0)
    return np.log(np.exp(x - finite) + np.exp(y - finite)) + finite


def associative_scan(combine: Callable[[Any, Any], Any], xs: Any, axis: int) -> Any:
    """Return `xs[0], xs[0]*xs[1], xs[0]*xs[1]*xs[2], ...` where * is `combine`, on tuples of
    arrays.

    Neighbours are combined and the results scanned recursively, which gives every second element;
    one more combination gives the others. O(n) work, 2 log n steps.
    """
    n = typeof(xs[0]).shape[axis]
    if n < 2:
        return xs
    halves = combine(*[tuple([slice_axis(x, axis, i, n - 1 + i, 2) for x in xs]) for i in (0, 1)])
    odd = associative_scan(combine, halves, axis)
    even = [slice_axis(x, axis, 0, 1) for x in xs]
    if n > 2:
        before = tuple([slice_axis(x, axis, 0, (n - 1) // 2) for x in odd])
        later = combine(before, tuple([slice_axis(x, axis, 2, n, 2) for x in xs]))
        even = [concatenate(a, b, dimension=axis) for a, b in zip(even, later, strict=True)]
    return tuple([_woven(a, b, axis) for a, b in zip(even, odd, strict=True)])


def _woven(even: Any, odd: Any, axis: int) -> Any:
    """Return even[0], odd[0], even[1], ...; `even` may be longer by one."""
    shape = typeof(odd).shape
    k = shape[axis]
    split = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    pairs = [reshape(x, shape=split) for x in (slice_axis(even, axis, 0, k), odd)]
    whole = (*shape[:axis], 2 * k, *shape[axis + 1 :])
    woven = reshape(concatenate(*pairs, dimension=axis + 1), shape=whole)
    n = typeof(even).shape[axis]
    return woven if n == k else concatenate(woven, slice_axis(even, axis, k, n), dimension=axis)


cumsum: CumSum = CumSum("cumsum", folds.reduce_sum, ew.add)
cumprod: CumFold = CumFold("cumprod", folds.reduce_prod, ew.mul)
cummax: CumFold = CumFold("cummax", folds.reduce_max, max_)
cummin: CumFold = CumFold("cummin", folds.reduce_min, min_)
cumlogsumexp: CumLogSumExp = CumLogSumExp()
