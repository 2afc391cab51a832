"""Functions of matrices: the exponential, the square root, general ones; Sylvester's equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from functrans import lax
from functrans.ir.types import dtype_class
from functrans.numpy import joining, linalg, prims
from functrans.numpy.grids import triu
from functrans.numpy.linalg.factors import inexact, shape_error
from functrans.numpy.promotion import (
    array_of,
    broadcast_shape,
    cast,
    expand,
    invalid,
    promote_inexact,
)
from functrans.numpy.reductions import any as any_over
from functrans.numpy.reductions import max as max_over
from functrans.numpy.reductions import min as min_over
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.selecting import where
from functrans.primitives.call import composite
from functrans.primitives.complex_numbers import complex_dtype
from functrans.primitives.linalg_products import (
    adjoint,
    diagonal,
    einsum,
    identity_like,
    matmul,
    per_column,
)
from functrans.scipy.linalg.factors import schur
from functrans.scipy.linalg.systems import solve_triangular
from functrans.trace import full, literal, typeof

__all__ = ["expm", "expm_frechet", "funm", "rsf2csf", "solve_sylvester", "sqrtm"]


def _square(a: Any, name: str) -> Any:
    a = inexact(a, name)
    t = typeof(a)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise shape_error(name, f"takes square matrices [..., n, n], got {t}")
    return a


# --- the exponential ------------------------------------------------------------------------------

# Coefficients of the Pade approximant p(x) / p(-x) of exp, and the norm up to which it is exact to
# rounding (Higham, The scaling and squaring method for the matrix exponential revisited, 2005).
_PADE: dict[str, tuple[tuple[int, ...], float]] = {
    "float32": ((17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1), 3.925724783138660),
    "float64": (
        (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
         10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1),
        5.371920351148152,
    ),
}  # fmt: skip


@composite
def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """The matrix exponential.

    Arguments:
      A: [..., n, n].
      upper_triangular: A is.
      max_squarings: the most squarings of exp(A / 2^k); NaN comes out where more are needed.

    Raises:
      ShapeMismatch: the matrices are not square.

    Source: `jax.scipy.linalg.expm`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> print(linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
      [[1. 1.]
       [0. 1.]]
    """
    a = _square(A, "expm")
    t = typeof(a)
    if not t.size:
        return a
    coefficients, reach = _PADE["float32" if t.dtype.name in ("float32", "complex64") else
                                "float64"]  # fmt: skip
    size = lax.stop_gradient(max_over(sum_over(prims.abs_(a), -2), -1))
    halvings = prims.ceil(prims.log(size / reach) / float(np.log(2)))
    halvings = where(halvings > 0, halvings, 0)
    scale = prims.exp2(-halvings)
    a = prims.mul(a, cast(expand(scale[..., None, None], t.shape), t.dtype))
    even, odd = _pade_parts(a, coefficients)
    solver = solve_triangular if upper_triangular else linalg.solve
    y = _squared(solver(even - odd, even + odd), halvings, max_squarings)
    return where((halvings > max_squarings)[..., None, None], np.nan, y)


def _pade_parts(a: Any, coefficients: tuple[int, ...]) -> tuple[Any, Any]:
    """The even and the odd powers of p(a), by Horner's rule in a^2, from the highest ones."""
    square = matmul(a, a)
    eye = identity_like(square)
    parts = []
    for start in (0, 1):
        *rest, top = [float(c) for c in coefficients[start::2]]
        made: Any = None
        for k, c in enumerate(reversed(rest)):
            made = (
                prims.mul(square, literal(top, typeof(square))) if k == 0 else matmul(square, made)
            )
            made = prims.add(made, prims.mul(eye, literal(c, typeof(square))))
        parts.append(made)
    return parts[0], matmul(a, parts[1])


def _squared(y: Any, times: Any, at_most: int) -> Any:
    """y^(2^times), a number of times per matrix: no product is made when all are ready."""

    def step(y: Any, i: Any) -> tuple[Any, None]:
        wanted = i < times

        def squared(y: Any) -> Any:
            return where(wanted[..., None, None], matmul(y, y), y)

        return lax.cond(any_over(wanted), squared, lambda y: y, y), None

    rounds = lax.iota(typeof(times).dtype, at_most)
    return lax.scan(step, y, rounds)[0]


@composite
def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """The derivative of the matrix exponential at A in the direction E.

    Arguments:
      A, E: [..., n, n].
      method: not used.
      compute_expm: return the exponential too.

    Returns:
      (exp(A), derivative), or the derivative.

    Raises:
      ShapeMismatch: A and E are not square matrices of one shape.

    Source: `jax.scipy.linalg.expm_frechet`.
    """
    a, e = promote_inexact([_square(A, "expm_frechet"), _square(E, "expm_frechet")], "expm_frechet")
    if typeof(a).shape != typeof(e).shape:
        raise shape_error("expm_frechet", f"A and E must have one shape, got {typeof(a)} and "
                          f"{typeof(e)}")  # fmt: skip
    # exp [[A, E], [0, A]] = [[exp A, derivative], [0, exp A]]
    n, zero = typeof(a).shape[-1], full(0, typeof(a))
    upper = joining.concatenate([a, e], -1)
    whole = expm(joining.concatenate([upper, joining.concatenate([zero, a], -1)], -2))
    moved = whole[..., :n, n:]
    return (whole[..., :n, :n], moved) if compute_expm else moved


# --- by Schur's form ------------------------------------------------------------------------------


@composite
def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """The complex matrix whose square is A, with eigenvalues of positive real part.

    Arguments:
      A: [..., n, n].
      blocksize: must be 1.

    Raises:
      ShapeMismatch: the matrices are not square.
      InvalidArgument: another blocksize.

    Source: `jax.scipy.linalg.sqrtm`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> print(linalg.sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]])).real.round(1))
      [[2. 0.]
       [0. 3.]]
    """
    if blocksize > 1:
        raise invalid("sqrtm", f"has no blocks, got blocksize={blocksize}", "Leave it 1.")
    t, z = schur(_square(A, "sqrtm"), "complex")
    return einsum("ij,kj->ik", matmul(z, _triangular_root(t)), lax.conj(z))


def _triangular_root(t: Any) -> Any:
    """The upper triangular u with u u = t, column by column: above its diagonal column j solves
    (u + u_jj) x = t_j, u known to the left of it (Bjorck and Hammarling, 1983)."""
    roots = prims.sqrt(diagonal(t))
    n = typeof(t).shape[-1]
    places = lax.broadcasted_iota(np.int32, (n,), 0)

    def column(j: Any, u: Any) -> Any:
        above = expand((places < j), typeof(roots).shape)
        pivots = roots + roots[..., j][..., None]
        pivots = where(above & (pivots != 0), pivots, 1)
        known = where((places < j)[None, :] & (places[:, None] < places[None, :]), u, 0)
        a = known + prims.mul(identity_like(known), per_column(pivots, known))
        x = lax.linalg.triangular_solve(a, where(above, t[..., j], 0), left_side=True)
        x = where(expand(places == j, typeof(x).shape), roots, x)
        return where(expand(places == j, typeof(u).shape), x[..., None], u)

    return lax.fori_loop(0, n, column, full(0, typeof(t)))


@composite
def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """A real Schur form z t z^T as a complex one, whose t is upper triangular -> (t, z).

    Arguments:
      T, Z: [..., n, n].

    Raises:
      ShapeMismatch: they are not square matrices of one size.

    Source: `jax.scipy.linalg.rsf2csf`.
    """
    t, z = promote_inexact([_square(T, "rsf2csf"), _square(Z, "rsf2csf")], "rsf2csf")
    if typeof(t).shape[-1] != typeof(z).shape[-1]:
        raise shape_error("rsf2csf", f"T and Z must have one shape: {typeof(t)}, {typeof(z)}")
    kind = complex_dtype(typeof(t).dtype)
    t, z = cast(t, kind), cast(z, kind)
    n = typeof(t).shape[-1]
    eps = float(jax.numpy.finfo(kind).eps)

    def step(i: Any, both: tuple[Any, Any]) -> tuple[Any, Any]:
        t, z = both
        m = n - i
        block = lax.dynamic_slice_in_dim(t, m - 1, 2, typeof(t).ndim - 2)
        block = lax.dynamic_slice_in_dim(block, m - 1, 2, typeof(t).ndim - 1)
        turn = _rotation(block, m, n, eps)
        back = lax.conj(turn)
        t = einsum("ij,kj->ik", matmul(turn, t), back)
        rows, columns = (lax.broadcasted_iota(np.int32, (n, n), axis) for axis in (0, 1))
        t = where((rows == m) & (columns == m - 1), 0, t)
        return t, einsum("ij,kj->ik", z, back)

    return lax.fori_loop(1, n, step, (t, z)) if n > 1 else (t, z)


def _rotation(block: Any, m: Any, n: int, eps: float) -> Any:
    """The unitary n by n matrix that makes t[m, m-1] zero, given t[m-1:m+1, m-1:m+1]: a Givens
    rotation to an eigenvector; the identity where that is zero already."""
    low, corner = block[..., 1, 0], block[..., 1, 1]
    gap = linalg.eigvals(block)[..., 0] - corner
    length = cast(prims.sqrt(prims.abs_(gap) ** 2 + prims.abs_(low) ** 2), typeof(low).dtype)
    small = prims.abs_(low) <= eps * (prims.abs_(block[..., 0, 0]) + prims.abs_(corner))
    length = where(small, 1, length)
    c, s = where(small, 1, gap / length), where(small, 0, low / length)
    rows, columns = (lax.broadcasted_iota(np.int32, (n, n), axis) for axis in (0, 1))
    made = where(rows == columns, cast(array_of(1, "rsf2csf"), typeof(low).dtype), 0)
    for row, column, value in ((0, 0, lax.conj(c)), (0, 1, s), (1, 0, -s), (1, 1, c)):
        here = (rows == m - 1 + row) & (columns == m - 1 + column)
        made = where(here, value[..., None, None], made)
    return made


def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """A function of a matrix, given as a function of numbers.

    Arguments:
      A: [n, n], whose eigenvalues should differ from each other.
      func: function of an array of complex numbers, which is given the eigenvalues.
      disp: return the result alone, without the estimate of its error.

    Returns:
      func(A), complex, or (func(A), error).

    Raises:
      ShapeMismatch: A is not a square matrix.

    Source: `jax.scipy.linalg.funm`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> print(linalg.funm(jnp.array([[1.0, 0.0], [0.0, 2.0]]), lambda x: x * x).real)
      [[1. 0.]
       [0. 4.]]
    """
    a = _square(A, "funm")
    if typeof(a).ndim != 2:
        raise shape_error("funm", f"takes a square matrix, got {typeof(a)}")
    t, z = rsf2csf(*schur(a))
    f, gap = _parlett(t, cast(array_of(func(diagonal(t)), "funm"), typeof(t).dtype))
    f = einsum("ij,kj->ik", matmul(z, f), lax.conj(z))
    if disp:
        return f
    eps = float(jax.numpy.finfo(typeof(f).dtype).eps)
    bound = linalg.norm(triu(t, 1), 1) * eps / where(gap == 0, eps, gap)
    infinite = any_over(prims.eq(prims.abs_(f), full(np.inf, typeof(prims.abs_(f)))))
    low, high = literal(eps, typeof(bound)), literal(1.0, typeof(bound))
    return f, where(infinite, np.inf, lax.clamp(low, bound, high))


@composite
def _parlett(t: Any, values: Any) -> tuple[Any, Any]:
    """f(t) of an upper triangular t, and the least gap between its eigenvalues.

    f t = t f gives f_ij (t_jj - t_ii) = (t' f - f t')_ij, t' the part of t above its diagonal, in
    which stand only elements of f that are nearer to the diagonal (Golub and Van Loan, 9.1.4).
    """
    n = typeof(t).shape[-1]
    above = triu(t, 1)
    d = diagonal(t)
    gaps = d[None, :] - d[:, None]
    rows, columns = (lax.broadcasted_iota(np.int32, (n, n), axis) for axis in (0, 1))
    divisor = where(gaps == 0, 1, gaps)

    def step(p: Any, f: Any) -> Any:
        moved = matmul(above, f) - matmul(f, above)
        return where(columns - rows == p, moved / divisor, f)

    start = prims.mul(identity_like(t), per_column(values, t))
    made = lax.fori_loop(1, n, step, start)
    sizes = where(columns > rows, prims.abs_(gaps), np.inf)
    least = min_over(sizes)
    first = prims.abs_(t[0, 0])
    return made, where(least < first, least, first)


@composite
def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """x with a x + x b = c.

    Arguments:
      A: [..., m, m].
      B: [..., n, n].
      C: [..., m, n]. The leading axes of the three are broadcast.
      method: "schur", or "eigen" for matrices with a basis of eigenvectors.
      tol: NaN comes out where an eigenvalue of a and one of -b are nearer than this.

    Raises:
      InvalidArgument: the shapes do not fit, or another method.

    Source: `jax.scipy.linalg.solve_sylvester`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> one = jnp.eye(2)
      >>> print(linalg.solve_sylvester(one, one, 4 * one))
      [[2. 0.]
       [0. 2.]]
    """
    name = "solve_sylvester"
    a, b, c = promote_inexact([array_of(x, name, i) for i, x in enumerate((A, B, C))], name)
    m, n = typeof(c).shape[-2:]
    if typeof(a).shape[-2:] != (m, m) or typeof(b).shape[-2:] != (n, n):
        raise invalid(name, f"shapes do not fit: {typeof(a)}, {typeof(b)}, {typeof(c)}")
    if method not in ("schur", "eigen"):
        raise invalid(name, f"unknown method {method!r}", "Methods: 'schur', 'eigen'.")
    kind = complex_dtype(typeof(c).dtype)
    types = [typeof(x) for x in (a, b, c)]
    stack = broadcast_shape([t.shape[:-2] for t in types], name, types)

    def stacked(*xs: Any) -> list[Any]:
        return [expand(x, (*stack, *typeof(x).shape[-2:])) for x in xs]

    if method == "eigen":
        (wa, va), (wb, vb) = linalg.eig(a), linalg.eig(b)
        left, right, inverse, whole = stacked(va, vb, linalg.inv(vb), cast(c, kind))
        y = linalg.solve(left, matmul(whole, right)) / (wa[..., :, None] + wb[..., None, :])
        x = matmul(matmul(left, y), inverse)
    else:
        r, u, s, v, whole = stacked(
            *schur(a, "complex"), *schur(adjoint(b), "complex"), cast(c, kind)
        )
        y = _triangular_sylvester(r, s, matmul(einsum("ji,jk->ik", lax.conj(u), whole), v))
        x = einsum("ij,kj->ik", matmul(u, y), lax.conj(v))
        wa, wb = diagonal(r), lax.conj(diagonal(s))
    near = any_over(prims.abs_(wa[..., :, None] + wb[..., None, :]) < tol, (-2, -1))
    x = x if dtype_class(typeof(c).dtype) == "complex" else prims.real(x)
    return where(near[..., None, None], np.nan, x)


def _triangular_sylvester(r: Any, s: Any, f: Any) -> Any:
    """y with r y + y s^H = f, r and s upper triangular, from the last column on:
    (r + conj(s_jj)) y_j = f_j - sum of y_k conj(s_jk) over k > j."""
    n = typeof(f).shape[-1]
    places = lax.broadcasted_iota(np.int32, (n,), 0)
    eye = identity_like(r)

    def column(i: Any, y: Any) -> Any:
        j = n - 1 - i
        row = lax.conj(s[..., j, :])
        rest = f[..., j] - sum_over(y * where(places > j, row, 0)[..., None, :], -1)
        a = r + eye * row[..., j][..., None, None]
        x = lax.linalg.triangular_solve(a, rest, left_side=True)
        return where(expand(places == j, typeof(y).shape), x[..., None], y)

    return lax.fori_loop(0, n, column, full(0, typeof(f)))
