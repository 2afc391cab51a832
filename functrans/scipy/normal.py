"""The distribution function of the standard normal distribution, and its logarithm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans import lax
from functrans import numpy as jnp
from functrans.api.custom_rules import custom_jvp
from functrans.lax.special import normal_probability
from functrans.numpy.promotion import invalid, mismatch
from functrans.scipy.arguments import float_of
from functrans.trace import literal, typeof

__all__ = ["log_ndtr", "ndtr"]


def ndtr(x: Any) -> Any:
    """The distribution function of the standard normal distribution, of float32 or float64.

    Source: `jax.scipy.special.ndtr`.

    >>> from functrans.scipy import special
    >>> print(special.ndtr(0.0))
    0.5
    """
    return normal_probability(float_of("ndtr", x))


# Beyond these |x| the distribution function is 0 or 1 in the dtype, or nearly so.
_ENDS = {np.dtype(np.float32): (-10.0, 5.0), np.dtype(np.float64): (-20.0, 8.0)}


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """The logarithm of ndtr, by an asymptotic series of that order far to the left.

    Source: `jax.scipy.special.log_ndtr`.

    >>> from functrans.scipy import special
    >>> print(special.log_ndtr(0.0))
    -0.6931...
    """
    if not isinstance(series_order, int):
        raise mismatch("log_ndtr", f"series_order must be a Python int, got {series_order!r:.60}")
    if not 0 <= series_order <= 30:
        raise invalid("log_ndtr", f"series_order must lie in 0..30, got {series_order}")
    return _log_ndtr(series_order, float_of("log_ndtr", x))


def _log_ndtr_value(series_order: int, x: Any) -> Any:
    """log P; to the right of its end -P(-x), to the left the series."""
    low, high = [literal(v, typeof(x).strong()) for v in _ENDS[typeof(x).dtype]]
    right = lax.gt(x, high)
    p = ndtr(lax.select(right, lax.neg(x), lax.max(x, low)))
    left = _log_ndtr_left(lax.min(x, low), series_order)
    return lax.select(right, lax.neg(p), lax.select(lax.gt(x, low), lax.log(p), left))


def _log_ndtr_left(x: Any, series_order: int) -> Any:
    """-x^2/2 - log(-x) - log(2 pi)/2 + log(1 - 1/x^2 + 3/x^4 - 15/x^6 ...)."""
    square = lax.square(x)
    scale = -0.5 * square - lax.log(lax.neg(x)) - 0.5 * math.log(2 * math.pi)
    series, power = 1.0, square
    for n in range(1, series_order + 1):
        series = series + (-1) ** n * float(np.prod(np.arange(2 * n - 1, 1, -2.0))) / power
        power = power * square
    return scale + jnp.log(series)


_log_ndtr = custom_jvp(_log_ndtr_value, nondiff_argnums=(0,))


@_log_ndtr.defjvp
def _log_ndtr_jvp(series_order: int, primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    out = _log_ndtr(series_order, x)
    log_density = -0.5 * lax.square(x) - math.log(math.sqrt(2 * math.pi))
    return out, dx * lax.exp(log_density - out)
