"""Differences of neighbours, integrals and interpolation."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.types import dtype_class
from functrans.numpy import prims
from functrans.numpy.arithmetic import remainder
from functrans.numpy.creation import asarray
from functrans.numpy.indexing import take
from functrans.numpy.joining import concatenate, unstack
from functrans.numpy.promotion import (
    array_of,
    axes_of,
    axis_index,
    cast,
    expand,
    invalid,
    mismatch,
    promote_dtypes,
    promote_inexact,
)
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.selecting import where
from functrans.numpy.shaping import moveaxis, ravel
from functrans.numpy.sorting import searchsorted
from functrans.numpy.ufuncs import absolute, add, multiply, subtract
from functrans.trace import literal, materialize, typeof

__all__ = [
    "diff", "ediff1d", "gradient", "interp", "polyval", "trapezoid",
]  # fmt: skip


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
        a = prims.ne(high, low) if typeof(a).dtype == bool else prims.sub(high, low)
    return a


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours in the flattened array.

    Source: `jax.numpy.ediff1d`.
    """
    y = diff(ravel(ary))
    if typeof(y).dtype == bool:
        raise mismatch("ediff1d", "takes numbers, not booleans", "Cast with x.astype(int) first.")
    if to_begin is None and to_end is None:
        return y
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
        raise invalid(
            "gradient", f"edge_order must be 1, got {edge_order}", "Leave it out.",
            errors.UnsupportedChoice,
        )  # fmt: skip
    f = array_of(f, "gradient")
    t = typeof(f)
    axes = axes_of(axis, t.ndim, "gradient")
    f, *spacing = promote_inexact((f, *varargs), "gradient")
    spacing = spacing or [1.0]
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
        return prims.div(out, expand(cast(h, t.dtype, typeof(h).weak_type), t.shape))
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
        (y,) = promote_inexact((y,), "trapezoid")
        y = moveaxis(array_of(y, "trapezoid"), axis, -1)
        steps = asarray(dx)
    else:
        y, x = promote_inexact((y, x), "trapezoid")
        y = moveaxis(array_of(y, "trapezoid"), axis, -1)
        x = array_of(x, "trapezoid")
        steps = diff(x) if typeof(x).ndim == 1 else moveaxis(diff(x, axis=axis), axis, -1)
    n = typeof(y).shape[-1]
    i = typeof(y).ndim - 1
    if typeof(steps).ndim == 0:
        first, last = _part(y, i, 0, min(1, n)), _part(y, i, max(n - 1, 0), n)
        half_of_ends = multiply(0.5, sum_over(prims.add(first, last), -1))
        return multiply(steps, subtract(sum_over(y, -1), half_of_ends))
    pairs = prims.add(_part(y, i, min(1, n), n), _part(y, i, 0, max(n - 1, 0)))
    return multiply(0.5, sum_over(multiply(steps, pairs), -1))


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
    if dtype_class(typeof(x).dtype) == "complex":
        raise invalid("interp", f"coordinates are real numbers, got {typeof(x)}")
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
    part, rise = prims.div(prims.sub(x, x0), safe), prims.sub(f1, f0)
    part, rise, f0 = [array_of(v, "interp") for v in promote_inexact((part, rise, f0), "interp")]
    f = prims.add(f0, prims.mul(part, rise))
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
    period = absolute(period)
    x, xp = remainder(x, period), remainder(xp, period)
    xp, fp = prims.sort(xp, fp, dimension=0, is_stable=True, num_keys=1)
    n = typeof(xp).shape[0]
    xp = prims.concatenate(
        subtract(_part(xp, 0, n - 1, n), period), xp, add(_part(xp, 0, 0, 1), period), dimension=0
    )
    fp = prims.concatenate(_part(fp, 0, n - 1, n), fp, _part(fp, 0, 0, 1), dimension=0)
    return x, xp, fp


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """The polynomial with these coefficients, the highest power first, by Horner's rule.

    Source: `jax.numpy.polyval`.
    """
    p, x = promote_dtypes((p, x), "polyval")
    x = cast(x, typeof(x).dtype, False)
    y = literal(0, typeof(x))
    for c in unstack(p):
        y = add(multiply(y, x), c)
    return materialize(y)
