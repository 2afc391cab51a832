"""Linear equations of which only the product A x is asked for: Krylov solvers.

Their derivatives are those of the solution, found by the same solver from A, or from its transpose.
"""

from __future__ import annotations

import operator
import sys as _sys
from collections.abc import Callable
from functools import partial
from typing import Any

import functrans.numpy as jnp
from functrans import lax, tree
from functrans.flatten_util import ravel_pytree
from functrans.ir.tracebacks import guard as _guard
from functrans.numpy.promotion import array_of, invalid, mismatch
from functrans.scipy.sparse import krylov
from functrans.scipy.sparse.operators import linear_map, transposed, vectors
from functrans.scipy.sparse.recurrences import (
    Limits,
    Map,
    conjugate_gradients,
    norm,
    stabilized_biconjugate_gradients,
)
from functrans.trace import typeof

__all__ = ["bicgstab", "cg", "gmres"]


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None,
    M: Any = None,
) -> tuple[Any, None]:  # fmt: skip
    """Solve A x = b by conjugate gradients, for A that is Hermitian and positive definite.

    The derivative is that of the solution, in both modes and of any order, with respect to b and to
    what A closes over; each costs another solution of the same kind.

    Arguments:
      A: linear function of a pytree like b that returns one like it, a matrix [n, n], or an object
        with `@`. That it is Hermitian and positive definite is not checked.
      b: the right hand side: a pytree of floats or complex numbers of any shapes; [n] or [n, k] for
        a matrix.
      x0: where to start, a pytree like b; None: zeros.
      tol, atol: real scalars; end where |b - A x| <= max(tol |b|, atol).
      maxiter: the most steps; None: 10 for each element of b.
      M: preconditioner, an approximate inverse of A given as A is.

    Returns:
      (x, None): a pytree like b, and what is said of the search, as in JAX: nothing.

    Raises:
      NotAnArray: A or M is none of these. InvalidArgument: a matrix is not square.
      ShapeMismatch, TypeMismatch: x0, A(b) or M(b) is not like b; b holds both real and complex
        arrays.

    Source: `jax.scipy.sparse.linalg.cg`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> from functrans.scipy.sparse.linalg import cg
      >>> def solved(a, b):
      ...     return cg(lambda x: a * x, b)[0].sum()
      >>> a, b = jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])
      >>> print(solved(a, b), ft.grad(solved)(a, b))
      1.5 [-1.   -0.25]
    """
    return _iterated("cg", conjugate_gradients, A, b, x0, tol, atol, maxiter, M, hermitian=True)


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None,
    M: Any = None,
) -> tuple[Any, None]:  # fmt: skip
    """Solve A x = b by the stabilised biconjugate gradients of van der Vorst, for any A.

    The derivative is that of the solution, in both modes and of any order, with respect to b and to
    what A closes over; reverse mode solves the transposed equation.

    Arguments:
      A: linear function of a pytree like b that returns one like it, a matrix [n, n], or an object
        with `@`.
      b: the right hand side: a pytree of floats or complex numbers of any shapes; [n] or [n, k] for
        a matrix.
      x0: where to start, a pytree like b; None: zeros.
      tol, atol: real scalars; end where |b - A x| <= max(tol |b|, atol).
      maxiter: the most steps, each of two products with A; None: 10 for each element of b.
      M: preconditioner, an approximate inverse of A given as A is; the transposed equation takes
        its transpose.

    Returns:
      (x, None): a pytree like b, and what is said of the search, as in JAX: nothing.

    Raises:
      NotAnArray: A or M is none of these. InvalidArgument: a matrix is not square.
      ShapeMismatch, TypeMismatch: x0, A(b) or M(b) is not like b; b holds both real and complex
        arrays.
      NotLinear: A is not linear.

    Source: `jax.scipy.sparse.linalg.bicgstab`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy.sparse.linalg import bicgstab
      >>> x, _ = bicgstab(jnp.array([[4.0, 1.0], [0.0, 2.0]]), jnp.array([6.0, 4.0]))
      >>> print(jnp.round(x, 4))
      [1. 2.]
    """
    solver = stabilized_biconjugate_gradients
    return _iterated("bicgstab", solver, A, b, x0, tol, atol, maxiter, M, hermitian=False)


def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20,
    maxiter: Any = None, M: Any = None, solve_method: str = "batched",
) -> tuple[Any, Any]:  # fmt: skip
    """Solve A x = b by generalised minimal residuals, for any A.

    The derivative is that of the solution, in both modes and of any order, with respect to b and to
    what A closes over; reverse mode solves the transposed equation.

    Arguments:
      A: linear function of a pytree like b that returns one like it, a matrix [n, n], or an object
        with `@`.
      b: the right hand side: a pytree of floats or complex numbers of any shapes; [n] or [n, k] for
        a matrix.
      x0: where to start, a pytree like b; None: zeros.
      tol, atol: real scalars; end where |M (b - A x)| <= max(tol |b|, atol).
      restart: steps of a cycle, whose vectors are all kept: restart + 1 times the memory of b.
      maxiter: the most cycles; None: 10 for each element of b.
      M: preconditioner, an approximate inverse of A given as A is; the transposed equation takes
        its transpose.
      solve_method: "batched": a cycle makes all its steps, then solves a least squares problem;
        "incremental": it knows its residual after each step, and ends when that is small.

    Returns:
      (x, info): a pytree like b, and an integer: 0, or -1 where x is not finite.

    Raises:
      NotAnArray: A or M is none of these. InvalidArgument: a matrix is not square, `restart` is not
        positive, another `solve_method`.
      ShapeMismatch, TypeMismatch: x0, A(b) or M(b) is not like b; b holds both real and complex
        arrays.
      NotLinear: A is not linear.

    Source: `jax.scipy.sparse.linalg.gmres`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy.sparse.linalg import gmres
      >>> x, info = gmres(jnp.array([[4.0, 1.0], [0.0, 2.0]]), jnp.array([6.0, 4.0]))
      >>> print(jnp.round(x, 4), info)
      [1. 2.] 0
    """
    cycle = {"batched": krylov.batched, "incremental": krylov.incremental}.get(solve_method)
    if cycle is None:
        raise invalid(
            "gmres",
            f"solve_method must be 'batched' or 'incremental', got {solve_method!r}",
        )
    steps = operator.index(restart)
    if steps < 1:
        raise invalid("gmres", f"restart must be positive, got {steps}")
    solve = partial(_restarted, restart=steps, cycle=cycle)
    x = _solved("gmres", solve, A, b, x0, tol, atol, maxiter, M, hermitian=False)
    return x, jnp.where(jnp.isfinite(norm(x)), 0, -1)


def _restarted(
    A: Map, b: Any, x0: Any, M: Map | None, limits: Limits, *, restart: int,
    cycle: krylov.Cycle,
) -> Any:  # fmt: skip
    """GMRES works on flat vectors: a basis of them is a matrix."""
    flat, unravel = ravel_pytree(b)
    on_flat = [
        (lambda v, f=f: ravel_pytree(f(unravel(v)))[0]) if f else None for f in (A, M)
    ]
    x = krylov.generalized_minimal_residuals(
        on_flat[0], flat, ravel_pytree(x0)[0], on_flat[1], limits, min(restart, max(flat.size, 1)),
        cycle,
    )  # fmt: skip
    return unravel(x)


# --- shared ---------------------------------------------------------------------------------------


def _iterated(name: str, *args: Any, hermitian: bool) -> tuple[Any, None]:
    return _solved(name, *args, hermitian=hermitian), None


def _solved(
    name: str, solver: Callable[..., Any], A: Any, b: Any, x0: Any, tol: Any, atol: Any,
    maxiter: Any, M: Any, hermitian: bool,
) -> Any:  # fmt: skip
    """x by a solver, differentiated as the solution of A x = b."""
    b, x0 = vectors(name, b, x0)
    leaves = tree.leaves(b)
    if maxiter is None:
        maxiter = 10 * sum([x.size for x in leaves])
    given = {"tol": tol, "atol": atol, "maxiter": maxiter}
    limits = Limits(*[_real(name, which, x) for which, x in given.items()])
    product = linear_map(name, "A", A)
    conditioned = None if M is None else linear_map(name, "M", M)

    def solve(M: Map | None) -> Callable[[Map, Any], Any]:
        return lambda A, b: solver(A, b, x0, M, limits)

    symmetric = hermitian and not any(jnp.iscomplexobj(x) for x in leaves)
    back = conditioned and transposed(conditioned)
    return lax.custom_linear_solve(
        product, b, solve(conditioned), None if symmetric else solve(back), symmetric
    )


def _real(name: str, which: str, x: Any) -> Any:
    """A real number that may be traced."""
    t = typeof(array_of(x, f"{name}: {which}"))
    if t.ndim or jnp.iscomplexobj(x):
        raise mismatch(name, f"{which} must be a real number, got {t}")
    return x


_guard(_sys.modules[__name__])
