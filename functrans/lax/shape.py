"""`jax.lax` names over primitives/shape.py and primitives/joining.py."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.lax.arguments import (
    as_array,
    axis_index,
    check_sizes,
    integer,
    integers,
    invalid,
    not_a_permutation,
    sizes_of,
)
from functrans.primitives import joining as _joining
from functrans.primitives import shape as _shape
from functrans.trace import literal, typeof
from functrans.typing import Array, ArrayLike, Device, Shape

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcast_shapes", "broadcast_to_rank",
    "collapse", "concat", "concatenate", "expand_dims", 
    "index_in_dim", "pad", "reshape", "rev", "slice", "slice_in_dim", "split",
    "squeeze", "transpose",
]  # fmt: skip


# --- moving ---------------------------------------------------------------------------------------


def transpose(operand: ArrayLike, permutation: Sequence[int] | np.ndarray) -> Array:
    """Permute axes: axis i of the result is axis `permutation[i]` of the operand.

    Source: `jax.lax.transpose`.

    >>> transpose(np.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    x = as_array(operand)
    if np.ndim(permutation) != 1:
        raise not_a_permutation("transpose", permutation, typeof(x))
    order = sizes_of(permutation)
    return x if order == tuple(range(x.ndim)) and not _is_numpy(x) else _shape.transpose(
        x, permutation=order
    )  # fmt: skip


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Reverse the order of the elements along axes.

    Source: `jax.lax.rev`.

    >>> print(rev(np.arange(3), (0,)))
    [2 1 0]
    """
    return _shape.rev(as_array(operand), dimensions=integers(dimensions, "rev", "dimensions"))


def reshape(
    operand: ArrayLike,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: Device = None,
) -> Array:
    """Give the elements another shape; axes are first permuted by `dimensions` where that is given.

    Source: `jax.lax.reshape`. A size of -1 is not taken: see `functrans.numpy.reshape`.

    >>> reshape(np.arange(6), (2, 3)).shape
    (2, 3)
    """
    x, shape = as_array(operand), sizes_of(new_sizes)
    if dimensions is not None and tuple(dimensions) != tuple(range(len(x.shape))):
        x = transpose(x, dimensions)
    if shape == x.shape and not _is_numpy(x):
        return x
    return _shape.reshape(x, shape=shape)


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Make one axis of the axes from `start_dimension` up to, not including, `stop_dimension`.

    Source: `jax.lax.collapse`.

    >>> collapse(np.ones((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    shape = typeof(operand).shape
    low, high, _ = builtins.slice(start_dimension, stop_dimension).indices(len(shape))
    if high < low:
        raise invalid("collapse", f"start {start_dimension} lies behind stop {stop_dimension}")
    return reshape(operand, (*shape[:low], prod(shape[low:high]), *shape[high:]))


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Drop axes of size 1.

    Source: `jax.lax.squeeze`.

    >>> squeeze(np.ones((1, 3)), (0,)).shape
    (3,)
    """
    x = as_array(array)
    ndim = len(x.shape)
    axes = tuple([axis_index(d, ndim, "squeeze") for d in dimensions])
    if not axes and not _is_numpy(x):
        return x
    for d in axes:
        if x.shape[d] != 1:
            raise invalid("squeeze", f"axis {d} of shape {x.shape} has a size other than 1")
    return _shape.squeeze(x, dimensions=axes)


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Insert axes of size 1, which stand at `dimensions` of the result.

    Source: `jax.lax.expand_dims`.

    >>> expand_dims(np.ones(3), (0, -1)).shape
    (1, 3, 1)
    """
    x = as_array(array)
    ndim = len(x.shape) + len(dimensions)
    new = {axis_index(d, ndim, "expand_dims") for d in dimensions}
    if len(new) != len(dimensions):
        raise invalid("expand_dims", f"dimensions {dimensions} name one axis twice")
    sizes = iter(x.shape)
    shape = tuple([1 if i in new else next(sizes) for i in range(ndim)])
    kept = tuple([i for i in range(ndim) if i not in new])
    return _shape.broadcast_in_dim(x, shape=shape, dimensions=kept)


# --- repeating ------------------------------------------------------------------------------------


def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: Device = None) -> Array:
    """Repeat the operand along new leading axes.

    Source: `jax.lax.broadcast`.

    >>> broadcast(np.ones(3), (2,)).shape
    (2, 3)
    """
    x = as_array(operand)
    sizes = check_sizes(integers(sizes, "broadcast", "sizes"), "broadcast")
    if not sizes and not _is_numpy(x):
        return x
    n, shape = len(sizes), x.shape
    kept = tuple(range(n, n + len(shape)))
    return _shape.broadcast_in_dim(x, shape=(*sizes, *shape), dimensions=kept)


def broadcast_in_dim(
    operand: ArrayLike,
    shape: Shape,
    broadcast_dimensions: Sequence[int],
    *,
    out_sharding: Device = None,
) -> Array:
    """Repeat the operand to a shape in which its axis i stands at `broadcast_dimensions[i]`.

    Source: `jax.lax.broadcast_in_dim`. An axis of size 1 grows to the size of its place.

    >>> broadcast_in_dim(np.ones((3, 1)), (3, 2, 4), (0, 2)).shape
    (3, 2, 4)
    """
    x, shape = as_array(operand), sizes_of(shape)
    dimensions = integers(broadcast_dimensions, "broadcast_in_dim", "broadcast_dimensions")
    if shape == x.shape and not _is_numpy(x) and dimensions == tuple(range(len(shape))):
        return x
    grow = [
        i
        for i, (n, d) in enumerate(zip(x.shape, dimensions, strict=False))
        if n == 1 and 0 <= d < len(shape) and shape[d] != 1
    ]
    if grow and len(dimensions) == len(x.shape):
        x = _shape.squeeze(x, dimensions=tuple(grow))
        dimensions = tuple([d for i, d in enumerate(dimensions) if i not in grow])
    return _shape.broadcast_in_dim(x, shape=shape, dimensions=dimensions)


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """Insert leading axes of size 1 up to `rank` axes.

    Source: `jax.lax.broadcast_to_rank`.

    >>> broadcast_to_rank(np.ones(3), 3).shape
    (1, 1, 3)
    """
    return expand_dims(x, tuple(range(rank - typeof(x).ndim)))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which all of the given shapes can be broadcast.

    Source: `jax.lax.broadcast_shapes`.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    given = [check_sizes(sizes_of(shape), "broadcast_shapes") for shape in shapes]
    ndim = max(map(len, given), default=0)
    out = []
    for along in zip(*[(1,) * (ndim - len(s)) + s for s in given], strict=True):
        sizes = {n for n in along if n != 1}
        if len(sizes) > 1:
            raise invalid(
                "broadcast_shapes",
                f"Incompatible shapes for broadcasting: shapes={given}",
                "From the last axis on, sizes must be equal or 1.",
            )
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


# --- putting together and cutting -----------------------------------------------------------------


def concatenate(operands: Array | Sequence[ArrayLike], dimension: int) -> Array:
    """Put arrays one after the other along an axis.

    Source: `jax.lax.concatenate`.

    >>> concatenate([np.ones(2), np.zeros(3)], 0).shape
    (5,)
    """
    if len(operands) == 0:
        raise invalid("concatenate", "needs at least one operand")
    xs = [as_array(x) for x in operands]
    if len(xs) == 1 and not _is_numpy(xs[0]):
        return xs[0]
    return _joining.concatenate(*xs, dimension=integer(dimension, "concatenate", "dimension"))


concat = concatenate


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Cut an axis into consecutive parts of the given sizes.

    Source: `jax.lax.split`.

    >>> [part.shape for part in split(np.ones(5), (2, 3))]
    [(2,), (3,)]
    """
    x, sizes = as_array(operand), integers(sizes, "split", "sizes")
    axis = axis_index(axis, len(x.shape), "split")
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise invalid("split", f"sizes {sizes} must sum to the size of axis {axis} of {x.shape}")
    return _joining.split(x, sizes=sizes, axis=axis)


def pad(
    operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]
) -> Array:
    """Put `(low, high, interior)` copies of a scalar before, after and between the elements along
    each axis; negative low and high remove elements.

    Source: `jax.lax.pad`.

    >>> print(pad(np.array([1, 2]), 0, [(1, 2, 1)]))
    [0 1 0 2 0 0]
    """
    x, kind = as_array(operand), padding_value.__class__
    value = padding_value if kind in _SCALARS else as_array(padding_value)
    t = typeof(x)
    config = tuple([integers(along, "pad", "each padding") for along in padding_config])
    if kind in _SCALARS:
        value_type = typeof(value)
        if value_type.dtype != t.dtype:
            raise errors.TypeMismatch(
                f"pad: the padding value {value!r} is {value_type}, the operand {t}: they must "
                f"have the same dtype, at\n    {describe(user_source())}\nWrite it as a number of "
                f"that dtype, e.g. {t.dtype}(0)."
            )
        value = literal(value, value_type)
    if len(config) != len(t.shape) or any([len(along) != 3 for along in config]):
        raise invalid("pad", f"config {config} needs (low, high, interior) for each axis of {t}")
    for n, (low, high, inside) in zip(t.shape, config, strict=True):
        if inside < 0 or low + high + n + inside * max(0, n - 1) < 0:
            raise invalid("pad", f"config {config} removes more than {t} has")
    return _joining.pad(x, value, config=config)


def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """Elements `start, start + stride, ...` below `limit` along each axis.

    Source: `jax.lax.slice`.

    >>> print(slice(np.arange(10), (2,), (9,), (3,)))
    [2 5 8]
    """
    x, start = as_array(operand), integers(start_indices, "slice", "start_indices")
    limit = integers(limit_indices, "slice", "limit_indices")
    by = (1,) * len(start) if strides is None else integers(strides, "slice", "strides")
    return _shape.slice_(x, start=start, limit=limit, strides=by)


def slice_in_dim(
    operand: ArrayLike,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Array:
    """`slice` along one axis; None is the end, negative indices count from the end.

    Source: `jax.lax.slice_in_dim`.

    >>> print(slice_in_dim(np.arange(5), 1, -1))
    [1 2 3]
    """
    x = as_array(operand)
    ndim = len(x.shape)
    axis = axis_index(axis, ndim, "slice_in_dim")
    n = x.shape[axis]
    start = 0 if start_index is None else integer(start_index, "slice_in_dim", "start_index")
    limit = n if limit_index is None else integer(limit_index, "slice_in_dim", "limit_index")
    low, high, by = [0] * ndim, list(x.shape), [1] * ndim
    low[axis] = start + n if start < 0 else start
    high[axis] = limit + n if limit < 0 else limit
    by[axis] = integer(stride, "slice_in_dim", "stride")
    return _shape.slice_(x, start=tuple(low), limit=tuple(high), strides=tuple(by))


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The elements at one index of an axis, which stays with size 1 or is dropped.

    Source: `jax.lax.index_in_dim`.

    >>> index_in_dim(np.ones((2, 3)), -1, axis=1, keepdims=False).shape
    (2,)
    """
    x, at = as_array(operand), integer(index, "index_in_dim", "index")
    axis = axis_index(axis, len(x.shape), "index_in_dim")
    n = x.shape[axis]
    if not -n <= at < n:
        raise invalid(
            "index_in_dim", f"index {at} is out of bounds for axis {axis} with size {n}",
            f"Indices are {-n} ... {n - 1}.", errors.InvalidIndex,
        )  # fmt: skip
    at = at + n if at < 0 else at
    one = _shape.slice_axis(x, axis, at, at + 1)
    return one if keepdims else _shape.squeeze(one, dimensions=(axis,))


def _is_numpy(x: Any) -> bool:
    """Would handing x back as it is give the user a NumPy array?"""
    return isinstance(x, np.ndarray)


_SCALARS = frozenset([bool, int, float, complex])
