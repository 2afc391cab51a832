"""Gamma and Poisson samples without a loop, slightly off: quantiles by formulas. The operations are
those of `jax.random` in their order, so the samples are the same up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans import lax
from functrans import numpy as jnp
from functrans.lax.special import normal_probability
from functrans.random.continuous import exponential_of, real_normal
from functrans.random.staged import Source
from functrans.trace import typeof

FLOAT32 = np.dtype(np.float32)

# --- gamma ----------------------------------------------------------------------------------------

# Goldstein, Algorithm 451 (1973), and Johnson, Kotz, Balakrishnan, Continuous Univariate
# Distributions 1, eq. 18.37: the root (chi2 / nu)^(1/3) of a quantile of the chi-squared
# distribution is a polynomial in t = z / sqrt(nu), z the quantile of the normal distribution. Row k
# holds the coefficient of t^k as a polynomial in 1 / nu. The first number is published as
# 1.0000886; the limit for large nu is 1.
_QUANTILE = (
    (1.0, -0.2237368, -0.01513904),
    (0.4713941, 0.02607083, -0.008986007),
    (0.0001348028, 0.01128186, 0.02277679),
    (-0.008553069, -0.01153761, -0.01323293),
    (0.00312558, 0.005169654, -0.006950356),
    (-0.0008426812, 0.00253001, 0.001060438),
    (0.00009780499, -0.001450117, 0.001565326),
)
_STEPS = 4  # from where on the polynomial is good to 0.05 %


def log_gamma(source: Source, a: Any) -> Any:
    """The logarithm of a gamma sample for each a, float32 or float64.

    Stuart (1962): a sample of a is one of a + n times U_k^(1 / (a + k)), k = 0 .. n-1.
    """
    above, steps = source.split()
    t = typeof(a)
    from_above = _log_gamma_by_quantile(above, a + _STEPS)
    k = jnp.arange(_STEPS, dtype=t.dtype).reshape(_STEPS, *[1] * t.ndim)
    logs = -exponential_of(steps, (_STEPS, *t.shape), t.dtype)
    return from_above + jnp.sum(logs / (a[None, ...] + k), axis=0)


def _log_gamma_by_quantile(source: Source, a: Any) -> Any:
    """Of a not near 0: the quantile of 2 a degrees of freedom at a normal sample, halved."""
    t = typeof(a)
    nu = 2 * a
    z = real_normal(source, t.shape, t.dtype)
    u = 1 / nu
    x = z * lax.rsqrt(nu)
    rows = [c0 + u * (c1 + u * c2) for c0, c1, c2 in _QUANTILE]
    root = rows[-1]
    for row in rows[-2::-1]:
        root = root * x + row
    root = jnp.maximum(root, jnp.finfo(t.dtype).tiny)  # of a normal sample beyond all that occur
    return jnp.log(a) + 3 * jnp.log(root)


# --- poisson --------------------------------------------------------------------------------------

_FEW = 7.0  # means below it: by the distribution function itself
_COUNTS = 20  # which is cut off there: 4e-5 is beyond, at the mean 7


def poisson_counts(source: Source, lam: Any) -> Any:
    """A count, as a float, for each mean of float32 or float64: a quantile at a normal sample."""
    z = real_normal(source, typeof(lam).shape, typeof(lam).dtype)
    few = _count_by_probability(normal_probability(z), lam)
    return jnp.where(lam < _FEW, few, _count_by_normal_quantile(z, lam))


def _count_by_probability(u: Any, lam: Any) -> Any:
    """How many of P(X <= 0), P(X <= 1), ... lie below u."""
    dtype = typeof(u).dtype
    here = lax.exp(-lam)
    below = here
    count = (below < u).astype(dtype)
    for k in range(1, _COUNTS - 1):
        here = here * (lam / k)
        below = below + here
        count = count + (below < u).astype(dtype)
    return count


def _count_by_normal_quantile(z: Any, lam: Any) -> Any:
    """The least count whose normal quantile is z or more; guessed by an expansion, which is less
    than 1 off once it is shifted by 0.6, then chosen among three."""
    s = jnp.sqrt(lam)
    z2 = jnp.square(z)
    guess = lam + s * z - 2 / 3 + z2 / 6 + z * (1 - z2) / (72 * s)
    middle = jnp.ceil(guess + 0.6)

    def reached(count: Any) -> Any:
        quantile = _normal_quantile(jnp.maximum(count, 0.0), lam)
        return (jnp.where(count < 0, -np.inf, quantile) >= z).astype(typeof(z).dtype)

    return jnp.maximum(middle + 1 - reached(middle) - reached(middle - 1), 0.0)


def _normal_quantile(count: Any, lam: Any) -> Any:
    """Peizer and Pratt (1968): z with P(X <= count) = P(normal <= z), very nearly."""
    g = _peizer_pratt((count + 0.5) / lam)
    return (count - lam + 2 / 3 + 0.02 / (count + 1)) * jnp.sqrt((1 + g) / lam)


def _peizer_pratt(y: Any) -> Any:
    """(1 - y^2 + 2 y log y) / (1 - y)^2; near 1 by its series, the sum over k from 1 on of
    2 (1 - y)^k / ((k + 1) (k + 2))."""
    d = y - 1
    near = jnp.abs(d) < 0.25
    series = jnp.zeros_like(d)
    for k in range(9, 0, -1):
        series = d * (2 * (-1) ** k / ((k + 1) * (k + 2)) + series)
    y, d = jnp.where(near, 2.0, y), jnp.where(near, 1.0, d)
    return jnp.where(near, series, (1 - jnp.square(y) + 2 * y * jnp.log(y)) / jnp.square(d))
