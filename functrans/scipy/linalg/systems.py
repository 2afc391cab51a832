"""Linear equations as SciPy writes them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from functrans import lax
from functrans.ir.types import ArrayType
from functrans.numpy import linalg, shaping, sorting
from functrans.numpy.linalg.factors import inexact, shape_error
from functrans.numpy.linalg.systems import solve_stacks
from functrans.numpy.promotion import array_of, invalid, promote_alike, promote_inexact
from functrans.primitives.call import composite
from functrans.primitives.linalg_products import adjoint, permuted
from functrans.primitives.linalg_triangular import solve_triangular as _triangle
from functrans.trace import typeof

__all__ = [
    "cho_factor", "cho_solve", "cholesky", "det", "inv", "lu_factor", "lu_solve", "solve",
    "solve_triangular",
]  # fmt: skip


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinants of square matrices.

    Source: `jax.scipy.linalg.det`.
    """
    return linalg.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The inverse of square matrices.

    Source: `jax.scipy.linalg.inv`.
    """
    return linalg.inv(a)


def solve(
    a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
    debug: bool = False, check_finite: bool = True, assume_a: str = "gen",
) -> Any:  # fmt: skip
    """x with a x = b.

    Arguments:
      a: [..., n, n].
      b: [n] or [..., n, k].
      lower: which triangle of a positive definite matrix is read.
      assume_a: "gen", "sym", "her" or "pos": what is known of a. Positive definite matrices are
        solved by their Cholesky factors.

    Raises:
      InvalidArgument: another `assume_a`.

    Source: `jax.scipy.linalg.solve`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> a = jnp.array([[4.0, 2.0], [2.0, 2.0]])
      >>> print(linalg.solve(a, jnp.array([2.0, 0.0]), assume_a="pos"))
      [ 1. -1.]
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise invalid("solve", f"assume_a must be 'gen', 'sym', 'her' or 'pos', got {assume_a!r}")
    return _solve_definite(a, b, lower) if assume_a == "pos" else linalg.solve(a, b)


@composite
def _solve_definite(a: Any, b: Any, lower: bool) -> Any:
    """The factor is not differentiated: the equation is."""
    a, b = promote_alike(_pair("solve", a, b), "solve")
    factor = cholesky(lax.stop_gradient(a), lower)

    def solved(_: Any, rhs: Any) -> Any:
        return cho_solve((factor, lower), rhs)

    return lax.custom_linear_solve(lambda x: linalg.matmul(a, x), b, solved, symmetric=True)


def solve_triangular(
    a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: bool = False, debug: Any = None, check_finite: bool = True,
) -> Any:  # fmt: skip
    """x with op(a) x = b, a triangular.

    Arguments:
      a: [..., n, n]; only one triangle is read.
      b: [n] or [..., n, k].
      trans: 0 or "N", op(a) is a; 1 or "T", a^T; 2 or "C", a^H.
      lower: which triangle.
      unit_diagonal: take the diagonal for ones.

    Raises:
      InvalidArgument: another `trans`.

    Source: `jax.scipy.linalg.solve_triangular`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> a = jnp.array([[2.0, 0.0], [1.0, 4.0]])
      >>> print(linalg.solve_triangular(a, jnp.array([4.0, 6.0]), lower=True))
      [2. 1.]
    """
    modes: dict[Any, int] = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    if trans not in modes:
        raise invalid("solve_triangular", f"trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}")
    return _solve_triangular(a, b, modes[trans], bool(lower), bool(unit_diagonal))


@composite
def _solve_triangular(a: Any, b: Any, trans: int, lower: bool, unit_diagonal: bool) -> Any:
    a, b = _pair("solve_triangular", a, b)
    solver = functools.partial(
        _triangle, lower=lower, transpose_a=trans > 0, conjugate_a=trans == 2,
        unit_diagonal=unit_diagonal,
    )  # fmt: skip
    return _for_columns(solver, (a,), (2,), b)


def _pair(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """A matrix and a right hand side of one dtype."""
    a, b = promote_inexact([array_of(a, name), array_of(b, name, 1)], name)
    t, tb = typeof(a), typeof(b)
    rows = tb.shape[-1:] if _are_vectors(t, tb) else tb.shape[-2:-1]
    if t.ndim < 2 or t.shape[-1] != t.shape[-2] or rows != t.shape[-1:]:
        raise shape_error(
            name, "takes square matrices and vectors or matrices with as many rows, got "
            f"{t} and {tb}",
        )  # fmt: skip
    return a, b


def _are_vectors(a: ArrayType, b: ArrayType) -> bool:
    """Is the right hand side one vector, or one for each matrix?"""
    return b.ndim == 1 or (a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1])


def _for_columns(solver: Callable[..., Any], given: Any, ranks: Any, b: Any) -> Any:
    """Solve for a vector, for a vector per matrix, or for matrices."""
    if _are_vectors(typeof(given[0]), typeof(b)):
        x = solve_stacks(solver, given, ranks, shaping.expand_dims(b, -1))
        return shaping.squeeze(x, -1)
    return solve_stacks(solver, given, ranks, b)


# --- by factors -----------------------------------------------------------------------------------


@composite
def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """The triangular u with a = u^H u, of positive definite matrices; with `lower` l with
    a = l l^H. Only that triangle of a is read.

    Source: `jax.scipy.linalg.cholesky`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> print(linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]])))
      [[2. 1.]
       [0. 1.]]
    """
    a = inexact(a, "cholesky")
    made = lax.linalg.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return made if lower else adjoint(made)


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, bool]:
    """(c, lower): the Cholesky factor as `cho_solve` takes it.

    Source: `jax.scipy.linalg.cho_factor`.
    """
    return cholesky(a, lower), lower


def cho_solve(
    c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """x with a x = b, given the Cholesky factor of a.

    Arguments:
      c_and_lower: what `cho_factor` returned.
      b: [n] or [..., n, k].

    Source: `jax.scipy.linalg.cho_solve`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> factor = linalg.cho_factor(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
      >>> print(linalg.cho_solve(factor, jnp.array([2.0, 0.0])))
      [ 1. -1.]
    """
    if not isinstance(c_and_lower, (tuple, list)) or len(c_and_lower) != 2:
        raise invalid(
            "cho_solve", "c_and_lower is the pair (c, lower) that cho_factor returns",
            "Write cho_solve((jnp.linalg.cholesky(a), True), b) with a factor of one's own.",
        )  # fmt: skip
    return _cho_solve(c_and_lower[0], b, bool(c_and_lower[1]))


@composite
def _cho_solve(c: Any, b: Any, lower: bool) -> Any:
    c, b = _pair("cho_solve", c, b)

    def solver(c: Any, b: Any) -> Any:
        for back in (not lower, lower):
            b = _triangle(c, b, lower=lower, transpose_a=back, conjugate_a=back)
        return b

    return _for_columns(solver, (c,), (2,), b)


@composite
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """(lu, pivots), the factors as `lu_solve` takes them.

    Source: `jax.scipy.linalg.lu_factor`.
    """
    factors, pivots, _ = lax.linalg.lu(inexact(a, "lu_factor"))
    return factors, pivots


def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    """x with op(a) x = b, given the factors of a.

    Arguments:
      lu_and_piv: what `lu_factor` returned.
      b: [n] or [..., n, k].
      trans: 0, op(a) is a; 1, a^T; 2, a^H.

    Raises:
      InvalidArgument: another `trans`.

    Source: `jax.scipy.linalg.lu_solve`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> factors = linalg.lu_factor(jnp.array([[2.0, 0.0], [1.0, 4.0]]))
      >>> print(linalg.lu_solve(factors, jnp.array([4.0, 6.0])))
      [2. 1.]
    """
    if trans not in (0, 1, 2):
        raise invalid("lu_solve", f"trans must be 0, 1 or 2, got {trans!r}")
    return _lu_solve(*lu_and_piv, b, trans)


@composite
def _lu_solve(factors: Any, pivots: Any, b: Any, trans: int) -> Any:
    factors, b = _pair("lu_solve", factors, b)
    order = lax.linalg.lu_pivots_to_permutation(pivots, typeof(factors).shape[-1])
    if trans == 0:

        def solver(factors: Any, order: Any, b: Any) -> Any:
            y = _triangle(factors, permuted(b, order, -2), unit_diagonal=True)
            return _triangle(factors, y, lower=False)

    else:
        order = sorting.argsort(order)

        def solver(factors: Any, order: Any, b: Any) -> Any:
            how = {"transpose_a": True, "conjugate_a": trans == 2}
            y = _triangle(factors, b, lower=False, **how)
            return permuted(_triangle(factors, y, unit_diagonal=True, **how), order, -2)

    return _for_columns(solver, (factors, order), (2, 1), b)
