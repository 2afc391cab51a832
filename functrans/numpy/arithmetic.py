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
from functrans.numpy import promotion
from functrans.numpy.promotion import BOOL
from functrans.numpy.ufuncs import numeric, refuse_out
from functrans.primitives.elementwise.arithmetic import integer_pow, pow_, rem, round_
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.families import add, div, eq, ge, lt, mul, ne, neg, square, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import exp, log1p, sin
from functrans.trace import Tracer, concrete_value, typeof
from functrans.typing import Array, ArrayLike

__all__ = ["logaddexp", "logaddexp2", "pow", "power", "sinc"]


def same(x: Any, value: Any) -> Any:
    """Return a literal of x's type."""
    return promotion.scalar(value, typeof(x))


def constant(x: Any, value: Any) -> Any:
    """Return a literal of x's shape with the type of JAX's constants that are combined with x: weakly
    typed, like a Python number, only if x is a weakly typed scalar."""
    t = typeof(x)
    return promotion.scalar(value, t.strong() if t.shape else t)


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
            (x,) = numeric(promotion.value_of(x, "power"))
        return integer_pow(x, y=exponent)
    given = x, y
    x, y = promotion.value_of(x, "power"), promotion.value_of(y, "power", 1)
    kinds = dtype_class(typeof(x).dtype), dtype_class(typeof(y).dtype)
    if kinds[0] in ("float", "complex") and kinds[1] in ("int", "uint"):
        # pow(float, int): differentiable in x also where x is 0
        shape = promotion.broadcast_shape([typeof(x).shape, typeof(y).shape], "power", [typeof(x), typeof(y)])
        return pow_(promotion.expand(x, shape), promotion.expand(y, shape))
    x, y = numeric(*promotion.align(x, y, "power"))
    return pow_(x, y) if is_inexact(typeof(x).dtype) else promotion.of_jax("power")(*given)


pow = power


def _static_integer(y: Any) -> int | None:
    if y.__class__ is int:
        return y
    if y.__class__ is float or isinstance(y, Tracer):
        return None
    try:
        return operator.index(concrete_value(y))
    except TypeError:
        return None


# --- functions of floats that take a few primitives: logarithms of sums, sinc ---------------------


def logaddexp(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
    """log(exp(x) + exp(y)) without overflow.

    Source: `jax.numpy.logaddexp`.
    """
    refuse_out("logaddexp", out, where)
    return _log_of_sum("logaddexp", x, y, unit=1.0)


def logaddexp2(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
    """log2(2**x + 2**y) without overflow.

    Source: `jax.numpy.logaddexp2`.
    """
    refuse_out("logaddexp2", out, where)
    return _log_of_sum("logaddexp2", x, y, unit=math.log(2))


def _log_of_sum(name: str, *given: Any, unit: float) -> Any:
    """max(x, y) + log(1 + exp(-|x - y| unit)) / unit; x + y where both are the same infinity or one
    is NaN. There the difference is replaced, so that no NaN reaches the gradient."""
    x, y = promotion.align_all(given, name, inexact=True)
    if dtype_class(typeof(x).dtype) == "complex":
        return promotion.of_jax(name)(*given)
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


def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    Source: `jax.numpy.sinc`.
    """
    x = promotion.to_inexact(promotion.value_of(x, "sinc"))
    t = typeof(x)
    if dtype_class(t.dtype) == "complex":
        z = mul(x, constant(x, math.pi))
        near = lt(abs_(z), same(abs_(z), 1))
        far, inside = select_n(near, z, same(z, 1)), select_n(near, same(z, 0), z)
        return select_n(near, div(sin(far), far), _sinc_series(inside))
    x = abs_(promotion.cast_to(x, max(t.dtype, np.dtype("float32"))))
    # sin(pi x) = sin(pi (x - n)) for an even n, sin(pi (n - x)) for an odd one: precise near integers.
    n = round_(x, rounding_method=1)
    r = select_n(ne(rem(n, 2), 0), sub(x, n), sub(n, x))
    r = select_n(eq(x, math.inf), r, same(r, 0))
    central, series = eq(n, 0), _sinc_series(mul(r, constant(r, math.pi)))
    around = div(mul(r, series), select_n(central, x, same(x, 1)))
    return promotion.cast_to(select_n(central, around, series), t.dtype)


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
