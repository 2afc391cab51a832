"""Other forms of convolutions, where XLA's are slow.

On CPUs: grouped ones, which XLA computes element by element, and those with few terms, or with windows
of one element or one position (`benchmarks/cliffs.md`). On GPUs: kernel gradients of examples, which are
grouped convolutions with few positions; the library takes 3 to 10 times as long for them on an H100. Axes
have names, as in primitives/contractions/convolution.py. The forms are JAX functions of the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.contractions.convolution import is_group

Params = dict[str, Any]  # of a convolution
Names = Sequence[int]

# The largest number of terms of an element of the result, in a grouped convolution and in another.
_SHIFTED, _SHIFTED_WHOLE = 49, 27
# The same if products would do, for results with more terms in all.
_ALWAYS_SHIFTED, _WORK = 16, 2**23
# The largest number of elements of the result for each feature of a group: as sums, as products.
_SUMS, _PRODUCTS = 49, 32
# Matrix products are faster only if there are many, and each has enough results.
_GROUPS, _RESULTS = 8, 16
# The largest number of bytes of all parts of the input that the positions of the result meet.
_PATCHES = 2**30


def faster(ctx: Any, axes: Params, precision: Any) -> tuple[Callable[..., jax.Array] | None, bool]:
    """Return a function `(x, y) -> result` that is faster than XLA's convolution on this platform, or None;
    and whether it must not be fused with what reads it."""
    (x, y), (out,) = ctx.in_types, ctx.out_types
    if ctx.platform == "cpu":
        return on_cpu(x, y, out, axes)
    return on_gpu(x, y, out, axes, precision) if ctx.platform == "gpu" else None, False


def on_cpu(
    x: ArrayType, y: ArrayType, t: ArrayType, axes: Params
) -> tuple[Callable[..., jax.Array] | None, bool]:
    """Return what `faster` does, on a CPU."""
    if dtype_class(t.dtype) != "float" or t.dtype.itemsize < 4:
        return None, False
    size, kernel, result = _sizes(x, y, t, axes)
    sizes = [result[n] for n in axes["spatial"]]
    window, places = prod([kernel[n] for n in axes["spatial"]]), prod(sizes)
    groups = _groups(result, axes)
    summed = prod([n for name, n in size.items() if name in kernel and name not in result])
    few, wide = places <= min(_SUMS, window), t.size >= _RESULTS * places * groups
    are_products = few and wide and groups >= _GROUPS and places <= _PRODUCTS
    are_products = are_products and set(axes["lhs_dilation"]) == {1}
    terms = window * summed
    much = are_products and terms > _ALWAYS_SHIFTED and terms * t.size > _WORK
    if 1 < terms <= (_SHIFTED if groups > 1 else _SHIFTED_WHOLE) and not much:
        return lambda x, y: by_shifts(x, y, sizes, axes), True
    if groups == 1 and _is_contraction(size, kernel, axes):
        return lambda x, y: by_contraction(x, y, axes), False
    if few and not wide:
        return lambda x, y: by_sums(x, y, sizes, axes), True
    return (lambda x, y: by_products(x, y, sizes, axes)) if are_products else None, False


def on_gpu(
    x: ArrayType, y: ArrayType, t: ArrayType, axes: Params, precision: Any
) -> Callable[..., jax.Array] | None:
    """Return the function that `faster` does, on a GPU."""
    if dtype_class(t.dtype) != "float" or set(axes["lhs_dilation"]) != {1}:
        return None
    size, _, result = _sizes(x, y, t, axes)
    sizes = [result[n] for n in axes["spatial"]]
    places, groups = prod(sizes), _groups(result, axes)
    if groups < _GROUPS or not 1 < places <= _SUMS or t.size < _RESULTS * places * groups:
        return None
    met = prod([y.shape[axes["rhs"].index(n)] for n in axes["spatial"]])
    kept = prod([n for name, n in size.items() if name not in axes["spatial"]])
    if places * met * kept * x.dtype.itemsize > _PATCHES:
        return None
    pair = precision.__class__ is tuple  # presets of algorithms are for matrix products only
    exact = tuple([jax.lax.Precision[name] for name in precision]) if pair else None
    return lambda x, y: by_patches(x, y, sizes, axes, exact)


def _sizes(x: ArrayType, y: ArrayType, t: ArrayType, axes: Params) -> list[dict[int, int]]:
    """Return the size of each axis in the first operand, the second, and the result."""
    sides = (("lhs", x), ("rhs", y), ("out", t))
    return [dict(zip(axes[side], value.shape, strict=True)) for side, value in sides]


def _groups(result: dict[int, int], axes: Params) -> int:
    return prod([n for name, n in result.items() if is_group(axes, name)])


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
    groups, sums, kept, others = _roles(axes)
    numbers = _numbers(axes["lhs"], axes["rhs"], sums, groups)
    rows = [jax.lax.dot_general(part, y, numbers) for part in _met(_padded(x, axes), y, sizes, axes)]
    return _joined(jax.numpy.stack(rows), sizes, [*groups, *kept, *others], axes)


def by_patches(
    x: jax.Array, y: jax.Array, sizes: Sequence[int], axes: Params, precision: Any = None
) -> jax.Array:
    """Compute the same by a single `dot_general`, from copies of what the positions meet."""
    groups, sums, kept, others = _roles(axes)
    names, place = [*groups, *sums, *kept], -1
    met = [_arranged(part, axes["lhs"], names) for part in _met(_padded(x, axes), y, sizes, axes)]
    at = len(groups) + len(sums)
    patches = jax.numpy.stack(met, at)
    names.insert(at, place)
    numbers = _numbers(names, axes["rhs"], sums, groups)
    made = jax.lax.dot_general(patches, y, numbers, precision=precision)
    return _joined(jax.numpy.moveaxis(made, len(groups), 0), sizes, [*groups, *kept, *others], axes)


def _roles(axes: Params) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the axes of groups, those that are summed, and those that only one operand has."""
    lhs, rhs, out, spatial = (list(axes[name]) for name in ("lhs", "rhs", "out", "spatial"))
    sums = [n for n in lhs if n in rhs and (n in spatial or n not in out)]
    groups = [n for n in lhs if n in rhs and n not in sums]
    return groups, sums, _without(lhs, rhs), _without(rhs, lhs)


def _numbers(lhs: Names, rhs: Names, sums: Names, groups: Names) -> Any:
    """Return the dimension numbers of a `dot_general`."""
    return tuple(([lhs.index(n) for n in ns], [rhs.index(n) for n in ns]) for ns in (sums, groups))


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
