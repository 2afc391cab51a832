"""Faster equivalents of operations that XLA:CPU compiles poorly.

Measured in `benchmarks/cliffs.md`. Each form is used only where it is clearly faster. Those of
convolutions are in `convolutions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo, ir
from functrans.passes.kernel_expansions import SHORT

# XLA:CPU vectorizes a reduction up to this many bytes of consecutive results; above, it computes
# one result at a time with strided reads.
_VECTORIZED = 64 * 1024
# Halving steps that XLA fuses into one pass over memory: 16 rows are read, one is written.
_FUSED = 4
# XLA:CPU calls a library for sums and extrema of operands of at least this many elements. Sums of up to
# `SHORT` numbers, and extrema of up to so many, are 2 to 40 times slower there.
_REDUCED, _SHORT_EXTREMUM = 4096, 8
# Sums over leading axes of at least so many elements, as over a batch, are not since JAX 0.12: the library
# takes 0.2 to 1.1 of a loop's time, least where the loop would read against the layout.
_BATCH = 8 if jax.__version_info__ >= (0, 12) else 2**62
# Matrices above this many bytes do not stay in cache when they are read against their layout.
_FAR = 4 * 1024 * 1024
_LINE = 64  # bytes of a cache line
_NARROW = 512  # rows or columns; below, the form is not faster
# Elements of a transposed operand from which on a copy of its own is faster than XLA's fusion with what
# computes the operand.
_COPIED = 2**17
# The gradient of max pooling with windows of up to this many elements, along two axes, is a scalar
# loop, 1.2 to 25 times slower than sums over the window elements.
_WINDOW = 9


def folds_long_rows(t: ArrayType, axes: Sequence[int]) -> tuple[int, int, int] | None:
    """Return `(before, rows, after)` for a float reduction `[before, rows, after] -> [before,
    after]` with long rows, else None. These are 2 to 100 times slower than `by_halves`; integer
    reductions are not."""
    if dtype_class(t.dtype) != "float" or t.size == 0:
        return None
    folded = [i for i in axes if t.shape[i] != 1]
    if not folded:
        return None
    first, last = min(folded), max(folded)
    before, after = prod(t.shape[:first]), prod(t.shape[last + 1 :])
    rows = prod(t.shape[first : last + 1])
    scattered = rows != prod([t.shape[i] for i in folded])
    if scattered or after * max(4, t.dtype.itemsize) <= _VECTORIZED:  # small floats become float32
        return None
    return before, rows, after


def by_halves(
    op: Callable[..., Any], x: Any, sizes: tuple[int, int, int], result: ir.RankedTensorType
) -> Any:
    """Reduce the middle of three axes: combine the first half of the rows with the second, and
    repeat. Each step reads memory contiguously, and sums are as accurate as pairwise summation.

        x0 x1 x2 x3 x4 x5 x6   ->   x0x3 x1x4 x2x5 | x6   ->   x0x3x1x4 | x2x5 x6   ->   ...

    The row left over from an odd number is added at the end. Small floats are reduced in float32.
    """
    before, rows, after = sizes
    element = result.element_type
    small = ir.FloatType(element).width < 32
    if small:
        element = ir.F32Type.get()
        x = hlo.convert(ir.RankedTensorType.get(x.type.shape, element), x)
    y: Any = hlo.reshape(ir.RankedTensorType.get(sizes, element), x)

    def part(start: int, limit: int) -> Any:
        return hlo.slice(y, [0, start, 0], [before, limit, after], [1, 1, 1])

    waiting = []
    step = 0
    while rows > 1:
        half = rows // 2
        if rows % 2:
            waiting.append(part(rows - 1, rows))
        y = op(part(0, half), part(half, 2 * half)).result
        rows = half
        step += 1
        if step % _FUSED == 0 and rows > 1:
            y = hlo.optimization_barrier([y])
    for row in waiting:
        y = op(y, row).result
    if small:
        y = hlo.convert(ir.RankedTensorType.get(y.type.shape, result.element_type), y)
    return hlo.reshape(result, y)


def unmatched(op: Callable[..., Any], t: ArrayType, axes: Sequence[int]) -> Callable[..., Any]:
    """Return an operation with the same results that XLA:CPU does not offload to its library, for a
    float reduction of few elements; otherwise return `op`."""
    if dtype_class(t.dtype) != "float" or t.dtype.itemsize < 4 or t.size < _REDUCED:
        return op
    elements = prod([t.shape[i] for i in axes])
    leading = set(axes) == set(range(len(axes))) and len(axes) < t.ndim
    if leading and elements >= _BATCH:
        return op
    if op is hlo.AddOp and elements <= SHORT:
        return lambda x, y: hlo.SubtractOp(x, hlo.negate(y))
    if op in _OPPOSITE and elements <= _SHORT_EXTREMUM:
        return lambda x, y: hlo.NegOp(_OPPOSITE[op](hlo.negate(x), hlo.negate(y)))
    return op


_OPPOSITE: dict[Any, Any] = {hlo.MaxOp: hlo.MinOp, hlo.MinOp: hlo.MaxOp}


def crosses(x: ArrayType, lhs: Sequence[int], rhs: Sequence[int], out: Sequence[int]) -> bool:
    """Return whether a contraction multiplies a large matrix elementwise with the transpose of
    another and sums. XLA:CPU transposes first, which is two to three times slower than `crossed`.
    """
    if len(lhs) != 2 or len(out) > 1 or list(lhs) != list(reversed(rhs)):
        return False
    if dtype_class(x.dtype) != "float" or min(x.shape) < _NARROW:
        return False
    return x.dtype.itemsize >= 4 and x.size * x.dtype.itemsize > _FAR


def crossed(x: jax.Array, y: jax.Array) -> jax.Array:
    """Compute `sum_j x[i, j] y[j, i]` for each i. Each step takes as many rows of x as columns of y
    fit in a cache line, in two interleaved halves, to have two loads in flight."""
    n, width = x.shape[0], _LINE // x.dtype.itemsize
    half = n // 2 - n // 2 % width

    def block(start: Any, rows: int) -> jax.Array:
        a = jax.lax.dynamic_slice_in_dim(x, start, rows, 0)
        b = jax.lax.dynamic_slice_in_dim(y, start, rows, 1)
        return jax.numpy.sum(a.T * b, axis=0)

    starts = jax.numpy.arange(0, half, width)
    made = jax.lax.map(lambda i: [block(i, width), block(i + half, width)], starts)
    rest = block(2 * half, n - 2 * half)
    return jax.numpy.concatenate([*[part.reshape(half) for part in made], rest])


def constants_of(dtype: np.dtype, *values: Any) -> list[np.ndarray] | None:
    """Return the numbers of constants, or None if one is no constant, or not of integers."""
    if dtype.kind not in "iu" or any([getattr(x.owner, "name", "") != "stablehlo.constant" for x in values]):
        return None
    return [np.array(ir.DenseIntElementsAttr(x.owner.attributes["value"])) for x in values]


def part(x: Any, axis: int, i: int) -> Any:
    """Return x at one index along an axis."""
    shape = list(x.type.shape)
    if shape[axis] > 1:
        start, limit = [0] * len(shape), list(shape)
        start[axis], limit[axis] = i, i + 1
        x = hlo.slice(x, start, limit, [1] * len(shape))
    del shape[axis]
    return hlo.reshape(ir.RankedTensorType.get(shape, x.type.element_type), x)


def has_small_windows(sizes: Sequence[int]) -> bool:
    """Return whether sums over the elements of such windows are faster than XLA:CPU's scatter."""
    return prod(sizes) <= _WINDOW and sum([n > 1 for n in sizes]) <= 2


def is_copied(kind: ir.RankedTensorType) -> bool:
    """Return whether a transposed operand of a convolution is a copy of its own."""
    return prod(kind.shape) >= _COPIED and isinstance(kind.element_type, ir.FloatType)
