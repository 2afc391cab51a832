"""Functions of floats that take a few primitives: logarithms, angles, signs, rounding."""

from __future__ import annotations

import math
import operator
from typing import Any

import jax
import numpy as np

from functrans.ir.types import canonical_dtype, dtype_class, is_inexact
from functrans.numpy import prims
from functrans.numpy.arithmetic import constant, remainder, same
from functrans.numpy.prims import select_n
from functrans.numpy.promotion import (
    BOOL,
    align,
    align_all,
    align_inexact,
    array_of,
    cast,
    invalid,
    mismatch,
    promote_inexact,
    to_inexact,
    value_of,
)
from functrans.numpy.ufuncs import greater, less, refuse_out, rint
from functrans.trace import literal, materialize, typeof

__all__ = [
    "angle", "around", "copysign", "deg2rad", "degrees", "fmax", "fmin", "heaviside", "hypot",
    "isinf", "isnan", "isneginf", "isposinf", "log2", "log10", "logaddexp", "logaddexp2",
    "modf", "rad2deg", "radians", "round", "signbit", "sinc", "trunc",
]  # fmt: skip


def _scaled(name: str, x: Any, factor: float) -> Any:
    x = to_inexact(value_of(x, name))
    return prims.mul(x, constant(x, factor))


def log2(x: Any, /) -> Any:
    """The logarithm to base 2.

    Source: `jax.numpy.log2`.
    """
    return _log_to_base("log2", x, 2)


def log10(x: Any, /) -> Any:
    """The logarithm to base 10.

    Source: `jax.numpy.log10`.
    """
    return _log_to_base("log10", x, 10)


def _log_to_base(name: str, x: Any, base: int) -> Any:
    """log(x) / log(base); of complex numbers part by part, so that no infinity meets a zero."""
    y = prims.log(to_inexact(value_of(x, name)))
    if dtype_class(typeof(y).dtype) == "complex":
        parts = [prims.real(y), prims.imag(y)]
        return prims.complex_(*[prims.div(p, constant(p, math.log(base))) for p in parts])
    return prims.div(y, literal(math.log(base), typeof(y).strong()))


def logaddexp(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
    """log(exp(x) + exp(y)) without overflow.

    Source: `jax.numpy.logaddexp`.
    """
    refuse_out("logaddexp", out, where)
    return _log_of_sum(align_inexact((x, y), "logaddexp"), 1.0)


def logaddexp2(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
    """log2(2**x + 2**y) without overflow.

    Source: `jax.numpy.logaddexp2`.
    """
    refuse_out("logaddexp2", out, where)
    return _log_of_sum(align_inexact((x, y), "logaddexp2"), math.log(2))


def _log_of_sum(operands: list[Any], unit: float) -> Any:
    """max(x, y) + log(1 + exp(-|x - y| unit)) / unit; x + y where both are the same infinity or
    one is NaN. There the difference is replaced, so that no NaN reaches the gradient."""
    x, y = operands
    if dtype_class(typeof(x).dtype) == "complex":
        return _log_of_complex_sum(x, y, unit)
    delta = prims.sub(x, y)
    undefined = prims.ne(delta, delta)
    delta = select_n(undefined, delta, same(delta, 0))
    x_wins = prims.ge(delta, same(delta, 0))  # chosen, so that the derivative of a tie is a half
    largest = select_n(x_wins, y, x)
    distance = select_n(x_wins, prims.neg(delta), delta)
    if unit == 1.0:
        rest = prims.log1p(prims.exp(prims.neg(distance)))
    else:
        rest = prims.log1p(prims.exp(prims.mul(distance, constant(distance, -unit))))
        rest = prims.div(rest, constant(rest, unit))
    return select_n(undefined, prims.add(largest, rest), prims.add(x, y))


def _log_of_complex_sum(x: Any, y: Any, unit: float) -> Any:
    """As `_log_of_sum`, of the operand that comes last in the order of complex numbers and the
    distance of the other; the imaginary part is brought to [-pi, pi] / unit."""
    largest = prims.max_(x, y)
    distance = prims.sub(prims.add(x, y), prims.add(largest, largest))
    rest = prims.log1p(prims.exp(prims.mul(distance, constant(distance, unit))))
    z = prims.add(largest, prims.div(rest, same(rest, unit)))
    angle = prims.imag(z)
    half = same(angle, math.pi / unit)
    turned = remainder(prims.add(angle, half), prims.add(half, half))
    return prims.complex_(prims.real(z), prims.sub(turned, half))


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
    either_infinite = prims.or_(prims.eq(x, same(x, np.inf)), prims.eq(y, same(y, np.inf)))
    larger, smaller = prims.max_(x, y), prims.min_(x, y)
    is_zero = prims.eq(larger, same(larger, 0))
    ratio = prims.div(smaller, select_n(is_zero, larger, same(larger, 1)))
    length = prims.mul(larger, prims.sqrt(prims.add(same(x, 1), prims.square(ratio))))
    length = select_n(is_zero, length, larger)
    return select_n(either_infinite, length, constant(x, np.inf))


def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    Source: `jax.numpy.sinc`.
    """
    x = to_inexact(value_of(x, "sinc"))
    z = prims.mul(x, constant(x, math.pi))
    # Near 0 the series, so that derivatives of every order are right there.
    small = prims.lt(prims.abs_(z), literal(1e-3, typeof(prims.abs_(z))))
    safe = select_n(small, z, same(z, 1))
    z2 = prims.square(select_n(small, same(z, 0), z))
    series = same(z, 1 / 362880)
    for coefficient in (-1 / 5040, 1 / 120, -1 / 6, 1.0):
        series = prims.add(prims.mul(series, z2), same(z, coefficient))
    return select_n(small, prims.div(prims.sin(safe), safe), series)


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of a complex number.

    Arguments:
      z: array.
      deg: in degrees rather than radians.

    Source: `jax.numpy.angle`.
    """
    z = value_of(z, "angle")
    t = typeof(z)
    if not is_inexact(t.dtype) or (dtype_class(t.dtype) == "float" and t.ndim == 0):
        z = cast(z, canonical_dtype(np.dtype("float64")))
        t = typeof(z)
    if dtype_class(t.dtype) == "complex":
        y = prims.atan2(prims.imag(z), prims.real(z))
    else:
        y = prims.atan2(literal(0, t), z)
    return degrees(y) if deg else y


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
        x = cast(x, t.dtype)
        return prims.eq(prims.abs_(x), same(x, np.inf))
    if kind == "complex":
        return prims.or_(isinf(prims.real(x)), isinf(prims.imag(x)))
    return materialize(literal(False, t.update(dtype=BOOL, weak_type=False)))


def _is_infinity(name: str, x: Any, infinity: float) -> Any:
    x = value_of(x, name)
    t = typeof(x)
    kind = dtype_class(t.dtype)
    if kind == "float":
        return prims.eq(x, same(x, infinity))
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
        raise invalid("signbit", f"takes real numbers, not {t}")
    if kind in ("bool", "uint"):
        return materialize(literal(False, t.update(dtype=BOOL, weak_type=False)))
    if kind == "int":
        return prims.lt(x, same(x, 0))
    bits = np.dtype(f"int{8 * np.dtype(t.dtype).itemsize}")
    as_integers = prims.bitcast_convert_type(x, dtype=bits)
    return prims.lt(as_integers, same(as_integers, 0))


def copysign(x: Any, y: Any, /) -> Any:
    """|x| with the sign of y.

    Source: `jax.numpy.copysign`.
    """
    x, y = align_inexact((x, y), "copysign")
    magnitude = prims.abs_(x if typeof(y).weak_type else cast(x, typeof(x).dtype))
    return select_n(signbit(y), magnitude, prims.neg(magnitude))


def heaviside(x: Any, y: Any, /) -> Any:
    """0 below zero, y at zero, 1 above.

    Source: `jax.numpy.heaviside`.
    """
    x, y = promote_inexact((x, y), "heaviside")
    x, y, zero, one = align_all((x, y, constant(x, 0), constant(x, 1)), "heaviside")
    at_zero = select_n(prims.eq(x, zero), x, y)  # NaN stays
    return select_n(prims.lt(x, zero), select_n(prims.gt(x, zero), at_zero, one), zero)


def fmax(x1: Any, x2: Any) -> Any:
    """The larger one; if one is NaN, the other.

    Source: `jax.numpy.fmax`.
    """
    x, y = align(x1, x2, "fmax")
    return select_n(prims.or_(greater(x, y), prims.ne(y, y)), y, x)


def fmin(x1: Any, x2: Any) -> Any:
    """The smaller one; if one is NaN, the other.

    Source: `jax.numpy.fmin`.
    """
    x, y = align(x1, x2, "fmin")
    return select_n(prims.or_(less(x, y), prims.ne(y, y)), y, x)


def trunc(x: Any) -> Any:
    """The nearest integer towards zero, at x's dtype.

    Source: `jax.numpy.trunc`.
    """
    x = value_of(x, "trunc")
    kind = dtype_class(typeof(x).dtype)
    if kind == "complex":
        raise mismatch("trunc", f"takes real numbers, not {typeof(x)}")
    if kind != "float":
        return array_of(x, "trunc")
    return select_n(prims.lt(x, same(x, 0)), prims.floor(x), prims.ceil(x))


def modf(x: Any, /, out: None = None) -> tuple[Any, Any]:
    """(fractional part, integral part), both with the sign of x.

    Source: `jax.numpy.modf`.
    """
    x = to_inexact(value_of(x, "modf"))
    whole = select_n(prims.ge(x, same(x, 0)), prims.ceil(x), prims.floor(x))
    return prims.sub(x, whole), whole


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
        return array_of(a, "round")
    if kind == "bool":
        raise invalid("round", f"takes numbers, not {t}")
    if kind == "complex":
        return prims.complex_(round(prims.real(a), decimals), round(prims.imag(a), decimals))
    if decimals == 0:
        return rint(a)
    if decimals > math.log10(float(jax.numpy.finfo(t.dtype).max)):  # more than there are
        return array_of(a, "round")
    factor = 10.0 ** abs(decimals)
    narrow = np.dtype(t.dtype).itemsize < 4
    x = cast(a, np.dtype("float32"), t.weak_type) if narrow else a
    there, back = (prims.mul, prims.div) if decimals > 0 else (prims.div, prims.mul)
    factor = constant(x, factor)
    y = back(prims.round_(there(x, factor), rounding_method=1), factor)
    return cast(y, t.dtype, typeof(y).weak_type)


around = round
