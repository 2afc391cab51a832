"""Order statistics, histograms, differences, interpolation and correlation."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_inexact
from functrans.lax.arguments import check_sizes, integer, placed, sizes_of
from functrans.numpy import prims
from functrans.numpy.differences import diff
from functrans.numpy.indexing import At, take
from functrans.numpy.joining import concatenate
from functrans.numpy.linear import diagonal, matmul
from functrans.numpy.promotion import (
    array_of,
    cast,
    expand,
    inexact_dtype,
    invalid,
    mismatch,
    promote_inexact,
    user_dtype,
    value_of,
)
from functrans.numpy.ranges import linspace
from functrans.numpy.reductions import average, mean
from functrans.numpy.reductions import max as max_over
from functrans.numpy.reductions import min as min_over
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.selecting import clip
from functrans.numpy.shaping import expand_dims, ravel, reshape
from functrans.numpy.sorting import searchsorted
from functrans.numpy.ufuncs import absolute, divide, multiply, subtract
from functrans.trace import concrete_value, full, literal, materialize, typeof

__all__ = [
    "bincount", "corrcoef", "cov", "histogram", "histogram_bin_edges",
]  # fmt: skip


# --- counting -------------------------------------------------------------------------------------


def bincount(
    x: Any,
    weights: Any = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: Any = None,
) -> Any:
    """How often each of 0, 1, 2, ... occurs.

    Arguments:
      x: vector of integers; negative ones count as 0.
      weights: what each counts.
      minlength: the least size of the result.
      length: the size of the result, needed when x is traced.

    Source: `jax.numpy.bincount`.
    """
    x = array_of(x, "bincount")
    t = typeof(x)
    if t.ndim != 1:
        raise invalid("bincount", f"takes a vector, got {t}")
    if dtype_class(t.dtype) not in ("int", "uint", "bool"):
        raise mismatch("bincount", f"takes integers, got {t}")
    minlength = operator.index(minlength)
    if length is not None:
        (length,) = check_sizes(sizes_of(length), "bincount")
    else:
        value = concrete_value(x)
        if value is None:
            raise invalid(
                "bincount", "the size of the result depends on traced values", "Pass length=.",
                errors.AbstractValueError,
            )  # fmt: skip
        length = builtins.max(minlength, int(np.max(value)) + 1 if t.size else 0)
    one = literal(1, ArrayType(t.shape, canonical_dtype(np.dtype("int64"))))
    what = one if weights is None else array_of(weights, "bincount", 1)
    if length == 0:
        return placed(materialize(literal(0, ArrayType((0,), typeof(what).dtype))), out_sharding)
    index = prims.max_(cast(x, np.dtype("int32")), literal(0, t.update(dtype=np.dtype("int32"))))
    zeros = materialize(literal(0, ArrayType((length,), typeof(what).dtype)))
    return placed(At(zeros)[index].add(materialize(what), mode="drop"), out_sharding)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins of a histogram.

    Source: `jax.numpy.histogram_bin_edges`.
    """
    a = array_of(a, "histogram")
    if isinstance(bins, str):
        raise invalid("histogram", f"bins must be a number or edges, got {bins!r}")
    edges = array_of(bins, "histogram", 1)
    dtype = inexact_dtype(typeof(a).dtype)
    if typeof(edges).ndim == 1:
        return cast(edges, dtype)
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
    return linspace(low, high, integer(bins, "histogram", "bins") + 1, dtype=dtype)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None,
    out_sharding: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """How many elements lie in each bin, and the edges of the bins.

    Arguments:
      a: array.
      bins: their number, or their edges.
      range: the ends of equal bins; by default the smallest and largest element.
      weights: what each element counts.
      density: divide by the total and the widths of the bins.
      out_sharding: how both results are laid out, unless they are traced.

    Source: `jax.numpy.histogram`, with `out_sharding` from JAX 0.11 on.
    """
    if weights is None:
        (a,) = promote_inexact((array_of(a, "histogram"),), "histogram")
        w = literal(1, typeof(a).strong())
    else:
        a, w = promote_inexact((array_of(a, "histogram"), weights), "histogram")
        if typeof(w).shape != typeof(a).shape:
            raise invalid(
                "histogram", f"weights must have the shape of a, got {typeof(a)} and {typeof(w)}",
                "Broadcast them first.",
            )  # fmt: skip
    wide = typeof(a).dtype
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
    return placed(counts, out_sharding), placed(edges, out_sharding)


# --- correlation ----------------------------------------------------------------------------------


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    """The covariance matrix of variables (rows) over observations (columns).

    Arguments:
      dtype: of the computation and the result, at least that of the arrays.

    Source: `jax.numpy.cov`.
    """
    if dtype is not None and not is_inexact(user_dtype(dtype)):
        raise invalid("cov", f"dtype must be a float or complex type, got {dtype!r}")
    x = array_of(m, "cov")
    (x,) = promote_inexact((x,), "cov") if y is None else (x,)
    if dtype is not None:
        x = cast(x, user_dtype(dtype))
    if y is not None:
        x, other = promote_inexact((m, y), "cov")
        if dtype is not None:
            x, other = cast(x, user_dtype(dtype)), cast(other, user_dtype(dtype))
        other = _rows(other, rowvar)
        x = concatenate([_rows(x, rowvar), other], 0)
    else:
        x = _rows(x, rowvar)
    t = typeof(x)
    if 0 in t.shape:
        return _cov_of_nothing(t)
    if fweights is not None or aweights is not None:
        return _weighted_cov(x, bias, ddof, fweights, aweights)
    ddof = (0 if bias else 1) if ddof is None else ddof
    centred = prims.sub(x, expand(mean(x, 1, keepdims=True), t.shape))
    return _squeezed(_product(centred, centred, t.shape[1] - ddof))


def _cov_of_nothing(t: ArrayType) -> Any:
    """The covariance without variables, which has no elements, or without observations: NaN."""
    if t.shape[0] == 0:
        return full(0, ArrayType((0, 0), canonical_dtype(np.dtype("float64"))))
    shape = () if t.shape[0] == 1 else (t.shape[0], t.shape[0])
    return full(np.nan, ArrayType(shape, t.dtype))


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
    return divide(matmul(x, prims.conj(y) if typeof(y).dtype.kind == "c" else y), n)


def _squeezed(x: Any) -> Any:
    axes = tuple([i for i, n in enumerate(typeof(x).shape) if n == 1])
    return prims.squeeze(x, dimensions=axes) if axes else x


def _weighted_cov(x: Any, bias: bool, ddof: int | None, fweights: Any, aweights: Any) -> Any:
    if fweights is not None and dtype_class(typeof(array_of(fweights, "cov")).dtype) == "float":
        raise mismatch("cov", f"fweights are numbers of observations, got {typeof(fweights)}")
    frequencies, reliabilities = [
        w if w is None else absolute(array_of(w, "cov")) for w in (fweights, aweights)
    ]
    w: Any = reliabilities if frequencies is None else frequencies
    if frequencies is not None and reliabilities is not None:
        w = multiply(frequencies, reliabilities)
    ddof = (0 if bias else 1) if ddof is None else ddof
    centre, total = average(x, 1, w, returned=True)
    total = reshape(prims.slice_(total, start=(0,), limit=(1,), strides=(1,)), ())
    lost: Any = ddof
    if ddof != 0 and reliabilities is not None:
        lost = divide(multiply(ddof, sum_over(multiply(w, reliabilities))), total)
    factor = subtract(total, lost)
    centred = subtract(x, expand_dims(centre, 1))
    return _squeezed(_product(multiply(centred, expand_dims(w, 0)), centred, factor))


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """The correlation coefficients of variables (rows) over observations (columns).

    Arguments:
      dtype: of the computation and the result.

    Source: `jax.numpy.corrcoef`.
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if typeof(c).ndim == 0:
        return prims.div(c, c)

    n = typeof(c).shape
    d = diagonal(c)
    d = prims.sqrt(prims.real(d) if typeof(d).dtype.kind == "c" else d)
    c = prims.div(c, cast(prims.broadcast_in_dim(d, shape=n, dimensions=(0,)), typeof(c).dtype))
    c = prims.div(c, cast(prims.broadcast_in_dim(d, shape=n, dimensions=(1,)), typeof(c).dtype))
    if dtype_class(typeof(c).dtype) == "complex":
        return prims.complex_(clip(prims.real(c), -1, 1), clip(prims.imag(c), -1, 1))
    return clip(c, -1, 1)
