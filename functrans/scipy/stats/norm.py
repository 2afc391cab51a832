"""The normal distribution, of mean `loc` and standard deviation `scale`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from functrans import lax
from functrans import numpy as jnp
from functrans.scipy.arguments import constant, documented, numbers
from functrans.scipy.special import log_ndtr, ndtr, ndtri
from functrans.scipy.stats.imported import text_of

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _normal(kind: str, of: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """`of(x, loc, scale)`, arrays of one dtype."""
    name = f"norm.{kind}"

    def function(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
        return of(*numbers(name, x, loc, scale, broadcast=False))

    return documented(function, "stats.norm", kind, text_of(kind, "the normal distribution"),
                      "0.3")  # fmt: skip


def _logpdf(x: Any, loc: Any, scale: Any) -> Any:
    variance = jnp.square(scale)
    log_normalizer = jnp.log(jnp.multiply(constant(2 * math.pi, x), variance))
    quadratic = jnp.divide(jnp.square(jnp.subtract(x, loc)), variance)
    return jnp.divide(jnp.add(log_normalizer, quadratic), constant(-2, x))


def _standard(x: Any, loc: Any, scale: Any) -> Any:
    return jnp.divide(jnp.subtract(x, loc), scale)


logpdf = _normal("logpdf", _logpdf)
pdf = _normal("pdf", lambda *args: lax.exp(_logpdf(*args)))
cdf = _normal("cdf", lambda *args: ndtr(_standard(*args)))
logcdf = _normal("logcdf", lambda *args: log_ndtr(_standard(*args)))
sf = _normal("sf", lambda x, loc, scale: ndtr(_standard(lax.neg(x), lax.neg(loc), scale)))
logsf = _normal("logsf", lambda x, loc, scale: log_ndtr(_standard(lax.neg(x), lax.neg(loc), scale)))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The quantiles (inverse of cdf) of the normal distribution.

    Source: `jax.scipy.stats.norm.ppf`.

    >>> from functrans.scipy.stats import norm
    >>> print(norm.ppf(0.5))
    0.0
    """
    return jnp.asarray(jnp.add(jnp.multiply(ndtri(q), scale), loc), float)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The inverse of 1 - cdf of the normal distribution.

    Source: `jax.scipy.stats.norm.isf`.

    >>> from functrans.scipy.stats import norm
    >>> print(norm.isf(0.5))
    0.0
    """
    return ppf(jnp.subtract(1, q), loc, scale)
