"""Selection, clipping and casts."""

from __future__ import annotations

import sys
from typing import Any, overload

from functrans import errors
from functrans.ir.types import dtype_class
from functrans.lax.arguments import placeable
from functrans.numpy.promotion import (
    SCALARS,
    align,
    another,
    array_of,
    broadcast_shape,
    cast,
    expand,
    invalid,
    mismatch,
    promote_dtypes,
    user_dtype,
    value_of,
    warn,
)
from functrans.numpy.ufuncs import maximum, minimum, truth
from functrans.primitives.elementwise.complex_numbers import real
from functrans.primitives.elementwise.selection import select_n
from functrans.trace import materialize, typeof
from functrans.typing import Array, ArrayLike, Device, DTypeLike, PyTree

__all__ = ["astype", "clip", "where"]


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array: ...
@overload
def where(
    condition: ArrayLike,
    x: None = None,
    y: None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> tuple[Array, ...]: ...
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> PyTree:
    """Select x where the condition is true, else y; with one argument, return the indices where it
    is true.

    Arguments:
      condition: booleans, or numbers, which are true if not zero.
      x, y: arrays or scalars; all three are broadcast together.
      size, fill_value: as in `nonzero`, for one argument.

    Raises:
      InvalidArgument: the shapes do not broadcast.

    Source: `jax.numpy.where`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.where(jnp.array([True, False]), 1.0, 2.0))
      [1. 2.]
    """
    if x is None and y is None:
        return sys.modules[__package__].nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise mismatch(
            "where",
            "takes one argument or three, got two",
            "Pass both choices, where(mask, x, y); where(mask) returns the indices.",
        )
    condition = truth(value_of(condition, "where"))
    t = typeof(condition)
    if (x.__class__ in SCALARS) != (y.__class__ in SCALARS):
        x, y = align(x, y, "where")
    else:
        x, y = promote_dtypes((x, y), "where")
    tx, ty = typeof(x), typeof(y)
    if not t.shape == tx.shape == ty.shape:
        shape = broadcast_shape((t.shape, tx.shape, ty.shape), "where", (t, tx, ty), errors.InvalidArgument)
        condition = expand(condition, shape) if t.shape else condition
        x, y = expand(x, shape), expand(y, shape)
    return materialize(select_n(condition, y, x))


def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Any:
    """Clip arr to [min, max]; if min > max the result is max.

    Source: `jax.numpy.clip`.
    """
    arr = value_of(arr, "clip")
    for bound in (arr, min, max):
        if bound is not None and dtype_class(typeof(value_of(bound, "clip")).dtype) == "complex":
            raise invalid("clip", "takes real numbers, not complex ones")
    if min is not None:
        arr = _bound(maximum, min, arr)
    if max is not None:
        arr = _bound(minimum, max, arr)
    return materialize(arr)


def _bound(choose: Any, bound: Any, arr: Any) -> Any:
    types = (typeof(value_of(bound, "clip")), typeof(arr))
    broadcast_shape([t.shape for t in types], "clip", types, errors.InvalidArgument)
    return choose(bound, arr)


@placeable
def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = False, device: Device = None) -> Array:
    """Cast x to another dtype; complex to real drops the imaginary part, and nonzero numbers become
    True.

    Source: `jax.numpy.astype`.
    """
    x = array_of(x, "astype")
    t = typeof(x)
    to = user_dtype(float if dtype is None else dtype)
    if dtype_class(t.dtype) == "complex" and dtype_class(to) == "bool":
        x = truth(x)
    elif dtype_class(t.dtype) == "complex" != dtype_class(to):
        warn(
            f"astype drops the imaginary part of a {t}. In the future this will be a ValueError, as in "
            "JAX: use jnp.real(x) or jnp.imag(x).",
            DeprecationWarning,
        )
        x = real(x)
    made = materialize(cast(x, to))
    return another(made, x) if copy else made
