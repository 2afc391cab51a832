"""Linear equations, inverses, determinants, ranks."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np

from functrans import lax
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class
from functrans.numpy import prims, shaping, ufuncs
from functrans.numpy.grids import eye
from functrans.numpy.linalg.factors import inexact, shape_error, svd, svdvals
from functrans.numpy.linalg.norms import norm
from functrans.numpy.promotion import (
    array_of,
    broadcast_shape,
    cast,
    expand,
    invalid,
    mismatch,
    promote_alike,
    promote_inexact,
)
from functrans.numpy.reductions import any as any_over
from functrans.numpy.reductions import max as max_over
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.selecting import where
from functrans.primitives import linalg_systems as _systems
from functrans.primitives.call import composite
from functrans.primitives.linalg_factors import geqrf
from functrans.primitives.linalg_products import adjoint, conj, diagonal, einsum, matmul
from functrans.trace import full, literal, typeof

__all__ = [
    "cond", "det", "inv", "lstsq", "matrix_rank", "pinv", "slogdet", "solve", "tensorinv",
    "tensorsolve",
]  # fmt: skip


class SlogdetResult(NamedTuple):
    sign: Any
    logabsdet: Any


# --- equations ------------------------------------------------------------------------------------


@composite
def solve(a: Any, b: Any) -> Any:
    """x with a x = b, for square matrices.

    Arguments:
      a: [..., n, n].
      b: [n], one vector for all matrices, or [..., n, k].

    Returns:
      x, whose batch axes are those of a and b broadcast.

    Raises:
      ShapeMismatch: the matrices are not square, or b has another number of rows.

    Source: `jax.numpy.linalg.solve`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.solve(jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([4.0, 6.0])))
      [2. 1.]
    """
    a, b = promote_inexact([array_of(x, "solve", i) for i, x in enumerate((a, b))], "solve")
    ta, tb = typeof(a), typeof(b)
    if ta.ndim < 2 or tb.ndim < 1:
        raise invalid("solve", f"takes matrices and a vector or matrices, got {ta} and {tb}")
    if tb.ndim == ta.ndim - 1 > 1 and ta.shape[-1] == tb.shape[-1] != tb.shape[-2]:
        raise invalid(
            "solve", f"{tb} is no stack of matrices with {ta.shape[-1]} rows",
            "For a vector per matrix: solve(a, b[..., None])[..., 0].",
        )  # fmt: skip
    if tb.ndim == 1:
        return shaping.squeeze(_solved(a, shaping.expand_dims(b, -1)), -1)
    return _solved(a, b)


def _solved(a: Any, b: Any) -> Any:
    """The solution of stacks of equations; of one matrix for all of them, one with more columns."""
    shape, rest = typeof(a).shape, typeof(b).shape
    if shape[-1] != rest[-2] or shape[-2] != shape[-1]:
        raise _systems.solve.misfit(
            (typeof(a), typeof(b)), "takes square matrices, and b with as many rows"
        )
    _, factors, order = _factored(a)
    return solve_stacks(
        functools.partial(_systems.solve, transposed=False), (a, factors, order), (2, 2, 1), b
    )


def solve_stacks(solver: Callable[..., Any], given: Any, ranks: Any, b: Any) -> Any:
    """solver(*given, b) with batch axes broadcast; `ranks` tells how many axes of each of `given`
    are not batch axes. One equation for many b is one with more columns."""
    batches = [typeof(x).shape[: typeof(x).ndim - r] for x, r in zip(given, ranks, strict=True)]
    shape = typeof(b).shape
    if not any(batches) and len(shape) > 2:
        columns = shaping.moveaxis(b, -2, 0)
        moved = typeof(columns).shape
        x = solver(*given, shaping.reshape(columns, (moved[0], prod(moved[1:]))))
        return shaping.moveaxis(shaping.reshape(x, moved), 0, -2)
    batch = broadcast_shape([*batches, shape[:-2]], "solve")
    operands = [
        expand(x, (*batch, *typeof(x).shape[typeof(x).ndim - r :]))
        for x, r in zip(given, ranks, strict=True)
    ]
    return solver(*operands, expand(b, (*batch, *shape[-2:])))


def _factored(a: Any) -> tuple[Any, Any, Any]:
    """(pivots, factors, order) of a, which the derivative does not go through."""
    factors, pivots, order = lax.linalg.lu(lax.stop_gradient(a))
    return pivots, factors, order


@composite
def inv(a: Any) -> Any:
    """The inverse of square matrices; infinite or NaN where there is none.

    Raises:
      ShapeMismatch: the matrices are not square.

    Source: `jax.numpy.linalg.inv`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]])))
      [[0.5  0.  ]
       [0.   0.25]]
    """
    a = inexact(a, "inv")
    t = square(a, "inv")
    return solve(a, shaping.broadcast_to(eye(t.shape[-1], dtype=t.dtype), t.shape))


def square(a: Any, name: str) -> Any:
    """The type of stacks of square matrices, or the error that names the function."""
    t = typeof(a)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise shape_error(name, f"takes square matrices [..., n, n], got {t}")
    return t


@composite
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of a as a linear map from its last axes to its first `ind` ones.

    Source: `jax.numpy.linalg.tensorinv`.
    """
    a, ind = array_of(a, "tensorinv"), operator.index(ind)
    if ind <= 0:
        raise invalid("tensorinv", f"ind must be positive, got {ind}")
    out, into = typeof(a).shape[:ind], typeof(a).shape[ind:]
    if prod(out) != prod(into):
        raise invalid("tensorinv", f"{typeof(a)} with ind={ind} maps {into} to {out}: unlike sizes")
    flat = inv(shaping.reshape(a, (prod(out), prod(into))))
    return shaping.reshape(flat, (*into, *out))


@composite
def tensorsolve(a: Any, b: Any, axes: tuple[int, ...] | None = None) -> Any:
    """x with tensordot(a, x, x.ndim) = b.

    Arguments:
      axes: axes of a to move to its end first.

    Source: `jax.numpy.linalg.tensorsolve`.
    """
    a, b = array_of(a, "tensorsolve"), array_of(b, "tensorsolve", 1)
    if axes is not None:
        a = shaping.moveaxis(a, axes, tuple(range(-len(axes), 0)))
    ta, tb = typeof(a), typeof(b)
    shape = ta.shape[tb.ndim :]
    if ta.shape[: tb.ndim] != tb.shape or tb.size != prod(shape):
        raise invalid("tensorsolve", f"the first axes of {ta} must be those of {tb}, as large "
                      "as the others")  # fmt: skip
    flat = solve(shaping.reshape(a, (tb.size, prod(shape))), shaping.ravel(b))
    return shaping.reshape(flat, shape)


@composite
def lstsq(
    a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Any, Any, Any, Any]:
    """The x that makes the sum of squares of a x - b smallest.

    Arguments:
      a: [m, n].
      b: [m] or [m, k].
      rcond: singular values below rcond times the largest count as zero; None: max(m, n) eps.
      numpy_resid: no residuals where a lacks rank or m <= n, as in NumPy; the values must be known.

    Returns:
      (x, sums of squares, rank of a, singular values of a).

    Source: `jax.numpy.linalg.lstsq`.

    Example:
      >>> import functrans.numpy as jnp
      >>> x, *_ = jnp.linalg.lstsq(jnp.array([[1.0, 0.0], [0.0, 2.0]]), jnp.array([1.0, 4.0]))
      >>> print(x.round(3))
      [1. 2.]
    """
    a, b = promote_alike([array_of(x, "lstsq", i) for i, x in enumerate((a, b))], "lstsq")
    ta, tb = typeof(a), typeof(b)
    if ta.ndim != 2 or tb.ndim not in (1, 2):
        raise mismatch("lstsq", f"takes a matrix and a vector or matrix, got {ta} and {tb}")
    if ta.shape[0] != tb.shape[0]:
        raise invalid("lstsq", f"leading dimensions must match, got {ta} and {tb}")
    columns = shaping.reshape(b, (tb.shape[0], -1 if tb.size else 0)) if tb.ndim == 1 else b
    x, rank, s = _least_squares(a, columns, rcond)
    if numpy_resid and (ta.shape[0] <= ta.shape[1] or int(rank) < ta.shape[1]):
        residuals: Any = full(0, ArrayType((0,), canonical_dtype(np.dtype("float64"))))
    else:
        residuals = norm(ufuncs.subtract(columns, matmul(a, x)), axis=0) ** 2
    return shaping.ravel(x) if tb.ndim == 1 else x, residuals, rank, s


def _least_squares(a: Any, b: Any, rcond: Any) -> tuple[Any, Any, Any]:
    """x, the rank of a and its singular values."""
    t = typeof(a)
    if not t.size:
        shape = (t.shape[1], typeof(b).shape[1])
        rank = full(0, ArrayType((), canonical_dtype(np.dtype(int))))
        return full(0, ArrayType(shape, t.dtype)), rank, full(0, ArrayType((0,), t.dtype))
    eps = float(jax.numpy.finfo(t.dtype).eps)
    limit = eps * max(t.shape) if rcond is None else where(rcond < 0, eps, rcond)
    u, s, vh = svd(a, full_matrices=False)
    kept = ufuncs.logical_and(s > 0, s >= cast(array_of(limit, "lstsq"), typeof(s).dtype) * s[0])
    inverse = cast(where(kept, 1 / where(kept, s, 1), 0), t.dtype)
    inner = inverse[:, None] * einsum("ji,jk->ik", conj(u), b)
    return einsum("ji,jk->ik", conj(vh), inner), sum_over(kept), s


# --- determinants ---------------------------------------------------------------------------------


@composite
def det(a: Any) -> Any:
    """The determinants of square matrices.

    Raises:
      ShapeMismatch: the matrices are not square.

    Source: `jax.numpy.linalg.det`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.det(jnp.array([[2.0, 1.0], [1.0, 3.0]])))
      5.0
    """
    a = inexact(a, "det")
    n = square(a, "det").shape[-1]
    if n == 1:
        return cast(a[..., 0, 0], typeof(a).dtype)
    if n == 2:
        return _minor(a, (0, 1), (0, 1))
    if n == 3:
        return sum([
            sign * a[..., 0, i] * _minor(a, (1, 2), others)
            for i, others, sign in ((0, (1, 2), 1), (1, (0, 2), -1), (2, (0, 1), 1))
        ])  # fmt: skip
    factors, pivots, order = lax.linalg.lu(a)
    dtype = typeof(a).dtype
    return cast(_systems.det(a, factors, order, _parity(pivots, dtype)), dtype)


def _minor(a: Any, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    """The determinant of two rows and two columns."""
    (i, j), (k, m) = rows, columns
    return a[..., i, k] * a[..., j, m] - a[..., i, m] * a[..., j, k]


def _parity(pivots: Any, dtype: Any) -> Any:
    """The determinant of exchanges of rows: 1 or -1."""
    t = typeof(pivots)
    places = prims.iota(dtype=t.dtype, shape=t.shape, dimension=t.ndim - 1)
    exchanged = prims.ne(pivots, places)
    signs = prims.select_n(
        exchanged, literal(1, t.update(dtype=dtype)), literal(-1, t.update(dtype=dtype))
    )
    return prims.reduce_prod(signs, axes=(t.ndim - 1,))


@composite
def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """The determinants of square matrices as a sign and the logarithm of their size.

    Arguments:
      a: [..., n, n].
      method: "lu", or "qr" for real matrices: how it is computed.

    Returns:
      SlogdetResult(sign, logabsdet); of a singular matrix (0, -inf).

    Raises:
      ShapeMismatch: the matrices are not square.
      InvalidArgument: an unknown method.

    Source: `jax.numpy.linalg.slogdet`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(*jnp.linalg.slogdet(jnp.array([[0.0, 1.0], [1.0, 0.0]])))
      -1.0 0.0
    """
    a = inexact(a, "slogdet")
    n = square(a, "slogdet").shape[-1]
    if method not in (None, "lu", "qr"):
        raise invalid("slogdet", f"unknown method {method!r}", "Methods: 'lu', 'qr'.")
    dtype = typeof(a).dtype
    if dtype.itemsize == 2 and n in (1, 2) and method != "qr":  # a formula, no factors, in JAX
        return SlogdetResult(*[cast(x, dtype) for x in slogdet(cast(a, np.float32))])
    pivots, factors, order = _factored(a)
    still = lax.stop_gradient(a)
    if method == "qr":
        sign, logabs = _by_reflectors(still)
    elif n in (1, 2):
        value = still[..., 0, 0] if n == 1 else _minor(still, (0, 1), (0, 1))
        sign, logabs = prims.sign(value), prims.log(prims.abs_(value))
    else:
        sign, logabs = _of_diagonal(diagonal(factors), _parity(pivots, typeof(a).dtype))
    made = _systems.slogdet(a, factors, order, sign, logabs)
    formula = n in (1, 2) and method != "qr"  # of what is factored the type is not weak
    return SlogdetResult(*made if formula else [cast(x, typeof(x).dtype) for x in made])


def _of_diagonal(d: Any, sign: Any) -> tuple[Any, Any]:
    """`sign` and the product of d, as a sign and a logarithm; 0 and -inf if there is a zero."""
    axis = typeof(d).ndim - 1
    sign = prims.mul(sign, prims.reduce_prod(prims.sign(d), axes=(axis,)))
    return sign, prims.reduce_sum(prims.log(prims.abs_(d)), axes=(axis,))


def _by_reflectors(a: Any) -> tuple[Any, Any]:
    """By q r: each reflector, of which n - 1 may do something, has determinant -1."""
    if dtype_class(typeof(a).dtype) == "complex":
        raise invalid("slogdet", "method='qr' takes real matrices", "Use method='lu'.")
    r, taus = geqrf(a)
    taus = taus[..., : typeof(a).shape[-1] - 1]
    turned = prims.ne(taus, literal(0, typeof(taus)))
    signs = prims.select_n(turned, literal(1, typeof(taus)), literal(-1, typeof(taus)))
    sign = prims.reduce_prod(signs, axes=(typeof(taus).ndim - 1,))
    return _of_diagonal(diagonal(r), sign)


# --- ranks and conditions -------------------------------------------------------------------------


@composite
def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """The Moore-Penrose inverse.

    Arguments:
      a: [..., m, n].
      rtol: singular values up to rtol times the largest count as zero; [...] or a number. None: 10
        max(m, n) eps.
      hermitian: a is hermitian: use its eigenvalues.
      rcond: another name of rtol.

    Returns:
      [..., n, m]. Its derivative is right where the rank is constant.

    Raises:
      InvalidArgument: both rtol and rcond are given.

    Source: `jax.numpy.linalg.pinv`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.pinv(jnp.array([[2.0, 0.0], [0.0, 0.0]])))
      [[0.5 0. ]
       [0.  0. ]]
    """
    if rcond is not None:
        if rtol is not None:
            raise invalid("pinv", "only one of rtol and rcond may be given")
        rtol = rcond
    a = inexact(a, "pinv")
    t = typeof(a)
    if t.ndim < 2:
        raise shape_error("pinv", f"takes matrices [..., m, n], got {t}")
    if not t.size:
        return full(0, t.strong().update(shape=(*t.shape[:-2], t.shape[-1], t.shape[-2])))
    if hermitian:
        a = (a + adjoint(a)) * 0.5
    if rtol is None:
        rtol = 10.0 * max(t.shape[-2:]) * float(jax.numpy.finfo(t.dtype).eps)
    u, s, vh = svd(lax.stop_gradient(a), full_matrices=False, hermitian=hermitian)
    limit = array_of(rtol, "pinv")[..., None] * s[..., :1]
    inverse = cast(1 / where(s > limit, s, np.inf), t.dtype)
    p = einsum("ji,kj->ik", conj(vh), inverse[..., None, :] * conj(u))
    return _systems.pinv(a, prims.convert_element_type(p, dtype=t.dtype, weak_type=False))


@composite
def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """The number of singular values above a limit.

    Arguments:
      M: [..., m, n]; of less than two axes: is any element not zero?
      rtol: the limit, [...] or a number; None: max(m, n) eps times the largest.
      hermitian: M is hermitian: use its eigenvalues.
      tol: another name of rtol.

    Raises:
      InvalidArgument: both rtol and tol are given.

    Source: `jax.numpy.linalg.matrix_rank`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.matrix_rank(jnp.array([[1.0, 2.0], [2.0, 4.0]])))
      1
    """
    if tol is not None:
        if rtol is not None:
            raise invalid("matrix_rank", "only one of rtol and tol may be given")
        rtol = tol
    x = inexact(M, "matrix_rank")
    t = typeof(x)
    if t.ndim < 2:
        return cast(any_over(prims.ne(x, literal(0, t))), np.dtype(np.int32))
    s = svd(x, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if rtol is None:
        limit = max_over(s, -1) * (max(t.shape[-2:]) * float(jax.numpy.finfo(t.dtype).eps))
    else:
        limit = array_of(rtol, "matrix_rank")
    return sum_over(s > limit[..., None], -1)


@composite
def cond(x: Any, p: Any = None) -> Any:
    """The condition numbers of matrices with respect to a norm.

    Arguments:
      x: [..., m, n], square unless p is None, 2 or -2.
      p: order of the norm, as in `norm`; None or 2: the quotient of the outer singular values.

    Raises:
      InvalidArgument: x is no matrix, is empty, or not square.

    Source: `jax.numpy.linalg.cond`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.linalg.cond(jnp.array([[4.0, 0.0], [0.0, 2.0]])))
      2.0
    """
    x = inexact(x, "cond")
    t = typeof(x)
    if t.ndim < 2 or not all(t.shape[-2:]):
        raise invalid("cond", f"takes matrices that are not empty, got {t}")
    if p in (None, 2, -2):
        s = svdvals(x)
        if p != -2:
            return s[..., 0] / s[..., -1]
        found = s[..., -1] / s[..., 0]
    else:
        if t.shape[-1] != t.shape[-2]:
            raise invalid("cond", f"takes square matrices for p={p!r}, got {t}")
        found = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    given = any_over(prims.ne(x, x), (-2, -1))  # NaN
    undefined = prims.and_(prims.ne(found, found), prims.not_(given))
    return where(undefined, np.inf, found)
