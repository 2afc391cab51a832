"""Ranges, matrices with a pattern, and the coordinates of grids."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype
from functrans.lax.arguments import check_sizes, placeable, sizes_of
from functrans.numpy import prims
from functrans.numpy.creation import or_float
from functrans.numpy.indexing import nonzero
from functrans.numpy.joining import stack
from functrans.numpy.promotion import (
    BOOL,
    array_of,
    captured,
    cast,
    expand,
    invalid,
    user_dtype,
)
from functrans.numpy.ranges import arange, known
from functrans.numpy.reductions import computed_in
from functrans.numpy.shaping import diagonal, ravel, reshape
from functrans.trace import AnyTracer, literal, typeof
from functrans.trace import full as filled

__all__ = [
    "diag", "diag_indices", "diag_indices_from", "diagflat", "eye", "fromfunction", "identity",
    "indices", "ix_", "meshgrid", "tri", "tril", "tril_indices", "tril_indices_from", "triu",
    "triu_indices", "triu_indices_from", "vander",
]  # fmt: skip


def _band(n: int, m: int, k: Any, compare: Any) -> Any:
    """compare(i + k, j) for all places i, j of an [n, m] matrix."""
    i = prims.iota(dtype=np.dtype("int32"), shape=(n, m), dimension=0)
    j = prims.iota(dtype=np.dtype("int32"), shape=(n, m), dimension=1)
    if isinstance(k, AnyTracer):
        i = prims.add(i, expand(cast(k, np.dtype("int32")), (n, m)))
    elif k:
        i = prims.add(i, literal(operator.index(k), typeof(i)))
    return compare(i, j)


@placeable
def eye(N: int, M: int | None = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Ones on a diagonal, zeros elsewhere.

    Source: `jax.numpy.eye`.
    """
    n = operator.index(known(N, "eye"))
    m = n if M is None else operator.index(known(M, "eye"))
    check_sizes((n, m), "eye")
    return cast(_band(n, m, k, prims.eq), or_float(dtype))


def identity(n: int, dtype: Any = None) -> Any:
    """The square identity matrix.

    Source: `jax.numpy.identity`.
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: Any = 0, dtype: Any = None) -> Any:
    """Ones on and below a diagonal, zeros above.

    Source: `jax.numpy.tri`.
    """
    n, m = sizes_of((N, N if M is None else M))
    return cast(_band(n, m, k, prims.ge), np.dtype("float32") if dtype is None else or_float(dtype))


def tril(m: Any, k: Any = 0) -> Any:
    """m with zeros above a diagonal.

    Source: `jax.numpy.tril`.
    """
    return _triangle("tril", m, k)


def triu(m: Any, k: Any = 0) -> Any:
    """m with zeros below a diagonal.

    Source: `jax.numpy.triu`.
    """
    return _triangle("triu", m, k)


def _triangle(name: str, m: Any, k: Any) -> Any:
    m = array_of(m, name)
    t = typeof(m)
    if t.ndim < 2:
        raise invalid(name, f"needs at least two axes, got {t}")
    below = name == "tril"
    if isinstance(k, AnyTracer):
        shift = k if below else prims.sub(k, literal(1, typeof(k)))
    else:
        shift = k if below else k - 1
    mask = _band(t.shape[-2], t.shape[-1], shift, prims.ge)
    mask = expand(mask, t.shape)
    zero = literal(0, t)
    return prims.select_n(mask, zero, m) if below else prims.select_n(mask, m, zero)


def diag(v: Any, k: int = 0) -> Any:
    """The diagonal of a matrix, or the matrix with this diagonal.

    Source: `jax.numpy.diag`.
    """
    v = array_of(v, "diag")
    t = typeof(v)
    if t.ndim == 2:
        return diagonal(v, k)
    if t.ndim != 1:
        raise invalid("diag", f"takes a vector or a matrix, got {t}")
    n = t.shape[0] + abs(k)
    config = ((k, 0, 0) if k >= 0 else (0, -k, 0),)
    wide = prims.pad(v, literal(0, ArrayType((), t.dtype, t.weak_type)), config=config)
    columns = prims.broadcast_in_dim(wide, shape=(n, n), dimensions=(1,))
    return prims.select_n(_band(n, n, k, prims.eq), literal(0, typeof(columns)), columns)


def diagflat(v: Any, k: int = 0) -> Any:
    """The matrix with these elements on a diagonal.

    Source: `jax.numpy.diagflat`.
    """
    v = ravel(v)
    return diag(cast(v, typeof(v).dtype), k)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of each element, as rows.

    Source: `jax.numpy.vander`.
    """
    x = array_of(x, "vander")
    t = typeof(x)
    if t.ndim != 1:
        raise invalid("vander", f"takes a vector, got {t}")
    n = t.shape[0] if N is None else N
    if n == 0:
        return filled(0, ArrayType((t.shape[0], 0), t.dtype))
    powers = range(n) if increasing else range(n - 1, -1, -1)
    x = cast(x, computed_in(t.dtype))
    return cast(stack([prims.integer_pow(x, y=p) for p in powers], axis=1), t.dtype)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """The coordinates of all points of a grid, from the coordinates along its axes.

    Arguments:
      *xi: vectors.
      copy: True; there are no views.
      sparse: leave the other axes at size 1.
      indexing: "xy", the first vector along columns; "ij", along rows.

    Source: `jax.numpy.meshgrid`.
    """
    if indexing not in ("xy", "ij"):
        raise invalid("meshgrid", f"indexing must be 'xy' or 'ij', got {indexing!r}")
    if not copy:
        raise invalid("meshgrid", "makes new arrays: copy must be True", "Leave it out.")
    xs = [array_of(x, "meshgrid", i) for i, x in enumerate(xi)]
    if any(typeof(x).ndim > 1 for x in xs):
        raise invalid("meshgrid", f"takes vectors, got {[typeof(x) for x in xs]}")
    xs = [x if typeof(x).ndim else reshape(x, (1,)) for x in xs]
    place = list(range(len(xs)))
    if indexing == "xy" and len(xs) >= 2:
        place[:2] = [1, 0]
    shape = [0] * len(xs)
    for x, p in zip(xs, place, strict=True):
        shape[p] = typeof(x).shape[0]
    grids = []
    for x, p in zip(xs, place, strict=True):
        to = [n if i == p or not sparse else 1 for i, n in enumerate(shape)]
        grids.append(prims.broadcast_in_dim(x, shape=tuple(to), dimensions=(p,)))
    return grids


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The indices of every place of a grid, along each axis.

    Source: `jax.numpy.indices`.
    """
    shape = sizes_of(dimensions)
    to = canonical_dtype(np.dtype("int64")) if dtype is None else user_dtype(dtype)
    grids = []
    for i, n in enumerate(shape):
        one = tuple([n if j == i else 1 for j in range(len(shape))]) if sparse else shape
        grids.append(prims.iota(dtype=to, shape=one, dimension=i))
    if sparse:
        return tuple(grids)
    return stack(grids) if grids else filled(0, ArrayType((0,), to))


def ix_(*args: Any) -> tuple[Any, ...]:
    """Vectors shaped so that indexing by them takes every combination.

    Source: `jax.numpy.ix_`.
    """
    out = []
    for i, a in enumerate(args):
        a = array_of(a, "ix_", i)
        t = typeof(a)
        if t.ndim != 1:
            raise invalid("ix_", f"takes vectors, got {t}")
        if t.dtype == BOOL:
            (a,) = nonzero(a)
        elif t.size == 0:  # an index, as one of an empty list
            a = cast(a, canonical_dtype(np.dtype("int64")))
        t = typeof(a)
        shape = tuple([t.shape[0] if j == i else 1 for j in range(len(args))])
        out.append(reshape(a, shape))
    return tuple(out)


def _static_indices(found: Sequence[np.ndarray]) -> tuple[Any, ...]:
    to = canonical_dtype(np.dtype("int64"))
    return tuple([captured(i.astype(to)) for i in found])


def _whole(name: str, n: int, k: int, m: int | None) -> tuple[int, int, int]:
    """The sizes and the diagonal, as ints."""
    rows, columns = check_sizes(sizes_of((n, n if m is None else m)), name)
    return rows, operator.index(k), columns


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """The indices of the elements on and below a diagonal.

    Source: `jax.numpy.tril_indices`.
    """
    return _static_indices(np.tril_indices(*_whole("tril_indices", n, k, m)))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """The indices of the elements on and above a diagonal.

    Source: `jax.numpy.triu_indices`.
    """
    return _static_indices(np.triu_indices(*_whole("triu_indices", n, k, m)))


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """`tril_indices` of an array's shape.

    Source: `jax.numpy.tril_indices_from`.
    """
    n, m = typeof(array_of(arr, "tril_indices_from")).shape
    return tril_indices(n, k, m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """`triu_indices` of an array's shape.

    Source: `jax.numpy.triu_indices_from`.
    """
    n, m = typeof(array_of(arr, "triu_indices_from")).shape
    return triu_indices(n, k, m)


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The indices of a main diagonal.

    Source: `jax.numpy.diag_indices`.
    """
    n, ndim = check_sizes(sizes_of((n, ndim)), "diag_indices")
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """`diag_indices` of an array's shape.

    Source: `jax.numpy.diag_indices_from`.
    """
    shape = typeof(array_of(arr, "diag_indices_from")).shape
    if len(shape) < 2 or len(set(shape)) != 1:
        raise invalid("diag_indices_from", f"all axes must be of one size, got {shape}")
    return diag_indices(shape[0], len(shape))


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """function(i, j, ...) at every place of a grid.

    Source: `jax.numpy.fromfunction`.
    """
    to = sizes_of(shape)
    grids = [prims.iota(dtype=user_dtype(dtype), shape=to, dimension=i) for i in range(len(to))]
    return function(*grids, **kwargs)
