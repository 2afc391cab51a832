"""Histograms of points in several dimensions."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.numpy import prims
from functrans.numpy.differences import diff
from functrans.numpy.indexing import getitem
from functrans.numpy.integers import ravel_multi_index
from functrans.numpy.joining import stack
from functrans.numpy.promotion import array_of, cast, invalid, promote_inexact
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.selecting import where
from functrans.numpy.shaping import reshape, transpose
from functrans.numpy.sorting import searchsorted
from functrans.numpy.statistics import bincount, histogram_bin_edges
from functrans.numpy.ufuncs import divide, equal
from functrans.trace import typeof

__all__ = ["histogram2d", "histogramdd"]


def histogramdd(
    sample: Any, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """How many points lie in each box of a grid, and the edges of the boxes along each axis.

    Arguments:
      sample: [points, dimensions]; or one vector per dimension.
      bins: the number of boxes along each axis, or one number or vector of edges for each.
      range: the ends of equal boxes along each axis, None: the smallest and largest coordinate.
      weights: what each point counts.
      density: divide by the total and the sizes of the boxes.

    Source: `jax.numpy.histogramdd`.

    Example:
      >>> import functrans.numpy as jnp
      >>> counts, edges = jnp.histogramdd(jnp.array([[0.1, 0.9], [0.2, 0.8]]), bins=2)
      >>> print(counts)
      [[0 1]
       [1 0]]
    """
    name = "histogramdd"
    if isinstance(sample, (list, tuple)):
        sample = transpose(stack([array_of(x, name) for x in sample]))
    if weights is None:
        (sample,) = promote_inexact((array_of(sample, name),), name)
    else:
        sample, weights = promote_inexact(
            (array_of(sample, name), array_of(weights, name, 3)), name
        )
        if typeof(weights).shape != typeof(sample).shape[:1]:
            raise invalid(name, f"a weight per point is needed, got {typeof(weights)}")
    if typeof(sample).ndim != 2:
        raise invalid(name, f"sample must be [points, dimensions], got {typeof(sample)}")
    d = typeof(sample).shape[1]
    columns = [getitem(sample, (slice(None), k)) for k in builtins.range(d)]
    each = _per_axis(name, bins, d, range)
    edges = [histogram_bin_edges(x, b, r, weights) for x, (b, r) in zip(columns, each, strict=True)]
    places = [_box(x, e) for x, e in zip(columns, edges, strict=True)]
    shape = [typeof(e).shape[0] + 1 for e in edges]
    flat = ravel_multi_index(tuple(places), tuple(shape), mode="clip")
    counts = reshape(bincount(flat, weights, length=int(np.prod(shape))), shape)
    # what lies outside of all edges was counted at both ends of each axis
    counts = getitem(counts, (slice(1, -1),) * d)
    if density:
        dtype = typeof(sample).dtype
        counts = cast(counts, dtype)
        counts = divide(counts, sum_over(counts))
        for k, e in enumerate(edges):
            widths = reshape(diff(e), [-1 if i == k else 1 for i in builtins.range(d)])
            counts = divide(counts, cast(widths, dtype))
    return counts, edges


def _per_axis(name: str, bins: Any, d: int, range: Any) -> list[tuple[Any, Any]]:
    """The bins and the range of each axis."""
    if isinstance(bins, (list, tuple)) or np.ndim(bins):
        many = list(bins)
        if len(many) != d:
            raise invalid(name, f"bins must be one for each of {d} dimensions, got {len(many)}")
    else:
        many = [bins] * d
    ranges = [None] * d if range is None else list(range)
    if len(ranges) != d:
        raise invalid(name, f"range must be one for each of {d} dimensions, got {len(ranges)}")
    return list(zip(many, ranges, strict=True))


def _box(x: Any, edges: Any) -> Any:
    """The box of each coordinate, counted from 1; the last edge belongs to the last box."""
    n = typeof(edges).shape[0]
    place = searchsorted(edges, x, side="right")
    return where(equal(x, getitem(edges, n - 1)), prims.sub(place, 1), place)


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """How many points lie in each box of a plane, and the edges of the boxes.

    Arguments:
      x, y: the coordinates, vectors.
      bins: the number of boxes along both axes, or edges for both; or one of these for each.
      range, weights, density: as in `histogramdd`.

    Source: `jax.numpy.histogram2d`.

    Example:
      >>> import functrans.numpy as jnp
      >>> counts, _, _ = jnp.histogram2d(jnp.array([0.1, 0.2]), jnp.array([0.9, 0.8]), bins=2)
      >>> print(counts)
      [[0 1]
       [1 0]]
    """
    x, y = array_of(x, "histogram2d"), array_of(y, "histogram2d", 1)
    if typeof(x).ndim != 1 or typeof(x).shape != typeof(y).shape:
        raise invalid(
            "histogram2d",
            f"takes vectors of one size, got {typeof(x)} and {typeof(y)}",
            "They are the two coordinates of each point.",
            errors.ShapeMismatch,
        )
    several = isinstance(bins, (list, tuple)) or np.ndim(bins)
    if several and len(bins) not in (1, 2):
        bins = [bins, bins]  # one vector of edges for both
    elif several and len(bins) == 1:
        bins = [bins[0], bins[0]]
    counts, edges = histogramdd((x, y), bins, range, weights, density)
    return counts, edges[0], edges[1]
