"""`pad`: elements put before and after an array along its axes, in all of NumPy's ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.types import ArrayType, dtype_class
from functrans.numpy import prims, reductions
from functrans.numpy.creation import array as array_from
from functrans.numpy.floating import round
from functrans.numpy.indexing import getitem
from functrans.numpy.promotion import (
    array_of,
    cast,
    expand,
    invalid,
    mismatch,
    value_of,
)
from functrans.numpy.quantiles import median
from functrans.numpy.ranges import linspace
from functrans.numpy.shaping import broadcast_to
from functrans.numpy.vectorizing import apply_along_axis
from functrans.primitives.shape import slice_axis
from functrans.trace import typeof

__all__ = ["pad"]

Widths = list[tuple[int, int]]  # of each axis: before, after


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Put elements before and after the array along each axis.

    Arguments:
      array: array.
      pad_width: an int, a pair (before, after), or one pair per axis.
      mode: "constant", "linear_ramp" (from the edge to a number), "edge", "reflect", "symmetric",
        "wrap", "empty", "maximum", "minimum", "mean", "median"; or a function (vector, (before,
        after), axis, kwargs) -> vector, which is called for each vector of the array with zeros
        around it, axis by axis.
      constant_values: of "constant": a number, a pair or one pair per axis.
      end_values: of "linear_ramp", likewise.
      stat_length: of "maximum", "minimum", "mean" and "median": from how many elements at the edge,
        likewise; by default from all.
      reflect_type: of "reflect" and "symmetric": "even", or "odd" for 2 * edge - element.

    Raises:
      UnsupportedChoice: an unknown mode.
      InvalidArgument: a keyword of another mode, or widths that do not fit.

    Source: `jax.numpy.pad`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.pad(jnp.ones(2), 1))
      [0. 1. 1. 0.]
    """
    array = array_of(array, "pad")
    widths = _pairs(pad_width, typeof(array).ndim, "pad_width")
    if callable(mode):
        return _by_function(array, widths, mode, kwargs)
    if mode not in _MODES:
        modes = f"Modes are {', '.join(_MODES)}."
        raise invalid("pad", f"unknown mode {mode!r}", modes, errors.UnsupportedChoice)
    of_mode, keyword = _MODES[mode]
    if others := sorted(set(kwargs) - {keyword}):
        raise invalid(
            "pad", f"mode {mode!r} takes no {', '.join(others)}",
            f"It takes {keyword}." if keyword else "It takes no further arguments.",
        )  # fmt: skip
    return of_mode(array, widths, mode, **kwargs)


def _pairs(given: Any, ndim: int, name: str) -> Widths:
    """One pair of ints per axis."""
    array = np.asarray(given)
    if array.ndim > 2 or array.dtype.kind not in "iu":
        raise mismatch("pad", f"{name} must hold ints, got {given!r:.60}")
    try:
        pairs = [tuple(p) for p in np.broadcast_to(array, (ndim, 2)).tolist()]
    except ValueError:
        raise invalid(
            "pad", f"{name} {given} does not fit an array of {ndim} axes",
            "Give an int, a pair, or one pair per axis.",
        ) from None  # fmt: skip
    if any(n < 0 for pair in pairs for n in pair):
        raise invalid("pad", f"{name} can't contain negative values: {pairs}")
    return pairs


# --- with numbers ---------------------------------------------------------------------------------


def _constant(array: Any, widths: Widths, mode: str, constant_values: Any = 0) -> Any:
    t = typeof(array)
    if not isinstance(constant_values, (list, tuple)) and np.ndim(constant_values) == 0:
        value = cast(value_of(constant_values, "pad"), t.dtype, t.weak_type)
        return prims.pad(array, value, config=tuple([(a, b, 0) for a, b in widths]))
    values = _number_pairs(constant_values, t)
    for axis, (low, high) in enumerate(widths):
        for side, n in ((0, low), (1, high)):
            config = [(0, 0, 0)] * t.ndim
            config[axis] = (n, 0, 0) if side == 0 else (0, n, 0)
            array = prims.pad(array, getitem(values, (axis, side)), config=tuple(config))
    return array


def _number_pairs(values: Any, t: ArrayType) -> Any:
    """[ndim, 2]: numbers of the array's type for the two sides of each axis."""
    return cast(broadcast_to(array_from(values), (t.ndim, 2)), t.dtype, t.weak_type)


def _empty(array: Any, widths: Widths, mode: str) -> Any:
    return _constant(array, widths, mode)


def _linear_ramp(array: Any, widths: Widths, mode: str, end_values: Any = 0) -> Any:
    values = broadcast_to(array_from(end_values), (typeof(array).ndim, 2))
    for axis, pair in enumerate(widths):
        t = typeof(array)
        _refuse_empty(t, axis, pair, mode)
        ramps = []
        for side, n in enumerate(pair):
            at = 0 if side == 0 else t.shape[axis] - 1
            edge = prims.squeeze(slice_axis(array, axis, at, at + 1), dimensions=(axis,))
            end = getitem(values, (axis, side))
            ramp = linspace(end, edge, n, endpoint=False, dtype=t.dtype, axis=axis)
            ramp = cast(ramp, t.dtype, t.weak_type)
            ramps.append(prims.rev(ramp, dimensions=(axis,)) if side else ramp)
        array = prims.concatenate(ramps[0], array, ramps[1], dimension=axis)
    return array


def _refuse_empty(t: ArrayType, axis: int, pair: tuple[int, int], mode: str) -> None:
    if t.shape[axis] == 0 and any(pair):
        raise invalid("pad", f"can't extend empty axis {axis} using mode {mode!r}")


# --- with elements of the array -------------------------------------------------------------------


def _reflect(places: np.ndarray, n: int) -> np.ndarray:
    if n == 1:
        return np.zeros_like(places)
    period = 2 * (n - 1)
    inside = places % period
    return np.where(inside < n, inside, period - inside)


def _symmetric(places: np.ndarray, n: int) -> np.ndarray:
    inside = places % (2 * n)
    return np.where(inside < n, inside, 2 * n - 1 - inside)


# Which element stands at a place outside 0..n-1.
_INDEX_OF: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "edge": lambda places, n: np.clip(places, 0, n - 1),
    "reflect": _reflect,
    "symmetric": _symmetric,
    "wrap": lambda places, n: places % n,
}


def _by_index(array: Any, widths: Widths, mode: str) -> Any:
    """Parts of the array, reversed or repeated, around it."""
    for axis, (low, high) in enumerate(widths):
        if low or high:
            n = typeof(array).shape[axis]
            _refuse_empty(typeof(array), axis, (low, high), mode)
            index = _INDEX_OF[mode](np.arange(-low, n + high), n)
            array = prims.concatenate(*_runs(array, axis, index), dimension=axis)
    return array


def _runs(array: Any, axis: int, index: np.ndarray) -> list[Any]:
    """The elements at these places, as slices of runs that go up, go down or stay."""
    runs = []
    start = 0
    while start < len(index):
        end = start + 1
        if end < len(index):
            step = int(index[end] - index[start])
            if step in (-1, 0, 1):
                while end < len(index) and index[end] - index[end - 1] == step:
                    end += 1
            else:
                step = 1
        else:
            step = 1
        first, last = int(index[start]), int(index[end - 1])
        runs.append(_run(array, axis, first, last, step, end - start))
        start = end
    return runs


def _run(array: Any, axis: int, first: int, last: int, step: int, n: int) -> Any:
    shape = typeof(array).shape
    low, high = min(first, last), max(first, last) + 1
    piece = array if (low, high) == (0, shape[axis]) else slice_axis(array, axis, low, high)
    if step == -1:
        return prims.rev(piece, dimensions=(axis,))
    if step == 0:
        return expand(piece, (*shape[:axis], n, *shape[axis + 1 :]))
    return piece


def _mirrored(array: Any, widths: Widths, mode: str, reflect_type: str = "even") -> Any:
    if reflect_type == "even":
        return _by_index(array, widths, mode)
    if reflect_type != "odd":
        raise invalid("pad", f"reflect_type must be 'even' or 'odd', got {reflect_type!r}")
    for axis, (low, high) in enumerate(widths):
        n = typeof(array).shape[axis]
        _refuse_empty(typeof(array), axis, (low, high), mode)
        array = _oddly_before(array, axis, low, n, mode)
        array = prims.rev(array, dimensions=(axis,))
        array = prims.rev(_oddly_before(array, axis, high, n, mode), dimensions=(axis,))
    return array


def _oddly_before(array: Any, axis: int, width: int, n: int, mode: str) -> Any:
    """Up to n elements at a time, mirrored at the edge in place and in value."""
    offset = 1 if mode == "reflect" and n > 1 else 0
    edge = slice_axis(array, axis, 0, 1) if width else None
    while width > 0:
        k = min(width, n - offset)
        near = prims.rev(slice_axis(array, axis, offset, offset + k), dimensions=(axis,))
        around = expand(edge, typeof(near).shape)
        near = prims.sub(prims.add(around, around), near)
        if n > 1:
            edge = slice_axis(near, axis, 0, 1)
        array = prims.concatenate(near, array, dimension=axis)
        width -= k
    return array


# --- with what is computed of the array -----------------------------------------------------------

_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max,
    "minimum": reductions.min,
    "mean": reductions.mean,
    "median": median,
}


def _statistic(array: Any, widths: Widths, mode: str, stat_length: Any = None) -> Any:
    ndim = typeof(array).ndim
    lengths = None if stat_length is None else _pairs(stat_length, ndim, "stat_length")
    if lengths and any(0 in pair for pair in lengths):
        raise invalid("pad", "stat_length of 0 yields no value for padding")
    for axis, (low, high) in enumerate(widths):
        t = typeof(array)
        n = t.shape[axis]
        before, after = lengths[axis] if lengths else (n, n)
        parts = [(0, min(before, n)), (n - min(after, n), n)]
        values = [_of_part(array, axis, part, mode) for part in (parts if lengths else parts[:1])]
        sides = [
            expand(value, (*t.shape[:axis], width, *t.shape[axis + 1 :]))
            for value, width in ((values[0], low), (values[-1], high))
        ]
        array = prims.concatenate(sides[0], array, sides[1], dimension=axis)
    return array


def _of_part(array: Any, axis: int, part: tuple[int, int], mode: str) -> Any:
    t = typeof(array)
    if part != (0, t.shape[axis]):
        array = slice_axis(array, axis, *part)
    value = _STATISTICS[mode](array, axis=axis, keepdims=True)
    if dtype_class(t.dtype) in ("int", "uint"):
        value = round(value)
    return cast(value, t.dtype, t.weak_type)


def _by_function(
    array: Any, widths: Widths, function: Callable[..., Any], kwargs: dict[str, Any]
) -> Any:
    array = _empty(array, widths, "constant")
    for axis, pair in enumerate(widths):
        array = apply_along_axis(function, axis, array, pair, axis, kwargs)
    return array


# mode -> how it pads, and the keyword that it takes
_MODES: dict[str, tuple[Callable[..., Any], str | None]] = {
    "constant": (_constant, "constant_values"),
    "empty": (_empty, None),
    "linear_ramp": (_linear_ramp, "end_values"),
    "edge": (_by_index, None),
    "wrap": (_by_index, None),
    "reflect": (_mirrored, "reflect_type"),
    "symmetric": (_mirrored, "reflect_type"),
    **{mode: (_statistic, "stat_length") for mode in _STATISTICS},
}
