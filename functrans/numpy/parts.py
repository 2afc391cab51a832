"""Parts of numbers and facts about them: mantissa and exponent, spacing, real or complex, phase."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy import prims
from functrans.numpy.arithmetic import remainder
from functrans.numpy.differences import diff
from functrans.numpy.floating import copysign
from functrans.numpy.promotion import (
    BOOL,
    array_of,
    axis_index,
    cast,
    expand,
    invalid,
    mismatch,
    promote_dtypes,
    to_inexact,
    value_of,
)
from functrans.numpy.selecting import where
from functrans.numpy.ufuncs import absolute, add
from functrans.primitives.bitwise import clz
from functrans.primitives.call import composite
from functrans.primitives.selection import stop_gradient
from functrans.trace import full, literal, materialize, typeof

INT32, FLOAT32 = np.dtype("int32"), np.dtype("float32")

__all__ = ["frexp", "iscomplex", "isreal", "ldexp", "spacing", "unwrap"]


@composite
def frexp(x: Any, /) -> tuple[Any, Any]:
    """Mantissas in [0.5, 1) and exponents: x = mantissa * 2 ** exponent.

    Arguments:
      x: array of real numbers. Zeros, infinities and NaN are their own mantissas, with exponent 0.

    Source: `jax.numpy.frexp`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(*jnp.frexp(jnp.array([8.0, -0.75])))
      [ 0.5  -0.75] [4 0]
    """
    x = to_inexact(value_of(x, "frexp"))
    t = typeof(x)
    if dtype_class(t.dtype) == "complex":
        raise mismatch("frexp", f"takes real numbers, not {t}")
    x = cast(materialize(x), t.dtype)
    info = jax.numpy.finfo(t.dtype)
    bits = prims.bitcast_convert_type(stop_gradient(x), dtype=np.dtype(f"int{info.bits}"))
    at = typeof(bits)
    size = prims.and_(bits, literal((1 << (info.bits - 1)) - 1, at))
    field = prims.shift_right_logical(size, literal(info.nmant, at))
    # a subnormal number has an empty exponent field: its highest bit is moved to where that of
    # others is, by integer operations, as processors may take it for zero
    small = prims.eq(field, literal(0, at))
    shift = prims.select_n(small, literal(0, at), prims.sub(clz(size), info.bits - 1 - info.nmant))
    exponent = cast(prims.sub(prims.select_n(small, field, literal(1, at)), shift), INT32)
    exponent = prims.add(exponent, info.minexp)
    moved = prims.and_(prims.shift_left(size, shift), literal((1 << info.nmant) - 1, at))
    moved = prims.or_(moved, literal((-info.minexp) << info.nmant, at))
    moved = prims.or_(moved, prims.and_(bits, literal(-1 << (info.bits - 1), at)))
    exact = prims.bitcast_convert_type(moved, dtype=t.dtype)

    # of other numbers it is a product, in two steps that cannot overflow: it has a derivative
    half = prims.shift_right_arithmetic(exponent, 1)
    scaled = prims.mul(x, _power_of_two(prims.neg(half), t.dtype))
    scaled = prims.mul(scaled, _power_of_two(prims.sub(half, exponent), t.dtype))
    special = prims.or_(prims.eq(size, literal(0, at)), prims.not_(prims.is_finite(x)))
    mantissa = prims.select_n(small, scaled, exact)
    return (
        prims.select_n(special, mantissa, x),
        prims.select_n(special, exponent, literal(0, typeof(exponent))),
    )


def _power_of_two(k: Any, dtype: Any) -> Any:
    """2 ** k, of integers k from minexp to maxexp - 1 of a float dtype: its bits."""
    info = jax.numpy.finfo(dtype)
    field = cast(prims.add(k, 1 - info.minexp), np.dtype(f"int{info.bits}"))
    return prims.bitcast_convert_type(prims.shift_left(field, info.nmant), dtype=dtype)


@composite
def ldexp(x: Any, y: Any, /) -> Any:
    """x * 2 ** y, of integers y, without overflow on the way.

    Source: `jax.numpy.ldexp`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.ldexp(jnp.array([0.5, -0.75]), 4))
      [  8. -12.]
    """
    x, y = value_of(x, "ldexp"), value_of(y, "ldexp", 1)
    if dtype_class(typeof(x).dtype) == "complex" or is_inexact(typeof(y).dtype):
        raise invalid("ldexp", f"takes real x and integers y, not {typeof(x)} and {typeof(y)}")
    mantissa, exponent = frexp(x)
    dtype = typeof(mantissa).dtype
    # as floats, in which no integer overflows
    y = cast(y, FLOAT32)
    sums = add(cast(exponent, FLOAT32), y)
    mantissa = expand(mantissa, typeof(sums).shape)
    most = 3 * (jax.numpy.finfo(dtype).maxexp - 3)
    t = typeof(sums)
    sums = prims.min_(prims.max_(sums, literal(-most, t)), literal(most + 2, t))
    sums = cast(sums, INT32)
    third = prims.div(sums, literal(3, typeof(sums)))
    step = _power_of_two(third, dtype)
    rest = _power_of_two(prims.sub(prims.sub(sums, third), third), dtype)
    return prims.mul(prims.mul(prims.mul(mantissa, step), step), rest)


@composite
def spacing(x: Any, /) -> Any:
    """The distance to the next number away from zero, with the sign of x; in float16 upwards.

    Source: `jax.numpy.spacing`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.spacing(jnp.float32(1)))
      1.1920929e-07
    """
    x = to_inexact(value_of(x, "spacing"))
    t = typeof(x)
    if dtype_class(t.dtype) == "complex":
        raise invalid("spacing", f"takes real numbers, not {t}")
    x = materialize(cast(x, t.dtype))
    away = literal(math.inf, typeof(x))
    if t.dtype != np.float16:  # NumPy goes upwards there
        away = copysign(away, x)
    return prims.sub(prims.nextafter(x, away), x)


def iscomplex(x: Any) -> Any:
    """Is the imaginary part not zero?

    Source: `jax.numpy.iscomplex`.
    """
    x = value_of(x, "iscomplex")
    t = typeof(x)
    if dtype_class(t.dtype) != "complex":
        return full(False, t.update(dtype=BOOL, weak_type=False))
    part = prims.imag(x)
    return prims.ne(part, literal(0, typeof(part)))


def isreal(x: Any) -> Any:
    """Is the imaginary part zero?

    Source: `jax.numpy.isreal`.
    """
    x = value_of(x, "isreal")
    t = typeof(x)
    if dtype_class(t.dtype) != "complex":
        return full(True, t.update(dtype=BOOL, weak_type=False))
    part = prims.imag(x)
    return prims.eq(part, literal(0, typeof(part)))


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * math.pi) -> Any:
    """Angles without jumps: each element is moved by the periods that bring it near the one before.

    Arguments:
      p: array.
      discont: jumps smaller than this stay; by default half a period.
      axis: along which.
      period: of the values.

    Source: `jax.numpy.unwrap`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.unwrap(jnp.array([0.0, 3.0, 7.0]), period=4.0))
      [ 0. -1. -1.]
    """
    p = array_of(p, "unwrap")
    if dtype_class(typeof(p).dtype) == "complex":
        raise invalid("unwrap", f"takes real numbers, not {typeof(p)}")
    p, period = promote_dtypes((p, period), "unwrap")
    p = array_of(p, "unwrap")
    t = typeof(p)
    i = axis_index(axis, t.ndim, "unwrap")
    if t.shape[i] == 0:
        return p
    steps = diff(p, axis=i)
    s = typeof(steps)
    whole = expand(cast(period, s.dtype), s.shape)
    half = prims.div(whole, literal(2, s))
    limit = half if discont is None else discont
    inside = prims.sub(remainder(prims.add(steps, half), whole), half)
    at_edge = prims.eq(inside, prims.neg(half))
    upwards = prims.gt(steps, literal(0, s))
    inside = prims.select_n(prims.and_(at_edge, upwards), inside, half)
    change = where(_small(steps, limit), 0, prims.sub(inside, steps))
    moved = prims.cumsum(change, axis=i, reverse=False)
    first, rest = prims.split(p, sizes=(1, t.shape[i] - 1), axis=i)
    return prims.concatenate(first, prims.add(rest, cast(moved, s.dtype)), dimension=i)


def _small(steps: Any, limit: Any) -> Any:
    size = absolute(steps)
    (size, limit) = promote_dtypes((size, limit), "unwrap")
    return prims.lt(size, expand(limit, typeof(size).shape))
