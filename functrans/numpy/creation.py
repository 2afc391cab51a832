"""Functions that make arrays.

While a program is staged, `zeros`, `ones`, `full` and their kin are literals and cost no equation;
`arange` and `eye` are made by `iota`, so that no table of numbers becomes part of the program.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors, tree
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, promote
from functrans.numpy import prims
from functrans.numpy.arithmetic import log10, power
from functrans.numpy.indexing import nonzero
from functrans.numpy.joining import stack
from functrans.numpy.promotion import (
    BOOL,
    SCALARS,
    array_of,
    cast,
    constant,
    expand,
    invalid,
    promote_inexact,
    user_dtype,
)
from functrans.numpy.selecting import astype
from functrans.numpy.shaping import _sizes as sizes_of
from functrans.numpy.shaping import broadcast_to, diagonal, moveaxis, ravel, reshape
from functrans.trace import Tracer, concrete_value, literal, materialize, typeof
from functrans.trace import full as filled

__all__ = [
    "arange", "array", "asarray", "diag", "diag_indices", "diag_indices_from", "diagflat", "empty",
    "empty_like", "eye", "fromfunction", "full", "full_like", "geomspace", "identity", "indices",
    "ix_", "linspace", "logspace", "meshgrid", "ones", "ones_like", "tri", "tril", "tril_indices",
    "tril_indices_from", "triu", "triu_indices", "triu_indices_from", "vander", "zeros",
    "zeros_like",
]  # fmt: skip


# --- of Python objects ----------------------------------------------------------------------------


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: str | None = "K", ndmin: int = 0, *,
    device: Any = None, out_sharding: None = None,
) -> Any:  # fmt: skip
    """Make an array of a number, an array, or nested lists of them; they may hold traced arrays.

    Arguments:
      object: what to make it of.
      dtype: of the result; by default JAX's promotion of what is given.
      ndmin: the least number of axes; new ones in front.
      device: where to put it, outside of transformations.

    Raises:
      NotAnArray: something that is no number is inside.

    Source: `jax.numpy.array`.

    Example:
      >>> import functrans.numpy as jnp
      >>> jnp.array([[1, 2], [3, 4]]).dtype
      dtype('int32')
    """
    made = _array(object, dtype)
    if device is not None and not isinstance(made, Tracer):
        made = jax.device_put(made, device)
    n = typeof(made).ndim
    return made if n >= ndmin else reshape(made, (1,) * (ndmin - n) + typeof(made).shape)


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None,
    device: Any = None, out_sharding: None = None,
) -> Any:  # fmt: skip
    """`array`, which need not copy.

    Source: `jax.numpy.asarray`.
    """
    return array(a, dtype, device=device)


def _array(object: Any, dtype: Any) -> Any:
    if isinstance(object, (list, tuple)):
        return _nested(object, dtype)
    if isinstance(object, jax.Array):
        x = constant(object)
    elif object is None or isinstance(object, (str, bytes, dict, set)):
        raise errors.NotAnArray(
            f"array: {object!r:.60} of type {type(object).__qualname__} is not a number or an array"
        )
    elif (
        not isinstance(object, Tracer)
        and hasattr(object, "__array__")
        and not (isinstance(object, (np.ndarray, np.generic)))
    ):
        x = array_of(np.asarray(object), "array")
    else:
        x = array_of(object, "array")
    return x if dtype is None else astype(x, dtype)


def _nested(items: Sequence[Any], dtype: Any) -> Any:
    leaves = tree.leaves(items)
    if any(isinstance(x, (Tracer, jax.Array)) or hasattr(x, "__jax_array__") for x in leaves):
        to = user_dtype(dtype) if dtype is not None else promote(tuple(map(typeof, leaves)))[0]
        return _stacked(items, to)
    if dtype is None:
        kinds = {x.__class__ if x.__class__ in SCALARS else typeof(x): x for x in leaves}
        to = promote(tuple([typeof(x) for x in kinds.values()]))[0] if kinds else canonical_float()
    else:
        to = user_dtype(dtype)
    return constant(np.array(items).astype(to))


def _stacked(items: Any, dtype: Any) -> Any:
    if not isinstance(items, (list, tuple)):
        return astype(array_of(items, "array"), dtype)
    if not items:
        return filled(0, ArrayType((0,), dtype))
    return stack([_stacked(x, dtype) for x in items])


def canonical_float() -> Any:
    """The default float dtype."""
    return canonical_dtype(np.dtype("float64"))


# --- filled ---------------------------------------------------------------------------------------


def _filled(value: Any, t: ArrayType) -> Any:
    made = filled(value, t)
    if t.weak_type and not isinstance(made, Tracer):  # a jax array: only jax makes a weak one
        return jax.numpy.full(t.shape, literal(value, t).value)
    return made


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: None = None) -> Any:
    """An array of zeros; float by default.

    Source: `jax.numpy.zeros`.
    """
    return filled(0, ArrayType(sizes_of(shape), _or_float(dtype)))


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: None = None) -> Any:
    """An array of ones; float by default.

    Source: `jax.numpy.ones`.
    """
    return filled(1, ArrayType(sizes_of(shape), _or_float(dtype)))


empty = zeros


def _or_float(dtype: Any) -> Any:
    return canonical_float() if dtype is None else user_dtype(dtype)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None,
    out_sharding: None = None,
) -> Any:  # fmt: skip
    """An array filled with one value, which may be traced and broadcasts.

    Source: `jax.numpy.full`.
    """
    to = sizes_of(shape)
    if fill_value.__class__ in SCALARS:
        t = typeof(fill_value)
        if dtype is not None:
            return filled(fill_value, ArrayType(to, user_dtype(dtype)))
        return _filled(fill_value, t.update(shape=to))
    x = array(fill_value)
    return broadcast_to(x if dtype is None else astype(x, dtype), to)


def _like(a: Any, dtype: Any, shape: Any, name: str) -> ArrayType:
    t = typeof(a) if hasattr(a, "dtype") else typeof(array_of(a, name))
    to = t.shape if shape is None else sizes_of(shape)
    return (
        ArrayType(to, t.dtype, t.weak_type) if dtype is None else ArrayType(to, user_dtype(dtype))
    )


def zeros_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: None = None
) -> Any:
    """Zeros of another array's shape and dtype.

    Source: `jax.numpy.zeros_like`.
    """
    return _filled(0, _like(a, dtype, shape, "zeros_like"))


def ones_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: None = None
) -> Any:
    """Ones of another array's shape and dtype.

    Source: `jax.numpy.ones_like`.
    """
    return _filled(1, _like(a, dtype, shape, "ones_like"))


empty_like = zeros_like


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Any:
    """An array of another one's shape and dtype, filled with one value.

    Source: `jax.numpy.full_like`.
    """
    t = _like(a, dtype, shape, "full_like")
    if fill_value.__class__ in SCALARS:
        return _filled(fill_value, t)
    return broadcast_to(cast(array(fill_value), t.dtype, t.weak_type), t.shape)


# --- ranges ---------------------------------------------------------------------------------------


def _known(x: Any, name: str) -> Any:
    """A number that is known while tracing."""
    value = concrete_value(x)
    if value is None:
        raise errors.AbstractValueError(
            f"{name}: the size of the result needs the value of {x!r}, which is unknown inside jit "
            "and vmap.\nPass Python numbers, mark the argument static (static_argnums), or use "
            "jnp.linspace or lax.iota with a fixed size."
        )
    return value


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None,
    out_sharding: None = None,
) -> Any:  # fmt: skip
    """start, start + step, ... below stop.

    Raises:
      AbstractValueError: a bound is traced, so that the size is unknown.

    Source: `jax.numpy.arange`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.arange(2, 8, 3))
      [2 5]
    """
    given = [_known(x, "arange") for x in (start, stop, step) if x is not None]
    if dtype is None:
        to = promote(tuple([typeof(x).update(shape=()) for x in given]))[0]
    else:
        to = user_dtype(dtype)
    whole = all(dtype_class(typeof(x).dtype) in ("int", "uint") for x in given)
    if stop is None:
        start, stop = 0, start
    start, stop, step = [x if x is None else concrete_value(x) for x in (start, stop, step)]
    step = 1 if step is None else step
    if step == 0:
        raise invalid("arange", "step must not be zero")
    if step == 1 and start == 0 and dtype_class(to) != "bool":
        return prims.iota(dtype=to, shape=(max(0, math.ceil(stop)),), dimension=0)
    if whole and dtype_class(to) in ("int", "uint"):
        return _integers(int(start), int(stop), int(step), to)
    return constant(np.arange(start, stop, step, dtype=to))


def _integers(start: int, stop: int, step: int, dtype: Any) -> Any:
    n = max(0, -(-(stop - start) // step))
    x = prims.iota(dtype=dtype, shape=(n,), dimension=0)
    if step != 1:
        x = prims.mul(x, literal(step, typeof(x)))
    return prims.add(x, literal(start, typeof(x))) if start else x


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """`num` numbers at equal distances from start to stop, which may be traced arrays.

    Arguments:
      start, stop: numbers or arrays, which broadcast.
      num: how many.
      endpoint: is stop the last one?
      retstep: also return the distance.
      axis: where the new axis goes.

    Source: `jax.numpy.linspace`.
    """
    num = operator.index(num)
    if num < 0:
        raise invalid("linspace", f"Number of samples, {num}, must be non-negative.")
    start, stop = promote_inexact((start, stop), "linspace")
    wide = typeof(start).dtype
    to = wide if dtype is None else user_dtype(dtype)
    shape = np.broadcast_shapes(typeof(start).shape, typeof(stop).shape)
    start, stop = (expand(cast(x, wide), shape) for x in (start, stop))
    parts = num - 1 if endpoint else num
    out, distance = _interpolated(start, stop, num, parts, endpoint)
    if axis != 0:
        out = moveaxis(out, 0, axis)
    if dtype_class(to) in ("int", "uint"):
        out = prims.floor(out)
    out = materialize(cast(out, to))
    return (out, materialize(distance)) if retstep else out


def _interpolated(start: Any, stop: Any, num: int, parts: int, endpoint: bool) -> tuple[Any, Any]:
    """start (1 - i/parts) + stop i/parts for i = 0, 1, ..., and the distance of neighbours."""
    t = typeof(start)
    wide = t.update(shape=(num, *t.shape))
    if num > 1:
        distance = prims.div(prims.sub(stop, start), literal(parts, t))
    else:
        distance = literal(math.nan, t) if endpoint or num == 0 else prims.sub(stop, start)
    one = t.update(shape=(1, *t.shape))
    if num == 1:
        return expand(expand(start, one.shape), wide.shape), distance
    if num == 0:
        return filled(0, wide), distance
    inner = t.update(shape=(parts, *t.shape))
    i = prims.iota(dtype=t.dtype, shape=inner.shape, dimension=0)
    fraction = prims.div(i, literal(parts, inner))
    out = prims.add(
        prims.mul(expand(start, inner.shape), prims.sub(literal(1, inner), fraction)),
        prims.mul(expand(stop, inner.shape), fraction),
    )
    if endpoint:
        out = prims.concatenate(out, expand(stop, one.shape), dimension=0)
    return out, distance


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """base to the powers `linspace(start, stop)`.

    Source: `jax.numpy.logspace`.
    """
    powers = linspace(start, stop, num, endpoint, axis=axis)
    out = power(base, powers)
    return out if dtype is None else astype(out, dtype)


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """`num` numbers from start to stop, each the one before times a constant.

    Source: `jax.numpy.geomspace`.
    """
    start, stop = promote_inexact((start, stop), "geomspace")
    negative = prims.lt(start, literal(0, typeof(start)))
    sign = prims.select_n(
        prims.and_(negative, prims.lt(stop, literal(0, typeof(stop)))),
        literal(1, typeof(start)), literal(-1, typeof(start)),
    )  # fmt: skip
    start, stop = prims.mul(start, sign), prims.mul(stop, sign)
    powers = linspace(log10(start), log10(stop), num, endpoint, axis=axis)
    out = power(10.0, powers)
    n = typeof(out).shape[axis]
    ends = moveaxis(out, axis, 0)
    if n:
        first = expand(start, (1, *typeof(ends).shape[1:]))
        parts = [first, _rows(ends, 1, n)]
        if endpoint and n > 1:
            parts = [first, _rows(ends, 1, n - 1), expand(stop, typeof(first).shape)]
        ends = prims.concatenate(*parts, dimension=0)
    out = prims.mul(ends, expand(sign, typeof(ends).shape))
    out = moveaxis(out, 0, axis)
    return cast(out, typeof(out).dtype if dtype is None else user_dtype(dtype))


def _rows(x: Any, start: int, stop: int) -> Any:
    shape = typeof(x).shape
    rest = shape[1:]
    return prims.slice_(
        x, start=(start, *[0] * len(rest)), limit=(stop, *rest), strides=(1,) * len(shape)
    )


# --- matrices -------------------------------------------------------------------------------------


def _band(n: int, m: int, k: Any, compare: Any) -> Any:
    """compare(i + k, j) for all places i, j of an [n, m] matrix."""
    i = prims.iota(dtype=np.dtype("int32"), shape=(n, m), dimension=0)
    j = prims.iota(dtype=np.dtype("int32"), shape=(n, m), dimension=1)
    if isinstance(k, Tracer):
        i = prims.add(i, expand(cast(k, np.dtype("int32")), (n, m)))
    elif k:
        i = prims.add(i, literal(operator.index(k), typeof(i)))
    return compare(i, j)


def eye(N: int, M: int | None = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Ones on a diagonal, zeros elsewhere.

    Source: `jax.numpy.eye`.
    """
    n = operator.index(_known(N, "eye"))
    m = n if M is None else operator.index(_known(M, "eye"))
    return cast(_band(n, m, k, prims.eq), _or_float(dtype))


def identity(n: int, dtype: Any = None) -> Any:
    """The square identity matrix.

    Source: `jax.numpy.identity`.
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: Any = 0, dtype: Any = None) -> Any:
    """Ones on and below a diagonal, zeros above.

    Source: `jax.numpy.tri`.
    """
    return cast(_band(N, N if M is None else M, k, prims.ge), _or_float(dtype))


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
    if isinstance(k, Tracer):
        shift = k if below else prims.sub(k, literal(1, k.type))
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
    return diag(ravel(v), k)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of each element, as rows.

    Source: `jax.numpy.vander`.
    """
    x = array_of(x, "vander")
    t = typeof(x)
    if t.ndim != 1:
        raise invalid("vander", f"takes a vector, got {t}")
    n = t.shape[0] if N is None else N
    powers = range(n) if increasing else range(n - 1, -1, -1)
    return stack([prims.integer_pow(x, y=p) for p in powers], axis=1)


# --- grids and indices ----------------------------------------------------------------------------


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """The coordinates of all points of a grid, from the coordinates along its axes.

    Arguments:
      *xi: vectors.
      sparse: leave the other axes at size 1.
      indexing: "xy", the first vector along columns; "ij", along rows.

    Source: `jax.numpy.meshgrid`.
    """
    if indexing not in ("xy", "ij"):
        raise invalid("meshgrid", f"indexing must be 'xy' or 'ij', got {indexing!r}")
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
            t = typeof(a)
        shape = tuple([t.shape[0] if j == i else 1 for j in range(len(args))])
        out.append(reshape(a, shape))
    return tuple(out)


def _static_indices(found: Sequence[np.ndarray]) -> tuple[Any, ...]:
    to = canonical_dtype(np.dtype("int64"))
    return tuple([constant(i.astype(to)) for i in found])


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """The indices of the elements on and below a diagonal.

    Source: `jax.numpy.tril_indices`.
    """
    return _static_indices(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """The indices of the elements on and above a diagonal.

    Source: `jax.numpy.triu_indices`.
    """
    return _static_indices(np.triu_indices(n, k, m))


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
