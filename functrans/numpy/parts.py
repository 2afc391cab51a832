"""Parts of numbers and facts about them: mantissa and exponent, spacing, real or complex, phase."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from functrans.ir.types import dtype_class
from functrans.numpy import prims
from functrans.numpy.arithmetic import remainder
from functrans.numpy.differences import diff
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
from functrans.primitives.bitwise import clz
from functrans.primitives.call import composite
from functrans.primitives.selection import stop_gradient
from functrans.trace import full, literal, materialize, typeof

INT32 = np.dtype("int32")

__all__ = ["frexp", "iscomplex", "isreal", "spacing", "unwrap"]


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

    def power_of_two(k: Any) -> Any:
        raw = prims.shift_left(cast(prims.add(k, 1 - info.minexp), at.dtype), info.nmant)
        return prims.bitcast_convert_type(raw, dtype=t.dtype)

    # of other numbers it is a product, in two steps that cannot overflow: it has a derivative
    half = prims.shift_right_arithmetic(exponent, 1)
    scaled = prims.mul(x, power_of_two(prims.neg(half)))
    scaled = prims.mul(scaled, power_of_two(prims.sub(half, exponent)))
    special = prims.or_(prims.eq(size, literal(0, at)), prims.not_(prims.is_finite(x)))
    mantissa = prims.select_n(small, scaled, exact)
    return (
        prims.select_n(special, mantissa, x),
        prims.select_n(special, exponent, literal(0, typeof(exponent))),
    )


@composite
def spacing(x: Any, /) -> Any:
    """The distance to the next number away from zero, with the sign of x.

    Source: `jax.numpy.spacing`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.spacing(jnp.float32(1)))
      1.1920929e-07
    """
    x = to_inexact(value_of(x, "spacing"))
    t = typeof(x)
    if dtype_class(t.dtype) == "complex":
        raise mismatch("spacing", f"takes real numbers, not {t}")
    x = cast(x, t.dtype)
    t = typeof(x)
    away = prims.select_n(prims.lt(x, literal(0, t)), literal(math.inf, t), literal(-math.inf, t))
    return prims.sub(prims.nextafter(materialize(x), away), x)


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
    size = prims.abs_(steps)
    (size, limit) = promote_dtypes((size, limit), "unwrap")
    return prims.lt(size, expand(limit, typeof(size).shape))
