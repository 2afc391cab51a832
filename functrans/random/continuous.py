"""Distributions on the real line whose samples are a formula of uniform ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from functrans import lax
from functrans import numpy as jnp
from functrans.flags import flags
from functrans.ir.types import dtype_class
from functrans.lax.arguments import placeable
from functrans.numpy.promotion import cast, expand, invalid
from functrans.primitives.arithmetic import max_, min_, nextafter, sign
from functrans.primitives.bitwise import and_, clz, not_, or_, shift_left, shift_right_logical
from functrans.primitives.complex_numbers import abs_, complex_
from functrans.primitives.elementwise import add, div, eq, ge, le, lt, mul, neg, sub
from functrans.primitives.special import erf, erf_inv
from functrans.primitives.transcendental import exp, log, log1p, sqrt, tan
from functrans.random.arguments import check_safe, dtype_of, shape_of, shape_with
from functrans.random.staged import Source, sampler
from functrans.random.uniform import between, halves, rademacher_of, unit
from functrans.trace import literal, typeof

__all__ = [
    "cauchy", "double_sided_maxwell", "exponential", "gumbel", "laplace", "logistic", "lognormal",
    "maxwell", "normal", "pareto", "rayleigh", "triangular", "truncated_normal", "wald",
    "weibull_min",
]  # fmt: skip

FLOAT = ("float",)


# --- without parameters ---------------------------------------------------------------------------


def _standard(name: str, summary: str, draw: Callable[[Source, Any, Any], Any]) -> Callable:
    """A distribution without parameters: `draw(source, shape, dtype)`."""

    @sampler(name)
    def sample(source: Source, *, shape: Any, dtype: Any) -> Any:
        return draw(source, shape, dtype)

    @placeable
    def of(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
        return sample(key, shape=shape_of(name, shape), dtype=dtype_of(name, dtype))

    of.__name__ = of.__qualname__ = name
    of.__doc__ = f"""{summary}

    Arguments:
      key: a key.
      shape: of the result.
      dtype: a float dtype.

    Source: `jax.random.{name}`.

    Example:
      >>> import functrans as ft
      >>> ft.random.{name}(ft.random.key(0), (3,)).shape
      (3,)
    """
    return of


def _cauchy(source: Source, shape: Any, dtype: Any) -> Any:
    u = between(source, shape, dtype, jax.numpy.finfo(dtype).eps, 1.0)
    return tan(mul(sub(u, 0.5), literal(math.pi, typeof(u))))


def exponential_of(source: Source, shape: Any, dtype: Any) -> Any:
    return neg(log1p(neg(unit(source, shape, dtype))))


def _laplace(source: Source, shape: Any, dtype: Any) -> Any:
    u = between(source, shape, dtype, -1.0 + jax.numpy.finfo(dtype).epsneg, 1.0)
    return mul(sign(u), log1p(neg(abs_(u))))


def _logistic(source: Source, shape: Any, dtype: Any) -> Any:
    u = between(source, shape, dtype, jax.numpy.finfo(dtype).tiny, 1.0)
    return sub(log(u), log1p(neg(u)))


def _maxwell(source: Source, shape: Any, dtype: Any) -> Any:
    # fused with the hash, XLA rounds the sum or its root in another way
    x = real_normal(source._replace(rolled=True), (*shape, 3), dtype)
    return sqrt(jnp.sum(mul(x, x), -1))


cauchy = _standard("cauchy", "Draw from the Cauchy distribution, density ~ 1 / (1 + x^2).", _cauchy)
exponential = _standard("exponential", "Draw from the density e^-x, x >= 0.", exponential_of)
laplace = _standard("laplace", "Draw from the density e^-|x| / 2.", _laplace)
logistic = _standard("logistic", "Draw from the density e^-x / (1 + e^-x)^2.", _logistic)
maxwell = _standard("maxwell", "Draw from the density sqrt(2/pi) x^2 e^(-x^2/2), x >= 0.", _maxwell)


# --- normal ---------------------------------------------------------------------------------------


@placeable
def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Draw standard normal numbers.

    Arguments:
      key: a key.
      shape: of the result.
      dtype: a float or complex dtype; the parts of complex numbers have variance 1/2.

    Source: `jax.random.normal`.

    Example:
      >>> import functrans as ft
      >>> ft.random.normal(ft.random.key(0), (2, 3)).shape
      (2, 3)
    """
    dtype = dtype_of("normal", dtype, float, ("float", "complex"))
    return _normal(key, shape=shape_of("normal", shape), dtype=dtype)


@sampler("normal")
def _normal(source: Source, *, shape: Any, dtype: Any) -> Any:
    return any_normal(source, shape, dtype)


def any_normal(source: Source, shape: tuple[int, ...], dtype: Any) -> Any:
    """Standard normal numbers of a float or complex dtype."""
    if dtype_class(dtype) != "complex":
        return real_normal(source, shape, dtype)
    part = np.zeros((), dtype).real.dtype
    re, im = [real_normal(s, shape, part) for s in source.split()]
    z = complex_(re, im)
    return div(z, literal(math.sqrt(2), typeof(z)))


def real_normal(source: Source, shape: tuple[int, ...], dtype: Any) -> Any:
    """sqrt(2) erf_inv(u), u in (-1, 1)."""
    low = np.nextafter(np.array(-1.0, dtype), np.array(0.0, dtype), dtype=dtype)
    u = between(source, shape, dtype, low, 1.0)
    return mul(erf_inv(u), literal(math.sqrt(2), typeof(u)))


@placeable
def truncated_normal(
    key: Any,
    lower: Any,
    upper: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw standard normal numbers that lie between two bounds.

    Arguments:
      key: a key.
      lower, upper: numbers or arrays that broadcast to `shape`; differentiable.
      shape: of the result; None: that of the bounds.
      dtype: a float dtype.

    Source: `jax.random.truncated_normal`.

    Example:
      >>> import functrans as ft
      >>> x = ft.random.truncated_normal(ft.random.key(0), -1.0, 1.0, (100,))
      >>> print(abs(x).max() < 1)
      True
    """
    shape = shape_with("truncated_normal", shape, lower, upper)
    dtype = dtype_of("truncated_normal", dtype)
    return _truncated_normal(key, lower, upper, shape=shape, dtype=dtype)


@sampler("truncated_normal")
def _truncated_normal(source: Source, lower: Any, upper: Any, *, shape: Any, dtype: Any) -> Any:
    lower, upper = [expand(cast(x, dtype), shape) for x in (lower, upper)]
    sqrt2 = literal(math.sqrt(2), typeof(lower).strong())
    low, high = erf(div(lower, sqrt2)), erf(div(upper, sqrt2))
    u = unit(source, shape, dtype)
    u = max_(low, add(mul(u, sub(high, low)), low))
    x = mul(erf_inv(u), sqrt2)
    # rounding must not carry it onto or over a bound
    infinity = literal(math.inf, typeof(x))
    above = nextafter(lax.stop_gradient(lower), infinity)
    below = nextafter(lax.stop_gradient(upper), literal(-math.inf, typeof(x)))
    return min_(max_(x, above), below)


# --- gumbel ---------------------------------------------------------------------------------------


@placeable
def gumbel(
    key: Any, shape: Any = (), dtype: Any = None, mode: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw from the Gumbel distribution, density e^-(x + e^-x).

    Arguments:
      key: a key.
      shape: of the result.
      dtype: a float dtype.
      mode: "low", "high" or "highest": how finely the right tail is resolved.

    Source: `jax.random.gumbel`.

    Example:
      >>> import functrans as ft
      >>> ft.random.gumbel(ft.random.key(0), (3,)).shape
      (3,)
    """
    dtype = dtype_of("gumbel", dtype)
    return _gumbel(key, shape=shape_of("gumbel", shape), dtype=dtype, mode=gumbel_mode(mode))


def gumbel_mode(mode: Any) -> str:
    """The mode, by default that of the configuration."""
    if mode is None:
        return "high" if flags.jax_high_dynamic_range_gumbel else "low"
    if mode not in ("highest", "high", "low"):
        raise invalid("gumbel", f"mode must be 'highest', 'high' or 'low', got {mode!r}")
    return mode


@sampler("gumbel")
def _gumbel(source: Source, *, shape: Any, dtype: Any, mode: str) -> Any:
    return gumbel_of(source, shape, dtype, mode)


def gumbel_of(source: Source, shape: tuple[int, ...], dtype: Any, mode: str) -> Any:
    """-log(-log(u)), u in (0, 1)."""
    info = jax.numpy.finfo(dtype)
    if mode == "highest" and dtype == np.float32:
        return _finest_gumbel(source, shape)
    if mode == "low":
        u = between(source, shape, dtype, info.tiny, 1.0)
        return neg(log(neg(log(u))))
    high, low = halves(unit(source, (2, *shape), dtype))
    t = typeof(high)
    fine = mul(low, literal(2.0**-info.nmant, t))
    u = add(add(high, fine), literal(info.tiny, t))
    u = lax.select(ge(high, literal(0.5, t)), high, u)
    return neg(log(neg(log1p(neg(u)))))


def _finest_gumbel(source: Source, shape: tuple[int, ...]) -> Any:
    """Of 64 bits: u as a float32 with its full mantissa however small it, or 1 - u, is."""
    bits = source.bits((2, *shape), 32)
    high, low = halves(bits)
    t = typeof(high)
    # 1 - u in 64-bit fixed point: the two's complement
    carry = cast(eq(low, literal(0, t)), t.dtype)
    neg_high, neg_low = add(not_(high), carry), add(not_(low), 1)
    small = lt(high, literal(2**31, t))
    u = _float_of(lax.select(small, high, neg_high), lax.select(small, low, neg_low))
    left = neg(log(neg(log1p(neg(u)))))
    right = neg(log(neg(log(u))))
    return lax.select(small, left, right)


def _float_of(high: Any, low: Any) -> Any:
    """64 bits after the binary point as a float32 in [0, 1)."""
    info = np.finfo(np.float32)
    t = typeof(high)
    zeros, low_zeros = clz(high), clz(low)
    none = eq(zeros, literal(32, t))
    rest = lax.select(
        none,
        shift_left(low, low_zeros),
        shift_right_logical(low, sub(literal(32, t), zeros)),
    )
    mantissa = or_(shift_left(high, zeros), rest)
    mantissa = shift_right_logical(mantissa, literal(32 - info.nmant - 1, t))
    mantissa = and_(mantissa, literal((1 << info.nmant) - 1, t))
    places = lax.select(none, add(low_zeros, literal(32, t)), zeros)
    exponent = shift_left(sub(literal(-info.minexp, t), places), literal(info.nmant, t))
    exponent = and_(exponent, literal((1 << 30) - (1 << (info.nmant - 1)), t))
    return lax.bitcast_convert_type(or_(exponent, mantissa), np.float32)


# --- with parameters ------------------------------------------------------------------------------


@placeable
def pareto(
    key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw from the density b / x^(b+1), x >= 1; `shape` None: that of b.

    Source: `jax.random.pareto`.

    Example:
      >>> import functrans as ft
      >>> ft.random.pareto(ft.random.key(0), 2.0, (3,)).shape
      (3,)
    """
    dtype = dtype_of("pareto", dtype)
    check_safe("pareto", dtype, b)
    return _pareto(key, b, shape=shape_with("pareto", shape, b), dtype=dtype)


@sampler("pareto")
def _pareto(source: Source, b: Any, *, shape: Any, dtype: Any) -> Any:
    b = expand(cast(b, dtype), shape)
    return exp(div(exponential_of(source, shape, dtype), b))


@placeable
def rayleigh(
    key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw from the density x e^(-x^2 / (2 scale^2)), x >= 0; `shape` None: that of scale.

    Source: `jax.random.rayleigh`.

    Example:
      >>> import functrans as ft
      >>> ft.random.rayleigh(ft.random.key(0), 2.0, (3,)).shape
      (3,)
    """
    dtype = dtype_of("rayleigh", dtype)
    check_safe("rayleigh", dtype, scale)
    return _rayleigh(key, scale, shape=shape_with("rayleigh", shape, scale), dtype=dtype)


@sampler("rayleigh")
def _rayleigh(source: Source, scale: Any, *, shape: Any, dtype: Any) -> Any:
    scale = expand(cast(scale, dtype), shape)
    return mul(scale, sqrt(mul(log(unit(source, shape, dtype)), -2.0)))


@placeable
def lognormal(
    key: Any,
    sigma: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw e^(sigma z), z standard normal; `shape` None: that of sigma.

    Source: `jax.random.lognormal`.

    Example:
      >>> import functrans as ft
      >>> ft.random.lognormal(ft.random.key(0), 0.5, (3,)).shape
      (3,)
    """
    dtype = dtype_of("lognormal", dtype, float, ("float", "complex"))
    check_safe("lognormal", dtype, sigma)
    return _lognormal(key, sigma, shape=shape_with("lognormal", shape, sigma), dtype=dtype)


@sampler("lognormal")
def _lognormal(source: Source, sigma: Any, *, shape: Any, dtype: Any) -> Any:
    return exp(mul(any_normal(source, shape, dtype), expand(cast(sigma, dtype), shape)))


@placeable
def wald(
    key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw from the inverse Gaussian distribution of scale 1; `shape` None: that of mean.

    Source: `jax.random.wald`.

    Example:
      >>> import functrans as ft
      >>> ft.random.wald(ft.random.key(0), 1.0, (3,)).shape
      (3,)
    """
    dtype = dtype_of("wald", dtype)
    check_safe("wald", dtype, mean)
    return _wald(key, mean, shape=shape_with("wald", shape, mean), dtype=dtype)


@sampler("wald")
def _wald(source: Source, mean: Any, *, shape: Any, dtype: Any) -> Any:
    """Michael, Schucany, Haas (1976): one of the two roots, chosen by their probabilities."""
    first, second = source.split()
    mean = expand(cast(mean, dtype), shape)
    v, z = real_normal(first, shape, dtype), unit(second, shape, dtype)
    y = mul(v, v)
    squared = mul(mean, mean)
    four_mean_y = mul(mul(mean, 4.0), y)
    root = sqrt(add(four_mean_y, mul(squared, mul(y, y))))
    x = add(mean, div(mul(squared, y), 2.0))
    x = sub(x, mul(div(mean, 2.0), root))
    return lax.select(le(z, div(mean, add(mean, x))), x, div(squared, x))


@placeable
def triangular(
    key: Any,
    left: Any,
    mode: Any,
    right: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw from the density that rises from left to mode and falls to right, in straight lines.

    Source: `jax.random.triangular`.

    Example:
      >>> import functrans as ft
      >>> ft.random.triangular(ft.random.key(0), 0.0, 1.0, 3.0, (3,)).shape
      (3,)
    """
    dtype = dtype_of("triangular", dtype)
    check_safe("triangular", dtype, left, mode, right)
    shape = shape_with("triangular", shape, left, mode, right)
    return _triangular(key, left, mode, right, shape=shape, dtype=dtype)


@sampler("triangular")
def _triangular(source: Source, left: Any, mode: Any, right: Any, *, shape: Any, dtype: Any) -> Any:
    left, mode, right = [expand(cast(x, dtype), shape) for x in (left, mode, right)]
    width, rise, fall = sub(right, left), sub(mode, left), sub(right, mode)
    u = unit(source, shape, dtype)
    up = add(left, sqrt(mul(mul(u, width), rise)))
    rest = sub(literal(1.0, typeof(u)), u)
    down = sub(right, sqrt(mul(mul(rest, width), fall)))
    return lax.select(lt(u, div(rise, width)), up, down)


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Any:
    """Draw scale * e^(1/concentration), e exponential and of `shape`, broadcast to the parameters,
    of whose dtype and `dtype` the result has the wider.

    Source: `jax.random.weibull_min`.

    Example:
      >>> import functrans as ft
      >>> ft.random.weibull_min(ft.random.key(0), 1.0, 2.0, (3,)).shape
      (3,)
    """
    dtype = dtype_of("weibull_min", dtype)
    return _weibull_min(
        key, scale, concentration, shape=shape_of("weibull_min", shape), dtype=dtype
    )


@sampler("weibull_min")
def _weibull_min(source: Source, scale: Any, concentration: Any, *, shape: Any, dtype: Any) -> Any:
    power = jnp.divide(1.0, concentration)  # at the precision of the parameter
    e = exponential_of(source, shape, dtype)
    return jnp.multiply(jnp.power(e, power), scale)


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Draw loc + scale * m with either sign, m of `maxwell`. The result has shape
    [*shape, *p] of parameters of shape p, or [*p, *p] if `shape` is ().

    Source: `jax.random.double_sided_maxwell`.

    Example:
      >>> import functrans as ft
      >>> ft.random.double_sided_maxwell(ft.random.key(0), 0.0, 2.0, (3,)).shape
      (3,)
    """
    dtype = dtype_of("double_sided_maxwell", dtype)
    own = shape_with("double_sided_maxwell", None, loc, scale)
    shape = (shape_of("double_sided_maxwell", shape) or own) + own
    return _double_sided_maxwell(key, loc, scale, shape=shape, dtype=dtype)


@sampler("double_sided_maxwell")
def _double_sided_maxwell(source: Source, loc: Any, scale: Any, *, shape: Any, dtype: Any) -> Any:
    first, second = source.split()
    signed = mul(rademacher_of(second, shape, dtype), _maxwell(first, shape, dtype))
    return jnp.add(jnp.multiply(signed, scale), loc)
