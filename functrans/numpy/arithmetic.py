"""Functions composed of a few primitives: floor division, remainders and powers."""

from __future__ import annotations

import math
import operator
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy.promotion import (
    BOOL,
    align,
    align_all,
    array_of,
    broadcast_shape,
    cast,
    expand,
    invalid,
    mismatch,
    scalar,
    to_inexact,
    value_of,
)
from functrans.numpy.ufuncs import numeric, refuse_out, rint
from functrans.primitives.elementwise.arithmetic import (
    ceil,
    floor,
    integer_pow,
    max_,
    pow_,
    rem,
    round_,
    sign,
)
from functrans.primitives.elementwise.bitwise import and_, shift_right_logical
from functrans.primitives.elementwise.complex_numbers import abs_, complex_, imag, real
from functrans.primitives.elementwise.families import add, div, eq, ge, lt, mul, ne, neg, square, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import exp, log1p, sin
from functrans.trace import Tracer, concrete_value, literal, typeof
from functrans.typing import Array, ArrayLike

__all__ = [
    "around",
    "divmod",
    "floor_divide",
    "isnan",
    "logaddexp",
    "logaddexp2",
    "mod",
    "pow",
    "power",
    "remainder",
    "round",
    "sinc",
    "trunc",
]


def same(x: Any, value: Any) -> Any:
    """Return a literal of x's type."""
    return scalar(value, typeof(x))


def constant(x: Any, value: Any) -> Any:
    """Return a literal of x's shape with the type of JAX's constants that are combined with x: weakly
    typed, like a Python number, only if x is a weakly typed scalar."""
    t = typeof(x)
    return scalar(value, t.strong() if t.shape else t)


# --- division -------------------------------------------------------------------------------------


def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x / y rounded towards minus infinity.

    Source: `jax.numpy.floor_divide`.
    """
    x, y = numeric(*align(x, y, "floor_divide"))
    kind = dtype_class(typeof(x).dtype)
    if kind == "complex":
        raise mismatch("floor_divide", f"takes real numbers, not {typeof(x)}")
    if kind == "float":
        return _float_divmod(x, y)[0]
    quotient = div(x, y)
    if kind == "uint":
        return quotient
    signs_differ = ne(sign(x), sign(y))
    inexact = ne(rem(x, y), same(x, 0))
    return select_n(and_(signs_differ, inexact), quotient, sub(quotient, same(x, 1)))


def _float_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    rest = rem(x, y)
    zero = same(x, 0)
    # division by zero: the infinity of x / y, not the NaN of the remainder
    whole = select_n(eq(y, zero), sub(x, rest), x)
    quotient = div(whole, y)
    correct = and_(ne(rest, zero), ne(sign(y), sign(rest)))
    rest = select_n(correct, rest, add(rest, y))
    quotient = select_n(correct, quotient, sub(quotient, same(x, 1)))
    return round_(quotient, rounding_method=0), rest


def remainder(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the remainder of `floor_divide`; it has the sign of y.

    Source: `jax.numpy.remainder`.
    """
    x, y = numeric(*align(x, y, "remainder"))
    divisor = y
    if not is_inexact(typeof(x).dtype):  # 0 for integers divided by zero
        divisor = select_n(eq(y, same(y, 0)), y, same(y, 1))
    rest = rem(x, divisor)
    if dtype_class(typeof(x).dtype) == "uint":
        return rest
    zero = same(x, 0)
    signs_differ = ne(lt(rest, zero), lt(y, zero))
    correct = and_(signs_differ, ne(rest, zero))
    return select_n(correct, rest, add(rest, y))


mod = remainder


def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    """Return (floor_divide, remainder).

    Source: `jax.numpy.divmod`.
    """
    x, y = numeric(*align(x, y, "divmod"))
    if dtype_class(typeof(x).dtype) == "float":
        return _float_divmod(x, y)
    return floor_divide(x, y), remainder(x, y)


# --- powers ---------------------------------------------------------------------------------------


def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x to the power y. For a Python or concrete integer y it uses repeated multiplication,
    which is exact and differentiable everywhere.

    Source: `jax.numpy.power`.

    Raises:
      TypeMismatch: x is an integer and y a negative integer.
    """
    exponent = _static_integer(y)
    if exponent is not None:
        if x.__class__ is not Tracer or x.type.dtype is BOOL:
            (x,) = numeric(value_of(x, "power"))
        if exponent < 0 and not is_inexact(typeof(x).dtype):
            raise mismatch(
                "power",
                f"integers cannot be raised to negative powers, got {typeof(x)} ** {exponent}",
                "Cast the base to float.",
            )
        return integer_pow(x, y=exponent)
    x, y = value_of(x, "power"), value_of(y, "power", 1)
    kinds = dtype_class(typeof(x).dtype), dtype_class(typeof(y).dtype)
    if kinds[0] in ("float", "complex") and kinds[1] in ("int", "uint"):
        # pow(float, int): differentiable in x also where x is 0
        shape = broadcast_shape([typeof(x).shape, typeof(y).shape], "power", [typeof(x), typeof(y)])
        return pow_(expand(x, shape), expand(y, shape))
    x, y = numeric(*align(x, y, "power"))
    if not is_inexact(typeof(x).dtype):
        return _integer_power(x, y)
    return pow_(x, y)


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
    """Square repeatedly, six times: an exponent of 64 overflows every integer type."""
    x = cast(x, typeof(x).dtype)
    result = one = same(x, 1)
    zero = same(x, 0)
    for step in range(6):
        odd = ne(and_(y, one), zero)
        result = select_n(odd, result, mul(result, x))
        if step < 5:
            x = mul(x, x)
            y = shift_right_logical(y, one)
    return result


# --- functions of floats that take a few primitives: logarithms of sums, rounding, sinc -----------


def logaddexp(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
    """log(exp(x) + exp(y)) without overflow.

    Source: `jax.numpy.logaddexp`.
    """
    refuse_out("logaddexp", out, where)
    return _log_of_sum(align_all((x, y), "logaddexp", inexact=True), 1.0)


def logaddexp2(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
    """log2(2**x + 2**y) without overflow.

    Source: `jax.numpy.logaddexp2`.
    """
    refuse_out("logaddexp2", out, where)
    return _log_of_sum(align_all((x, y), "logaddexp2", inexact=True), math.log(2))


def _log_of_sum(operands: list[Any], unit: float) -> Any:
    """max(x, y) + log(1 + exp(-|x - y| unit)) / unit; x + y where both are the same infinity or one
    is NaN. There the difference is replaced, so that no NaN reaches the gradient."""
    x, y = operands
    if dtype_class(typeof(x).dtype) == "complex":
        return _log_of_complex_sum(x, y, unit)
    delta = sub(x, y)
    undefined = ne(delta, delta)
    delta = select_n(undefined, delta, same(delta, 0))
    x_wins = ge(delta, same(delta, 0))  # chosen so that the derivative at a tie is 1/2
    largest = select_n(x_wins, y, x)
    distance = select_n(x_wins, neg(delta), delta)
    if unit == 1.0:
        rest = log1p(exp(neg(distance)))
    else:
        rest = log1p(exp(mul(distance, constant(distance, -unit))))
        rest = div(rest, constant(rest, unit))
    return select_n(undefined, add(largest, rest), add(x, y))


def _log_of_complex_sum(x: Any, y: Any, unit: float) -> Any:
    """Like `_log_of_sum`, from the operand that is larger in the order of complex numbers and the
    difference; the imaginary part is reduced to [-pi, pi] / unit."""
    largest = max_(x, y)
    distance = sub(add(x, y), add(largest, largest))
    rest = log1p(exp(mul(distance, constant(distance, unit))))
    z = add(largest, div(rest, same(rest, unit)))
    angle = imag(z)
    half = same(angle, math.pi / unit)
    turned = remainder(add(angle, half), add(half, half))
    return complex_(real(z), sub(turned, half))


def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    Source: `jax.numpy.sinc`.
    """
    x = to_inexact(value_of(x, "sinc"))
    z = mul(x, constant(x, math.pi))
    # The Taylor series near 0, so that derivatives of every order are correct there.
    small = lt(abs_(z), literal(1e-3, typeof(abs_(z))))
    safe = select_n(small, z, same(z, 1))
    z2 = square(select_n(small, same(z, 0), z))
    series = same(z, 1 / 362880)
    for coefficient in (-1 / 5040, 1 / 120, -1 / 6, 1.0):
        series = add(mul(series, z2), same(z, coefficient))
    return select_n(small, div(sin(safe), safe), series)


def isnan(x: Any, /) -> Any:
    """Whether x is NaN.

    Source: `jax.numpy.isnan`.
    """
    x = value_of(x, "isnan")
    return ne(x, x)


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
    return select_n(lt(x, same(x, 0)), floor(x), ceil(x))


def round(a: Any, decimals: int = 0, out: None = None) -> Any:
    """Round a to a number of decimals, halves to even.

    Arguments:
      a: array.
      decimals: the number of digits to keep after the decimal point; negative: before it.

    Source: `jax.numpy.round`.
    """
    decimals = operator.index(decimals)
    a = value_of(a, "round")
    t = typeof(a)
    kind = dtype_class(t.dtype)
    if kind in ("int", "uint"):
        if decimals < 0:
            hint = "Cast to a float."
            raise invalid("round", "decimals < 0 is not defined for integers", hint, errors.UnsupportedChoice)
        return array_of(a, "round")
    if kind == "bool":
        raise invalid("round", f"takes numbers, not {t}")
    if kind == "complex":
        return complex_(round(real(a), decimals), round(imag(a), decimals))
    if decimals == 0:
        return rint(a)
    if decimals > math.log10(float(jax.numpy.finfo(t.dtype).max)):  # more digits than it has
        return array_of(a, "round")
    factor = 10.0 ** abs(decimals)
    narrow = np.dtype(t.dtype).itemsize < 4
    x = cast(a, np.dtype("float32"), t.weak_type) if narrow else a
    there, back = (mul, div) if decimals > 0 else (div, mul)
    factor = constant(x, factor)
    y = back(round_(there(x, factor), rounding_method=1), factor)
    return cast(y, t.dtype, typeof(y).weak_type)


around = round
