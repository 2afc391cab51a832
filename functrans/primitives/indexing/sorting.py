"""Sorting along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans.caching import cached
from functrans.ir.program import Program
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Cost, Params, Primitive, Values, bytes_of
from functrans.primitives.elementwise import conversion
from functrans.primitives.elementwise.bitwise import or_, shift_left
from functrans.primitives.elementwise.families import ORDERED, full_like
from functrans.primitives.indexing.gather import gather
from functrans.primitives.reductions.folds import wide_dtype
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import reshape
from functrans.trace import stage, typeof


class Sort(Primitive):
    """Sort along `dimension` by the first `num_keys` operands, major key first; the others are
    permuted along. NaN comes last, -0.0 equals 0.0, complex numbers are ordered by their parts."""

    name: str = "sort"
    multiple_results: bool = True
    axis_params: tuple[str, ...] = ("dimension",)

    def abstract_eval(
        self, *xs: ArrayType, dimension: int, is_stable: bool, num_keys: int
    ) -> Sequence[ArrayType]:
        if not 1 <= num_keys <= len(xs):
            raise self.mismatch(xs, f"num_keys {num_keys} must lie in 1..{len(xs)}")
        if any(x.shape != xs[0].shape for x in xs):
            raise self.mismatch(xs, "operands must have equal shapes")
        if any(dtype_class(x.dtype) == "key" for x in xs):
            raise self.mismatch(xs, "random keys have no order", "Sort their jax.random.key_data.")
        return xs

    def reference(self, *xs: Any, dimension: int, is_stable: bool, num_keys: int) -> Any:
        keys: list[Any] = []
        for x in xs[:num_keys]:
            parts = [x.real, x.imag] if x.dtype.kind == "c" else [x.astype(wide_dtype(x.dtype))]
            keys.extend(parts)
        order = np.lexsort(keys[::-1], axis=dimension)
        return [np.take_along_axis(x, order, dimension) for x in xs]

    def lower(self, ctx: Any, *xs: Any, dimension: int, is_stable: bool, num_keys: int) -> Any:
        if ctx.on_this_cpu and _is_by_bits(ctx.in_types, dimension, num_keys):
            return ctx.call(_by_bits(tuple(ctx.in_types), dimension), xs)

        def run(*xs: jax.Array) -> Any:
            return jax.lax.sort(xs, dimension=dimension, is_stable=is_stable, num_keys=num_keys)

        return ctx.via_jax(run, *xs)

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> Any:
        """Sort the positions too, and gather the tangents by them."""
        axis, shape = params["dimension"], typeof(primals[0]).shape
        positions = iota(dtype=np.dtype(np.int32), shape=shape, dimension=axis)
        *outs, order = t.bind_primal(self, (*primals, positions), params)
        return outs, [None if dx is None else take_along(dx, order, axis) for dx in tangents]

    def cost(self, in_types: Any, out_types: Any, *, dimension: int, **params: Any) -> Cost:
        steps = max(1, in_types[0].shape[dimension]).bit_length()
        return Cost(in_types[0].size * steps, bytes_of(*in_types, *out_types))


# --- on a CPU -------------------------------------------------------------------------------------
#
# XLA:CPU calls a comparison for each pair of numbers, except to sort one array of integers: that takes a
# fifth of the time. Floats become integers of the same order, with the positions as low bits if there are
# other operands (benchmarks/cliffs.md).

_MANY = 1024  # elements; the sort of fewer takes no longer than starting more operations
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


def _is_by_bits(types: Sequence[ArrayType], dimension: int, num_keys: int) -> bool:
    """Return whether it is the sort of an array of floats, or by one key of at most 32 bits along the last
    axis: the other operands are gathered, along other axes slowly."""
    key, is_alone = types[0], len(types) == 1
    if key.size < _MANY or num_keys > 1:
        return False
    if key.dtype.name == "float64":
        return is_alone
    if key.dtype.name == "uint32":  # random bits, by which `permutation` sorts
        return not is_alone and dimension == key.ndim - 1
    is_short = key.dtype.name in ("float16", "bfloat16", "float32")
    return is_short and (is_alone or dimension == key.ndim - 1)


@cached("sorts by bits", 256)
def _by_bits(types: tuple[ArrayType, ...], dimension: int) -> Program:
    """Return the program that sorts by the first operand, as integers."""
    how = {"dimension": dimension, "is_stable": False, "num_keys": 1}

    def alone(x: Any) -> list[Any]:
        (bits,) = sort(conversion.ordered_bits(x), **how)
        return [conversion.bitcast_convert_type(conversion.flipped(bits), dtype=typeof(x).dtype)]

    def together(*xs: Any) -> list[Any]:
        key = conversion.ordered_bits(conversion.one_zero(xs[0]))
        at = iota(dtype=_INT64, shape=typeof(key).shape, dimension=dimension)
        key = shift_left(conversion.cast(key, _INT64), full_like(at, 32))
        (packed,) = sort(or_(key, at), **how)
        order = conversion.cast(packed, _INT32)  # the low bits
        return [take_along(x, order, dimension) for x in xs]

    return stage(alone if len(types) == 1 else together, types, "sorted")


def take_along(x: Any, order: Any, axis: int) -> Any:
    """Return the elements of x at the positions `order`, all in range, along an axis."""
    shape = typeof(order).shape
    names = tuple(range(len(shape)))
    taken = tuple([len(names) if i == axis else i for i in names])
    return gather(
        x,
        reshape(order, shape=(*shape, 1)),
        operand=names,
        indices=taken,
        slices=taken,
        indexed=(axis,),
        sizes=(1,) * len(shape),
        mode="promise_in_bounds",
        unique_indices=True,
    )


def _total_order(x: np.ndarray) -> np.ndarray:
    """Map floats to integers in XLA's total order: -NaN, -inf, ..., -0.0, 0.0, ..., inf, NaN."""
    if dtype_class(x.dtype) != "float":
        return x
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


class TopK(Primitive):
    """The `k` largest elements along `axis` in descending order, and their positions (int32). Ties
    are in order of position. Floats are in total order: NaN is the largest, 0.0 > -0.0."""

    name: str = "top_k"
    multiple_results: bool = True
    axis_params: tuple[str, ...] = ("axis",)
    takes: tuple[str, ...] = ORDERED

    def abstract_eval(self, x: ArrayType, *, k: int, axis: int) -> Sequence[ArrayType]:
        if not 0 <= k <= x.shape[axis]:
            raise self.mismatch((x,), f"k = {k} must lie in 0..{x.shape[axis]}, the size of the axis")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return x.update(shape=shape), x.update(shape=shape, dtype=np.dtype(np.int32))

    def reference(self, x: Any, *, k: int, axis: int) -> Any:
        backwards = np.flip(_total_order(x), axis)
        ascending = np.argsort(backwards, axis, kind="stable")  # ties in reverse order of position
        order = x.shape[axis] - 1 - np.flip(ascending, axis)
        order = np.take(order, np.arange(k), axis)
        return [np.take_along_axis(x, order, axis), order.astype(np.int32)]

    def lower(self, ctx: Any, x: Any, *, k: int, axis: int) -> Any:
        return ctx.via_jax(lambda x: jax.lax.top_k(x, k, axis=axis), x)

    def jvp(self, primals: Any, tangents: Any, out: Any, **how: Any) -> Any:
        return take_along(tangents[0], out[1], how["axis"]), None

    def cost(self, in_types: Any, out_types: Any, *, k: int, **how: Any) -> Cost:
        return Cost(in_types[0].size * max(1, k).bit_length(), bytes_of(*in_types, *out_types))


sort: Sort = Sort()
top_k: TopK = TopK()
