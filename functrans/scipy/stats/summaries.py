"""Summaries of samples."""

from __future__ import annotations

import jax.scipy.stats

from functrans.interop.jax_functions import from_jax
from functrans.scipy.arguments import documented

__all__ = ["mode", "rankdata", "sem"]

mode = documented(
    from_jax(jax.scipy.stats.mode, static_argnames=("axis", "nan_policy", "keepdims")),
    "stats",
    "mode",
    "The most frequent value along an axis, and how often it is there.",
    "np.array([1, 2, 2])",
)
rankdata = documented(
    from_jax(jax.scipy.stats.rankdata, static_argnames=("method", "axis", "nan_policy")),
    "stats",
    "rankdata",
    "The ranks of the elements, from 1; equal ones share theirs as `method` says.",
    "np.array([10, 30, 20])",
)
sem = documented(
    from_jax(jax.scipy.stats.sem, static_argnames=("axis", "ddof", "nan_policy", "keepdims")),
    "stats",
    "sem",
    "The standard error of the mean along an axis.",
    "np.array([1.0, 2.0, 3.0])",
)
