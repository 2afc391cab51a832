"""Polynomials by their coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.numpy import linalg, prims
from functrans.numpy.creation import zeros
from functrans.numpy.grids import diag, vander
from functrans.numpy.indexing import At, getitem, take
from functrans.numpy.joining import concatenate
from functrans.numpy.linear import outer
from functrans.numpy.promotion import (
    array_of,
    cast,
    expand,
    invalid,
    promote_dtypes,
    promote_inexact,
    strong,
    to_inexact,
)
from functrans.numpy.reductions import amin
from functrans.numpy.reductions import sum as sum_over
from functrans.numpy.repeating import roll
from functrans.numpy.selecting import where
from functrans.numpy.set_operations import trim_zeros
from functrans.numpy.shaping import atleast_1d, expand_dims
from functrans.numpy.signals import convolve
from functrans.numpy.sorting import argsort
from functrans.numpy.ufuncs import (
    absolute,
    add,
    divide,
    equal,
    less,
    multiply,
    negative,
    not_equal,
    sqrt,
    square,
    subtract,
)
from functrans.primitives.call import composite
from functrans.trace import concrete_value, full, literal, materialize, typeof

__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "roots",
]  # fmt: skip


def _vector(x: Any, name: str, position: int = 0) -> Any:
    x = atleast_1d(array_of(x, name, position))
    if typeof(x).ndim != 1:
        raise invalid(name, f"coefficients are a vector, got {typeof(x)}")
    return x


def _longer(x: Any, n: int) -> Any:
    """x with zeros in front, up to n coefficients."""
    missing = n - typeof(x).shape[0]
    if missing <= 0:
        return x
    return prims.pad(x, literal(0, typeof(x).update(shape=())), config=((missing, 0, 0),))


# --- arithmetic -----------------------------------------------------------------------------------


def _joined(name: str, a1: Any, a2: Any, join: Any) -> Any:
    a1, a2 = promote_dtypes((_vector(a1, name), _vector(a2, name, 1)), name)
    n = max(typeof(a1).shape[0], typeof(a2).shape[0])
    return join(_longer(a1, n), _longer(a2, n))


@composite
def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials.

    Source: `jax.numpy.polyadd`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.polyadd(jnp.array([1, 2]), jnp.array([3])))
      [1 5]
    """
    return _joined("polyadd", a1, a2, add)


@composite
def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials.

    Source: `jax.numpy.polysub`.
    """
    return _joined("polysub", a1, a2, subtract)


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """The product of two polynomials.

    Arguments:
      trim_leading_zeros: drop zeros in front of the factors first, which must be concrete.

    Source: `jax.numpy.polymul`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.polymul(jnp.array([1.0, 1.0]), jnp.array([1.0, -1.0])))
      [ 1.  0. -1.]
    """
    a1, a2 = promote_inexact((_vector(a1, "polymul"), _vector(a2, "polymul", 1)), "polymul")
    if trim_leading_zeros and max(typeof(a1).shape[0], typeof(a2).shape[0]) > 1:
        a1, a2 = trim_zeros(a1, trim="f"), trim_zeros(a2, trim="f")
    a1, a2 = (x if typeof(x).shape[0] else materialize(_longer(x, 1)) for x in (a1, a2))
    return convolve(a1, a2, mode="full")


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """The quotient and the rest of the division of two polynomials.

    Arguments:
      trim_leading_zeros: drop what is nearly zero in front of the rest, which must be concrete.

    Source: `jax.numpy.polydiv`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(*jnp.polydiv(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 1.0])))
      [ 1. -1.] [0. 0. 0.]
    """
    u, v = promote_inexact((_vector(u, "polydiv"), _vector(v, "polydiv", 1)), "polydiv")
    quotient, rest = _divided(strong(u), strong(v))
    if trim_leading_zeros:
        tolerance = float(jax.numpy.finfo(typeof(rest).dtype).eps) ** 0.5
        trimmed = trim_zeros(where(less(absolute(rest), tolerance), 0, rest), trim="f")
        left = typeof(trimmed).shape[0]
        rest = getitem(rest, slice(typeof(rest).shape[0] - left, None))
    return quotient, rest


@composite
def _divided(u: Any, v: Any) -> tuple[Any, Any]:
    m, n = typeof(u).shape[0] - 1, typeof(v).shape[0] - 1
    lead = getitem(v, 0)
    coefficients = []
    for k in range(m - n + 1):
        d = divide(getitem(u, k), lead)
        u = At(u)[k : k + n + 1].add(negative(multiply(d, v)))
        coefficients.append(expand_dims(d, 0))
    return (concatenate(coefficients) if coefficients else zeros(1, typeof(u).dtype)), u


# --- calculus -------------------------------------------------------------------------------------


def polyder(p: Any, m: int = 1) -> Any:
    """The m-th derivative.

    Source: `jax.numpy.polyder`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.polyder(jnp.array([1.0, 2.0, 3.0])))
      [2. 2.]
    """
    p = to_inexact(array_of(p, "polyder"))
    if m < 0:
        raise invalid("polyder", f"the order must not be negative, got m={m}")
    if m == 0:
        return p
    n = typeof(p).shape[0]
    powers = np.arange(n - 1, m - 1, -1)[:, None] - np.arange(m)
    factors = powers.prod(axis=1) if n > m else np.zeros(0)
    kept = getitem(p, slice(0, max(n - m, 0)))
    return multiply(kept, factors.astype(typeof(p).dtype))


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The m-th integral.

    Arguments:
      k: the constants of integration, one for all or one for each; by default 0.

    Source: `jax.numpy.polyint`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.polyint(jnp.array([2.0, 2.0]), k=3.0))
      [1. 2. 3.]
    """
    k = 0 if k is None else k
    p, constants = promote_inexact((array_of(p, "polyint"), array_of(k, "polyint", 2)), "polyint")
    if m < 0:
        raise invalid("polyint", f"the order must not be negative, got m={m}")
    constants = atleast_1d(materialize(constants))
    if m == 0:
        return materialize(p)
    if typeof(constants).shape == (1,):
        constants = materialize(expand(constants, (m,)))
    if typeof(constants).shape != (m,):
        raise invalid("polyint", f"k must be a scalar or a vector of m={m}, got {typeof(k)}")
    n = typeof(p).shape[0] + m
    powers = np.arange(n - 1, -1, -1)[:, None] - np.arange(m)
    factors = np.maximum(powers, 1).prod(axis=1)
    return divide(concatenate([p, constants]), factors.astype(typeof(p).dtype))


# --- roots ----------------------------------------------------------------------------------------


def poly(seq_of_zeros: Any) -> Any:
    """The polynomial with given zeros, or the characteristic polynomial of a square matrix.

    Source: `jax.numpy.poly`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.poly(jnp.array([1.0, -1.0])))
      [ 1.  0. -1.]
    """
    x = to_inexact(array_of(seq_of_zeros, "poly"))
    t = typeof(x)
    x = atleast_1d(materialize(x))
    shape = typeof(x).shape
    if len(shape) == 2 and shape[0] == shape[1] and shape[0]:
        x = linalg.eigvals(x)
    elif len(shape) != 1:
        raise invalid("poly", f"takes a vector or a square matrix, got {t}")
    x = cast(x, typeof(x).dtype)
    t = typeof(x)
    if t.shape[0] == 0:
        return full(1, t.update(shape=()))
    product = full(1, t.update(shape=(1,)))
    one = full(1, t.update(shape=(1,)))
    for k in range(t.shape[0]):
        factor = concatenate([one, negative(getitem(x, slice(k, k + 1)))])
        product = convolve(product, factor, mode="full")
    return product


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """The zeros of a polynomial: the eigenvalues of its companion matrix.

    Arguments:
      p: coefficients.
      strip_zeros: drop zeros in front, which needs a concrete p; without, as many roots at the end
        are NaN.

    Source: `jax.numpy.roots`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.sort(jnp.roots(jnp.array([1.0, 0.0, -1.0])).real))
      [-1.  1.]
    """
    p = atleast_1d(array_of(p, "roots"))
    if typeof(p).ndim != 1:
        raise invalid("roots", f"coefficients are a vector, got {typeof(p)}")
    p = materialize(strong(to_inexact(p)))
    wide = np.promote_types(typeof(p).dtype, np.complex64)
    if typeof(p).shape[0] < 2:
        return zeros(0, wide)
    if not strip_zeros:
        return _roots_behind_zeros(p)
    value = concrete_value(p)
    if value is None:
        raise invalid(
            "roots", "which coefficients of a traced polynomial are zero is unknown",
            "Pass strip_zeros=False.", errors.AbstractValueError,
        )  # fmt: skip
    places = np.flatnonzero(np.asarray(value))
    if not places.size or typeof(p).shape[0] - places[0] < 2:
        return zeros(0, wide)
    return _eigenvalues(getitem(p, slice(int(places[0]), None)))


@composite
def _eigenvalues(p: Any) -> Any:
    """The roots of a polynomial that does not begin with zero."""
    companion = diag(full(1, typeof(p).update(shape=(typeof(p).shape[0] - 2,))), -1)
    first = negative(divide(getitem(p, slice(1, None)), getitem(p, 0)))
    return linalg.eigvals(At(companion)[0].set(first))


@composite
def _roots_behind_zeros(p: Any) -> Any:
    """The roots of a polynomial that may begin with zeros: for each a NaN, at the end."""
    n = typeof(p).shape[0]
    places = prims.iota(dtype=np.dtype("int32"), shape=(n,), dimension=0)
    in_front = amin(where(not_equal(p, 0), places, n))
    p = where(equal(in_front, n), 1.0, p)  # of nothing but zeros there are no eigenvalues
    # moved behind the polynomial, each zero is a root at zero, of which as many go
    found = _eigenvalues(roll(p, negative(in_front)))
    found = take(found, argsort(equal(found, 0), stable=True))
    real = less(np.arange(n - 1), subtract(n - 1, in_front))
    return where(real, found, complex(np.nan, np.nan))


# --- fitting --------------------------------------------------------------------------------------


def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None,
    cov: bool | str = False,
) -> Any:  # fmt: skip
    """The polynomial of a degree that is nearest to points, by least squares.

    Arguments:
      x: the points' abscissas, a vector.
      y: their ordinates: a vector, or one in each column.
      deg: the degree.
      rcond: singular values below this share of the largest count as 0.
      full: also the sums of squared errors, the rank, the singular values and rcond.
      w: weights of the errors, before squaring.
      cov: also the covariance matrix of the coefficients; "unscaled" without regard to the errors.

    Source: `jax.numpy.polyfit`.

    Example:
      >>> import functrans.numpy as jnp
      >>> x = jnp.arange(4.0)
      >>> print(jnp.polyfit(x, 2 * x + 1, 1).round(2))
      [2. 1.]
    """
    x, y = promote_inexact((array_of(x, "polyfit"), array_of(y, "polyfit", 1)), "polyfit")
    t, ty = typeof(x), typeof(y)
    if deg < 0 or t.ndim != 1 or ty.ndim not in (1, 2) or not t.size or t.shape[0] != ty.shape[0]:
        raise invalid(
            "polyfit", "takes a degree of at least 0, a vector x and as many rows of y, got "
            f"{deg}, {t} and {ty}",
        )  # fmt: skip
    x, y = materialize(x), materialize(y)
    rcond = t.shape[0] * float(np.finfo(np.dtype(t.dtype)).eps) if rcond is None else rcond
    lhs, rhs = vander(x, deg + 1), y
    if w is not None:
        (w,) = promote_inexact((array_of(w, "polyfit", 5),), "polyfit")
        if typeof(w).shape != t.shape:
            raise invalid("polyfit", f"weights must be as many as points, got {typeof(w)} for {t}")
        lhs = multiply(lhs, expand_dims(w, 1))
        rhs = multiply(rhs, w if ty.ndim == 1 else expand_dims(w, 1))
    scale = sqrt(sum_over(square(lhs), axis=0))
    lhs = divide(lhs, expand_dims(scale, 0))
    c, residuals, rank, s = linalg.lstsq(lhs, rhs, rcond)
    c = divide(c, scale if ty.ndim == 1 else expand_dims(scale, 1))
    if full:
        return c, residuals, rank, s, array_of(rcond, "polyfit", 3)
    if not cov:
        return c
    gram = linalg.inv(linalg.matmul(prims.transpose(lhs, permutation=(1, 0)), lhs))
    gram = divide(gram, outer(scale, scale))
    if cov == "unscaled":
        factor: Any = 1
    else:
        if t.shape[0] <= deg + 1:
            raise invalid("polyfit", "the covariance needs more points than coefficients")
        factor = divide(residuals, t.shape[0] - deg - 1)
    if ty.ndim == 2:
        gram = expand_dims(gram, 2)
    if cov != "unscaled":  # one for each polynomial
        factor = expand_dims(factor, (0, 1)[: ty.ndim])
    return c, multiply(gram, factor)
