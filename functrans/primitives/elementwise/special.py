"""Special functions. The reference is SciPy, in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt
from typing import Any

import jax
import ml_dtypes
import numpy as np

from functrans.ir.types import ArrayType
from functrans.loading import Later
from functrans.primitives.elementwise.arithmetic import sign
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.families import (
    Function,
    Unary,
    add,
    div,
    full_like,
    gt,
    mul,
    neg,
    square,
    sub,
)
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import exp, log, log1p
from functrans.trace import typeof

FLOAT = ("float",)


_special: Any = Later("scipy.special")


def _wide(x: Any) -> Any:
    """Return an array of any dtype in double precision."""
    return np.asarray(x).astype(np.float64)


def _lgamma(x: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(x), np.inf, _special.gammaln(x))


# XLA's digamma at 0, where the two limits have different signs.
_POLE = -np.inf if jax.__version_info__ >= (0, 11) else np.nan


def _digamma(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, _POLE, _special.digamma(x))


def _bell(x: Any, factor: float) -> Any:
    """factor * exp(-x^2), with all its derivatives 0 where it is 0."""
    inside = select_n(gt(abs_(x), 28.0), x, full_like(x, 28.0))
    return mul(exp(neg(square(inside))), factor)


erf: Unary = Unary(
    "erf", FLOAT, lambda x, y: _bell(x, 2 / sqrt(pi)), numpy=lambda x: _special.erf(_wide(x)), flops=10
)
erfc: Unary = Unary(
    "erfc", FLOAT, lambda x, y: _bell(x, -2 / sqrt(pi)), numpy=lambda x: _special.erfc(_wide(x)), flops=10
)
digamma: Unary = Unary(
    "digamma", FLOAT, lambda x, y: polygamma(full_like(x, 1), x), numpy=lambda x: _digamma(_wide(x)), flops=30
)


# --- polygamma and zeta, incomplete gamma and beta functions, Bessel functions --------------------
# The m-th derivative of digamma, zeta, the incomplete gamma and beta functions, the Bessel functions
# I0 and I1 scaled by e^-|x|, and their derivatives. They are lowered through JAX's functions of the
# same names. The reference is SciPy in double precision, and power series where SciPy has no such
# function.
#
#     P(a, x) = igamma      Q(a, x) = igammac = 1 - P      p(a, x) = dP/dx = x^(a-1) e^-x / Gamma(a)
#     igamma_grad_a = dP/da          random_gamma_grad = dx/da at fixed P = -(dP/da) / p
#     random_gamma_grad_a = its derivative with respect to a


class Special(Function):
    """A function of several real arrays of one type.

    deriv : per operand its derivative, a function of (operands, out); None: it has none in closed form
    numpy : the reference, a function of float64 arrays
    same  : the JAX function by which it is lowered, found by name if possible
    """

    def __init__(
        self,
        name: str,
        deriv: Sequence[Callable[..., Any] | None],
        numpy: Callable[..., Any],
        same: Callable[..., Any] | None = None,
        flops: int = 100,
    ):
        super().__init__(name, FLOAT, deriv, numpy=numpy, op=same or getattr(jax.lax, name), flops=flops)

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        if len(types) != len(self.deriv):
            raise self.mismatch(types, f"takes {len(self.deriv)} operands, got {len(types)}")
        self.check_equal(types)
        self.check_dtype(types)
        return types[0] if all(t.weak_type for t in types) else types[0].strong()

    def reference(self, *xs: Any) -> Any:
        return np.asarray(self.numpy(*map(_wide, xs))).astype(xs[0].dtype)

    def lower(self, ctx: Any, *xs: Any) -> Any:
        return ctx.via_jax(self.op, *xs)[0]

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        if any(dx is not None and partial is None for dx, partial in zip(tangents, self.deriv, strict=True)):
            raise self.missing("jvp")
        return super().jvp(primals, tangents, out)


# --- derivatives ----------------------------------------------------------------------------------


def _density(a: Any, x: Any) -> Any:
    """Return p(a, x), by its logarithm."""
    return exp(sub(sub(mul(sub(a, 1.0), log(x)), x), lgamma(a)))


def _score(a: Any, x: Any) -> Any:
    """Return d log p / da."""
    return sub(log(x), digamma(a))


def _random_gamma_by_x(a: Any, x: Any, out: Any) -> Any:
    """d/dx (-P_a / p) = -p_a / p + P_a p_x / p^2 = -score - out * (log p)_x."""
    slope = sub(div(sub(a, 1.0), x), 1.0)
    return neg(add(_score(a, x), mul(out, slope)))


def _beta_density(a: Any, b: Any, x: Any, out: Any) -> Any:
    log_beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
    powers = add(mul(sub(b, 1.0), log1p(neg(x))), mul(sub(a, 1.0), log(x)))
    return exp(sub(powers, log_beta))


def _i1e_slope(x: Any, y: Any) -> Any:
    """I1' = I0 - I1 / x; 1/2 at 0."""
    tiny = full_like(x, float(ml_dtypes.finfo(typeof(x).dtype).eps))
    large = gt(abs_(x), tiny)
    safe = select_n(large, tiny, x)
    slope = sub(bessel_i0e(safe), mul(y, add(sign(safe), div(full_like(safe, 1.0), safe))))
    return select_n(large, full_like(x, 0.5), slope)


# --- references -----------------------------------------------------------------------------------


def _at_the_edges(a: np.ndarray, x: np.ndarray, inside: np.ndarray, end: float) -> np.ndarray:
    """Return P or Q: `inside` in the interior of the domain; `end` is the value at x = inf."""
    outside = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (np.isinf(a) & (x > 0))
    found = np.where(outside, np.nan, inside)
    return np.where((a >= 0) & np.isposinf(x), end, found)


def _igamma(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _at_the_edges(a, x, _special.gammainc(a, x), 1.0)


def _igammac(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _at_the_edges(a, x, _special.gammaincc(a, x), 0.0)


def _series(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return s = sum_n c_n, ds/da and d^2s/da^2, c_n = x^n / ((a+1)...(a+n)), where
    P = x^a e^-x / Gamma(a+1) * s."""
    term, total = np.ones_like(x), np.ones_like(x)
    slope, curve, by_a, twice = [np.zeros_like(x) for _ in range(4)]
    for n in range(1, 20_000):
        term = term * x / (a + n)
        slope = slope - 1 / (a + n)  # d log c_n / da
        curve = curve + 1 / (a + n) ** 2  # and of this
        more = term * (slope**2 + curve)
        total, by_a, twice = total + term, by_a + term * slope, twice + more
        if np.all(~(more > 1e-18 * np.abs(twice)) | ~np.isfinite(total)):
            break
    return total, by_a, twice


def _gradient(of: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return the function extended by NaN outside of the domain and 0 at x = 0."""

    def function(a: np.ndarray, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.where((x == 0) & ~np.isnan(a), 0.0, of(a, x))
        return np.where((a <= 0) | (x < 0), np.nan, found)

    return function


@_gradient
def _random_gamma_grad(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The series cancels for large x; there -P_a / p = Q_a / p is the integral over u > 0 of
    e^-u (1 + u/x)^(a-1) (log(x + u) - digamma(a))."""
    total, by_a, _ = _series(a, x)
    small = -x / a * (by_a + total * (np.log(x) - _special.digamma(a + 1)))
    return np.where(x > np.maximum(a, 8), _integral(a, x)[0], small)


@_gradient
def _igamma_grad_a(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """By dx/da, as the series of dP/da overflows for large x."""
    density = np.exp((a - 1) * np.log(x) - x - _special.gammaln(a))
    return -density * _random_gamma_grad(a, x)


@_gradient
def _random_gamma_grad_a(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the derivative with respect to a of both forms of the gradient."""
    total, by_a, twice = _series(a, x)
    distance = np.log(x) - _special.digamma(a + 1)
    inner = by_a + total * distance
    by_a_inner = twice + by_a * distance - total * _special.polygamma(1, a + 1)
    small = x / a * (inner / a - by_a_inner)
    return np.where(x > np.maximum(a, 8), _integral(a, x)[1], small)


def _integral(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient for large x, and its derivative with respect to a."""
    nodes, weights = np.polynomial.laguerre.laggauss(64)
    a, x = a[..., None], x[..., None]
    powers, distance = (1 + nodes / x) ** (a - 1), np.log(x + nodes) - _special.digamma(a)
    slope = np.log1p(nodes / x) * distance - _special.polygamma(1, a)
    return (powers * distance) @ weights, (powers * slope) @ weights


# --- the operations -------------------------------------------------------------------------------

# JAX's has a more accurate variant (jax_accurate_erf_inv)
erf_inv: Special = Special(
    "erf_inv", (lambda x, y: mul(exp(square(y)), sqrt(pi) / 2),), lambda x: _special.erfinv(x), flops=20
)
lgamma: Special = Special("lgamma", (lambda x, y: digamma(x),), _lgamma, flops=30)
polygamma: Special = Special(
    "polygamma",
    (None, lambda m, x, out: polygamma(add(m, 1.0), x)),
    lambda m, x: _special.polygamma(m, x),
    flops=50,
)
zeta: Special = Special("zeta", (None, None), lambda x, q: _special.zeta(x, q), flops=50)
igamma_grad_a: Special = Special(
    "igamma_grad_a", (None, lambda a, x, out: mul(_density(a, x), _score(a, x))), _igamma_grad_a
)
igamma: Special = Special(
    "igamma", (lambda a, x, out: igamma_grad_a(a, x), lambda a, x, out: _density(a, x)), _igamma
)
igammac: Special = Special(
    "igammac", (lambda a, x, out: neg(igamma_grad_a(a, x)), lambda a, x, out: neg(_density(a, x))), _igammac
)
random_gamma_grad_a: Special = Special(
    "random_gamma_grad_a",
    (None, None),
    _random_gamma_grad_a,
    lambda a, x: jax.jvp(lambda a: jax.lax.random_gamma_grad(a, x), (a,), (jax.lax.full_like(a, 1),))[1],
)
random_gamma_grad: Special = Special(
    "random_gamma_grad", (lambda a, x, out: random_gamma_grad_a(a, x), _random_gamma_by_x), _random_gamma_grad
)
regularized_incomplete_beta: Special = Special(
    "regularized_incomplete_beta",
    (None, None, _beta_density),
    lambda a, b, x: _special.betainc(a, b, x),
    jax.lax.betainc,
)

bessel_i1e: Unary = Unary("bessel_i1e", FLOAT, _i1e_slope, numpy=lambda x: _special.i1e(_wide(x)), flops=30)
bessel_i0e: Special = Special(
    "bessel_i0e", (lambda x, y: sub(bessel_i1e(x), mul(sign(x), y)),), lambda x: _special.i0e(x), flops=30
)
