"""L-BFGS: algorithms 7.4 and 7.5 of Nocedal and Wright, Numerical Optimization; for complex vectors
as in Sorber, Van Barel and De Lathauwer, SIAM J. Optim. 22 (2012) 879-898."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import functrans.numpy as jnp
from functrans import lax
from functrans.api.derivatives import value_and_grad
from functrans.scipy.optimize.line_search import dot, line_search


class History(NamedTuple):
    """The last steps s [m, d], changes of the gradient y [m, d], and 1 / yT s [m]; newest last.
    Unfilled rows are zeros, which have no effect."""

    moves: Any
    changes: Any
    weights: Any


class State(NamedTuple):
    """The state of the search. status: 0 nominal; out of 1 iterations, 2 evaluations, 3 gradients;
    4 insufficient progress; 5 the line search failed."""

    converged: Any
    failed: Any
    iterations: Any
    evaluations: Any
    x: Any
    value: Any
    gradient: Any
    history: History
    scale: Any
    status: Any


def minimize_lbfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: float | None = None,
    norm: Any = jnp.inf,
    maxcor: int = 10,
    ftol: Any = 2.220446049250313e-09,
    gtol: Any = 1e-05,
    maxfun: float | None = None,
    maxgrad: float | None = None,
    maxls: int = 20,
) -> State:
    """Step along -H g, with H recomputed from the last `maxcor` steps."""
    d = x0.shape[0]
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * d
    limits = [(3, maxgrad), (2, maxfun), (1, maxiter)]
    value, gradient = value_and_grad(fun)(x0)

    def step(s: State) -> State:
        p = _direction(s.history, s.scale, s.gradient)
        found = line_search(fun, s.x, p, s.value, s.gradient, 1.0, maxls)
        move, change = found.step.astype(p.dtype) * p, found.gradient - s.gradient
        curvature = jnp.real(dot(change, move))
        counts = {1: s.iterations, 2: s.evaluations, 3: s.evaluations}
        status = jnp.where(s.value - found.value < ftol, 4, 0)
        for code, most in limits:
            if most is not None:
                status = jnp.where(counts[code] >= most, code, status)
        status = jnp.where(found.failed, 5, status)
        converged = jnp.linalg.norm(found.gradient, ord=norm) < gtol
        return State(
            converged,
            (status > 0) & ~converged,
            s.iterations + 1,
            s.evaluations + found.evaluations,
            s.x + move,
            found.value,
            found.gradient,
            History(
                _pushed(s.history.moves, move),
                _pushed(s.history.changes, change),
                _pushed(s.history.weights, _ratio(1, curvature)),
            ),
            _ratio(curvature, jnp.real(dot(jnp.conj(change), change))),
            jnp.where(converged, 0, status),
        )

    rows = jnp.zeros((maxcor, d), x0.dtype)
    real = jnp.finfo(x0.dtype).dtype
    start = State(
        jnp.array(False),
        jnp.array(False),
        0,
        1,
        x0,
        value,
        gradient,
        History(rows, rows, jnp.zeros(maxcor, real)),
        jnp.ones((), real),
        0,
    )
    return lax.while_loop(lambda s: ~s.converged & ~s.failed, step, start)


def _ratio(x: Any, y: Any) -> Any:
    """Return x / y; 0 where y is 0, as after the last step, of length 0."""
    there = y != 0
    return jnp.where(there, x / jnp.where(there, y, 1), 0)


def _pushed(rows: Any, new: Any) -> Any:
    return jnp.concatenate([rows[1:], new[None].astype(rows.dtype)])


def _direction(history: History, scale: Any, gradient: Any) -> Any:
    """Compute -H g by the two-loop recursion: over the steps from the newest, and back."""

    def back(q: Any, row: History) -> tuple[Any, Any]:
        a = row.weights * jnp.real(dot(jnp.conj(row.moves), q))
        return q - a * jnp.conj(row.changes), a

    def forth(q: Any, given: tuple[History, Any]) -> tuple[Any, None]:
        row, a = given
        b = row.weights * jnp.real(dot(row.changes, q))
        return q + (a - b) * row.moves, None

    q, a = lax.scan(back, -jnp.conj(gradient), history, reverse=True)
    return lax.scan(forth, scale * q, (history, a))[0]
