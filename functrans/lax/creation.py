"""`jax.lax` names of functions that make arrays from nothing."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.program import Literal
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class
from functrans.lax.arguments import dtype_asked, invalid, placed, sizes_of
from functrans.primitives.conversion import convert_element_type
from functrans.primitives.joining import iota as _iota
from functrans.primitives.shape import broadcast_in_dim as _broadcast_in_dim
from functrans.trace import full as _full
from functrans.trace import materialize, typeof

__all__ = [
    "broadcasted_iota", "empty", "full", "full_like", "iota", "zeros_like_array",
]  # fmt: skip


def iota(dtype: Any, size: int) -> Any:
    """0, 1, ..., size - 1.

    Source: `jax.lax.iota`.

    >>> print(iota(np.int32, 4))
    [0 1 2 3]
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, *, out_sharding: Any = None) -> Any:
    """0, 1, 2, ... along one axis, the same along the others.

    Source: `jax.lax.broadcasted_iota`.

    >>> print(broadcasted_iota(np.int32, (2, 3), 1))
    [[0 1 2]
     [0 1 2]]
    """
    shape = sizes_of(shape)
    if not 0 <= dimension < len(shape):
        raise invalid("iota", f"dimension {dimension} must be an axis of shape {shape}")
    return _iota(dtype=_asked_dtype(dtype), shape=shape, dimension=operator.index(dimension))


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Any:
    """An array of a shape filled with one value.

    Source: `jax.lax.full`.

    >>> print(full((2,), 7))
    [7 7]
    """
    t = typeof(fill_value)
    if t.shape:
        raise errors.TypeMismatch(
            f"full: fill_value must be a scalar, got {t}, at\n    {describe(user_source())}"
        )
    weak = dtype is None and t.weak_type
    made = ArrayType(sizes_of(shape), t.dtype if dtype is None else _asked_dtype(dtype), weak)
    return placed(_filled(fill_value, t, made), sharding)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None
) -> Any:
    """An array like another one, filled with one value.

    Source: `jax.lax.full_like`.

    >>> print(full_like(np.zeros(2, np.int32), 7))
    [7 7]
    """
    like = typeof(x) if not hasattr(x, "shape") or not hasattr(x, "dtype") else ArrayType(
        tuple(x.shape), canonical_dtype(x.dtype), bool(getattr(x, "weak_type", False))
    )  # fmt: skip
    made = ArrayType(
        like.shape if shape is None else sizes_of(shape),
        like.dtype if dtype is None else _asked_dtype(dtype),
        dtype is None and like.weak_type,
    )
    return placed(_filled(fill_value, typeof(fill_value), made), sharding)


def zeros_like_array(x: Any) -> Any:
    """Zeros of the shape and dtype of an array.

    Source: `jax.lax.zeros_like_array`.

    >>> print(zeros_like_array(np.ones(2)))
    [0. 0.]
    """
    return full_like(x, 0)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array of a shape; its values, here zeros, are not to be relied on.

    Source: `jax.lax.empty`.

    >>> empty((2, 3), np.float32).shape
    (2, 3)
    """
    return full(shape, 0, dtype)


def _filled(value: Any, t: ArrayType, made: ArrayType) -> Any:
    if any(n < 0 for n in made.shape):
        raise errors.TypeMismatch(
            f"full: sizes must be >= 0, got shape {made.shape}, at\n    {describe(user_source())}"
        )
    if value.__class__ in _SCALARS or isinstance(value, (np.generic, Literal)):
        if value.__class__ is complex and dtype_class(made.dtype) in ("int", "uint", "float"):
            raise errors.TypeMismatch(
                f"full: {value} is no value of dtype {made.dtype}, at\n"
                f"    {describe(user_source())}"
            )
        return _full(value.value if isinstance(value, Literal) else value, made)
    if t.dtype != made.dtype or t.weak_type != made.weak_type:
        value = convert_element_type(value, dtype=made.dtype, weak_type=made.weak_type)
    if not made.shape:
        return value if t.same(made) else materialize(value)
    if t.shape:
        raise errors.TypeMismatch(
            f"full_like: fill_value must be a scalar, got {t}, at\n    {describe(user_source())}"
        )
    return _broadcast_in_dim(value, shape=made.shape, dimensions=())


def _asked_dtype(dtype: Any) -> Any:
    """The dtype that a user named, as JAX would have it."""
    if not isinstance(dtype, (np.dtype, type, str)) and dtype_class(dtype) == "key":
        return dtype
    return canonical_dtype(dtype if isinstance(dtype, np.dtype) else dtype_asked(dtype))


_SCALARS = frozenset([bool, int, float, complex])
