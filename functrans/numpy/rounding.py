"""Functions of floats that take a few primitives: rounding, logarithms of sums, sinc."""

from __future__ import annotations

import math
import operator
from typing import Any

import jax
import numpy as np

from functrans.ir.types import dtype_class
from functrans.numpy import primitives
from functrans.numpy.arithmetic import constant, remainder, same
from functrans.numpy.primitives import select_n
from functrans.numpy.promotion import (
    align_inexact,
    array_of,
    cast,
    invalid,
    mismatch,
    to_inexact,
    value_of,
)
from functrans.numpy.ufuncs import refuse_out, rint
from functrans.trace import literal, typeof

__all__ = ["around", "isnan", "logaddexp", "logaddexp2", "round", "sinc", "trunc"]


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
    delta = primitives.sub(x, y)
    undefined = primitives.ne(delta, delta)
    delta = select_n(undefined, delta, same(delta, 0))
    x_wins = primitives.ge(
        delta, same(delta, 0)
    )  # chosen, so that the derivative of a tie is a half
    largest = select_n(x_wins, y, x)
    distance = select_n(x_wins, primitives.neg(delta), delta)
    if unit == 1.0:
        rest = primitives.log1p(primitives.exp(primitives.neg(distance)))
    else:
        rest = primitives.log1p(primitives.exp(primitives.mul(distance, constant(distance, -unit))))
        rest = primitives.div(rest, constant(rest, unit))
    return select_n(undefined, primitives.add(largest, rest), primitives.add(x, y))


def _log_of_complex_sum(x: Any, y: Any, unit: float) -> Any:
    """As `_log_of_sum`, of the operand that comes last in the order of complex numbers and the
    distance of the other; the imaginary part is brought to [-pi, pi] / unit."""
    largest = primitives.max_(x, y)
    distance = primitives.sub(primitives.add(x, y), primitives.add(largest, largest))
    rest = primitives.log1p(primitives.exp(primitives.mul(distance, constant(distance, unit))))
    z = primitives.add(largest, primitives.div(rest, same(rest, unit)))
    angle = primitives.imag(z)
    half = same(angle, math.pi / unit)
    turned = remainder(primitives.add(angle, half), primitives.add(half, half))
    return primitives.complex_(primitives.real(z), primitives.sub(turned, half))


def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    Source: `jax.numpy.sinc`.
    """
    x = to_inexact(value_of(x, "sinc"))
    z = primitives.mul(x, constant(x, math.pi))
    # Near 0 the series, so that derivatives of every order are right there.
    small = primitives.lt(primitives.abs_(z), literal(1e-3, typeof(primitives.abs_(z))))
    safe = select_n(small, z, same(z, 1))
    z2 = primitives.square(select_n(small, same(z, 0), z))
    series = same(z, 1 / 362880)
    for coefficient in (-1 / 5040, 1 / 120, -1 / 6, 1.0):
        series = primitives.add(primitives.mul(series, z2), same(z, coefficient))
    return select_n(small, primitives.div(primitives.sin(safe), safe), series)


def isnan(x: Any, /) -> Any:
    """Not a number.

    Source: `jax.numpy.isnan`.
    """
    x = value_of(x, "isnan")
    return primitives.ne(x, x)


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
    return select_n(primitives.lt(x, same(x, 0)), primitives.floor(x), primitives.ceil(x))


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
        return primitives.complex_(
            round(primitives.real(a), decimals), round(primitives.imag(a), decimals)
        )
    if decimals == 0:
        return rint(a)
    if decimals > math.log10(float(jax.numpy.finfo(t.dtype).max)):  # more than there are
        return array_of(a, "round")
    factor = 10.0 ** abs(decimals)
    narrow = np.dtype(t.dtype).itemsize < 4
    x = cast(a, np.dtype("float32"), t.weak_type) if narrow else a
    there, back = (
        (primitives.mul, primitives.div) if decimals > 0 else (primitives.div, primitives.mul)
    )
    factor = constant(x, factor)
    y = back(primitives.round_(there(x, factor), rounding_method=1), factor)
    return cast(y, t.dtype, typeof(y).weak_type)


around = round
