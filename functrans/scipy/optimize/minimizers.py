"""`minimize`: its methods, and their interface, with SciPy's results.

BFGS is algorithm 6.1 of Nocedal and Wright, Numerical Optimization; L-BFGS their algorithms 7.4 and
7.5, for complex vectors as in Sorber, Van Barel and De Lathauwer, SIAM J. Optim. 22 (2012) 879-898.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import functrans.numpy as jnp
from functrans import errors, lax
from functrans.api.derivatives import value_and_grad
from functrans.api.jit import jit
from functrans.ir.source import brief, here
from functrans.ir.types import dtype_class
from functrans.numpy.promotion import array_of, invalid
from functrans.scipy.optimize.line_search import dot, line_search, ratio
from functrans.trace import typeof
from functrans.typing import ArrayLike

# --- BFGS -----------------------------------------------------------------------------------------


class BFGSState(NamedTuple):
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
) -> BFGSState:
    """Step along -H g, and estimate the inverse Hessian H from the changes of the gradient g."""
    d = x0.shape[0]
    most = 200 * d if maxiter is None else maxiter
    value, gradient = value_and_grad(fun)(x0)

    def small(gradient: Any) -> Any:
        return jnp.linalg.norm(gradient, ord=norm) < gtol

    def going(s: BFGSState) -> Any:
        return ~s.converged & ~s.failed & (s.iterations < most)

    def step(s: BFGSState) -> BFGSState:
        p = -dot(s.inverse, s.gradient)
        found = line_search(fun, s.x, p, s.value, s.gradient, _first_step(s, p), line_search_maxiter)
        move = found.step * p
        return BFGSState(
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

    start = BFGSState(
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


def _first_step(s: BFGSState, p: Any) -> Any:
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


# --- L-BFGS ---------------------------------------------------------------------------------------


class History(NamedTuple):
    """The last steps s [m, d], changes of the gradient y [m, d], and 1 / yT s [m]; newest last.
    Unfilled rows are zeros, which have no effect."""

    moves: Any
    changes: Any
    weights: Any


class LBFGSState(NamedTuple):
    """The state of the search. status: 0 nominal; out of 1 iterations, 2 evaluations, 3 gradients;
    4 insufficient progress; 5 the line search failed. After a last step of length 0 its ratios are 0."""

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
) -> LBFGSState:
    """Step along -H g, with H recomputed from the last `maxcor` steps."""
    d = x0.shape[0]
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * d
    limits = [(3, maxgrad), (2, maxfun), (1, maxiter)]
    value, gradient = value_and_grad(fun)(x0)

    def step(s: LBFGSState) -> LBFGSState:
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
        return LBFGSState(
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
                _pushed(s.history.weights, ratio(1, curvature, 0)),
            ),
            ratio(curvature, jnp.real(dot(jnp.conj(change), change)), 0),
            jnp.where(converged, 0, status),
        )

    rows = jnp.zeros((maxcor, d), x0.dtype)
    real = jnp.finfo(x0.dtype).dtype
    start = LBFGSState(
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


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    x: [n] the last point. success: whether it converged. status: 0 if so, else why it ended. fun,
    jac: the value and the gradient at x. hess_inv: [n, n] estimate of the inverse Hessian (BFGS).
    nfev, njev, nit: the numbers of function evaluations, gradient evaluations and iterations.

    Source: `jax.scipy.optimize.OptimizeResults`.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


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
        getattr(end, "inverse", None),
        end.evaluations,
        end.evaluations,
        end.iterations,
    )
