"""`minimize`: the interface to the methods, with SciPy's results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from functrans import errors
from functrans.api.jit import jit
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class
from functrans.numpy.promotion import array_of, invalid
from functrans.scipy.optimize.bfgs import minimize_bfgs
from functrans.scipy.optimize.lbfgs import minimize_lbfgs
from functrans.trace import typeof
from functrans.typing import ArrayLike

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
        raise errors.TypeMismatch(
            f"minimize: args must be a tuple, got {args!r:.60}, at\n    {describe(user_source())}"
        )
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
            f"minimize: {method} has no option {unknown}, at\n    {describe(user_source())}\n"
            f"Its options are {', '.join(known)}."
        )
    x0 = array_of(x0, "minimize", 1)
    t = typeof(x0)
    if t.ndim != 1:
        raise invalid("minimize", f"x0 must be a vector, got {t}", "Use flatten_util.ravel_pytree.")
    if dtype_class(t.dtype) not in ("float", "complex"):
        raise errors.TypeMismatch(f"minimize: x0 must be floats, got {t}, at\n    {describe(user_source())}")
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
