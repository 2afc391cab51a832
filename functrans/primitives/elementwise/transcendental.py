"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

from math import log as log_of
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo
from functrans.primitives.elementwise.complex_numbers import abs_, complex_, imag, real
from functrans.primitives.elementwise.families import (
    FLOATS,
    Binary,
    Unary,
    add,
    div,
    full_like,
    gt,
    mul,
    neg,
    one_minus_square,
    square,
    sub,
)
from functrans.primitives.elementwise.selection import clamp, select_n, stop_gradient
from functrans.trace import typeof


class Accurate(Unary):
    """A function that hardware may approximate. `accuracy` is None, the name of a
    `jax.lax.AccuracyMode`, or (atol, rtol, ulps); the derivative has the default accuracy."""

    def abstract_eval(self, x: ArrayType, *, accuracy: Any = None) -> ArrayType:
        return super().abstract_eval(x)

    def lower(self, ctx: Any, x: Any, *, accuracy: Any = None) -> Any:
        if accuracy is None:
            return super().lower(ctx, x)
        return self.op(x, result_accuracy=_accuracy_attribute(accuracy))


def _accuracy_attribute(accuracy: Any) -> Any:
    if isinstance(accuracy, str):
        return hlo.ResultAccuracyAttr.get(0.0, 0.0, 0, accuracy)
    atol, rtol, ulps = accuracy
    return hlo.ResultAccuracyAttr.get(atol, rtol, ulps, "TOLERANCE")


class Exp2(Accurate):
    """2 to the power x."""

    def lower(self, ctx: Any, x: Any, *, accuracy: Any = None) -> Any:
        scaled = hlo.multiply(ctx.full(log_of(2), ctx.in_types[0]), x)
        return super().lower(ctx, scaled, accuracy=accuracy)


class Logistic(Accurate):
    """1 / (1 + exp(-x))."""

    def lower(self, ctx: Any, x: Any, *, accuracy: Any = None) -> Any:
        one = ctx.full(1, ctx.in_types[0])
        return hlo.divide(one, hlo.add(one, hlo.exponential(hlo.negate(x))))


def _logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _asinh_slope(x: Any, y: Any) -> Any:
    """1 / sqrt(x^2 + 1) = r / sqrt((r x)^2 + r^2), where r is 1, or small for a large x, whose square
    would overflow. Near i and -i, and for signs of zeros, the real part of the sum is a product."""
    size = abs_(x)
    far = 2.0 ** (jax.numpy.finfo(typeof(size).dtype).maxexp // 2 - 2)
    scale = clamp(full_like(size, 1.0), mul(size, 1 / far), full_like(size, 16 * far))
    r = div(1.0, stop_gradient(scale))
    if dtype_class(typeof(x).dtype) != "complex":
        return mul(r, rsqrt(add(square(mul(r, x)), square(r))))
    re, im = mul(r, real(x)), mul(r, imag(x))
    slope = rsqrt(complex_(add(square(re), one_minus_square(im)), mul(mul(re, im), 2.0)))
    slope = complex_(mul(r, real(slope)), mul(r, imag(slope)))
    return select_n(gt(scale, 15 * far), slope, full_like(slope, 0))


def _acosh_slope(x: Any, y: Any) -> Any:
    """1 / sqrt(x^2 - 1), as two roots: of the right sign left of 0, and no square overflows."""
    return mul(rsqrt(sub(x, 1.0)), rsqrt(add(x, 1.0)))


exp: Accurate = Accurate("exp", FLOATS, lambda x, y: y, op=hlo.exponential, flops=10)
exp2: Exp2 = Exp2("exp2", FLOATS, lambda x, y: mul(y, log_of(2)), op=hlo.exponential, flops=10)
expm1: Accurate = Accurate("expm1", FLOATS, lambda x, y: exp(x), op=hlo.exponential_minus_one, flops=10)
log: Accurate = Accurate("log", FLOATS, tangent=lambda dx, x, y: div(dx, x), flops=10)
log1p: Accurate = Accurate(
    "log1p", FLOATS, tangent=lambda dx, x, y: div(dx, add(x, 1.0)), op=hlo.log_plus_one, flops=10
)

sqrt: Accurate = Accurate("sqrt", FLOATS, lambda x, y: div(0.5, y))
rsqrt: Accurate = Accurate("rsqrt", FLOATS, lambda x, y: mul(div(y, x), -0.5), numpy=lambda x: 1 / np.sqrt(x))
cbrt: Accurate = Accurate("cbrt", ("float",), lambda x, y: div(div(1 / 3, y), y), flops=10)

sin: Accurate = Accurate(
    "sin", FLOATS, lambda x, y: cos(x), op=hlo.sine, via={"complex": jax.lax.sin}, flops=10
)
cos: Unary = Accurate(
    "cos", FLOATS, lambda x, y: neg(sin(x)), op=hlo.cosine, via={"complex": jax.lax.cos}, flops=10
)
tan: Accurate = Accurate("tan", FLOATS, lambda x, y: add(square(y), 1.0), flops=10)
asin: Unary = Unary("asin", FLOATS, lambda x, y: rsqrt(one_minus_square(x)), flops=10)
acos: Unary = Unary("acos", FLOATS, lambda x, y: neg(rsqrt(one_minus_square(x))), flops=10)
atan: Unary = Unary("atan", FLOATS, tangent=lambda dx, x, y: div(dx, add(square(x), 1.0)), flops=10)
atan2: Binary = Binary(
    "atan2",
    FLOATS,
    (
        lambda x, y, out: div(y, add(square(x), square(y))),
        lambda x, y, out: div(neg(x), add(square(x), square(y))),
    ),
    flops=10,
)

sinh: Unary = Unary("sinh", FLOATS, lambda x, y: cosh(x), flops=10)
cosh: Unary = Unary("cosh", FLOATS, lambda x, y: sinh(x), flops=10)
tanh: Accurate = Accurate("tanh", FLOATS, lambda x, y: one_minus_square(y), flops=10)
asinh: Unary = Unary("asinh", FLOATS, _asinh_slope, flops=10)
acosh: Unary = Unary("acosh", FLOATS, _acosh_slope, flops=10)
atanh: Unary = Unary("atanh", FLOATS, tangent=lambda dx, x, y: div(dx, one_minus_square(x)), flops=10)
logistic: Logistic = Logistic("logistic", FLOATS, lambda x, y: mul(y, sub(1.0, y)), numpy=_logistic, flops=10)
