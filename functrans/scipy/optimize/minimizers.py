"""`minimize`: its methods, and their interface, with SciPy's results.

BFGS is algorithm 6.1 of Nocedal and Wright, Numerical Optimization; L-BFGS their algorithms 7.4 and
7.5, for complex vectors as in Sorber, Van Barel and De Lathauwer, SIAM J. Optim. 22 (2012) 879-898.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax.scipy.optimize import OptimizeResults

import functrans.numpy as jnp
from functrans import errors, lax
from functrans import pytrees as tree
from functrans.api.derivatives import value_and_grad
from functrans.api.jit import jit
from functrans.ir.source import brief, here
from functrans.ir.types import dtype_class
from functrans.numpy.promotion import array_of, invalid
from functrans.scipy.optimize.line_search import dot, line_search, ratio
from functrans.trace import typeof
from functrans.typing import ArrayLike

# --- what the methods have in common --------------------------------------------------------------


class State(NamedTuple):
    """The state of a search. memory: what its method knows of the Hessian. status: as `minimize` returns
    it; of a BFGS search that goes on, that of the line search."""

    converged: Any
    failed: Any
    iterations: Any
    evaluations: Any
    x: Any
    value: Any
    gradient: Any
    memory: Any
    status: Any


def _start(fun: Callable[[Any], Any], x0: Any) -> State:
    value, gradient = value_and_grad(fun)(x0)
    no = jnp.array(False)
    return State(no, no, 0, 1, x0, value, gradient, None, 0)


def _moved(fun: Callable[[Any], Any], s: State, p: Any, first: Any, most: int) -> tuple[State, Any, Any]:
    """Search along p from the step `first`. Return the state there, with the status of the line search;
    the way there; and the change of the gradient."""
    end, status, evaluations = line_search(fun, s.x, p, s.value, s.gradient, first, most)
    move = end.step.astype(p.dtype) * p
    there = s._replace(
        iterations=s.iterations + 1,
        evaluations=s.evaluations + evaluations,
        x=s.x + move,
        value=end.value,
        gradient=end.gradient,
        status=status,
    )
    return there, move, end.gradient - s.gradient


# --- BFGS -----------------------------------------------------------------------------------------


def minimize_bfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: int | None = None,
    norm: Any = jnp.inf,
    gtol: Any = 1e-5,
    line_search_maxiter: int = 10,
) -> State:
    """Step along -H g, and estimate the inverse Hessian H from the changes of the gradient g. The memory
    is H [d, d], and the previous value, which determines the first step."""
    d = x0.shape[0]
    most = 200 * d if maxiter is None else maxiter

    def small(gradient: Any) -> Any:
        return jnp.linalg.norm(gradient, ord=norm) < gtol

    def going(s: State) -> Any:
        return ~s.converged & ~s.failed & (s.iterations < most)

    def step(s: State) -> State:
        inverse, previous = s.memory
        p = -dot(inverse, s.gradient)
        there, move, change = _moved(fun, s, p, _first_step(s, p, previous), line_search_maxiter)
        memory = (_updated(inverse, move, change), s.value)
        return there._replace(converged=small(there.gradient), failed=there.status > 0, memory=memory)

    start = _start(fun, x0)
    memory = (jnp.eye(d, dtype=x0.dtype), start.value + _length(start.gradient) / 2)
    end = lax.while_loop(going, step, start._replace(converged=small(start.gradient), memory=memory))
    failure = jnp.where(end.failed, 2 + end.status, -1)
    stopped = jnp.where(end.iterations == most, 1, failure)
    return end._replace(status=jnp.where(end.converged, 0, stopped))


def _length(v: Any) -> Any:
    """Return the 2-norm, with derivative 0 at 0."""
    squares = jnp.real(dot(v, jnp.conj(v)))
    there = squares > 0
    return jnp.where(there, jnp.sqrt(jnp.where(there, squares, 1)), 0)


def _first_step(s: State, p: Any, previous: Any) -> Any:
    """Return the step that would repeat the last change of the value; at most Newton's step, 1."""
    slope = dot(s.gradient, p)
    step = 1.01 * 2 * (s.value - previous) / slope
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


# --- L-BFGS ---------------------------------------------------------------------------------------


class History(NamedTuple):
    """The last steps s [m, d], changes of the gradient y [m, d], and 1 / yT s [m]; newest last.
    Unfilled rows are zeros, which have no effect."""

    moves: Any
    changes: Any
    weights: Any


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
    """Step along -H g, with H recomputed from the last `maxcor` steps. The memory is these steps, and a
    scale; after a last step of length 0 its ratios are 0."""
    d = x0.shape[0]
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * d
    limits = [(3, maxgrad), (2, maxfun), (1, maxiter)]

    def step(s: State) -> State:
        history, scale = s.memory
        there, move, change = _moved(fun, s, _direction(history, scale, s.gradient), 1.0, maxls)
        curvature = jnp.real(dot(change, move))
        new = History(move, change, ratio(1, curvature, 0))
        memory = (
            tree.map(_pushed, history, new),
            ratio(curvature, jnp.real(dot(jnp.conj(change), change)), 0),
        )
        status = jnp.where(s.value - there.value < ftol, 4, 0)
        for code, most in limits:
            if most is not None:
                status = jnp.where((s.iterations if code == 1 else s.evaluations) >= most, code, status)
        status = jnp.where(there.status > 0, 5, status)
        converged = jnp.linalg.norm(there.gradient, ord=norm) < gtol
        return there._replace(
            converged=converged,
            failed=(status > 0) & ~converged,
            memory=memory,
            status=jnp.where(converged, 0, status),
        )

    rows = jnp.zeros((maxcor, d), x0.dtype)
    real = jnp.finfo(x0.dtype).dtype
    memory = (History(rows, rows, jnp.zeros(maxcor, real)), jnp.ones((), real))
    start = _start(fun, x0)._replace(memory=memory)
    return lax.while_loop(lambda s: ~s.converged & ~s.failed, step, start)


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


# --- the interface --------------------------------------------------------------------------------

METHODS: dict[str, Callable[..., Any]] = {
    "bfgs": minimize_bfgs,
    "l-bfgs-experimental-do-not-rely-on-this": minimize_lbfgs,
}


def minimize(
    fun: Callable[..., Any],
    x0: ArrayLike,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Find a local minimum of a function of a vector.

    It may be jitted, mapped with `vmap`, and differentiated in both modes with respect to x0 and
    everything that fun uses.

    Arguments:
      fun: (x, *args) -> real scalar, differentiable.
      x0: [n] floats (L-BFGS: or complex numbers), the initial guess.
      args: further arguments of fun.
      method: "BFGS", or "l-bfgs-experimental-do-not-rely-on-this".
      tol: ignored, as in JAX; use `options={"gtol": ...}`.
      options: for BFGS: maxiter (200 n), gtol (1e-5) and norm (inf): end when the norm of the
        gradient is below gtol; line_search_maxiter (10). For L-BFGS: maxiter (200 n), norm, gtol,
        ftol (2.2e-9): least progress per iteration, maxcor (10): number of steps kept, maxfun,
        maxgrad, maxls (20).

    Returns:
      OptimizeResults. status of BFGS: 0 converged, 1 out of iterations, 3 found no step that
      satisfies the strong Wolfe conditions, 5 found no interval that contains one, -1 other. Of
      L-BFGS: 0 converged, out of 1 iterations, 2 function evaluations, 3 gradient evaluations,
      4 no progress, 5 the line search failed.

    Raises:
      InvalidArgument: an unknown method, an x0 that is not a vector.
      TypeMismatch: args is not a tuple, an unknown option.

    Source: `jax.scipy.optimize.minimize`; Nocedal and Wright, Numerical Optimization.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy.optimize import minimize
      >>> found = minimize(lambda x: jnp.sum((x - 3.0) ** 2), jnp.zeros(2), method="BFGS")
      >>> print(jnp.allclose(found.x, 3.0, atol=1e-3), found.success)
      True True
    """
    if not isinstance(args, tuple):
        raise errors.TypeMismatch(f"minimize: args must be a tuple, got {brief(args)}, {here()}")
    run = METHODS.get(method.lower())
    if run is None:
        raise invalid(
            "minimize",
            f"unknown method {method!r}",
            "Methods are 'BFGS' and 'l-bfgs-experimental-do-not-rely-on-this'.",
        )
    options = dict(options or {})
    known = list(inspect.signature(run).parameters)[2:]
    if not options.keys() <= set(known):
        unknown = ", ".join([name for name in options if name not in known])
        raise errors.TypeMismatch(
            f"minimize: {method} has no option {unknown}, {here()}\nIts options are {', '.join(known)}."
        )
    x0 = array_of(x0, "minimize", 1)
    t = typeof(x0)
    if t.ndim != 1:
        raise invalid("minimize", f"x0 must be a vector, got {t}", "Use flatten_util.ravel_pytree.")
    if dtype_class(t.dtype) not in ("float", "complex"):
        raise errors.TypeMismatch(f"minimize: x0 must be floats, got {t}, {here()}")
    # One program even without jit: otherwise reverse mode would run its steps one by one.
    end = jit(lambda x: run(lambda x: fun(x, *args), x, **options))(x0)
    return OptimizeResults(
        end.x,
        end.converged & ~end.failed,
        end.status,
        end.value,
        end.gradient,
        end.memory[0] if run is minimize_bfgs else None,
        end.evaluations,
        end.evaluations,
        end.iterations,
    )
