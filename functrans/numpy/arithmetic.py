"""Functions that take a few primitives: floor division and its kin, powers, logarithms of sums."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy import prims
from functrans.numpy.prims import select_n
from functrans.numpy.promotion import (
    BOOL,
    align,
    align_inexact,
    broadcast_shape,
    cast,
    expand,
    invalid,
    mismatch,
    scalar,
    to_inexact,
    value_of,
)
from functrans.numpy.ufuncs import numeric, rint
from functrans.trace import Tracer, concrete_value, literal, materialize, typeof

__all__ = [
    "angle",
    "around",
    "copysign",
    "deg2rad",
    "degrees",
    "divmod",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "heaviside",
    "hypot",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "ldexp",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "mod",
    "modf",
    "pow",
    "power",
    "rad2deg",
    "radians",
    "reciprocal",
    "remainder",
    "round",
    "signbit",
    "sinc",
    "trunc",
]  # fmt: skip


def _same(x: Any, value: Any) -> Any:
    """A literal of x's type."""
    return scalar(value, typeof(x))


# --- division -------------------------------------------------------------------------------------


def floor_divide(x: Any, y: Any, /) -> Any:
    """x / y rounded towards minus infinity.

    Source: `jax.numpy.floor_divide`.
    """
    x, y = numeric(*align(x, y, "floor_divide"))
    kind = dtype_class(typeof(x).dtype)
    if kind == "complex":
        raise mismatch("floor_divide", f"takes real numbers, not {typeof(x)}")
    if kind == "float":
        return _float_divmod(x, y)[0]
    quotient = prims.div(x, y)
    if kind == "uint":
        return quotient
    signs_differ = prims.ne(prims.sign(x), prims.sign(y))
    inexact = prims.ne(prims.rem(x, y), _same(x, 0))
    return select_n(prims.and_(signs_differ, inexact), quotient, prims.sub(quotient, _same(x, 1)))


def _float_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    rest = prims.rem(x, y)
    quotient = prims.div(prims.sub(x, rest), y)
    zero = _same(x, 0)
    correct = prims.and_(prims.ne(rest, zero), prims.ne(prims.sign(y), prims.sign(rest)))
    rest = select_n(correct, rest, prims.add(rest, y))
    quotient = select_n(correct, quotient, prims.sub(quotient, _same(x, 1)))
    return prims.round_(quotient, rounding_method=0), rest


def _rest(x: Any, y: Any) -> Any:
    """lax.rem; of integers by zero: 0."""
    if not is_inexact(typeof(x).dtype):
        y = select_n(prims.eq(y, _same(y, 0)), y, _same(y, 1))
    return prims.rem(x, y)


def remainder(x: Any, y: Any, /) -> Any:
    """The rest of `floor_divide`; it has the sign of y.

    Source: `jax.numpy.remainder`.
    """
    x, y = numeric(*align(x, y, "remainder"))
    rest = _rest(x, y)
    if dtype_class(typeof(x).dtype) == "uint":
        return rest
    zero = _same(x, 0)
    signs_differ = prims.ne(prims.lt(rest, zero), prims.lt(y, zero))
    correct = prims.and_(signs_differ, prims.ne(rest, zero))
    return select_n(correct, rest, prims.add(rest, y))


mod = remainder


def fmod(x: Any, y: Any, /) -> Any:
    """The rest of the division that rounds towards zero; it has the sign of x.

    Source: `jax.numpy.fmod`.
    """
    return _rest(*numeric(*align(x, y, "fmod")))


def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    """(floor_divide, remainder).

    Source: `jax.numpy.divmod`.
    """
    x, y = numeric(*align(x, y, "divmod"))
    if dtype_class(typeof(x).dtype) == "float":
        return _float_divmod(x, y)
    return floor_divide(x, y), remainder(x, y)


def reciprocal(x: Any, /) -> Any:
    """1 / x.

    Source: `jax.numpy.reciprocal`.
    """
    return prims.integer_pow(to_inexact(value_of(x, "reciprocal")), y=-1)


# --- powers ---------------------------------------------------------------------------------------


def power(x: Any, y: Any, /) -> Any:
    """x to the power y. A Python or concrete integer y is multiplied out, which is exact and
    differentiable everywhere.

    Source: `jax.numpy.power`.

    Raises:
      TypeMismatch: an integer x to a negative integer y.
    """
    exponent = _static_integer(y)
    if exponent is not None:
        if x.__class__ is not Tracer or x.type.dtype is BOOL:
            (x,) = numeric(value_of(x, "power"))
        if exponent < 0 and not is_inexact(typeof(x).dtype):
            raise mismatch(
                "power",
                f"integers cannot be raised to negative powers, got {typeof(x)} ** {exponent}",
                "Make the base a float.",
            )
        return prims.integer_pow(x, y=exponent)
    x, y = value_of(x, "power"), value_of(y, "power", 1)
    kinds = dtype_class(typeof(x).dtype), dtype_class(typeof(y).dtype)
    if kinds[0] in ("float", "complex") and kinds[1] in ("int", "uint", "bool"):
        # pow(float, int): differentiable in x also where x is 0
        (y,) = numeric(y)
        shape = broadcast_shape([typeof(x).shape, typeof(y).shape], "power", [typeof(x), typeof(y)])
        return prims.pow_(expand(x, shape), expand(y, shape))
    x, y = numeric(*align(x, y, "power"))
    if not is_inexact(typeof(x).dtype):
        return _integer_power(x, y)
    return prims.pow_(x, y)


pow = power


def _static_integer(y: Any) -> int | None:
    if y.__class__ is int:
        return y
    if y.__class__ is Tracer or y.__class__ is float:
        return None
    y = concrete_value(y) if not isinstance(y, Tracer) else None
    try:
        return operator.index(y)
    except TypeError:
        return None


def _integer_power(x: Any, y: Any) -> Any:
    """By repeated squaring, six times: an exponent of 64 overflows every integer type."""
    t = typeof(x)
    x = cast(x, t.dtype, t.weak_type and typeof(y).weak_type)
    result = one = _same(x, 1)
    zero = _same(x, 0)
    for step in range(6):
        odd = prims.ne(prims.and_(y, one), zero)
        result = select_n(odd, result, prims.mul(result, x))
        if step < 5:
            x = prims.mul(x, x)
            y = prims.shift_right_logical(y, one)
    return result


def float_power(x: Any, y: Any, /) -> Any:
    """x to the power y, in floats.

    Source: `jax.numpy.float_power`.
    """
    return prims.pow_(*align_inexact((x, y), "float_power"))


# --- logarithms, angles, lengths ------------------------------------------------------------------


def _scaled(name: str, x: Any, factor: float) -> Any:
    x = to_inexact(value_of(x, name))
    return prims.mul(x, _same(x, factor))


def log2(x: Any, /) -> Any:
    """The logarithm to base 2.

    Source: `jax.numpy.log2`.
    """
    y = prims.log(to_inexact(value_of(x, "log2")))
    return prims.div(y, literal(math.log(2), typeof(y).strong()))


def log10(x: Any, /) -> Any:
    """The logarithm to base 10.

    Source: `jax.numpy.log10`.
    """
    y = prims.log(to_inexact(value_of(x, "log10")))
    return prims.div(y, literal(math.log(10), typeof(y).strong()))


def logaddexp(x: Any, y: Any, /) -> Any:
    """log(exp(x) + exp(y)) without overflow.

    Source: `jax.numpy.logaddexp`.
    """
    return _log_of_sum(align_inexact((x, y), "logaddexp"), 1.0)


def logaddexp2(x: Any, y: Any, /) -> Any:
    """log2(2**x + 2**y) without overflow.

    Source: `jax.numpy.logaddexp2`.
    """
    return _log_of_sum(align_inexact((x, y), "logaddexp2"), math.log(2))


def _log_of_sum(operands: list[Any], unit: float) -> Any:
    """max(x, y) + log(1 + exp(-|x - y| unit)) / unit; x + y where both are the same infinity or
    one is NaN. There the difference is replaced, so that no NaN reaches the gradient."""
    x, y = operands
    largest = prims.max_(x, y)
    delta = prims.sub(x, y)
    undefined = prims.ne(delta, delta)
    delta = select_n(undefined, delta, _same(delta, 0))
    distance = prims.abs_(delta)
    if unit == 1.0:
        rest = prims.log1p(prims.exp(prims.neg(distance)))
    else:
        rest = prims.log1p(prims.exp(prims.mul(distance, _same(distance, -unit))))
        rest = prims.div(rest, _same(rest, unit))
    return select_n(undefined, prims.add(largest, rest), prims.add(x, y))


def degrees(x: Any, /) -> Any:
    """Radians as degrees.

    Source: `jax.numpy.degrees`.
    """
    return _scaled("degrees", x, 180 / math.pi)


def radians(x: Any, /) -> Any:
    """Degrees as radians.

    Source: `jax.numpy.radians`.
    """
    return _scaled("radians", x, math.pi / 180)


rad2deg, deg2rad = degrees, radians


def hypot(x: Any, y: Any, /) -> Any:
    """sqrt(x**2 + y**2) without overflow.

    Source: `jax.numpy.hypot`.
    """
    x, y = align_inexact((x, y), "hypot")
    if dtype_class(typeof(x).dtype) == "complex":
        raise invalid("hypot", f"takes real numbers, not {typeof(x)}", "Use jnp.abs(...) first.")
    x, y = prims.abs_(x), prims.abs_(y)
    either_infinite = prims.or_(prims.eq(x, _same(x, np.inf)), prims.eq(y, _same(y, np.inf)))
    larger, smaller = prims.max_(x, y), prims.min_(x, y)
    is_zero = prims.eq(larger, _same(larger, 0))
    ratio = prims.div(smaller, select_n(is_zero, larger, _same(larger, 1)))
    length = prims.mul(larger, prims.sqrt(prims.add(_same(x, 1), prims.square(ratio))))
    length = select_n(is_zero, length, larger)
    return select_n(either_infinite, length, _same(x, np.inf))


def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    Source: `jax.numpy.sinc`.
    """
    x = to_inexact(value_of(x, "sinc"))
    z = prims.mul(x, _same(x, math.pi))
    # Near 0 the series, so that derivatives of every order are right there.
    small = prims.lt(prims.abs_(z), literal(1e-3, typeof(prims.abs_(z))))
    safe = select_n(small, z, _same(z, 1))
    z2 = prims.square(select_n(small, _same(z, 0), z))
    series = _same(z, 1 / 362880)
    for coefficient in (-1 / 5040, 1 / 120, -1 / 6, 1.0):
        series = prims.add(prims.mul(series, z2), _same(z, coefficient))
    return select_n(small, prims.div(prims.sin(safe), safe), series)


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of a complex number.

    Arguments:
      z: array.
      deg: in degrees rather than radians.

    Source: `jax.numpy.angle`.
    """
    z = to_inexact(value_of(z, "angle"))
    t = typeof(z)
    if dtype_class(t.dtype) == "complex":
        y = prims.atan2(prims.imag(z), prims.real(z))
    else:
        y = prims.atan2(literal(0, t), z)
    return degrees(y) if deg else y


# --- the parts of a number ------------------------------------------------------------------------


def isnan(x: Any, /) -> Any:
    """Not a number.

    Source: `jax.numpy.isnan`.
    """
    x = value_of(x, "isnan")
    return prims.ne(x, x)


def isinf(x: Any, /) -> Any:
    """Plus or minus infinity.

    Source: `jax.numpy.isinf`.
    """
    x = value_of(x, "isinf")
    t = typeof(x)
    kind = dtype_class(t.dtype)
    if kind == "float":
        return prims.eq(prims.abs_(x), _same(x, np.inf))
    if kind == "complex":
        return prims.or_(isinf(prims.real(x)), isinf(prims.imag(x)))
    return materialize(literal(False, t.update(dtype=BOOL, weak_type=False)))


def _is_infinity(name: str, x: Any, infinity: float) -> Any:
    x = value_of(x, name)
    t = typeof(x)
    kind = dtype_class(t.dtype)
    if kind == "float":
        return prims.eq(x, _same(x, infinity))
    if kind == "complex":
        raise invalid(name, f"takes real numbers, not {t}")
    return materialize(literal(False, t.update(dtype=BOOL, weak_type=False)))


def isposinf(x: Any, /, out: None = None) -> Any:
    """Plus infinity.

    Source: `jax.numpy.isposinf`.
    """
    return _is_infinity("isposinf", x, np.inf)


def isneginf(x: Any, /, out: None = None) -> Any:
    """Minus infinity.

    Source: `jax.numpy.isneginf`.
    """
    return _is_infinity("isneginf", x, -np.inf)


def signbit(x: Any, /) -> Any:
    """The sign bit is set: x < 0, or -0.0.

    Source: `jax.numpy.signbit`.
    """
    x = value_of(x, "signbit")
    t = typeof(x)
    kind = dtype_class(t.dtype)
    if kind == "complex":
        raise mismatch("signbit", f"takes real numbers, not {t}")
    if kind in ("bool", "uint"):
        return materialize(literal(False, t.update(dtype=BOOL, weak_type=False)))
    if kind == "int":
        return prims.lt(x, _same(x, 0))
    bits = np.dtype(f"int{8 * np.dtype(t.dtype).itemsize}")
    as_integers = prims.bitcast_convert_type(x, dtype=bits)
    return prims.lt(as_integers, _same(as_integers, 0))


def copysign(x: Any, y: Any, /) -> Any:
    """|x| with the sign of y.

    Source: `jax.numpy.copysign`.
    """
    x, y = align_inexact((x, y), "copysign")
    magnitude = prims.abs_(x)
    return select_n(signbit(y), magnitude, prims.neg(magnitude))


def heaviside(x: Any, y: Any, /) -> Any:
    """0 below zero, y at zero, 1 above.

    Source: `jax.numpy.heaviside`.
    """
    x, y = align_inexact((x, y), "heaviside")
    zero, one = _same(x, 0), _same(x, 1)
    at_zero = select_n(prims.eq(x, zero), x, y)  # NaN stays
    return select_n(prims.lt(x, zero), select_n(prims.gt(x, zero), at_zero, one), zero)


def fmax(x: Any, y: Any, /) -> Any:
    """The larger one; if one is NaN, the other.

    Source: `jax.numpy.fmax`.
    """
    x, y = align(x, y, "fmax")
    return select_n(prims.or_(_ordered(prims.gt, x, y), prims.ne(y, y)), y, x)


def fmin(x: Any, y: Any, /) -> Any:
    """The smaller one; if one is NaN, the other.

    Source: `jax.numpy.fmin`.
    """
    x, y = align(x, y, "fmin")
    return select_n(prims.or_(_ordered(prims.lt, x, y), prims.ne(y, y)), y, x)


def _ordered(compare: Any, x: Any, y: Any) -> Any:
    if dtype_class(typeof(x).dtype) != "complex":
        return compare(x, y)
    chosen = prims.max_(x, y) if compare is prims.gt else prims.min_(x, y)
    return prims.eq(x, chosen)


def trunc(x: Any, /) -> Any:
    """The nearest integer towards zero, at x's dtype.

    Source: `jax.numpy.trunc`.
    """
    x = value_of(x, "trunc")
    if dtype_class(typeof(x).dtype) != "float":
        return materialize(x)
    return select_n(prims.lt(x, _same(x, 0)), prims.floor(x), prims.ceil(x))


def modf(x: Any, /, out: None = None) -> tuple[Any, Any]:
    """(fractional part, integral part), both with the sign of x.

    Source: `jax.numpy.modf`.
    """
    x = to_inexact(value_of(x, "modf"))
    whole = select_n(prims.ge(x, _same(x, 0)), prims.ceil(x), prims.floor(x))
    return prims.sub(x, whole), whole


def ldexp(x: Any, y: Any, /) -> Any:
    """x * 2**y, of integers y.

    Source: `jax.numpy.ldexp`.
    """
    x, y = to_inexact(value_of(x, "ldexp")), value_of(y, "ldexp", 1)
    scale = prims.exp2(cast(y, typeof(x).dtype, typeof(y).weak_type))
    return prims.mul(*align(x, scale, "ldexp"))


def round(a: Any, decimals: int = 0, out: None = None) -> Any:
    """a rounded to a number of decimals, halves to even.

    Arguments:
      a: array.
      decimals: how many digits after the point to keep; negative: before it.

    Source: `jax.numpy.round`.
    """
    decimals = operator.index(decimals)
    a = value_of(a, "round")
    t = typeof(a)
    kind = dtype_class(t.dtype)
    if kind in ("int", "uint"):
        if decimals < 0:
            raise invalid("round", "decimals < 0 is not defined for integers", "Cast to a float.")
        return materialize(a)
    if kind == "bool":
        raise invalid("round", f"takes numbers, not {t}")
    if kind == "complex":
        return prims.complex_(round(prims.real(a), decimals), round(prims.imag(a), decimals))
    if decimals == 0:
        return rint(a)
    factor = 10.0 ** abs(decimals)
    narrow = np.dtype(t.dtype).itemsize < 4
    x = cast(a, np.dtype("float32"), t.weak_type) if narrow else a
    there, back = (prims.mul, prims.div) if decimals > 0 else (prims.div, prims.mul)
    y = back(prims.round_(there(x, _same(x, factor)), rounding_method=1), _same(x, factor))
    return cast(y, t.dtype, t.weak_type) if narrow else y


around = round
