"""Functions of integers: divisors, bits packed into bytes, places in an array as one number."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import canonical_dtype, dtype_class
from functrans.lax.control_flow import while_loop
from functrans.numpy import prims
from functrans.numpy.arithmetic import floor_divide, remainder
from functrans.numpy.promotion import (
    BOOL,
    align,
    align_all,
    array_of,
    axis_index,
    cast,
    expand,
    invalid,
    mismatch,
    user_dtype,
)
from functrans.numpy.selecting import clip
from functrans.numpy.shaping import moveaxis, ravel
from functrans.primitives.call import composite
from functrans.trace import concrete_value, literal, materialize, typeof

__all__ = ["gcd", "lcm", "packbits", "ravel_multi_index", "unpackbits", "unravel_index"]

BYTE = np.dtype("uint8")


# --- divisors -------------------------------------------------------------------------------------


def _integers(x1: Any, x2: Any, name: str) -> tuple[Any, Any]:
    x1, x2 = array_of(x1, name), array_of(x2, name, 1)
    are_numbers = not (typeof(x1).shape or typeof(x2).shape)
    x1, x2 = align(x1, x2, name)
    dtype = typeof(x1).dtype
    if dtype_class(dtype) not in ("int", "uint"):
        raise invalid(name, f"takes integers, got {typeof(x1)} after promotion")
    # as in JAX, what has axes is not weak
    return (x1, x2) if are_numbers else (cast(x1, dtype), cast(x2, dtype))


def _size(x: Any) -> Any:
    return x if dtype_class(typeof(x).dtype) == "uint" else prims.abs_(x)


def _euclid(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """(a, b) -> (b, a mod b), where b is not zero yet."""
    a, b = pair
    zero = literal(0, typeof(b))
    going = prims.ne(b, zero)
    rest = prims.rem(a, prims.select_n(going, literal(1, typeof(b)), b))
    return prims.select_n(going, a, b), prims.select_n(going, zero, rest)


def _not_finished(pair: tuple[Any, Any]) -> Any:
    b = pair[1]
    going = prims.ne(b, literal(0, typeof(b)))
    return prims.reduce_or(going, axes=tuple(range(typeof(going).ndim)))


@composite
def gcd(x1: Any, x2: Any) -> Any:
    """The greatest common divisor, by Euclid's algorithm on all elements at once.

    Source: `jax.numpy.gcd`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.gcd(jnp.array([12, 18]), 8))
      [4 2]
    """
    x1, x2 = _integers(x1, x2, "gcd")
    pair = materialize(_size(x1)), materialize(_size(x2))
    return while_loop(_not_finished, _euclid, pair)[0]


@composite
def lcm(x1: Any, x2: Any) -> Any:
    """The least common multiple; 0 where one of them is 0.

    Source: `jax.numpy.lcm`.
    """
    x1, x2 = _integers(x1, x2, "lcm")
    x1, x2 = _size(x1), _size(x2)
    divisor = gcd(materialize(x1), materialize(x2))
    zero, one = literal(0, typeof(divisor)), literal(1, typeof(divisor))
    none = prims.eq(divisor, zero)
    rest = floor_divide(x2, prims.select_n(none, divisor, one))
    return prims.select_n(none, prims.mul(x1, rest), zero)


# --- bits -----------------------------------------------------------------------------------------


def _bit_shifts(bitorder: str, name: str) -> np.ndarray:
    """How far the bits of a byte are shifted, in their order."""
    if bitorder not in ("big", "little"):
        raise invalid(name, f"bitorder must be 'big' or 'little', got {bitorder!r}")
    shifts = np.arange(8, dtype=np.uint8)
    return shifts[::-1] if bitorder == "big" else shifts


@composite
def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Eight truth values to a byte, along an axis; of the flattened array if axis is None.

    Arguments:
      a: array of integers or booleans; missing ones at the end are zero bits.
      bitorder: "big", the first is the highest bit; "little", the lowest.

    Source: `jax.numpy.packbits`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.packbits(jnp.array([1, 0, 1])))
      [160]
    """
    a = array_of(a, "packbits")
    if dtype_class(typeof(a).dtype) not in ("int", "uint", "bool"):
        raise mismatch("packbits", f"takes integers or booleans, got {typeof(a)}")
    shifts = _bit_shifts(bitorder, "packbits")
    a, i = (ravel(a), 0) if axis is None else (a, axis_index(axis, typeof(a).ndim, "packbits"))
    bits = a if typeof(a).dtype is BOOL else prims.ne(a, literal(0, typeof(a)))
    bits = moveaxis(cast(bits, BYTE), i, -1)
    shape = typeof(bits).shape
    missing = -shape[-1] % 8
    if missing:
        config = (*[(0, 0, 0)] * (len(shape) - 1), (0, missing, 0))
        bits = prims.pad(bits, literal(0, typeof(bits).update(shape=())), config=config)
    n = (shape[-1] + missing) // 8
    bits = prims.reshape(bits, shape=(*shape[:-1], n, 8))
    placed = prims.shift_left(bits, _along_last(shifts, typeof(bits)))
    packed = prims.reduce_sum(placed, axes=(len(shape),))
    return moveaxis(packed, -1, i)


def _along_last(values: np.ndarray, t: Any) -> Any:
    return prims.broadcast_in_dim(array_of(values, ""), shape=t.shape, dimensions=(t.ndim - 1,))


@composite
def unpackbits(
    a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    """The bits of bytes, along an axis; of the flattened array if axis is None.

    Arguments:
      a: array of uint8.
      count: how many bits to give, with zeros after the last; negative: how many to cut off.
      bitorder: "big", the highest bit comes first; "little", the lowest.

    Source: `jax.numpy.unpackbits`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.unpackbits(jnp.array([160], "uint8"), count=3))
      [1 0 1]
    """
    a = array_of(a, "unpackbits")
    if typeof(a).dtype != BYTE:
        raise mismatch("unpackbits", f"takes uint8, got {typeof(a)}")
    shifts = _bit_shifts(bitorder, "unpackbits")
    a, i = (ravel(a), 0) if axis is None else (a, axis_index(axis, typeof(a).ndim, "unpackbits"))
    a = moveaxis(a, i, -1)
    t = typeof(a)
    wide = prims.broadcast_in_dim(a, shape=(*t.shape, 8), dimensions=tuple(range(t.ndim)))
    bits = prims.shift_right_logical(wide, _along_last(shifts, typeof(wide)))
    bits = prims.and_(bits, literal(1, typeof(bits)))
    bits = prims.reshape(bits, shape=(*t.shape[:-1], t.shape[-1] * 8))
    if count is not None:
        bits = _counted(bits, count)
    return moveaxis(bits, -1, i)


def _counted(bits: Any, count: int) -> Any:
    shape = typeof(bits).shape
    change = count - shape[-1] if count >= 0 else max(count, -shape[-1])
    config = (*[(0, 0, 0)] * (len(shape) - 1), (0, change, 0))
    return prims.pad(bits, literal(0, typeof(bits).update(shape=())), config=config)


# --- places in an array ---------------------------------------------------------------------------


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C", *,
    dtype: Any = None,
) -> Any:  # fmt: skip
    """Indices along the axes of an array as indices into the flattened array.

    Arguments:
      multi_index: an array of integers per axis; they broadcast.
      dims: the sizes of the axes.
      mode: for indices out of bounds: "raise" (concrete indices only), "wrap" or "clip".
      order: "C", the last axis runs fastest; "F", the first.
      dtype: of the result; by default that of the indices.

    Raises:
      InvalidArgument: an index out of bounds in mode "raise".
      AbstractValueError: traced indices in mode "raise".

    Source: `jax.numpy.ravel_multi_index`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 1])), (2, 3)))
      [2 4]
    """
    name = "ravel_multi_index"
    if len(multi_index) != len(dims):
        raise invalid(name, f"got {len(multi_index)} index arrays for {len(dims)} axes")
    indices = [array_of(i, name, k) for k, i in enumerate(multi_index)]
    for i in indices:
        if dtype_class(typeof(i).dtype) not in ("int", "uint"):
            raise mismatch(name, f"indices are integers, got {typeof(i)}")
    if mode == "raise":
        _check_bounds(indices, dims)
    elif mode == "clip":
        indices = [clip(i, 0, n - 1) for i, n in zip(indices, dims, strict=True)]
    elif mode == "wrap":
        indices = [remainder(i, n) for i, n in zip(indices, dims, strict=True)]
    else:
        raise invalid(name, f"mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    if order not in ("C", "F"):
        raise invalid(name, f"order must be 'C' or 'F', got {order!r}")
    indices = align_all(indices, name)
    to = typeof(indices[0]).dtype if dtype is None else user_dtype(dtype)
    indices = [cast(i, to) for i in indices]
    total = literal(0, typeof(indices[0]))
    strides = _strides(dims if order == "C" else dims[::-1])
    for i, stride in zip(indices, strides if order == "C" else strides[::-1], strict=True):
        total = prims.add(total, prims.mul(i, literal(stride, typeof(i))))
    return total


def _strides(dims: Sequence[int]) -> list[int]:
    return [math.prod(dims[k + 1 :]) for k in range(len(dims))]


def _check_bounds(indices: Sequence[Any], dims: Sequence[int]) -> None:
    for i, n in zip(indices, dims, strict=True):
        value = concrete_value(i)
        if value is None:
            raise errors.AbstractValueError(
                "ravel_multi_index: whether a traced index is out of bounds cannot be known, at\n"
                f"    {describe(user_source())}\nPass mode='clip' or mode='wrap'."
            )
        value = np.asarray(value)
        if ((value < 0) | (value >= n)).any():
            raise invalid("ravel_multi_index", f"an index is out of bounds for an axis of size {n}")


@composite
def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Indices into a flattened array as indices along the axes of the array.

    Arguments:
      indices: array of integers; negative ones count from the end, those out of bounds are clamped.
      shape: the shape of the array, of numbers or traced values; or a vector.

    Source: `jax.numpy.unravel_index`.

    Example:
      >>> import functrans.numpy as jnp
      >>> i, j = jnp.unravel_index(jnp.array([2, 4]), (2, 3))
      >>> print(i, j)
      [0 1] [2 1]
    """
    i = array_of(indices, "unravel_index")
    if dtype_class(typeof(i).dtype) not in ("int", "uint"):
        raise mismatch("unravel_index", f"indices are integers, got {typeof(i)}")
    scalar = not isinstance(shape, (tuple, list)) and np.ndim(shape) == 0
    sizes: list[Any] = [shape] if scalar else [*shape]
    given, i = typeof(i), _wide_enough(i)
    t = typeof(i)
    if all([concrete_value(n) is not None for n in sizes]):
        total: Any = math.prod(sizes)
        i = clip(i, -total, max(total - 1, 0))
        total, *sizes = [literal(n, t) for n in (total, *[max(n, 1) for n in sizes])]
    else:
        sizes = [expand(cast(array_of(n, "unravel_index"), t.dtype), t.shape) for n in sizes]
        total = functools.reduce(prims.mul, sizes)
        one, zero = literal(1, t), literal(0, t)
        i = clip(i, prims.neg(total), prims.max_(prims.sub(total, one), zero))
        sizes = [prims.max_(n, one) for n in sizes]
    i = prims.select_n(prims.lt(i, literal(0, t)), i, prims.add(i, total))
    places = []
    for size in reversed(sizes):
        places.append(materialize(cast(prims.rem(i, size), given.dtype, given.weak_type)))
        i = prims.div(i, size)
    return tuple(places[::-1])


def _wide_enough(i: Any) -> Any:
    """Indices at an integer type that holds the sizes of arrays, and negative numbers."""
    to = np.promote_types(typeof(i).dtype, np.int32)
    return cast(i, canonical_dtype(np.dtype("int64") if to.kind == "u" else to))
