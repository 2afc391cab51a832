"""Reductions over axes, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import ml_dtypes
import numpy as np

from functrans.caching import cached
from functrans.ir.program import Program
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo
from functrans.primitives.base import Cost, Primitive, bytes_of, own_cost, sum_of
from functrans.primitives.elementwise import families as ew
from functrans.primitives.elementwise.conversion import cast, convert_element_type, one_zero, ordered_bits
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import exp
from functrans.primitives.shape import moving as shapes
from functrans.primitives.shape.joining import concatenate, iota
from functrans.trace import literal, stage, typeof

Axes = tuple[int, ...]


class Reduction(Primitive):
    """Reduce the axes `axes` with an associative operation.

    start : dtype -> the initial value, which is the result for no elements
    numpy : the NumPy ufunc;  op : the StableHLO operation
    """

    in_kernel = True
    axis_params: tuple[str, ...] = ("axes",)
    drops_axes = True
    flops: float = 1

    def __init__(
        self,
        name: str,
        takes: tuple[str, ...],
        start: Callable[[Any], Any],
        numpy: np.ufunc,
        op: Callable[..., Any],
    ):
        self.takes: tuple[str, ...] = takes
        self.start: Callable[[Any], Any] = start
        self.numpy: np.ufunc = numpy
        self.op: Callable[..., Any] = op
        super().__init__(name)

    def abstract_eval(self, x: ArrayType, *, axes: Axes) -> ArrayType:
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in axes]))

    def reference(self, x: Any, *, axes: Any) -> Any:
        wide = wide_dtype(x.dtype)
        start = np.asarray(self.start(x.dtype)).astype(wide)
        out = self.numpy.reduce(x.astype(wide), axis=axes, initial=start, dtype=wide)
        return np.asarray(out).astype(x.dtype)

    def numpy_source(self, w: Any, x: Any, *, axes: Any) -> Any:
        name = _SHORT_NAMES.get((self.numpy, x.dtype == bool))
        if name is None or not x.size:
            return w.reference(self, (x,), {"axes": axes})
        axis = axes[0] if len(axes) == 1 else axes
        whole = "" if len(axes) == x.ndim and axes else f", axis={axis}"
        if name in ("np.max", "np.min") or x.dtype == bool:
            return f"{name}({x.full}{whole})"
        wide = wide_dtype(x.dtype)
        if wide != x.dtype:
            return f"{name}({x.full}{whole}, dtype={w.dtype(wide)}).astype({w.dtype(x.dtype)})"
        kept = "" if x.dtype.kind in "fc" else f", dtype={w.dtype(x.dtype)}"  # NumPy widens ints
        return f"{name}({x.full}{whole}{kept})"

    def lower(self, ctx: Any, x: Any, *, axes: Any) -> Any:
        dtype = ctx.in_types[0].dtype
        return ctx.reduce(self.chooser(dtype), x, self.start(dtype), axes)

    def chooser(self, dtype: Any) -> Callable[..., Any]:
        """Return the StableHLO operation on two scalars of a dtype."""
        return self.op


_SHORT_NAMES: dict[tuple[Any, bool], str] = {  # (ufunc, whether the operand is boolean) -> name
    (np.add, False): "np.sum",
    (np.multiply, False): "np.prod",
    (np.maximum, False): "np.max",
    (np.minimum, False): "np.min",
    (np.bitwise_and, True): "np.all",
    (np.bitwise_or, True): "np.any",
}


def wide_dtype(dtype: Any) -> Any:
    """Return the dtype in which NumPy accumulates: float32 for 16 and 8 bit floats, as in XLA."""
    small = dtype_class(dtype) == "float" and dtype.itemsize < 4
    return np.dtype(np.float32) if small else dtype


def lowest(dtype: Any) -> Any:
    """Return the initial value of a maximum."""
    return _extreme(dtype, "min")


def highest(dtype: Any) -> Any:
    """Return the initial value of a minimum."""
    return _extreme(dtype, "max")


def _extreme(dtype: Any, end: str) -> Any:
    kind = dtype_class(dtype)
    if kind == "bool":
        return end == "max"
    if kind in ("int", "uint"):
        return int(getattr(ml_dtypes.iinfo(dtype), end))
    infinity = -np.inf if end == "min" else np.inf
    if kind == "complex" or not np.isnan(np.asarray(infinity).astype(dtype).astype(np.float64)):
        return infinity
    return float(getattr(ml_dtypes.finfo(dtype), end))  # 8 bit floats without infinities


def ones(dtype: Any) -> Any:
    """Return the value with all bits set: the initial value of `and`."""
    return {"bool": True, "int": -1}.get(dtype_class(dtype)) or int(ml_dtypes.iinfo(dtype).max)


class ReduceSum(Reduction):
    """The sum over axes."""

    linear_in: tuple[int, ...] = (0,)

    def transpose(self, ct: Any, x: Any, *, axes: Any) -> Any:
        kept = shapes.kept_axes(x.ndim, axes)
        return (shapes.broadcast_in_dim(ct, shape=x.shape, dimensions=kept),)


class ReduceProd(Reduction):
    """The product over axes."""

    def jvp(self, primals: Any, tangents: Any, out: Any, *, axes: Axes) -> Any:
        """d(ab) = da b + a db over pairs of halves; without division, so zeros are safe."""
        x, dx = primals[0], tangents[0]
        kept = shapes.kept_axes(typeof(x).ndim, axes)
        x, dx = (_fold_to_front(v, axes, kept) for v in (x, dx))
        n = typeof(x).shape[0]
        if n == 0:
            return None
        while n > 1:
            half = n // 2
            (a, b), (da, db) = [[shapes.slice_axis(v, 0, i, i + half) for i in (0, half)] for v in (x, dx)]
            product, change = ew.mul(a, b), sum_of(ew.mul(da, b), ew.mul(db, a))
            if n % 2:
                last, dlast = (shapes.slice_axis(v, 0, n - 1, n) for v in (x, dx))
                product = concatenate(product, last, dimension=0)
                change = concatenate(change, dlast, dimension=0)
            x, dx, n = product, change, half + n % 2
        return shapes.squeeze(dx, dimensions=(0,))


def _fold_to_front(x: Any, axes: Axes, kept: Axes) -> Any:
    """Merge the axes `axes` into one leading axis."""
    shape = typeof(x).shape
    if axes != tuple(range(len(axes))):
        x = shapes.transpose(x, permutation=(*axes, *kept))
    return shapes.reshape(x, shape=(prod([shape[a] for a in axes]), *[shape[a] for a in kept]))


class Extremum(Reduction):
    """The maximum or minimum; NaN propagates. Complex numbers are ordered by their parts."""

    def chooser(self, dtype: Any) -> Callable[..., Any]:
        if dtype_class(dtype) != "complex":
            return self.op
        direction = "GT" if self.numpy is np.maximum else "LT"  # of the element to choose

        def choose(x: Any, y: Any) -> Any:
            (a, c), (b, d) = (hlo.real(x), hlo.imag(x)), (hlo.real(y), hlo.imag(y))
            tie, by_imag = ew.compare(a, b, "EQ", "float"), ew.compare(c, d, direction, "float")
            return hlo.SelectOp(hlo.select(tie, by_imag, ew.compare(a, b, direction, "float")), x, y)

        return choose

    def jvp(self, primals: Any, tangents: Any, out: Any, *, axes: Axes) -> Any:
        """Ties share the tangent equally."""
        x, dx = primals[0], tangents[0]
        t = typeof(x).strong()
        kept = shapes.kept_axes(t.ndim, axes)
        largest = shapes.broadcast_in_dim(out, shape=t.shape, dimensions=kept)
        where = select_n(ew.eq(x, largest), literal(0, t), literal(1, t))
        count = reduce_sum(where, axes=axes)
        return ew.div(reduce_sum(ew.mul(dx, where), axes=axes), count)


reduce_sum: ReduceSum = ReduceSum("reduce_sum", ew.NUMBERS, lambda _: 0, np.add, hlo.AddOp)
reduce_prod: ReduceProd = ReduceProd("reduce_prod", ew.NUMBERS, lambda _: 1, np.multiply, hlo.MulOp)
reduce_max: Extremum = Extremum("reduce_max", ew.ANY, lowest, np.maximum, hlo.MaxOp)
reduce_min: Extremum = Extremum("reduce_min", ew.ANY, highest, np.minimum, hlo.MinOp)
reduce_and: Reduction = Reduction("reduce_and", ew.BITS, ones, np.bitwise_and, hlo.AndOp)
reduce_or: Reduction = Reduction("reduce_or", ew.BITS, lambda _: 0, np.bitwise_or, hlo.OrOp)
reduce_xor: Reduction = Reduction("reduce_xor", ew.BITS, lambda _: 0, np.bitwise_xor, hlo.XorOp)


class Arg(Primitive):
    """The position of the maximum or minimum along one axis: the first one, or the first NaN."""

    in_kernel = True
    locally_constant = True
    takes: tuple[str, ...] = ew.ORDERED
    axis_params: tuple[str, ...] = ("axes",)
    drops_axes = True
    flops: float = 1

    def __init__(self, name: str):
        self.numpy: Callable[..., Any] = getattr(np, name)
        super().__init__(name)

    def abstract_eval(self, x: ArrayType, *, axes: Axes, index_dtype: Any) -> ArrayType:
        if dtype_class(index_dtype) not in ("int", "uint"):
            raise self.mismatch((x,), f"index_dtype must be an integer dtype, got {index_dtype}")
        if len(axes) != 1:
            raise self.mismatch((x,), f"axes {axes} must be one axis")
        if x.shape[axes[0]] == 0:
            raise self.mismatch((x,), f"axis {axes[0]} has no elements to choose from")
        return ArrayType(shapes.without(x.shape, axes[0]), index_dtype)

    def reference(self, x: Any, *, axes: Any, index_dtype: Any) -> Any:
        return np.asarray(self.numpy(x.astype(wide_dtype(x.dtype)), axis=axes[0])).astype(index_dtype)

    def lower(self, ctx: Any, x: Any, *, axes: Any, index_dtype: Any) -> Any:
        if ctx.on_this_cpu and _is_long(ctx.in_types[0], axes[0]):
            return ctx.call(_in_two_steps(self, ctx.in_types[0], axes[0], ctx.out_types[0]), [x])[0]
        return ctx.via_jax(lambda x: getattr(jax.lax, self.name)(x, axes[0], index_dtype), x)[0]


# XLA:CPU does not vectorize a reduction over pairs: the extremum of integers of the same order, and the first
# position that has it, take 0.15 to 0.6 of the time (benchmarks/cliffs.md).
_LONG, _MANY = 32, 2**14  # numbers of which one is chosen, and numbers of all


def _is_long(t: ArrayType, axis: int) -> bool:
    return dtype_class(t.dtype) == "float" and t.shape[axis] >= _LONG and t.size >= _MANY


@cached("positions of extrema", 256)
def _in_two_steps(arg: Arg, t: ArrayType, axis: int, out: ArrayType) -> Program:
    """Return the program of the first position of an extremum, or of NaN."""

    def positions(x: Any) -> list[Any]:
        bits = ordered_bits(one_zero(x if arg is argmax else ew.neg(x)))
        best = shapes.broadcast_to_axis(reduce_max(bits, axes=(axis,)), axis, t.shape[axis])
        at = iota(dtype=np.dtype(np.int32), shape=t.shape, dimension=axis)
        first = reduce_min(select_n(ew.eq(bits, best), ew.full_like(at, t.shape[axis]), at), axes=(axis,))
        return [cast(first, out.dtype)]

    return stage(positions, [t], arg.name)


argmax: Arg = Arg("argmax")
argmin: Arg = Arg("argmin")


# --- softmax --------------------------------------------------------------------------------------


class Softmax(Primitive):
    """exp(x) / sum(exp(x)) over axes, without overflow.

    It is one primitive for transformations, because its derivative, `y * (dx - sum(y * dx))`, needs
    only the result, while that of its parts also stores the exponentials. Before lowering it is
    expanded (passes/inlining.py), so that other passes see the parts together with the surrounding
    equations.
    """

    in_kernel = True
    name = "softmax"
    takes: tuple[str, ...] = ew.FLOATS
    axis_params: tuple[str, ...] = ("axes",)

    def abstract_eval(self, x: ArrayType, *, axes: Axes) -> ArrayType:
        return x

    def reference(self, x: Any, *, axes: Axes) -> Any:
        wide = x.astype(wide_dtype(x.dtype))
        powers = np.exp(wide - np.max(wide, axis=axes, keepdims=True, initial=-np.inf))
        return (powers / np.sum(powers, axis=axes, keepdims=True)).astype(x.dtype)

    def parts(self, x: ArrayType, *, axes: Axes) -> Program:
        """Return the operations that it expands to."""
        return _softmax_parts(x, axes)

    def lower(self, ctx: Any, x: Any, *, axes: Axes) -> Any:
        return ctx.emit(_softmax_parts(ctx.in_types[0], axes), [x])[0]

    def jvp(self, primals: Any, tangents: Any, out: Any, *, axes: Axes) -> Any:
        dx, t = tangents[0], typeof(out)
        total = reduce_sum(ew.mul(out, dx), axes=axes)
        mean = shapes.broadcast_in_dim(total, shape=t.shape, dimensions=shapes.kept_axes(t.ndim, axes))
        return ew.mul(out, ew.sub(dx, mean))

    def cost(self, in_types: Any, out_types: Any, *, axes: Axes) -> Cost:
        inner = map(own_cost, _softmax_parts(in_types[0], axes).equations)
        return Cost(sum(c.flops for c in inner), bytes_of(*in_types, *out_types))


@cached("programs of softmax", 1024)
def _softmax_parts(t: ArrayType, axes: Axes) -> Program:
    kept = shapes.kept_axes(t.ndim, axes)
    wide = wide_dtype(t.dtype)

    def repeated(x: Any) -> Any:
        return shapes.broadcast_in_dim(x, shape=t.shape, dimensions=kept)

    def run(x: Any) -> list[Any]:
        powers = exp(ew.sub(x, repeated(reduce_max(x, axes=axes))))
        if wide == t.dtype:
            return [ew.div(powers, repeated(reduce_sum(powers, axes=axes)))]
        total = reduce_sum(convert_element_type(powers, dtype=wide), axes=axes)
        return [ew.div(powers, repeated(convert_element_type(total, dtype=t.dtype)))]

    return stage(run, [t], "softmax")


softmax: Softmax = Softmax()
