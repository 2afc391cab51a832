"""Matrices with a pattern."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from math import comb, sqrt
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import check_sizes, integer
from functrans.numpy import joining
from functrans.numpy.creation import asarray, or_float
from functrans.numpy.grids import diag, eye
from functrans.numpy.indexing import take
from functrans.numpy.linalg.factors import inexact
from functrans.numpy.padding import pad
from functrans.numpy.promotion import array_of, cast, invalid, promote_dtypes, strong, user_dtype
from functrans.numpy.shaping import atleast_1d, atleast_2d
from functrans.numpy.ufuncs import absolute, conjugate
from functrans.numpy.vectorizing import vectorize
from functrans.primitives.call import composite
from functrans.primitives.complex_numbers import complex_dtype
from functrans.trace import full, typeof

__all__ = [
    "block_diag", "circulant", "companion", "convolution_matrix", "dft", "fiedler",
    "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal",
    "leslie", "pascal", "toeplitz",
]  # fmt: skip


@composite
def block_diag(*arrs: Any) -> Any:
    """The matrices one after the other along a diagonal.

    Arguments:
      arrs: arrays of at most two axes.

    Source: `jax.scipy.linalg.block_diag`.

    Example:
      >>> from functrans.scipy import linalg
      >>> print(linalg.block_diag(1.0, [[2.0, 3.0]]))
      [[1. 0. 0.]
       [0. 2. 3.]]
    """
    if not arrs:
        return full(0, ArrayType((1, 0), or_float(None)))
    for i, x in enumerate(arrs):
        if np.ndim(x) > 2:
            raise invalid("block_diag", f"takes matrices, got {typeof(x)} at position {i}")
    blocks = promote_dtypes([atleast_2d(asarray(x)) for x in arrs], "block_diag")
    blocks = [strong(x) for x in blocks]
    width = sum(typeof(x).shape[1] for x in blocks)
    start, rows = 0, []
    for x in blocks:
        stop = start + typeof(x).shape[1]
        rows.append(pad(x, [(0, 0), (start, width - stop)]))
        start = stop
    return joining.concatenate(rows, 0)


# --- of a vector or two ---------------------------------------------------------------------------


def _vector(name: str, x: Any) -> Any:
    x = atleast_1d(array_of(x, name))
    if typeof(x).ndim != 1:
        raise invalid(name, f"takes a vector, got {typeof(x)}")
    return x


def _batched(signature: str, scalars: bool = True) -> Callable[..., Any]:
    """Let a function of vectors take arrays of them, whose leading axes hold a batch. Numbers are
    vectors of length 1 if `scalars` may be given."""
    count = signature.partition("->")[0].count("(")

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = parameters.bind(*args, **kwargs).args
            vectors = [array_of(x, function.__name__) for x in given[:count]]
            if not scalars and any(typeof(x).ndim == 0 for x in vectors):
                raise invalid(function.__name__, f"takes vectors, got {typeof(vectors[0])}")
            vectors = [atleast_1d(x) for x in vectors]
            one = functools.partial(_with_rest, function, given[count:])
            return vectorize(one, signature=signature)(*vectors)

        return call

    return of


def _with_rest(function: Callable[..., Any], rest: tuple[Any, ...], *vectors: Any) -> Any:
    return function(*vectors, *rest)


@composite
def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrix with constant diagonals, of its first column and row.

    Arguments:
      c: [..., m], the first column; leading axes hold a batch.
      r: [..., n], the first row, whose first element is not read; the conjugate of c by default.

    Source: `jax.scipy.linalg.toeplitz`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import linalg
      >>> print(linalg.toeplitz(jnp.array([1, 2, 3])))
      [[1 2 3]
       [2 1 2]
       [3 2 1]]
    """
    c = atleast_1d(array_of(c, "toeplitz"))
    r = conjugate(c) if r is None else atleast_1d(array_of(r, "toeplitz", 1))
    c, r = map(strong, promote_dtypes([c, r], "toeplitz"))

    def one(c: Any, r: Any) -> Any:
        m, n = typeof(c).shape[0], typeof(r).shape[0]
        line = joining.concatenate([c[::-1], r[1:]])
        return _along(line, (m - 1 - np.arange(m))[:, None] + np.arange(n), (m, n))

    return vectorize(one, signature="(m),(n)->(m,n)")(c, r)


def _along(line: Any, places: np.ndarray, shape: tuple[int, ...]) -> Any:
    """line[places]; nothing of an empty one."""
    if not all(shape):
        return full(0, ArrayType(shape, typeof(line).dtype))
    return take(line, places, 0)


@composite
def hankel(c: Any, r: Any = None) -> Any:
    """The matrix with constant antidiagonals, of its first column and last row.

    Arguments:
      c: [..., m], the first column; leading axes hold a batch.
      r: [..., n], the last row, whose first element is not read; zeros by default.

    Source: `jax.scipy.linalg.hankel`.
    """
    c = array_of(c, "hankel")
    r = full(0, typeof(c)) if r is None else array_of(r, "hankel", 1)
    if typeof(c).ndim == 0 or typeof(r).ndim == 0:
        raise invalid("hankel", f"takes vectors, got {typeof(c)} and {typeof(r)}")
    c, r = map(strong, promote_dtypes([c, r], "hankel"))

    def one(c: Any, r: Any) -> Any:
        m, n = typeof(c).shape[0], typeof(r).shape[0]
        line = joining.concatenate([c, r[1:]])
        return _along(line, np.arange(m)[:, None] + np.arange(n), (m, n))

    return vectorize(one, signature="(m),(n)->(m,n)")(c, r)


@composite
@_batched("(n)->(n,n)")
def circulant(c: Any) -> Any:
    """The matrix whose columns are c, rolled by 0, 1, 2, ...

    Source: `jax.scipy.linalg.circulant`.
    """
    c = _vector("circulant", c)
    n = typeof(c).shape[0]
    return _along(c, (np.arange(n)[:, None] - np.arange(n)) % max(n, 1), (n, n))


@composite
@_batched("(n),(m)->(n,n)")
def leslie(f: Any, s: Any) -> Any:
    """The matrix with f for its first row and s below its diagonal.

    Arguments:
      f: [n], n >= 2.
      s: [n - 1].

    Source: `jax.scipy.linalg.leslie`.
    """
    f, s = promote_dtypes([_vector("leslie", f), _vector("leslie", s)], "leslie")
    n = typeof(f).shape[0]
    if n < 2 or typeof(s).shape[0] != n - 1:
        raise invalid("leslie", f"takes n >= 2 and n - 1 numbers, got {typeof(f)} and {typeof(s)}")
    return diag(s, -1).at[0].set(f)


@composite
@_batched("(n)->(m,m)")
def companion(a: Any) -> Any:
    """The companion matrix of a polynomial, whose eigenvalues are its roots.

    Arguments:
      a: [n + 1], n >= 1, the highest power first.

    Source: `jax.scipy.linalg.companion`.
    """
    a = inexact(_vector("companion", a), "companion")
    n = typeof(a).shape[0] - 1
    if n < 1:
        raise invalid("companion", f"takes two coefficients or more, got {typeof(a)}")
    return eye(n, n, -1, typeof(a).dtype).at[0].set(-a[1:] / a[0])


@composite
def fiedler(a: Any) -> Any:
    """The matrix |a_i - a_j|.

    Source: `jax.scipy.linalg.fiedler`.
    """
    a = atleast_1d(array_of(a, "fiedler"))
    return absolute(a[..., :, None] - a[..., None, :])


@composite
@_batched("(n)->(m,m)")
def fiedler_companion(a: Any) -> Any:
    """A companion matrix of a polynomial with five diagonals.

    Arguments:
      a: [n + 1], the highest power first.

    Source: `jax.scipy.linalg.fiedler_companion`.
    """
    a = inexact(_vector("fiedler_companion", a), "fiedler_companion")
    n = typeof(a).shape[0] - 1
    if n < 0:
        raise invalid("fiedler_companion", "takes at least one coefficient, got none")
    if n == 0:
        return full(0, ArrayType((0, 0), typeof(a).dtype))
    # each place holds zero, one, or minus a coefficient: 0, 1 and -a[k] / a[0] in one line
    which = np.zeros((n, n), int)
    which[0, 0] = 2
    for i in range(n):
        if i == 1:
            which[1, 0] = 1
        if i % 2 == 0:
            for j, k in ((i + 1, i + 2), (i - 1, i + 1)):
                if 0 <= j < n:
                    which[i, j] = k + 1
            if i + 2 < n:
                which[i, i + 2] = 1
        elif i >= 3:
            which[i, i - 2] = 1
    zero = full(0, ArrayType((1,), typeof(a).dtype))
    one = full(1, ArrayType((1,), typeof(a).dtype))
    return take(joining.concatenate([zero, one, -a[1:] / a[0]]), which, 0)


@composite
@_batched("(n)->(k,m)", scalars=False)
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """The matrix by which a vector of n numbers is multiplied to convolve it with a.

    Arguments:
      a: [m], m >= 1.
      mode: "full", "valid" or "same", as in `jnp.convolve`.

    Source: `jax.scipy.linalg.convolution_matrix`.
    """
    a, n = array_of(a, "convolution_matrix"), operator.index(n)
    if n <= 0 or mode not in ("full", "valid", "same"):
        raise invalid("convolution_matrix", f"takes n > 0 and a mode 'full', 'valid' or 'same', "
                      f"got {n} and {mode!r}")  # fmt: skip
    if typeof(a).ndim != 1 or not typeof(a).size:
        raise invalid("convolution_matrix", f"takes a vector that is not empty, got {typeof(a)}")
    a, m = strong(a), typeof(a).shape[0]
    cut = {"full": 0, "same": min(n, m) - 1, "valid": 2 * (min(n, m) - 1)}[mode]
    first = cut // 2
    rows = np.arange(first, m + n - 1 - (cut - first))
    places = rows[:, None] - np.arange(n)
    places = np.where((places < 0) | (places >= m), m, places)  # a zero is put at m
    return take(pad(a, [(0, 1)]), places, 0)


# --- of a size ------------------------------------------------------------------------------------


def _numbers(values: Any, dtype: Any = None) -> Any:
    """An array of numbers that were computed at double precision."""
    return cast(array_of(np.asarray(values, np.float64), "array"), or_float(dtype))


def _size(name: str, n: Any) -> int:
    return check_sizes((integer(n, name, "n"),), name)[0]


def hilbert(n: int) -> Any:
    """The matrix 1 / (i + j + 1).

    Source: `jax.scipy.linalg.hilbert`.
    """
    i = np.arange(_size("hilbert", n))
    return _numbers(1 / (i[:, None] + i + 1))


def invhilbert(n: int) -> Any:
    """The inverse of `hilbert`, whose elements are integers.

    Source: `jax.scipy.linalg.invhilbert`.
    """
    return _numbers(_table("invhilbert", n, lambda i, j: (
        (-1) ** (i + j) * (i + j + 1) * comb(n + i, n - j - 1) * comb(n + j, n - i - 1)
        * comb(i + j, i) ** 2
    )))  # fmt: skip


def _table(name: str, n: Any, element: Any) -> np.ndarray:
    n = _size(name, n)
    return np.reshape([float(element(i, j)) for i in range(n) for j in range(n)], (n, n))


def _pascal_kind(name: str, kind: str | None) -> str:
    kind = "symmetric" if kind is None else kind
    if kind not in ("symmetric", "lower", "upper"):
        raise invalid(name, f"unknown kind {kind!r}", "Kinds: 'symmetric', 'lower', 'upper'.")
    return kind


def pascal(n: int, kind: str | None = None) -> Any:
    """The binomial coefficients: (i over j) for `kind="lower"`, (j over i) for "upper", and
    (i + j over i) for "symmetric", the product of these.

    Source: `jax.scipy.linalg.pascal`.

    Example:
      >>> from functrans.scipy import linalg
      >>> print(linalg.pascal(3))
      [[1. 1. 1.]
       [1. 2. 3.]
       [1. 3. 6.]]
    """
    kind = _pascal_kind("pascal", kind)
    made = {
        "lower": lambda i, j: comb(i, j),
        "upper": lambda i, j: comb(j, i),
        "symmetric": lambda i, j: comb(i + j, i),
    }[kind]
    return _numbers(_table("pascal", n, made), np.float32)


def invpascal(n: int, kind: str | None = None) -> Any:
    """The inverse of `pascal`.

    Source: `jax.scipy.linalg.invpascal`.
    """
    kind = _pascal_kind("invpascal", kind)
    lower = _table("invpascal", n, lambda i, j: (-1) ** (i + j) * comb(i, j))
    return _numbers({"lower": lower, "upper": lower.T, "symmetric": lower.T @ lower}[kind])


def helmert(n: int, full: bool = False) -> Any:
    """The orthonormal contrasts of Helmert, [n - 1, n]; with `full` the constant one before them.

    Source: `jax.scipy.linalg.helmert`.
    """
    if _size("helmert", n) < 1:
        raise invalid("helmert", f"n must be positive, got {n}")
    k = np.arange(1, n)[:, None]
    j = np.arange(n)
    made = np.where(j < k, 1.0, np.where(j == k, -k, 0.0)) / np.sqrt(k * (k + 1))
    return _numbers(np.concatenate([np.full((1, n), 1 / sqrt(n)), made]) if full else made)


def hadamard(n: int, dtype: Any = int) -> Any:
    """The matrix of n orthogonal rows of 1 and -1, n a power of two.

    Source: `jax.scipy.linalg.hadamard`.
    """
    n = integer(n, "hadamard", "n")
    if n < 1 or n & (n - 1):
        raise invalid("hadamard", f"n must be a power of 2, got {n}")
    made = np.ones((1, 1))
    while len(made) < n:
        made = np.block([[made, made], [made, -made]])
    return cast(array_of(made.astype(np.int8), "hadamard"), user_dtype(dtype))


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """The matrix of the discrete Fourier transform of n points.

    Arguments:
      scale: None, "sqrtn" or "n": what it is divided by.
      dtype: a complex dtype.

    Source: `jax.scipy.linalg.dft`.
    """
    if scale not in (None, "sqrtn", "n"):
        raise invalid("dft", f"scale must be None, 'sqrtn' or 'n', got {scale!r}")
    kind = complex_dtype(or_float(None)) if dtype is None else user_dtype(dtype)
    if dtype_class(kind) != "complex":
        raise invalid("dft", f"dtype must be complex, got {kind}")
    i = np.arange(_size("dft", n))
    made = np.exp(-2j * np.pi * ((i[:, None] * i) % max(n, 1)) / max(n, 1))
    made /= {None: 1, "sqrtn": sqrt(n), "n": n}[scale]
    return array_of(made.astype(kind), "dft")
