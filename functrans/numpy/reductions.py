"""Reductions over axes: sums, products, extrema, truth, with JAX's result dtypes.

Narrow integers are summed in the default integer type, half precision in float32.
"""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import numpy as np

from functrans.caching import cached
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_inexact
from functrans.numpy.promotion import (
    BOOL,
    align,
    array_of,
    axes_of,
    cast,
    expand,
    invalid,
    mask_of,
    strong,
    user_dtype,
    value_of,
)
from functrans.numpy.selecting import where as select_where
from functrans.numpy.ufuncs import truth
from functrans.primitives.base import Primitive
from functrans.primitives.elementwise.arithmetic import max_, min_
from functrans.primitives.elementwise.families import add, mul
from functrans.primitives.reductions.folds import (
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    wide_dtype,
)
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import literal, materialize, typeof
from functrans.typing import Array, ArrayLike, Axis, DTypeLike

__all__ = ["all", "amax", "amin", "any", "max", "min", "prod", "sum"]


# --- dtypes ---------------------------------------------------------------------------------------


def wide_integer(dtype: Any) -> Any:
    """Return the dtype of the sum of integers: the default integer type, or a wider one."""
    kind = dtype_class(dtype)
    if kind not in ("bool", "int", "uint"):
        return dtype
    wide = canonical_dtype(np.dtype("uint64" if kind == "uint" else "int64"))
    return dtype if kind != "bool" and np.dtype(dtype).itemsize >= wide.itemsize else wide


@cached("types that are summed as they are", 8192)
def _is_plain(t: ArrayType) -> bool:
    """Return whether a type is inexact, not weakly typed, and summed at its own dtype."""
    return wide_dtype(t.dtype) is t.dtype and is_inexact(t.dtype) and not t.weak_type


def with_axes(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Restore the reduced axes, with size 1."""
    wide = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    kept = tuple([i for i in range(len(shape)) if i not in axes])
    return broadcast_in_dim(x, shape=wide, dimensions=kept)


def _start(initial: Any, dtype: Any, name: str) -> Any:
    """Return the initial value, cast to the dtype of the operand."""
    start = value_of(initial, name)
    if typeof(start).ndim:
        raise invalid(name, f"initial must be a number, got {typeof(start)}")
    return cast(start, dtype)


def _reduced(primitive: Primitive, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    t = typeof(x)
    y = primitive(x, axes=axes) if axes else array_of(x, primitive.name)
    return with_axes(y, t.shape, axes) if keepdims and axes else y


class _Fold(NamedTuple):
    """A reduction: its name, its primitive, the primitive that combines two results, and the result
    for no elements."""

    name: str
    primitive: Primitive
    combine: Primitive
    unit: Any = None


def _fold(
    fold: _Fold, a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any, upcast: bool
) -> Any:
    """Compute a sum or product."""
    name, primitive, combine, unit = fold
    a = value_of(a, name)
    t = typeof(a)
    if dtype is initial is where is None and _is_plain(t):
        return _reduced(primitive, a, axes_of(axis, len(t.shape), name), keepdims)
    own = wide_integer(t.dtype) if upcast else np.dtype("int32") if t.dtype == bool else t.dtype
    out = user_dtype(dtype) if dtype is not None else own
    if out is BOOL:  # truth values, accumulated as integers
        a = truth(a, name)
    x = cast(a, wide_integer(out) if out is BOOL else wide_dtype(out) if dtype is None else out)
    if where is not None:
        x = select_where(mask_of(where, name), x, literal(unit, typeof(x).update(shape=())))
    x = _reduced(primitive, x, axes_of(axis, t.ndim, name), keepdims)
    if initial is not None:
        start = _start(initial, typeof(x).dtype, name)
        x = combine(*align(x, start, name))
    return materialize(truth(x, name) if out is BOOL else cast(x, out))


_SUM = _Fold("sum", reduce_sum, add, 0)
_PROD = _Fold("prod", reduce_prod, mul, 1)


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
    return _fold(_SUM, a, axis, dtype, keepdims, initial, where, promote_integers)


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
    return _fold(_PROD, a, axis, dtype, keepdims, initial, where, promote_integers)


# --- extrema --------------------------------------------------------------------------------------


_MAX = _Fold("max", reduce_max, max_)
_MIN = _Fold("min", reduce_min, min_)


def _extreme(fold: _Fold, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    name, primitive, combine, _ = fold
    a = value_of(a, name)
    t = typeof(a)
    axes = axes_of(axis, t.ndim, name)
    if where is not None and initial is None:
        raise invalid(name, "where= needs an initial value", "Pass initial=.")
    if initial is None and builtins.any(t.shape[i] == 0 for i in axes):
        raise invalid(
            name,
            f"zero-size array to reduction operation {name} which has no identity: {t} over axes {axes}",
            "Pass initial=, or handle empty arrays first.",
        )
    if initial is not None:
        initial = _start(initial, t.dtype, name)
    if where is not None:
        a = select_where(mask_of(where, name), a, initial)
    a = strong(a)
    if initial is not None and builtins.any(t.shape[i] == 0 for i in axes):
        x = expand(initial, tuple([n for i, n in enumerate(t.shape) if i not in axes]))
        return materialize(with_axes(x, t.shape, axes) if keepdims else x)
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
    return _extreme(_MAX, a, axis, keepdims, initial, where)


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
    return _extreme(_MIN, a, axis, keepdims, initial, where)


amax = max
amin = min


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
    return _truth_of_all("all", reduce_and, True, a, axis, keepdims, where)


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
    return _truth_of_all("any", reduce_or, False, a, axis, keepdims, where)
