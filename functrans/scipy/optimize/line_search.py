"""A step along a line that satisfies the strong Wolfe conditions.

Along x + a p the function is phi(a), its slope phi'(a). A step is accepted where

    phi(a) <= phi(0) + c1 a phi'(0)    and    |phi'(a)| <= -c2 phi'(0).

There are two loops: `_bracket` doubles the step until it is accepted or an interval [low, high]
must contain an acceptable one (algorithm 3.5 of Nocedal and Wright, Numerical Optimization), then
`_zoom` shrinks that interval (algorithm 3.6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import functrans.numpy as jnp
from functrans import lax
from functrans import pytrees as tree
from functrans.api.derivatives import value_and_grad

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9  # c1, c2
# Least distances of the minimum of a cubic and of a parabola from the ends, as interval fractions.
CUBIC_MARGIN, PARABOLA_MARGIN = 0.2, 0.1
MOST_ZOOMS = 30

dot: partial[Any] = partial(jnp.dot, precision=lax.Precision.HIGHEST)


class Point(NamedTuple):
    """A point on the line, with value and slope there."""

    step: Any
    value: Any
    slope: Any
    gradient: Any


Line = Callable[[Any], Point]


def line_search(
    fun: Callable[[Any], Any], x: Any, p: Any, value: Any, gradient: Any, first: Any, most: Any
) -> tuple[Point, Any, Any]:
    """Search from x along p, doubling the step `first` at most `most` times. Return the point; a status:
    0 accepted, 1 zoom failed, 3 no interval found; and the number of evaluations."""
    origin = Point(jnp.zeros((), jnp.finfo(p.dtype).dtype), value, _slope(gradient, p), gradient)

    def at(step: Any) -> Point:
        value, gradient = value_and_grad(fun)(x + jnp.asarray(step, p.dtype) * p)
        return Point(step, value, _slope(gradient, p), gradient)

    tried = _bracket(at, origin, first, most)
    end = _zoom(at, origin, tried)
    status = jnp.where(end.failed, 1, jnp.where(end.accepted, 0, 3))
    return end.low._replace(step=_no_vanishing(end.low.step)), status, tried.i + end.j


def _slope(gradient: Any, p: Any) -> Any:
    return jnp.real(dot(gradient, p))


def _no_vanishing(step: Any) -> Any:
    """In float32, a step below 1e-8 would never change x."""
    if jnp.finfo(step.dtype).bits == 64:
        return step
    return jnp.where(jnp.abs(step) < 1e-8, jnp.sign(step) * 1e-8, step).astype(step.dtype)


def _too_high(origin: Point, at: Point) -> Any:
    """Return whether the value is too high, or the function undefined."""
    most = origin.value + SUFFICIENT_DECREASE * at.step * origin.slope
    return (at.value > most) | (jnp.isnan(at.value) & ~jnp.isnan(most))


def _flat_enough(origin: Point, at: Point) -> Any:
    return jnp.abs(at.slope) <= -CURVATURE * origin.slope


def choose(which: Any, new: Any, old: Any) -> Any:
    """Select one of two structures, array by array."""
    return tree.map(lambda x, y: jnp.where(which, x, y), new, old)


class _Doubling(NamedTuple):
    """`low` is the accepted point, or the better end of the interval, or the origin."""

    i: Any
    accepted: Any
    bracketed: Any
    last: Point
    low: Point
    high: Point


def _bracket(at: Line, origin: Point, first: Any, most: Any) -> _Doubling:
    """Double the step until it is accepted, or an interval is known to contain such a step."""

    def going(s: _Doubling) -> Any:
        return ~s.accepted & ~s.bracketed & (s.i < most)

    def double(s: _Doubling) -> _Doubling:
        new = at(jnp.where(s.i == 0, first, 2 * s.last.step).astype(origin.step.dtype))
        beyond = _too_high(origin, new) | ((new.value >= s.last.value) & (s.i > 0))
        accepted = ~beyond & _flat_enough(origin, new)
        rising = ~beyond & ~accepted & (new.slope >= 0)
        low = choose(beyond, s.last, choose(accepted | rising, new, s.low))
        high = choose(beyond, new, choose(rising, s.last, s.high))
        return _Doubling(s.i + 1, accepted, beyond | rising, new, low, high)

    start = _Doubling(0, jnp.array(False), jnp.array(False), origin, origin, origin)
    return lax.while_loop(going, double, start)


class _Interval(NamedTuple):
    """`low` is the better end, or the accepted point. `other` is a former end, the third point."""

    j: Any
    accepted: Any
    failed: Any
    low: Point
    high: Point
    other: tuple[Any, Any]


def _zoom(at: Line, origin: Point, tried: _Doubling) -> _Interval:
    """Shrink the interval until a step in it is accepted."""
    smallest = 1e-10 if jnp.finfo(origin.step.dtype).bits == 64 else 1e-5

    def going(s: _Interval) -> Any:
        return tried.bracketed & ~s.accepted & ~s.failed

    def shrink(s: _Interval) -> _Interval:
        low, high = s.low, s.high
        new = at(_next_step(s))
        beyond = _too_high(origin, new) | (new.value >= low.value)
        accepted = ~beyond & _flat_enough(origin, new)
        swap = ~beyond & ~accepted & (new.slope * (high.step - low.step) >= 0)
        failed = (jnp.abs(high.step - low.step) <= smallest) | (s.j + 1 >= MOST_ZOOMS)
        other = choose(beyond | swap, (high.step, high.value), (low.step, low.value))
        high = choose(beyond, new, choose(swap, low, high))
        return _Interval(s.j + 1, accepted, failed & ~accepted, choose(beyond, low, new), high, other)

    low, high = tried.low, tried.high
    middle = ((low.step + high.step) / 2, (low.value + high.value) / 2)
    start = _Interval(0, tried.accepted, jnp.array(False), low, high, middle)
    return lax.while_loop(going, shrink, start)


def _next_step(s: _Interval) -> Any:
    """Return the minimum of a cubic through known points; else of a parabola; else the middle."""
    a, b = s.low.step, s.high.step
    width = jnp.abs(b - a)

    def inside(step: Any, margin: float) -> Any:
        away = margin * width
        return (step > jnp.minimum(a, b) + away) & (step < jnp.maximum(a, b) - away)

    cubic = _cubic_minimum(s.low, s.high, s.other)
    parabola = _parabola_minimum(s.low, s.high)
    step = jnp.where(inside(parabola, PARABOLA_MARGIN), parabola, (a + b) / 2)
    return jnp.where((s.j > 0) & inside(cubic, CUBIC_MARGIN), cubic, step)


def _parabola_minimum(low: Point, high: Point) -> Any:
    """Return the minimum of the parabola of low's value and slope and high's value, or NaN."""
    d = high.step - low.step
    return low.step - ratio(low.slope * d * d, 2 * (high.value - low.value - low.slope * d))


def _cubic_minimum(low: Point, high: Point, other: tuple[Any, Any]) -> Any:
    """Return the minimum of the cubic A t^3 + B t^2 + C t + D, t = step - low.step, with low's
    value D and slope C and the values at two more points; NaN if there is none."""
    t, u = high.step - low.step, other[0] - low.step
    c = low.slope
    f, g = high.value - low.value - c * t, other[1] - low.value - c * u
    scale = (t * u) ** 2 * (t - u)
    a = ratio(u * u * f - t * t * g, scale)
    b = ratio(t * t * t * g - u * u * u * f, scale)
    radical = b * b - 3 * a * c
    root = jnp.where(radical > 0, jnp.sqrt(jnp.where(radical > 0, radical, 1)), jnp.nan)
    # (root - b) / 3a = -c / (root + b): use the one without cancellation
    return low.step + jnp.where(b > 0, ratio(-c, root + b), ratio(root - b, 3 * a))


def ratio(x: Any, y: Any, otherwise: float = jnp.nan) -> Any:
    """Return x / y; where y is 0, another number with derivative 0: a step that is not taken has none."""
    there = y != 0
    return jnp.where(there, x / jnp.where(there, y, 1), otherwise)
