"""Reductions: sums, products, extrema and moments over axes, with JAX's result dtypes.

Narrow integers are summed in the default integer type, half precision in float32.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_inexact, promote
from functrans.numpy import primitives
from functrans.numpy.linear import diagonal, zero_beside
from functrans.numpy.promotion import (
    BOOL,
    SCALARS,
    align,
    array_of,
    axes_of,
    axis_index,
    cast,
    expand,
    inexact_dtype,
    invalid,
    mask_of,
    scalar,
    strong,
    user_dtype,
    value_of,
)
from functrans.numpy.selecting import where as select_where
from functrans.numpy.ufuncs import truth
from functrans.primitives.base import Primitive
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise.conversion import real_dtype
from functrans.trace import concrete_value, literal, materialize, typeof
from functrans.typing import Array, ArrayLike, Axis, DTypeLike

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "max", "mean", "min", "prod", "std", "sum",
    "trace", "var",
]  # fmt: skip


# --- dtypes ---------------------------------------------------------------------------------------


def wide_integer(dtype: Any) -> Any:
    """Return the dtype of the sum of integers: the default integer type, or a wider one."""
    kind = dtype_class(dtype)
    if kind not in ("bool", "int", "uint"):
        return dtype
    wide = canonical_dtype(np.dtype("uint64" if kind == "uint" else "int64"))
    return dtype if kind != "bool" and np.dtype(dtype).itemsize >= wide.itemsize else wide


class _Plain(dict[Any, bool]):
    """type -> whether it is inexact, not weakly typed, and summed at its own dtype."""

    def __contains__(self, t: Any) -> bool:
        found = self.get(t)
        if found is None:
            same = computed_in(t.dtype) is t.dtype and is_inexact(t.dtype)
            found = self[t] = same and not t.weak_type
        return found


_PLAIN = _Plain()


def computed_in(dtype: Any) -> Any:
    """Return the accumulation dtype of sums of this dtype: float32 for half precision."""
    narrow = dtype_class(dtype) == "float" and np.dtype(dtype).itemsize < 4
    return np.dtype("float32") if narrow else dtype


def _kept(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Restore the reduced axes, with size 1."""
    wide = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    kept = tuple([i for i in range(len(shape)) if i not in axes])
    return primitives.broadcast_in_dim(x, shape=wide, dimensions=kept)


def _start(initial: Any, dtype: Any, name: str) -> Any:
    """Return the initial value, cast to the dtype of the operand."""
    start = value_of(initial, name)
    if typeof(start).ndim:
        raise invalid(name, f"initial must be a number, got {typeof(start)}")
    return cast(start, dtype)


def _reduced(primitive: Primitive, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    t = typeof(x)
    y = primitive(x, axes=axes) if axes else array_of(x, primitive.name)
    return _kept(y, t.shape, axes) if keepdims and axes else y


def _fold(
    name: str, primitive: Primitive, combine: Primitive, unit: Any, a: Any, axis: Any, dtype: Any,
    keepdims: bool, initial: Any, where: Any, upcast: bool = True,
) -> Any:  # fmt: skip
    """Compute a sum or product."""
    a = value_of(a, name)
    t = typeof(a)
    if dtype is initial is where is None and t in _PLAIN:
        return _reduced(primitive, a, axes_of(axis, len(t.shape), name), keepdims)
    own = wide_integer(t.dtype) if upcast else np.dtype("int32") if t.dtype == bool else t.dtype
    out = user_dtype(dtype) if dtype is not None else own
    if out is BOOL:  # truth values, accumulated as integers
        a = truth(a, name)
    x = cast(a, wide_integer(out) if out is BOOL else computed_in(out) if dtype is None else out)
    if where is not None:
        x = select_where(mask_of(where, name), x, literal(unit, typeof(x).update(shape=())))
    x = _reduced(primitive, x, axes_of(axis, t.ndim, name), keepdims)
    if initial is not None:
        start = _start(initial, typeof(x).dtype, name)
        x = combine(*align(x, start, name))
    return materialize(truth(x, name) if out is BOOL else cast(x, out))


def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Sum the elements over axes.

    Arguments:
      a: array.
      axis: an int, several, or None for all.
      dtype: dtype of the result; by default that of a, and for integers at least the default
        integer type.
      keepdims: keep the reduced axes, with size 1.
      initial: initial value.
      where: booleans that broadcast to a's shape: the elements to include.
      promote_integers: False leaves narrow integers narrow.

    Source: `jax.numpy.sum`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.sum(jnp.ones((2, 3)), axis=1))
      [3. 3.]
    """
    return _fold(
        "sum", primitives.reduce_sum, primitives.add, 0, a, axis, dtype, keepdims, initial, where,
        promote_integers,
    )  # fmt: skip


def prod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Multiply the elements over axes; arguments as in `sum`.

    Source: `jax.numpy.prod`.
    """
    return _fold(
        "prod", primitives.reduce_prod, primitives.mul, 1, a, axis, dtype, keepdims, initial, where,
        promote_integers,
    )  # fmt: skip


# --- extrema --------------------------------------------------------------------------------------


def _extreme(
    name: str, primitive: Primitive, combine: Primitive, a: Any, axis: Any, keepdims: bool,
    initial: Any, where: Any,
) -> Any:  # fmt: skip
    a = value_of(a, name)
    t = typeof(a)
    axes = axes_of(axis, t.ndim, name)
    if where is not None and initial is None:
        raise invalid(name, "where= needs an initial value", "Pass initial=.")
    if initial is None and builtins.any(t.shape[i] == 0 for i in axes):
        raise invalid(
            name,
            f"zero-size array to reduction operation {name} which has no identity: {t} over axes "
            f"{axes}",
            "Pass initial=, or handle empty arrays first.",
        )
    if initial is not None:
        initial = _start(initial, t.dtype, name)
    if where is not None:
        a = select_where(mask_of(where, name), a, initial)
    a = strong(a)
    if initial is not None and builtins.any(t.shape[i] == 0 for i in axes):
        x = expand(initial, tuple([n for i, n in enumerate(t.shape) if i not in axes]))
        return materialize(_kept(x, t.shape, axes) if keepdims else x)
    x = _reduced(primitive, a, axes, keepdims)
    if initial is not None:
        x = combine(*align(x, initial, name))
    return materialize(x)


def max(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the maximum over axes; NaN if there is one. Arguments as in `sum`.

    Source: `jax.numpy.max`.
    """
    return _extreme(
        "max", primitives.reduce_max, primitives.max_, a, axis, keepdims, initial, where
    )


def min(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Return the minimum over axes; NaN if there is one. Arguments as in `sum`.

    Source: `jax.numpy.min`.
    """
    return _extreme(
        "min", primitives.reduce_min, primitives.min_, a, axis, keepdims, initial, where
    )


amax, amin = max, min


def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    out: None = None,
) -> Array:
    """Return the sum of a diagonal of two axes; `offset` may be a tracer.

    Source: `jax.numpy.trace`.
    """
    if concrete_value(offset) is None:
        return sum(zero_beside(a, offset, axis1, axis2), axis=(axis1, axis2), dtype=dtype)
    d = diagonal(a, offset, axis1, axis2)
    t = typeof(d)
    return sum(d, axis=t.ndim - 1, dtype=dtype)


def _where_extreme(name: str, primitive: Primitive, a: Any, axis: Any, keepdims: Any) -> Any:
    a = array_of(a, name)
    t = typeof(a)
    shape = t.shape
    if axis is None:
        a = primitives.reshape(a, shape=(t.size,))
    i = axis_index(0 if axis is None else axis, typeof(a).ndim, name)
    if typeof(a).shape[i] == 0:
        raise invalid(name, f"attempt to get {name} of an empty sequence, {t}")
    found = primitive(a, axes=(i,), index_dtype=canonical_dtype(np.dtype("int64")))
    if keepdims:
        return _kept(found, shape, tuple(range(len(shape))) if axis is None else (i,))
    return found


def argmax(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: Any = None) -> Array:
    """Return the index of the maximum, the first one of ties; of the flattened array if axis is
    None.

    Source: `jax.numpy.argmax`.
    """
    return _where_extreme("argmax", primitives.argmax, a, axis, keepdims)


def argmin(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: Any = None) -> Array:
    """Return the index of the minimum, the first one of ties; of the flattened array if axis is
    None.

    Source: `jax.numpy.argmin`.
    """
    return _where_extreme("argmin", primitives.argmin, a, axis, keepdims)


# --- truth ----------------------------------------------------------------------------------------


def _truth_of_all(
    name: str, primitive: Primitive, unit: bool, a: Any, axis: Any, keepdims: bool, where: Any
) -> Any:
    x = truth(a, name)
    if where is not None:
        x = select_where(mask_of(where, name), x, literal(unit, ArrayType((), BOOL)))
    return materialize(_reduced(primitive, x, axes_of(axis, typeof(x).ndim, name), keepdims))


def all(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Return whether all elements are true (not zero).

    Source: `jax.numpy.all`.
    """
    return _truth_of_all("all", primitives.reduce_and, True, a, axis, keepdims, where)


def any(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Return whether any element is true (not zero).

    Source: `jax.numpy.any`.
    """
    return _truth_of_all("any", primitives.reduce_or, False, a, axis, keepdims, where)


# --- moments --------------------------------------------------------------------------------------


def _count(t: ArrayType, axes: tuple[int, ...]) -> int:
    return math.prod([t.shape[i] for i in axes])


@composite
def mean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Return the arithmetic mean over axes; arguments as in `sum`.

    Source: `jax.numpy.mean`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.mean(jnp.arange(4.0)))
      1.5
    """
    a = value_of(a, "mean")
    t = typeof(a)
    out_dtype = inexact_dtype(t.dtype) if dtype is None else user_dtype(dtype)
    wide = computed_in(out_dtype) if dtype is None else out_dtype
    axes = axes_of(axis, t.ndim, "mean")
    total = sum(a, axes, wide, where=where)
    if where is None:
        n = scalar(_count(t, axes), typeof(total))
    else:
        n = cast(sum(included(where, t, "mean"), axes, canonical_dtype(np.dtype("int64"))), wide)
    result = cast(primitives.div(total, n), out_dtype)
    return materialize(_kept(result, t.shape, axes) if keepdims and axes else result)


def included(where: Any, t: ArrayType, name: str) -> Any:
    """Return the mask `where`, broadcast to the shape of the operand."""
    return expand(mask_of(where, name), t.shape)


def _less(n: Any, ddof: Any, kind: ArrayType) -> Any:
    """Return n - ddof with the type of the sum of squares; NaN if it is not positive."""
    if isinstance(n, int):
        if ddof.__class__ in SCALARS:
            return scalar(operator.sub(n, ddof) if operator.sub(n, ddof) > 0 else math.nan, kind)
        n = literal(n, kind)
    ddof = ddof if ddof.__class__ in SCALARS else cast(array_of(ddof, "var"), kind.dtype)
    left = primitives.sub(*align(n, ddof, "var"))
    none, nan = (literal(x, typeof(left)) for x in (0, math.nan))
    return primitives.select_n(primitives.gt(left, none), nan, left)


@composite
def var(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: Any = None,
) -> Array:
    """Return the variance over axes.

    Arguments:
      a, axis, keepdims, where: as in `sum`.
      dtype: of the result.
      ddof, correction: subtracted from the number of elements.
      mean: the mean, if it is known.

    Source: `jax.numpy.var`.
    """
    if correction is not None:
        if ddof != 0:
            raise invalid("var", "ddof and correction can't be provided simultaneously")
        ddof = correction
    a = value_of(a, "var")
    t = typeof(a)
    axes = axes_of(axis, t.ndim, "var")
    own = inexact_dtype(t.dtype)
    if dtype is not None and dtype_class(own) == "complex" != dtype_class(user_dtype(dtype)):
        raise invalid("var", f"complex numbers need a complex dtype, got {dtype}")
    asked = own if dtype is None else user_dtype(dtype)
    wide = computed_in(promote((ArrayType((), own), ArrayType((), asked)))[0])
    x = cast(a, wide)
    if mean is None:
        centre = _mean(x, axes, wide, None, where is not None, where=where)
        if where is None:  # straight to the full shape
            kept = tuple([i for i in range(t.ndim) if i not in axes])
            centre = primitives.broadcast_in_dim(centre, shape=t.shape, dimensions=kept)
        mean = centre
    distance = primitives.sub(*align(x, mean, "var"))
    if dtype_class(wide) == "complex":
        squares = primitives.real(primitives.mul(distance, primitives.conj(distance)))
    else:
        squares = primitives.square(distance)
    total = sum(squares, axes, where=where)
    kind = typeof(total)
    if where is None:
        n: Any = _count(t, axes)
    else:
        n = sum(included(where, t, "var"), axes, kind.dtype)
    result = primitives.div(total, _less(n, ddof, kind))
    result = cast(result, real_dtype(own) if dtype is None else user_dtype(dtype))
    return materialize(_kept(result, t.shape, axes) if keepdims and axes else result)


_mean = mean


@composite
def std(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: Any = None,
) -> Array:
    """Return the standard deviation over axes; arguments as in `var`.

    Source: `jax.numpy.std`.
    """
    if dtype is not None and not is_inexact(user_dtype(dtype)):
        raise invalid("std", f"dtype must be a float type, got {dtype!r}", "Cast jnp.var's result.")
    return primitives.sqrt(
        var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    )
