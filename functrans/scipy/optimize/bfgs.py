"""BFGS: algorithm 6.1 of Nocedal and Wright, Numerical Optimization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import functrans.numpy as jnp
from functrans import lax
from functrans.api.derivatives import value_and_grad
from functrans.scipy.optimize.line_search import dot, line_search


class State(NamedTuple):
    """The state of the search. status: 0 converged, 1 out of iterations, 2 + the status of the line
    search if it failed."""

    converged: Any
    failed: Any
    iterations: Any
    evaluations: Any
    x: Any
    value: Any
    gradient: Any
    inverse: Any  # [d, d] estimate of the inverse Hessian
    previous: Any  # the previous value, which determines the first step
    status: Any


def minimize_bfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: int | None = None,
    norm: Any = jnp.inf,
    gtol: Any = 1e-5,
    line_search_maxiter: int = 10,
) -> State:
    """Step along -H g, and estimate the inverse Hessian H from the changes of the gradient g."""
    d = x0.shape[0]
    most = 200 * d if maxiter is None else maxiter
    value, gradient = value_and_grad(fun)(x0)

    def small(gradient: Any) -> Any:
        return jnp.linalg.norm(gradient, ord=norm) < gtol

    def going(s: State) -> Any:
        return ~s.converged & ~s.failed & (s.iterations < most)

    def step(s: State) -> State:
        p = -dot(s.inverse, s.gradient)
        found = line_search(fun, s.x, p, s.value, s.gradient, _first_step(s, p), line_search_maxiter)
        move = found.step * p
        return State(
            small(found.gradient),
            found.failed,
            s.iterations + 1,
            s.evaluations + found.evaluations,
            s.x + move,
            found.value,
            found.gradient,
            _updated(s.inverse, move, found.gradient - s.gradient),
            s.value,
            found.status,
        )

    start = State(
        small(gradient),
        jnp.array(False),
        0,
        1,
        x0,
        value,
        gradient,
        jnp.eye(d, dtype=x0.dtype),
        value + _length(gradient) / 2,
        0,
    )
    end = lax.while_loop(going, step, start)
    failure = jnp.where(end.failed, 2 + end.status, -1)
    stopped = jnp.where(end.iterations == most, 1, failure)
    return end._replace(status=jnp.where(end.converged, 0, stopped))


def _length(v: Any) -> Any:
    """Return the 2-norm, with derivative 0 at 0."""
    squares = jnp.real(dot(v, jnp.conj(v)))
    there = squares > 0
    return jnp.where(there, jnp.sqrt(jnp.where(there, squares, 1)), 0)


def _first_step(s: State, p: Any) -> Any:
    """Return the step that would repeat the last change of the value; at most Newton's step, 1."""
    slope = dot(s.gradient, p)
    step = 1.01 * 2 * (s.value - s.previous) / slope
    return jnp.where(step > 1, 1.0, step)


def _updated(h: Any, s: Any, y: Any) -> Any:
    """Return (I - r s yT) h (I - r y sT) + r s sT with r = 1 / yT s, expanded: h is symmetric."""
    curvature = dot(y, s)
    there = jnp.isfinite(1 / curvature)
    r = 1 / jnp.where(there, curvature, 1)
    hy = dot(h, y)
    cross = jnp.outer(hy, s)
    new = h + r * ((1 + r * dot(y, hy)) * jnp.outer(s, s) - (cross + cross.T))
    return jnp.where(there, new, h)
