"""Order statistics: medians, quantiles, percentiles."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import placed
from functrans.numpy import prims
from functrans.numpy.creation import array
from functrans.numpy.promotion import (
    array_of,
    axes_of,
    cast,
    expand,
    invalid,
    promote_inexact,
)
from functrans.numpy.reductions import any as any_over
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.shaping import reshape
from functrans.primitives.shape import slice_axis
from functrans.trace import literal, materialize, typeof

__all__ = [
    "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile",
]  # fmt: skip


def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """The values below which fractions q of the elements lie.

    Arguments:
      a: array of real numbers.
      q: a number or vector in [0, 1].
      axis: an int, several, or None for all.
      method: between two elements: "linear", "lower", "higher", "midpoint" or "nearest"; or
        "inverted_cdf": the first element at which the sum of the weights reaches q of them all.
      keepdims: leave the axes there, with size 1.
      weights: how much each element counts, not negative, of a's shape or of that of the axes; only
        with method "inverted_cdf".

    Returns:
      An array with the axes of q in front.

    Source: `jax.numpy.quantile`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.quantile(jnp.arange(5.0), 0.25))
      1.0
    """
    _refuse("quantile", out, overwrite_input)
    return _quantile("quantile", a, q, axis, method, keepdims, False, weights)


def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of what is not NaN.

    Source: `jax.numpy.nanquantile`.
    """
    _refuse("nanquantile", out, overwrite_input)
    return _quantile("nanquantile", a, q, axis, method, keepdims, True, weights)


def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of q / 100.

    Source: `jax.numpy.percentile`.
    """
    _refuse("percentile", out, overwrite_input)
    made = _quantile("percentile", a, _hundredth(q), axis, method, keepdims, False, weights)
    return placed(made, out_sharding)


def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """`percentile` of what is not NaN.

    Source: `jax.numpy.nanpercentile`.
    """
    _refuse("nanpercentile", out, overwrite_input)
    return _quantile("nanpercentile", a, _hundredth(q), axis, method, keepdims, True, weights)


def _hundredth(q: Any) -> Any:
    (q,) = promote_inexact((q if not isinstance(q, (list, tuple)) else array(q),), "percentile")
    return materialize(prims.div(q, literal(100, typeof(q))))


def median(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The middle element, or the mean of the two middle ones.

    Source: `jax.numpy.median`.
    """
    _refuse("median", out, overwrite_input)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, False, None)


def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """`median` of what is not NaN.

    Source: `jax.numpy.nanmedian`.
    """
    _refuse("nanmedian", out, overwrite_input)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, True, None)


def _refuse(name: str, out: Any, overwrite_input: bool) -> None:
    if out is not None or overwrite_input:
        raise invalid(name, "takes neither out nor overwrite_input", "Arrays cannot be changed.")


_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _quantile(
    name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, skip_nan: bool, weights: Any
) -> Any:
    if method not in _METHODS:
        raise invalid(name, f"unknown method {method!r}", f"Methods are {', '.join(_METHODS)}.")
    (a,), (q,) = promote_inexact((a,), name), promote_inexact((q,), name)
    a, q = array_of(a, name), array_of(q, name)
    if typeof(q).ndim > 1:
        raise invalid(name, f"q must be a number or a vector, got {typeof(q)}")
    if dtype_class(typeof(a).dtype) == "complex":
        raise invalid(name, "takes real numbers, not complex ones")
    shape = typeof(a).shape
    axes = axes_of(axis, len(shape), name)
    if 0 in [shape[i] for i in axes]:
        raise errors.ShapeMismatch(
            f"{name}: of no elements, those of {typeof(a)} along {axes}, is no number, at\n"
            f"    {describe(user_source())}"
        )
    if weights is not None:
        a, weights = _weights(name, a, weights, axis, axes, method)
        weights = _axes_last(weights, axes)
    of = partial(_weighted, weights=weights) if method == "inverted_cdf" else _between_two
    y = of(_axes_last(a, axes), q, method=method, skip_nan=skip_nan)
    if keepdims:
        wide = tuple([1 if i in axes else n for i, n in enumerate(shape)])
        y = reshape(y, (*typeof(q).shape, *wide))
    return cast(y, typeof(y).dtype)


def _weights(
    name: str, a: Any, weights: Any, axis: Any, axes: tuple[int, ...], method: str
) -> tuple[Any, Any]:
    """The array and its weights, of one shape and dtype."""
    if dtype_class(typeof(array_of(weights, name)).dtype) == "complex":
        raise invalid(name, "weights must be real numbers, not complex ones")
    if method != "inverted_cdf":
        raise errors.MissingRule(
            f"{name}: weights need method='inverted_cdf', not {method!r}, at\n"
            f"    {describe(user_source())}"
        )
    a, weights = (array_of(x, name) for x in promote_inexact((a, weights), name))
    have, shape = typeof(weights).shape, typeof(a).shape
    if have == shape:
        return a, weights
    # along the axes in the order in which they were given
    given = () if axis is None else tuple(axis) if isinstance(axis, tuple) else (axis,)
    order = tuple([i % len(shape) for i in given])
    if axis is None or have != tuple([shape[i] for i in order]):
        raise invalid(
            name, f"weights must be of shape {shape} or of that of the axes "
            f"{tuple([shape[i] for i in axes])}, got {have}",
        )  # fmt: skip
    inwards = sorted(range(len(order)), key=order.__getitem__)
    weights = prims.transpose(weights, permutation=tuple(inwards)) if len(order) > 1 else weights
    dimensions = tuple(sorted(order))
    return a, prims.broadcast_in_dim(weights, shape=shape, dimensions=dimensions)


def _axes_last(a: Any, axes: tuple[int, ...]) -> Any:
    """The axes as one, at the end."""
    t = typeof(a)
    kept = [i for i in range(t.ndim) if i not in axes]
    order = (*kept, *sorted(axes))
    if order != tuple(range(t.ndim)):
        a = prims.transpose(a, permutation=order)
    return reshape(a, (*[t.shape[i] for i in kept], int(np.prod([t.shape[i] for i in axes]))))


def _between_two(a: Any, q: Any, method: str, skip_nan: bool) -> Any:
    """a [..., n], q [] or [k] -> [...] or [k, ...]"""
    t = typeof(a)
    n = t.shape[-1]
    last = t.ndim - 1
    missing = prims.ne(a, a)
    if skip_nan:
        count = sum_over(prims.not_(missing), last, typeof(q).dtype, None, True)
    else:
        spoiled = expand(any_over(missing, last, keepdims=True), t.shape)
        a = prims.select_n(spoiled, a, literal(np.nan, t))
        count = None
    (a,) = prims.sort(a, dimension=last, is_stable=True, num_keys=1)
    k = typeof(q).shape
    lead = t.shape[:-1]
    full = ArrayType((*k, *lead), typeof(q).dtype)  # of places, which may not fit a's dtype
    q = prims.broadcast_in_dim(q, shape=full.shape, dimensions=tuple(range(len(k))))
    if count is None:
        top = literal(n - 1, full)
    else:
        remaining = prims.sub(count, literal(1, typeof(count)))
        top = prims.max_(
            expand(prims.squeeze(remaining, dimensions=(last,)), full.shape), literal(0, full)
        )
    place = prims.mul(q, top)
    low, high = prims.floor(place), prims.ceil(place)
    above = cast(prims.sub(place, low), t.dtype)
    low, high = (prims.min_(prims.max_(p, literal(0, full)), top) for p in (low, high))
    y = _between(_pick(a, low), _pick(a, high), above, method)
    if count is not None:
        none = expand(prims.squeeze(prims.eq(count, literal(0, typeof(count))),
                                    dimensions=(last,)), full.shape)  # fmt: skip
        y = prims.select_n(none, y, literal(np.nan, typeof(y)))
    return y


def _weighted(a: Any, q: Any, method: str, skip_nan: bool, weights: Any) -> Any:
    """The first of the sorted elements at which the sum of the weights reaches q of them all."""
    t = typeof(a)
    last = t.ndim - 1
    if weights is None:
        weights = literal(1, t.update(weak_type=False))
    w = materialize(weights)
    zero = literal(0, typeof(w))
    missing = prims.ne(a, a)
    bad = prims.or_(prims.lt(w, zero), prims.ne(w, w))
    spoiled = any_over(bad, last)
    if skip_nan:
        there = sum_over(prims.not_(missing), last, np.dtype("int32"))
        spoiled = prims.or_(spoiled, prims.eq(there, literal(0, typeof(there))))
        top = prims.max_(prims.sub(there, literal(1, typeof(there))), literal(0, typeof(there)))
    else:
        spoiled = prims.or_(spoiled, any_over(missing, last))
        top = literal(t.shape[-1] - 1, t.update(shape=t.shape[:-1], dtype=np.dtype("int32")))
    w = prims.select_n(prims.or_(bad, missing), w, zero)
    a = prims.select_n(missing, a, literal(np.nan, t))  # of one sign, which sorts to the end
    a, w = prims.sort(a, w, dimension=last, is_stable=True, num_keys=1)
    sums = prims.cumsum(w, axis=last, reverse=False)
    k = len(typeof(q).shape)
    full = (*typeof(q).shape, *t.shape)
    sums = prims.broadcast_in_dim(sums, shape=full, dimensions=tuple(range(k, len(full))))
    whole = slice_axis(sums, len(full) - 1, t.shape[-1] - 1, t.shape[-1])
    q = prims.broadcast_in_dim(
        cast(q, typeof(w).dtype), shape=(*full[:-1], 1), dimensions=tuple(range(k))
    )
    before = prims.lt(sums, expand(prims.mul(q, whole), full))
    place = sum_over(before, len(full) - 1, np.dtype("int32"))
    place = prims.min_(place, expand(materialize(top), full[:-1]))
    y = _pick(a, place)
    return prims.select_n(expand(spoiled, full[:-1]), y, literal(np.nan, typeof(y)))


def _pick(a: Any, place: Any) -> Any:
    """a [..., n] at place [k?, ...] of its last axis."""
    t, p = typeof(a), typeof(place)
    n = t.shape[-1]
    index = cast(place, np.dtype("int32"))
    columns = prims.iota(dtype=np.dtype("int32"), shape=(*p.shape, n), dimension=p.ndim)
    here = prims.eq(
        prims.broadcast_in_dim(index, shape=(*p.shape, n), dimensions=tuple(range(p.ndim))), columns
    )
    a = prims.broadcast_in_dim(
        a, shape=(*p.shape, n), dimensions=tuple(range(p.ndim + 1 - t.ndim, p.ndim + 1))
    )
    chosen = prims.select_n(here, literal(0, typeof(a)), a)
    return prims.reduce_sum(chosen, axes=(p.ndim,))


def _between(low: Any, high: Any, above: Any, method: str) -> Any:
    t = typeof(above)
    if method == "lower":
        return low
    if method == "higher":
        return high
    half = literal(0.5, t)
    if method == "nearest":
        return prims.select_n(prims.le(above, half), high, low)
    if method == "midpoint":
        return prims.mul(prims.add(low, high), half)
    below = prims.sub(literal(1, t), above)
    return prims.add(prims.mul(low, below), prims.mul(high, above))
