"""Faster equivalents of operations that XLA:CPU compiles poorly.

Measured in `benchmarks/cliffs.md`. Each form is used only where it is clearly faster. Those of
convolutions are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo, ir
from functrans.primitives.contractions.convolution import is_group

# XLA:CPU vectorizes a reduction up to this many bytes of consecutive results; above, it computes
# one result at a time with strided reads.
_VECTORIZED = 64 * 1024
# Halving steps that XLA fuses into one pass over memory: 16 rows are read, one is written.
_FUSED = 4
# XLA:CPU calls a library for sums and extrema of operands of at least this many elements. Those of up
# to so many numbers are 2 to 40 times slower there.
_REDUCED, _SHORT_SUM, _SHORT_EXTREMUM = 4096, 16, 8
# Matrices above this many bytes do not stay in cache when they are read against their layout.
_FAR = 4 * 1024 * 1024
_LINE = 64  # bytes of a cache line
_NARROW = 512  # rows or columns; below, the form is not faster
# XLA:CPU calls a library for matrix products with at most this many terms per sum and this many
# columns in the result; that is 2 to 50 times slower than a loop, batched or not.
_TERMS, _TERMS_IN_STACKS, _COLUMNS = 6, 7, 8
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
    integers = ir.DenseI64ArrayAttr.get

    def part(start: int, limit: int) -> Any:
        one = integers([1, 1, 1])
        return hlo.slice(y, integers([0, start, 0]), integers([before, limit, after]), one)

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
    if op is hlo.AddOp and elements <= _SHORT_SUM:
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


def crossed_sum(x: jax.Array, y: jax.Array) -> jax.Array:
    """Compute `sum_ij x[i, j] y[j, i]`."""
    return jax.numpy.sum(crossed(x, y))


def has_few_terms(
    x: ArrayType, y: ArrayType, lhs: Sequence[int], rhs: Sequence[int], out: Sequence[int]
) -> bool:
    """Return whether this is a product with a small matrix, such as points times a rotation."""
    if dtype_class(x.dtype) != "float" or x.dtype.itemsize < 4:
        return False
    size = dict(zip((*lhs, *rhs), (*x.shape, *y.shape), strict=True))
    summed = [n for n in lhs if n in rhs and n not in out]
    most = _TERMS_IN_STACKS if any([n in lhs and n in rhs for n in out]) else _TERMS
    if len(summed) != 1 or not 2 <= size[summed[0]] <= most:
        return False
    of_x, of_y = (
        prod([size[n] for n in axes if n not in others]) for axes, others in ((lhs, rhs), (rhs, lhs))
    )
    columns, rows = (of_x, of_y) if out and out[-1] not in rhs else (of_y, of_x)
    return rows > 1 and 1 < columns <= _COLUMNS


def part(x: Any, axis: int, i: int) -> Any:
    """Return x at one index along an axis."""
    shape, integers = list(x.type.shape), ir.DenseI64ArrayAttr.get
    start, limit = [0] * len(shape), list(shape)
    start[axis], limit[axis] = i, i + 1
    row = hlo.slice(x, integers(start), integers(limit), integers([1] * len(shape)))
    del shape[axis]
    return hlo.reshape(ir.RankedTensorType.get(shape, x.type.element_type), row)


def has_small_windows(sizes: Sequence[int]) -> bool:
    """Return whether sums over the elements of such windows are faster than XLA:CPU's scatter."""
    return prod(sizes) <= _WINDOW and sum([n > 1 for n in sizes]) <= 2


# --- convolutions ---------------------------------------------------------------------------------
#
# Grouped ones, which XLA computes element by element, and those with few terms, or with windows of
# one element or one position. Axes have names, as in primitives/contractions/convolution.py. The
# equivalents are JAX functions of the operands.

Params = dict[str, Any]  # of a convolution
Names = Sequence[int]

# The largest number of terms of an element of the result, in a grouped convolution and in another.
_SHIFTED, _SHIFTED_WHOLE = 49, 27
# The largest number of elements of the result for each feature of a group: as sums, as products.
_SUMS, _PRODUCTS = 49, 32
# Matrix products are faster only if there are many, and each has enough results.
_GROUPS, _RESULTS = 8, 16
# Elements of a transposed operand from which on a copy of its own is faster than XLA's fusion with what
# computes the operand.
_COPIED = 2**17


def faster_convolution(
    x: ArrayType, y: ArrayType, t: ArrayType, axes: Params
) -> tuple[Callable[..., jax.Array] | None, bool]:
    """Return a function `(x, y) -> result` that is faster than XLA:CPU's convolution, or None; and
    whether it must not be fused with what reads it."""
    if dtype_class(t.dtype) != "float" or t.dtype.itemsize < 4:
        return None, False
    size, kernel, result = (
        dict(zip(axes[side], value.shape, strict=True))
        for side, value in (("lhs", x), ("rhs", y), ("out", t))
    )
    sizes = [result[n] for n in axes["spatial"]]
    window, places = prod([kernel[n] for n in axes["spatial"]]), prod(sizes)
    groups = prod([n for name, n in result.items() if is_group(axes, name)])
    summed = prod([n for name, n in size.items() if name in kernel and name not in result])
    if 1 < window * summed <= (_SHIFTED if groups > 1 else _SHIFTED_WHOLE):
        return lambda x, y: by_shifts(x, y, sizes, axes), True
    if groups == 1 and _is_contraction(size, kernel, axes):
        return lambda x, y: by_contraction(x, y, axes), False
    if places > min(_SUMS, window):
        return None, False
    if t.size < _RESULTS * places * groups:
        return lambda x, y: by_sums(x, y, sizes, axes), True
    if groups >= _GROUPS and places <= _PRODUCTS and set(axes["lhs_dilation"]) == {1}:
        return lambda x, y: by_products(x, y, sizes, axes), False
    return None, False


def is_copied(kind: ir.RankedTensorType) -> bool:
    """Return whether a transposed operand of a convolution is a copy of its own."""
    return prod(kind.shape) >= _COPIED and isinstance(kind.element_type, ir.FloatType)


def _is_contraction(size: dict[int, int], kernel: dict[int, int], axes: Params) -> bool:
    """Return whether the windows have one position, or one element, and nothing is left out."""
    moved = {*axes["strides"], *axes["lhs_dilation"], *axes["rhs_dilation"]} != {1}
    padded = any([edge for edges in axes["padding"] for edge in edges])
    if moved or padded:
        return False
    one = all([kernel[n] == 1 for n in axes["spatial"]])
    return one or all([kernel[n] == size[n] for n in axes["spatial"]])


def by_contraction(x: jax.Array, y: jax.Array, axes: Params) -> jax.Array:
    """Compute a convolution with one element in the kernel along each spatial axis, or with one
    position in the result, as a matrix product."""
    lhs, rhs, out, spatial = (axes[name] for name in ("lhs", "rhs", "out", "spatial"))
    one = all([y.shape[rhs.index(n)] == 1 for n in spatial])
    if one:  # the spatial axes are the first operand's
        y, rhs = _arranged(y, rhs, _without(rhs, spatial)), _without(rhs, spatial)
    sums = [n for n in lhs if n in rhs]
    numbers = ([lhs.index(n) for n in sums], [rhs.index(n) for n in sums])
    made = jax.lax.dot_general(x, y, (numbers, ((), ())))
    return _arranged(made, [*_without(lhs, sums), *_without(rhs, sums)], out)


def by_shifts(x: jax.Array, y: jax.Array, sizes: Sequence[int], axes: Params) -> jax.Array:
    """Compute a convolution with few terms, such as a depthwise one: add up, over the elements of
    the kernel for each channel, the shifted input times this element.

    sizes: the size of the result along each spatial axis
    """
    lhs, rhs, out, spatial = (axes[name] for name in ("lhs", "rhs", "out", "spatial"))
    kernel = [y.shape[rhs.index(n)] for n in spatial]
    features = [n for n in lhs if n in rhs and n not in out]
    inputs, factors = _split(x, lhs, features), _split(y, rhs, [*features, *spatial])
    lhs, rhs = (_without(names, features) for names in (lhs, rhs))
    axes = {**axes, "lhs": lhs}
    parts = [
        part
        for x in inputs
        for part in _parts(_padded(x, axes), axes, kernel, axes["rhs_dilation"], sizes, axes["strides"])
    ]
    terms = [
        _arranged(part, lhs, out) * _arranged(factor, _without(rhs, spatial), out)
        for part, factor in zip(parts, factors, strict=True)
    ]
    return sum(terms[1:], start=terms[0])


def by_sums(x: jax.Array, y: jax.Array, sizes: Sequence[int], axes: Params) -> jax.Array:
    """Compute a convolution with few positions in the result, such as the kernel gradient of a
    depthwise one: for each position the sum of the shifted input times the other operand, in two
    steps, of which the first is along a spatial axis. A loop over the positions along one axis
    takes less time to compile."""
    names = [*_without(axes["rhs"], axes["lhs"]), *axes["lhs"]]
    x, y = _arranged(x, axes["lhs"], names), _arranged(y, axes["rhs"], names)
    axes = {**axes, "lhs": names, "rhs": names}
    kept = [n for n in names if n in axes["out"] and n not in axes["spatial"]]
    summed = [i for i, n in enumerate(names) if n not in kept]
    strided = [i for i in summed if i < len(names) - 1] or summed  # along other axes than the last
    first = next((i for i in strided if names[i] in axes["spatial"]), strided[0])
    rest = [i - (i > first) for i in summed if i != first]
    x = _padded(x, axes)
    along, apart = names.index(axes["spatial"][0]), axes["strides"][0]
    span = (y.shape[along] - 1) * axes["rhs_dilation"][0] + 1

    def total(part: jax.Array) -> jax.Array:
        zero = np.zeros((), part.dtype)
        # A difference: a sum would call a library, which is slow for these; see cpu.unmatched.
        rows = jax.lax.reduce(part * y, zero, lambda x, y: x - (-y), (first,))
        return jax.numpy.sum(rows, axis=tuple(rest))

    def row(i: jax.Array) -> jax.Array:
        part = jax.lax.dynamic_slice_in_dim(x, i * apart, span, along)
        return jax.numpy.stack([total(p) for p in _met(part, y, [1, *sizes[1:]], axes)])

    rows = jax.lax.map(row, jax.numpy.arange(sizes[0]))
    return _joined(rows.reshape(-1, *rows.shape[2:]), sizes, kept, axes)


def by_products(x: jax.Array, y: jax.Array, sizes: Sequence[int], axes: Params) -> jax.Array:
    """Compute a convolution with few positions in the result, such as the kernel gradients of
    examples: one `dot_general` for each position."""
    lhs, rhs, out, spatial = (list(axes[name]) for name in ("lhs", "rhs", "out", "spatial"))
    sums = [n for n in lhs if n in rhs and (n in spatial or n not in out)]
    groups = [n for n in lhs if n in rhs and n not in sums]
    numbers = (
        ([lhs.index(n) for n in sums], [rhs.index(n) for n in sums]),
        ([lhs.index(n) for n in groups], [rhs.index(n) for n in groups]),
    )
    kept = [n for side in (lhs, rhs) for n in side if n not in sums and n not in groups]
    rows = [jax.lax.dot_general(part, y, numbers) for part in _met(_padded(x, axes), y, sizes, axes)]
    return _joined(jax.numpy.stack(rows), sizes, [*groups, *kept], axes)


# --- shifted parts of the input, and what is made of them -----------------------------------------


def _met(x: jax.Array, y: jax.Array, sizes: Sequence[int], axes: Params) -> Iterator[jax.Array]:
    """The elements of a padded x that y meets, for each position in the result."""
    kernel = [y.shape[axes["rhs"].index(n)] for n in axes["spatial"]]
    return _parts(x, axes, sizes, axes["strides"], kernel, axes["rhs_dilation"])


def _parts(
    x: jax.Array,
    axes: Params,
    places: Sequence[int],
    apart: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
) -> Iterator[jax.Array]:
    """For each index below `places`, yield a part of the padded x: along each spatial axis `sizes`
    elements, `steps` from each other, from `index * apart` on."""
    lhs, spatial = axes["lhs"], axes["spatial"]
    for place in np.ndindex(*places):
        start, limit, stride = [0] * len(lhs), list(x.shape), [1] * len(lhs)
        for n, at, far, size, step in zip(spatial, place, apart, sizes, steps, strict=True):
            i = lhs.index(n)
            start[i], stride[i] = at * far, step
            limit[i] = start[i] + (size - 1) * step + 1
        yield jax.lax.slice(x, start, limit, stride)


def _padded(x: jax.Array, axes: Params) -> jax.Array:
    """Return x with its padding, and with zeros between its elements."""
    edges = [(0, 0, 0)] * len(axes["lhs"])
    for n, (low, high), spread in zip(axes["spatial"], axes["padding"], axes["lhs_dilation"], strict=True):
        edges[axes["lhs"].index(n)] = (low, high, spread - 1)
    return jax.lax.pad(x, np.zeros((), x.dtype), edges)


def _arranged(x: jax.Array, names: Names, out: Names) -> jax.Array:
    """Return x with its axes in the order of `out`, with axes of size 1 for those that it lacks.
    Its axes that are not in `out` have size 1."""
    x = x.reshape([n for name, n in zip(names, x.shape, strict=True) if name in out])
    names = [n for n in names if n in out]
    x = jax.lax.transpose(x, [names.index(n) for n in out if n in names])
    return jax.lax.expand_dims(x, [i for i, n in enumerate(out) if n not in names])


def _split(x: jax.Array, names: Names, apart: Names) -> list[jax.Array]:
    """Return the parts of x at each index along the axes `apart`, without these axes."""
    x = jax.lax.transpose(x, [names.index(n) for n in (*apart, *_without(names, apart))])
    x = x.reshape(prod(x.shape[: len(apart)]), *x.shape[len(apart) :])
    return [jax.lax.index_in_dim(x, i, keepdims=False) for i in range(x.shape[0])]


def _without(names: Names, others: Names) -> list[int]:
    return [n for n in names if n not in others]


def _joined(rows: jax.Array, sizes: Sequence[int], names: Names, axes: Params) -> jax.Array:
    """Return the results of all positions, each with axes `names`, as the convolution's."""
    made = rows.reshape(*sizes, *rows.shape[1:])
    return _arranged(made, [*axes["spatial"], *names], axes["out"])
