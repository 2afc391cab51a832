"""What samplers ask of their arguments: shapes and dtypes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_key_dtype, promote
from functrans.lax.arguments import check_sizes
from functrans.numpy.promotion import broadcast_shape, invalid, mismatch, user_dtype, value_of
from functrans.trace import typeof


def shape_of(name: str, shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of Python ints; an int is the size of one axis."""
    try:
        if isinstance(shape, (int, np.integer)):
            shape = (shape,)
        sizes = tuple([operator.index(n) for n in shape])
    except TypeError as error:
        if isinstance(error, jax.errors.ConcretizationTypeError):
            raise
        keys = is_key_dtype(getattr(shape, "dtype", None))
        got = f"a key, {typeof(shape)}" if keys else f"{shape!r:.60}"
        raise mismatch(
            name,
            f"shape must be integers, got {got}",
            "The key comes first: normal(key, shape)." if keys else
            "Write (n,) for one axis of size n, () for a scalar.",
        ) from None  # fmt: skip
    return check_sizes(sizes, name)


def shape_with(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape of the result: as asked for, which the parameters must fit; None: theirs."""
    shapes = [typeof(x).shape for x in parameters]
    if shape is None:
        return broadcast_shape(shapes, name)
    shape = shape_of(name, shape)
    return fitting(name, shape, shapes)


def fitting(
    name: str, shape: tuple[int, ...], shapes: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """`shape`, after checking that arrays of the other shapes broadcast to it."""
    for other in shapes:
        lead = len(shape) - len(other)
        if lead < 0 or any(n not in (1, m) for n, m in zip(other, shape[lead:], strict=True)):
            raise invalid(
                name,
                f"a parameter of shape {other} does not broadcast to the shape {shape} asked for",
                "Leave `shape` out, or give one to which every parameter broadcasts.",
            )
    return shape


def dtype_of(name: str, dtype: Any, default: Any = float, kinds: Sequence[str] = ("float",)) -> Any:
    """The dtype of the result, of one of the dtype classes `kinds`."""
    if dtype is None:
        return canonical_dtype(default)
    found = user_dtype(dtype)
    if dtype_class(found) not in kinds:
        error = mismatch if default is int else invalid
        raise error(name, f"dtype must be {' or '.join(kinds)}, got {found}")
    return found


def check_method(name: str, method: Any) -> None:
    """Raise unless it is one of the two ways to sample."""
    if method not in ("exact", "approximate"):
        raise invalid(name, f"method must be 'exact' or 'approximate', got {method!r:.60}")


def check_safe(name: str, dtype: Any, *parameters: Any) -> None:
    """Raise for parameters that a cast to the dtype of the result would round."""
    for x in parameters:
        given = typeof(value_of(x, name))
        if promote((given, ArrayType((), dtype)))[0] != dtype:
            raise invalid(
                name,
                f"cannot safely cast a parameter {given} to the dtype {dtype} of the result",
                f"Give dtype={given.dtype}, or cast the parameter first.",
            )
