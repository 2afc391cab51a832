"""Order statistics, histograms, differences, interpolation and correlation."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype, dtype_class
from functrans.numpy import prims
from functrans.numpy.creation import array, linspace
from functrans.numpy.indexing import At, take
from functrans.numpy.joining import concatenate
from functrans.numpy.linear import diagonal, dot, matmul
from functrans.numpy.promotion import (
    SCALARS,
    align_all,
    array_of,
    axes_of,
    axis_index,
    cast,
    expand,
    inexact_dtype,
    invalid,
    mismatch,
    promote_inexact,
    value_of,
)
from functrans.numpy.reductions import any as any_over
from functrans.numpy.reductions import average, mean
from functrans.numpy.reductions import max as max_over
from functrans.numpy.reductions import min as min_over
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.selecting import where
from functrans.numpy.shaping import expand_dims, moveaxis, ravel, reshape
from functrans.numpy.sorting import searchsorted
from functrans.trace import concrete_value, literal, materialize, typeof

__all__ = [
    "bincount", "corrcoef", "cov", "diff", "ediff1d", "gradient",
    "histogram", "histogram_bin_edges", "interp", "median", "nanmedian", "nanpercentile",
    "nanquantile", "percentile", "polyval", "quantile", "trapezoid",
]  # fmt: skip


# --- order statistics -----------------------------------------------------------------------------


def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """The values below which fractions q of the elements lie.

    Arguments:
      a: array of real numbers.
      q: a number or vector in [0, 1].
      axis: an int, several, or None for all.
      method: between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
      keepdims: leave the axes there, with size 1.

    Returns:
      An array with the axes of q in front.

    Source: `jax.numpy.quantile`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.quantile(jnp.arange(5.0), 0.25))
      1.0
    """
    return _quantile("quantile", a, q, axis, method, keepdims, False, weights)


def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of what is not NaN.

    Source: `jax.numpy.nanquantile`.
    """
    return _quantile("nanquantile", a, q, axis, method, keepdims, True, weights)


def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of q / 100.

    Source: `jax.numpy.percentile`.
    """
    return _quantile("percentile", a, _hundredth(q), axis, method, keepdims, False, weights)


def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """`percentile` of what is not NaN.

    Source: `jax.numpy.nanpercentile`.
    """
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
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, False, None)


def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """`median` of what is not NaN.

    Source: `jax.numpy.nanmedian`.
    """
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, True, None)


_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(
    name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, skip_nan: bool, weights: Any
) -> Any:
    if weights is not None:
        raise invalid(name, "weights are not supported", "Use jnp.average for weighted means.")
    if method not in _METHODS:
        raise invalid(name, f"unknown method {method!r}", f"Methods are {', '.join(_METHODS)}.")
    a, q = promote_inexact((a, array_of(q, name, 1)), name)
    a, q = array_of(a, name), array_of(q, name)
    if typeof(q).ndim > 1:
        raise invalid(name, f"q must be a number or a vector, got {typeof(q)}")
    if dtype_class(typeof(a).dtype) == "complex":
        raise invalid(name, "takes real numbers, not complex ones")
    shape = typeof(a).shape
    axes = axes_of(axis, len(shape), name)
    y = _quantile_of_last(_axes_last(a, axes), q, method, skip_nan)
    if keepdims:
        wide = tuple([1 if i in axes else n for i, n in enumerate(shape)])
        y = reshape(y, (*typeof(q).shape, *wide))
    return cast(y, typeof(y).dtype)


def _axes_last(a: Any, axes: tuple[int, ...]) -> Any:
    """The axes as one, at the end."""
    t = typeof(a)
    kept = [i for i in range(t.ndim) if i not in axes]
    order = (*kept, *sorted(axes))
    if order != tuple(range(t.ndim)):
        a = prims.transpose(a, permutation=order)
    return reshape(a, (*[t.shape[i] for i in kept], int(np.prod([t.shape[i] for i in axes]))))


def _quantile_of_last(a: Any, q: Any, method: str, skip_nan: bool) -> Any:
    """a [..., n], q [] or [k] -> [...] or [k, ...]"""
    t = typeof(a)
    n = t.shape[-1]
    last = t.ndim - 1
    missing = prims.ne(a, a)
    if skip_nan:
        count = sum_over(prims.not_(missing), last, t.dtype, None, True)
    else:
        spoiled = expand(any_over(missing, last, keepdims=True), t.shape)
        a = prims.select_n(spoiled, a, literal(np.nan, t))
        count = None
    (a,) = prims.sort(a, dimension=last, is_stable=True, num_keys=1)
    k = typeof(q).shape
    lead = t.shape[:-1]
    full = t.update(shape=(*k, *lead), weak_type=False)
    q = prims.broadcast_in_dim(cast(q, t.dtype), shape=full.shape, dimensions=tuple(range(len(k))))
    if count is None:
        top = literal(n - 1, full)
    else:
        remaining = prims.sub(count, literal(1, typeof(count)))
        top = prims.max_(
            expand(prims.squeeze(remaining, dimensions=(last,)), full.shape), literal(0, full)
        )
    place = prims.mul(q, top)
    low, high = prims.floor(place), prims.ceil(place)
    above = prims.sub(place, low)
    low, high = (prims.min_(prims.max_(p, literal(0, full)), top) for p in (low, high))
    y = _between(_pick(a, low), _pick(a, high), above, method)
    if count is not None:
        none = expand(prims.squeeze(prims.eq(count, literal(0, typeof(count))),
                                    dimensions=(last,)), full.shape)  # fmt: skip
        y = prims.select_n(none, y, literal(np.nan, full))
    return y


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


# --- counting -------------------------------------------------------------------------------------


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """How often each of 0, 1, 2, ... occurs.

    Arguments:
      x: vector of integers; negative ones count as 0.
      weights: what each counts.
      length: the size of the result, needed when x is traced.

    Source: `jax.numpy.bincount`.
    """
    x = array_of(x, "bincount")
    t = typeof(x)
    if t.ndim != 1:
        raise invalid("bincount", f"takes a vector, got {t}")
    if dtype_class(t.dtype) not in ("int", "uint", "bool"):
        raise mismatch("bincount", f"takes integers, got {t}")
    if length is None:
        value = concrete_value(x)
        if value is None:
            raise invalid(
                "bincount", "the size of the result depends on traced values", "Pass length=."
            )
        length = builtins.max(minlength, int(np.max(value)) + 1 if t.size else 0)
    length = builtins.max(length, minlength)
    one = literal(1, ArrayType(t.shape, canonical_dtype(np.dtype("int64"))))
    what = one if weights is None else array_of(weights, "bincount", 1)
    index = prims.max_(cast(x, np.dtype("int32")), literal(0, t.update(dtype=np.dtype("int32"))))
    zeros = materialize(literal(0, ArrayType((length,), typeof(what).dtype)))
    return At(zeros)[index].add(materialize(what), mode="drop")


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins of a histogram.

    Source: `jax.numpy.histogram_bin_edges`.
    """
    a = array_of(a, "histogram")
    if isinstance(bins, str):
        raise invalid("histogram", f"bins must be a number or edges, got {bins!r}")
    edges = array_of(bins, "histogram", 1)
    if typeof(edges).ndim == 1:
        return edges
    dtype = inexact_dtype(typeof(a).dtype)
    if range is None:
        if typeof(a).size == 0:
            range = (0.0, 1.0)
        else:
            range = (min_over(a), max_over(a))
    low, high = (cast(value_of(r, "histogram"), dtype) for r in range)
    same = prims.eq(low, high)
    half = literal(0.5, typeof(low))
    low, high = (
        prims.select_n(same, low, prims.sub(low, half)),
        prims.select_n(same, high, prims.add(high, half)),
    )
    return linspace(low, high, int(bins) + 1, dtype=dtype)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any]:
    """How many elements lie in each bin, and the edges of the bins.

    Arguments:
      a: array.
      bins: their number, or their edges.
      range: the ends of equal bins; by default the smallest and largest element.
      weights: what each element counts.
      density: divide by the total and the widths of the bins.

    Source: `jax.numpy.histogram`.
    """
    a = array_of(a, "histogram")
    wide = inexact_dtype(typeof(a).dtype)
    w = literal(1, ArrayType(typeof(a).shape, wide)) if weights is None else weights
    edges = histogram_bin_edges(a, bins, range)
    n = typeof(edges).shape[0]
    flat = ravel(cast(a, wide))
    place = searchsorted(edges, flat, side="right")
    last = take(edges, n - 1)
    at_end = prims.eq(flat, expand(cast(last, wide), typeof(flat).shape))
    place = prims.select_n(at_end, place, literal(n - 1, typeof(place)))
    counts = bincount(place, ravel(materialize(w)), length=n)
    counts = prims.slice_(counts, start=(1,), limit=(n,), strides=(1,))
    # elements below the first edge are counted at place 0, those above the last at n: dropped
    if density:
        widths = cast(diff(edges), wide)
        counts = cast(counts, wide)
        total = expand(sum_over(counts), typeof(counts).shape)
        counts = prims.div(prims.div(counts, widths), total)
    return counts, edges


# --- differences and interpolation ----------------------------------------------------------------


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    shape = typeof(x).shape
    low, high = [0] * len(shape), list(shape)
    low[axis], high[axis] = start, stop
    return prims.slice_(x, start=tuple(low), limit=tuple(high), strides=(1,) * len(shape))


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of neighbours along an axis, n times.

    Source: `jax.numpy.diff`.
    """
    a = array_of(a, "diff")
    t = typeof(a)
    if n == 0:
        return a
    if n < 0 or t.ndim == 0:
        raise invalid("diff", f"needs n >= 0 and an array with axes, got n={n} and {t}")
    i = axis_index(axis, t.ndim, "diff")
    ends = []
    for x in (prepend, append):
        if x is not None:
            x = array_of(x, "diff")
            if typeof(x).ndim == 0:
                x = expand(x, (*t.shape[:i], 1, *t.shape[i + 1 :]))
        ends.append(x)
    parts = [x for x in (ends[0], a, ends[1]) if x is not None]
    a = concatenate(parts, i) if len(parts) > 1 else a
    for _ in range(n):
        m = typeof(a).shape[i]
        high, low = _part(a, i, builtins.min(1, m), m), _part(a, i, 0, builtins.max(m - 1, 0))
        a = prims.ne(high, low) if t.dtype == bool else prims.sub(high, low)
    return a


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours in the flattened array.

    Source: `jax.numpy.ediff1d`.
    """
    y = diff(ravel(ary))
    parts = [x if x is y else ravel(x) for x in (to_begin, y, to_end) if x is not None]
    return concatenate([cast(array_of(p, "ediff1d"), typeof(y).dtype) for p in parts])


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """The derivative by central differences, one-sided at the ends.

    Arguments:
      f: array.
      *varargs: the distance of neighbours, or coordinates, for all axes or one per axis.
      axis: an int, several, or None for all.

    Returns:
      An array, or a list with one per axis.

    Source: `jax.numpy.gradient`.
    """
    if edge_order not in (None, 1):
        raise invalid("gradient", f"edge_order must be 1, got {edge_order}")
    f = array_of(f, "gradient")
    t = typeof(f)
    f = cast(f, inexact_dtype(t.dtype))
    axes = axes_of(axis, t.ndim, "gradient")
    spacing = list(varargs) or [1.0]
    if len(spacing) == 1:
        spacing *= len(axes)
    if len(spacing) != len(axes):
        raise mismatch("gradient", f"got {len(spacing)} spacings for {len(axes)} axes")
    if builtins.any(t.shape[i] < 2 for i in axes):
        raise invalid("gradient", f"needs at least 2 elements along each axis, got {t}")
    made = [_gradient(f, h, i) for h, i in zip(spacing, axes, strict=True)]
    return made[0] if len(made) == 1 else made


def _gradient(f: Any, spacing: Any, axis: int) -> Any:
    t = typeof(f)
    n = t.shape[axis]
    h = array_of(spacing, "gradient", 1)
    first = prims.sub(_part(f, axis, 1, 2), _part(f, axis, 0, 1))
    last = prims.sub(_part(f, axis, n - 1, n), _part(f, axis, n - 2, n - 1))
    if typeof(h).ndim == 0:
        inner = prims.sub(_part(f, axis, 2, n), _part(f, axis, 0, n - 2))
        inner = prims.mul(inner, literal(0.5, typeof(inner)))
        out = prims.concatenate(first, inner, last, dimension=axis)
        return prims.div(out, expand(cast(h, t.dtype), t.shape))
    if typeof(h).shape != (n,):
        raise invalid("gradient", f"coordinates must be {n} numbers, got {typeof(h)}")
    steps = cast(diff(h), t.dtype)

    def along(x: Any) -> Any:
        one = [1] * t.ndim
        one[axis] = typeof(x).shape[0]
        shape = list(t.shape)
        shape[axis] = one[axis]
        return expand(prims.reshape(x, shape=tuple(one)), tuple(shape))

    left, right = _part(steps, 0, 0, n - 2), _part(steps, 0, 1, n - 1)
    both = prims.add(left, right)
    a = prims.neg(prims.div(right, prims.mul(left, both)))
    b = prims.div(prims.sub(right, left), prims.mul(left, right))
    c = prims.div(left, prims.mul(right, both))
    inner = prims.add(
        prims.add(
            prims.mul(along(a), _part(f, axis, 0, n - 2)),
            prims.mul(along(b), _part(f, axis, 1, n - 1)),
        ),
        prims.mul(along(c), _part(f, axis, 2, n)),
    )
    first = prims.div(first, along(_part(steps, 0, 0, 1)))
    last = prims.div(last, along(_part(steps, 0, n - 2, n - 1)))
    return prims.concatenate(first, inner, last, dimension=axis)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by the trapezoid rule.

    Source: `jax.numpy.trapezoid`.
    """
    if x is None:
        y, dx = promote_inexact((y, dx), "trapezoid")
        y = moveaxis(array_of(y, "trapezoid"), axis, -1)
        steps = dx
    else:
        y, x = promote_inexact((y, x), "trapezoid")
        y = moveaxis(array_of(y, "trapezoid"), axis, -1)
        x = array_of(x, "trapezoid")
        steps = diff(x) if typeof(x).ndim == 1 else moveaxis(diff(x, axis=axis), axis, -1)
    n = typeof(y).shape[-1]
    i = typeof(y).ndim - 1
    pairs = prims.add(_part(y, i, 1, n), _part(y, i, 0, n - 1))
    area = prims.mul(*align_all((steps, pairs), "trapezoid"))
    total = sum_over(area, -1)
    return prims.mul(total, literal(0.5, typeof(total)))


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Piecewise linear interpolation.

    Arguments:
      x: where to evaluate.
      xp: rising coordinates, a vector.
      fp: values there.
      left, right: values outside; by default the first and last of fp, or "extrapolate".
      period: of the coordinates.

    Source: `jax.numpy.interp`.
    """
    if typeof(array_of(xp, "interp", 1)).shape != typeof(array_of(fp, "interp", 2)).shape or (
        typeof(array_of(xp, "interp", 1)).ndim != 1
    ):
        raise invalid("interp", "xp and fp must be vectors of one size")
    x, xp = promote_inexact((x, xp), "interp")
    (fp,) = promote_inexact((fp,), "interp")
    x, xp, fp = (array_of(v, "interp") for v in (x, xp, fp))
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, period)
    n = typeof(xp).shape[0]
    i = searchsorted(xp, x, side="right")
    t = typeof(i)
    i = prims.min_(prims.max_(i, literal(1, t)), literal(builtins.max(n - 1, 1), t))
    before = prims.sub(i, literal(1, t))
    x0, x1 = take(xp, before, mode="clip"), take(xp, i, mode="clip")
    f0, f1 = take(fp, before, mode="clip"), take(fp, i, mode="clip")
    width = prims.sub(x1, x0)
    flat = prims.le(prims.abs_(width), literal(np.spacing(np.finfo(np.float32).eps), typeof(width)))
    safe = prims.select_n(flat, width, literal(1, typeof(width)))
    part = cast(prims.div(prims.sub(x, x0), safe), typeof(f0).dtype)
    f = prims.add(f0, prims.mul(part, prims.sub(f1, f0)))
    f = prims.select_n(flat, f, f0)
    if period is None:
        for outside, edge, given in ((prims.lt, 0, left), (prims.gt, n - 1, right)):
            if isinstance(given, str):
                if given != "extrapolate":
                    raise invalid(
                        "interp", f"left and right are values or 'extrapolate', {given!r}"
                    )
                continue
            value = take(fp, edge) if given is None else given
            f = where(outside(x, expand(take(xp, edge), typeof(x).shape)), value, f)
    return f


def _periodic(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """All coordinates in [0, period), in order, with one more at each end."""
    from functrans.numpy.arithmetic import remainder

    x, xp = remainder(x, period), remainder(xp, period)
    xp, fp = prims.sort(xp, fp, dimension=0, is_stable=True, num_keys=1)
    n = typeof(xp).shape[0]
    span = expand(cast(value_of(period, "interp"), typeof(xp).dtype), (1,))
    xp = prims.concatenate(
        prims.sub(_part(xp, 0, n - 1, n), span), xp, prims.add(_part(xp, 0, 0, 1), span),
        dimension=0,
    )  # fmt: skip
    fp = prims.concatenate(_part(fp, 0, n - 1, n), fp, _part(fp, 0, 0, 1), dimension=0)
    return x, xp, fp


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """The polynomial with these coefficients, the highest power first, by Horner's rule.

    Source: `jax.numpy.polyval`.
    """
    from functrans.numpy.joining import unstack
    from functrans.numpy.ufuncs import add, multiply

    coefficients = unstack(array_of(p, "polyval"))
    x = array_of(x, "polyval", 1)
    y = multiply(x, 0) if not coefficients else add(multiply(x, 0), coefficients[0])
    for c in coefficients[1:]:
        y = add(multiply(y, x), c)
    return y


# --- correlation ----------------------------------------------------------------------------------


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None,
) -> Any:  # fmt: skip
    """The covariance matrix of variables (rows) over observations (columns).

    Source: `jax.numpy.cov`.
    """
    x = array_of(m, "cov")
    (x,) = promote_inexact((x,), "cov") if y is None else (x,)
    if y is not None:
        x, other = promote_inexact((m, y), "cov")
        other = _rows(other, rowvar)
        x = concatenate([_rows(x, rowvar), other], 0)
    else:
        x = _rows(x, rowvar)
    t = typeof(x)
    if fweights is not None or aweights is not None:
        return _weighted_cov(x, bias, ddof, fweights, aweights)
    ddof = (0 if bias else 1) if ddof is None else ddof
    centred = prims.sub(x, expand(mean(x, 1, keepdims=True), t.shape))
    return _squeezed(_product(centred, centred, t.shape[1] - ddof))


def _rows(x: Any, rowvar: bool) -> Any:
    x = array_of(x, "cov")
    t = typeof(x)
    if t.ndim > 2:
        raise invalid("cov", f"takes vectors and matrices, got {t}")
    if t.ndim < 2:
        return reshape(x, (1, t.size))
    return x if rowvar else prims.transpose(x, permutation=(1, 0))


def _product(x: Any, y: Any, n: Any) -> Any:
    y = prims.transpose(y, permutation=(1, 0))
    product = matmul(x, prims.conj(y) if typeof(y).dtype.kind == "c" else y)
    n = literal(n, typeof(product)) if n.__class__ in SCALARS else expand(n, typeof(product).shape)
    return prims.div(product, n)


def _squeezed(x: Any) -> Any:
    axes = tuple([i for i, n in enumerate(typeof(x).shape) if n == 1])
    return prims.squeeze(x, dimensions=axes) if axes else x


def _weighted_cov(x: Any, bias: bool, ddof: int | None, fweights: Any, aweights: Any) -> Any:
    t = typeof(x)
    ddof = (0 if bias else 1) if ddof is None else ddof
    w = None
    for given in (fweights, aweights):
        if given is not None:
            one = cast(array_of(given, "cov"), t.dtype)
            w = one if w is None else prims.mul(w, one)
    centre, total = average(x, 1, w, returned=True)
    total = reshape(prims.slice_(total, start=(0,), limit=(1,), strides=(1,)), ())
    if ddof == 0:
        factor = total
    elif aweights is None:
        factor = prims.sub(total, literal(ddof, typeof(total)))
    else:
        a = cast(array_of(aweights, "cov"), t.dtype)
        share = prims.div(dot(w, a), total)
        factor = prims.sub(total, prims.mul(share, literal(ddof, typeof(share))))
    centred = prims.sub(x, expand(expand_dims(centre, 1), t.shape))
    weighted = prims.mul(centred, expand(w, t.shape))
    return _squeezed(_product(weighted, centred, factor))


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """The correlation coefficients of variables (rows) over observations (columns).

    Source: `jax.numpy.corrcoef`.
    """
    c = cov(x, y, rowvar)
    if typeof(c).ndim == 0:
        return prims.div(c, c)

    n = typeof(c).shape
    d = diagonal(c)
    d = prims.sqrt(prims.real(d) if typeof(d).dtype.kind == "c" else d)
    c = prims.div(c, cast(prims.broadcast_in_dim(d, shape=n, dimensions=(0,)), typeof(c).dtype))
    return prims.div(c, cast(prims.broadcast_in_dim(d, shape=n, dimensions=(1,)), typeof(c).dtype))
