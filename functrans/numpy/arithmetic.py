"""Powers, for which a Python integer as exponent is told apart; logarithms of sums, whose custom
derivative by JAX costs several times as much un-jitted; and sinc, precise near all integers, whose
derivatives of every order are near 0. Floor division, remainders and rounding are JAX's.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy.promotion import (
    BOOL,
    align,
    align_all,
    broadcast_shape,
    cast,
    cast_to,
    expand,
    mismatch,
    scalar,
    to_inexact,
    value_of,
)
from functrans.numpy.ufuncs import numeric, refuse_out
from functrans.primitives.elementwise.arithmetic import integer_pow, max_, pow_, rem, round_
from functrans.primitives.elementwise.bitwise import and_, shift_right_logical
from functrans.primitives.elementwise.complex_numbers import abs_, complex_, imag, real
from functrans.primitives.elementwise.families import (
    add,
    div,
    eq,
    full_like,
    ge,
    lt,
    mul,
    ne,
    neg,
    square,
    sub,
)
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import exp, log1p, sin
from functrans.trace import Tracer, concrete_value, typeof
from functrans.typing import Array, ArrayLike

__all__ = ["logaddexp", "logaddexp2", "pow", "power", "sinc"]


def same(x: Any, value: Any) -> Any:
    """Return a literal of x's type."""
    return scalar(value, typeof(x))


def constant(x: Any, value: Any) -> Any:
    """Return a literal of x's shape with the type of JAX's constants that are combined with x: weakly
    typed, like a Python number, only if x is a weakly typed scalar."""
    t = typeof(x)
    return scalar(value, t.strong() if t.shape else t)


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


# --- functions of floats that take a few primitives: logarithms of sums, sinc ---------------------


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
    period = add(half, half)
    rest = rem(add(angle, half), period)
    turned = select_n(lt(rest, same(rest, 0)), rest, add(rest, period))
    return complex_(real(z), sub(turned, half))


def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    Source: `jax.numpy.sinc`.
    """
    x = to_inexact(value_of(x, "sinc"))
    t = typeof(x)
    if dtype_class(t.dtype) == "complex":
        z = mul(x, constant(x, math.pi))
        near = lt(abs_(z), full_like(abs_(z), 1))
        far, inside = select_n(near, z, same(z, 1)), select_n(near, same(z, 0), z)
        return select_n(near, div(sin(far), far), _sinc_series(inside))
    x = abs_(cast_to(x, max(t.dtype, np.dtype("float32"))))
    # sin(pi x) = sin(pi (x - n)) for an even n, sin(pi (n - x)) for an odd one: precise near integers.
    n = round_(x, rounding_method=1)
    r = select_n(ne(rem(n, 2), 0), sub(x, n), sub(n, x))
    r = select_n(eq(x, math.inf), r, same(r, 0))
    central, series = eq(n, 0), _sinc_series(mul(r, constant(r, math.pi)))
    around = div(mul(r, series), select_n(central, x, same(x, 1)))
    return cast_to(select_n(central, around, series), t.dtype)


def _sinc_series(z: Any) -> Any:
    """sin(z) / z for |z| <= pi/2, by its Taylor series: derivatives of every order are precise."""
    z2, k, coefficients = square(z), 0, [1.0]
    while abs(coefficients[0]) * (math.pi / 2) ** (2 * k) > np.finfo(typeof(z).dtype).eps / 8:
        k += 1
        coefficients.insert(0, (-1) ** k / math.factorial(2 * k + 1))
    y = same(z, coefficients[0])
    for c in coefficients[1:]:
        y = add(mul(y, z2), same(z, c))
    return y
