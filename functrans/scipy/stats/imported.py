"""Functions of `jax.scipy.stats` by JAX's own programs, with the texts of their families."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.scipy.stats

from functrans.interop.jax_functions import from_jax
from functrans.scipy.arguments import documented, told

_KINDS = {
    "pdf": "The density of", "logpdf": "The logarithm of the density of",
    "pmf": "The probabilities of", "logpmf": "The logarithm of the probabilities of",
    "cdf": "The distribution function of",
    "logcdf": "The logarithm of the distribution function of",
    "sf": "1 - cdf, precise far to the right, of", "logsf": "The logarithm of 1 - cdf of",
    "ppf": "The quantiles (inverse of cdf) of", "isf": "The inverse of 1 - cdf of",
    "entropy": "The entropy of",
}  # fmt: skip


def text_of(kind: str, what: str) -> str:
    """What a function (`pdf`, ...) gives of a distribution."""
    return f"{_KINDS[kind]} {what}."


def imported(path: str, what: str, example: str) -> Callable[..., Any]:
    """`jax.scipy.stats.<path>` as a function of ours; `what` names the distribution, `example` is
    arguments that it takes."""
    module, _, kind = path.rpartition(".")
    made = told(from_jax(operator.attrgetter(path)(jax.scipy.stats)), kind)
    return documented(made, f"stats.{module}", kind, text_of(kind, what), example)
