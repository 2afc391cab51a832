"""Summaries of samples."""

from __future__ import annotations

from functools import partial

from functrans.scipy.arguments import imported

__all__ = ["mode", "rankdata", "sem"]

_of = partial(imported, module="stats")

mode = _of(
    "mode", "The most frequent value along an axis, and how often it is there.",
    "np.array([1, 2, 2])", static=("axis", "nan_policy", "keepdims"),
)  # fmt: skip
rankdata = _of(
    "rankdata", "The ranks of the elements, from 1; equal ones share theirs as `method` says.",
    "np.array([10, 30, 20])", static=("method", "axis", "nan_policy"),
)  # fmt: skip
sem = _of(
    "sem", "The standard error of the mean along an axis.", "np.array([1.0, 2.0, 3.0])",
    static=("axis", "nan_policy", "keepdims"),
)  # fmt: skip
