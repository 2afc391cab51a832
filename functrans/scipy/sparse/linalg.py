"""Linear equations of which only the product A x is asked for: Krylov solvers.

Their derivatives are those of the solution, found by the same solver from A, or from its transpose.
"""

from __future__ import annotations

import operator
import sys as _sys
from collections.abc import Callable
from typing import Any

import functrans.numpy as jnp
from functrans import errors, lax
from functrans import pytrees as tree
from functrans.flatten_util import ravel_pytree
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.numpy.promotion import array_of, invalid, strong
from functrans.primitives.call import composite
from functrans.scipy.sparse import krylov
from functrans.scipy.sparse.operators import (
    as_made,
    is_array,
    linear_map,
    real,
    transposed,
    vectors,
)
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
    return _solved("cg", A, b, x0, tol, atol, maxiter, M), None


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None,
    M: Any = None,
) -> tuple[Any, None]:  # fmt: skip
    """Solve A x = b by the stabilised biconjugate gradients of van der Vorst, for any A.

    The derivative is that of the solution, in both modes and of any order, with respect to b and to
    what A closes over; reverse mode solves the transposed equation.

    Arguments:
      A, b, x0, tol, atol: as in `cg`, of any A that is linear.
      maxiter: the most steps, each of two products with A; None: 10 for each element of b.
      M: as in `cg`; the transposed equation takes its transpose.

    Returns:
      (x, None), as `cg`.

    Raises:
      NotLinear: A is not linear. The others as in `cg`.

    Source: `jax.scipy.sparse.linalg.bicgstab`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy.sparse.linalg import bicgstab
      >>> x, _ = bicgstab(jnp.array([[4.0, 1.0], [0.0, 2.0]]), jnp.array([6.0, 4.0]))
      >>> print(jnp.round(x, 4))
      [1. 2.]
    """
    return _solved("bicgstab", A, b, x0, tol, atol, maxiter, M), None


def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20,
    maxiter: Any = None, M: Any = None, solve_method: str = "batched",
) -> tuple[Any, Any]:  # fmt: skip
    """Solve A x = b by generalised minimal residuals, for any A.

    The derivative is that of the solution, in both modes and of any order, with respect to b and to
    what A closes over; reverse mode solves the transposed equation.

    Arguments:
      A, b, x0: as in `bicgstab`.
      tol, atol: real scalars; end where |M (b - A x)| <= max(tol |b|, atol).
      restart: steps of a cycle, whose vectors are all kept: restart + 1 times the memory of b.
      maxiter: the most cycles; None: 10 for each element of b.
      M: as in `bicgstab`.
      solve_method: "batched": a cycle makes all its steps, then solves a least squares problem;
        "incremental": it knows its residual after each step, and ends when that is small.

    Returns:
      (x, info): a pytree like b, and an integer: 0, or -1 where x is not finite.

    Raises:
      InvalidArgument: `restart` is not positive, another `solve_method`. NotAnArray: `restart` is
        no integer. The others as in `bicgstab`.

    Source: `jax.scipy.sparse.linalg.gmres`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy.sparse.linalg import gmres
      >>> x, info = gmres(jnp.array([[4.0, 1.0], [0.0, 2.0]]), jnp.array([6.0, 4.0]))
      >>> print(jnp.round(x, 4), info)
      [1. 2.] 0
    """
    if solve_method not in krylov.CYCLES:
        known = " or ".join(map(repr, krylov.CYCLES))
        raise invalid("gmres", f"solve_method must be {known}, got {solve_method!r}")
    if isinstance(restart, float):
        raise errors.NotAnArray(
            f"gmres: restart must be a Python int, got {restart}, at\n    {describe(user_source())}"
        )
    steps = operator.index(restart)
    if steps < 1:
        raise invalid("gmres", f"restart must be positive, got {steps}")
    x = _solved("gmres", A, b, x0, tol, atol, maxiter, M, steps, solve_method)
    return x, jnp.where(jnp.isfinite(norm(x)), 0, -1)


# --- shared ---------------------------------------------------------------------------------------


def _solved(
    name: str, A: Any, b: Any, x0: Any, tol: Any, atol: Any, maxiter: Any, M: Any, *how: Any
) -> Any:
    """x, differentiated as the solution of A x = b."""
    b, x0 = vectors(name, b, x0)
    if any(typeof(x).weak_type for x in tree.leaves(b)):
        b, x0 = vectors(name, as_made(name, A, b), x0)
        if name == "cg":  # of which JAX's steps are strong
            b, x0 = tree.map(strong, (b, x0))
    if maxiter is None:
        maxiter = 10 * sum([x.size for x in tree.leaves(b)])
    given = {"tol": tol, "atol": atol, "maxiter": maxiter}
    limits = [real(name, which, x) for which, x in given.items()]
    if is_array(b) and is_array(A) and (M is None or is_array(M)):
        matrices = [m if m is None else array_of(m, name) for m in (A, M)]
        return _of_arrays(*matrices, b, x0, *limits, name, *how)
    return _of_anything(A, M, b, x0, *limits, name, *how)


def _of_anything(
    A: Any, M: Any, b: Any, x0: Any, tol: Any, atol: Any, maxiter: Any, name: str, *how: Any
) -> Any:
    limits = Limits(tol, atol, maxiter)
    product = linear_map(name, "A", A)
    conditioned = None if M is None else linear_map(name, "M", M)
    solver = _SOLVERS[name]

    def solve(M: Map | None) -> Callable[[Map, Any], Any]:
        return lambda A, b: solver(A, b, x0, M, limits, *how)

    symmetric = name == "cg" and not any(jnp.iscomplexobj(x) for x in tree.leaves(b))
    back = None if symmetric else solve(conditioned and transposed(conditioned))
    return lax.custom_linear_solve(product, b, solve(conditioned), back, symmetric)


_of_arrays = composite(_of_anything)


def _restarted(
    A: Map, b: Any, x0: Any, M: Map | None, limits: Limits, restart: int, method: str
) -> Any:
    """GMRES works on flat vectors, of float32 at least: a basis of them is a matrix."""
    vector, unravel = ravel_pytree(b)
    dtype = jnp.promote_types(vector.dtype, "float32")

    def flat(x: Any) -> Any:
        return ravel_pytree(x)[0].astype(dtype)

    def back(v: Any) -> Any:
        return unravel(v.astype(vector.dtype))

    def on_flat(f: Map) -> Map:
        return lambda v: flat(f(back(v)))

    x = krylov.generalized_minimal_residuals(
        on_flat(A), flat(b), None if x0 is None else flat(x0), M and on_flat(M), limits,
        min(restart, max(vector.size, 1)), krylov.CYCLES[method],
    )  # fmt: skip
    return back(x)


_SOLVERS: dict[str, Callable[..., Any]] = {
    "cg": conjugate_gradients,
    "bicgstab": stabilized_biconjugate_gradients,
    "gmres": _restarted,
}

_guard(_sys.modules[__name__])

_hand_on(__name__)
