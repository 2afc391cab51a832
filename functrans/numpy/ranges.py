"""Ranges of evenly spaced numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class, promote
from functrans.lax.arguments import placeable
from functrans.numpy import primitives
from functrans.numpy.promotion import (
    captured,
    invalid,
    user_dtype,
)
from functrans.trace import concrete_value, literal, typeof
from functrans.typing import Array, ArrayLike, Device, DTypeLike

__all__ = ["arange"]


def known(x: Any, name: str) -> Any:
    """Return a number that must be concrete."""
    value = concrete_value(x)
    if value is None:
        raise errors.AbstractValueError(
            f"{name}: the size of the result needs the value of {x!r}, which is unknown inside jit "
            f"and vmap, at\n    {describe(user_source())}\n"
            "Pass Python numbers, mark the argument static (static_argnums), or use jnp.linspace "
            "or lax.iota with a fixed size."
        )
    return value


@placeable
def arange(
    start: ArrayLike, stop: ArrayLike | None = None, step: ArrayLike | None = None,
    dtype: DTypeLike | None = None, *, device: Device = None, out_sharding: None = None,
) -> Array:  # fmt: skip
    """start, start + step, ... below stop.

    Raises:
      AbstractValueError: a bound is traced, so that the size is unknown.

    Source: `jax.numpy.arange`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.arange(2, 8, 3))
      [2 5]
    """
    given = [known(x, "arange") for x in (start, stop, step) if x is not None]
    if dtype is None:
        to = promote(tuple([typeof(x).update(shape=()) for x in given]))[0]
    else:
        to = user_dtype(dtype)
    kinds = {dtype_class(typeof(x).dtype) for x in given}
    if "complex" in kinds:
        raise invalid("arange", f"takes real numbers, got {given}", "Use jnp.linspace.")
    whole = kinds <= {"int", "uint"}
    if stop is None:
        start, stop = 0, start
    numbers: list[Any] = [x if x is None else _number(x) for x in (start, stop, step)]
    first, end, by = numbers
    by = 1 if by is None else by
    if by == 0:
        raise invalid(
            "arange",
            "step must not be zero",
            "For a constant array, use jnp.full.",
            errors.DivisionByZero,
        )
    if by == 1 and first == 0 and dtype_class(to) != "bool":
        return primitives.iota(dtype=to, shape=(max(0, math.ceil(end)),), dimension=0)
    if whole and dtype_class(to) in ("int", "uint"):
        return _integers(int(first), int(end), int(by), to)
    return captured(np.arange(first, end, by, dtype=to))


def _number(x: Any) -> Any:
    """Convert a concrete number to a native NumPy number, not an extended float (bfloat16, ...)."""
    value = concrete_value(x)
    extended = getattr(value, "dtype", np.dtype(float)).kind == "V"
    return value.item() if extended else value


def _integers(start: int, stop: int, step: int, dtype: Any) -> Any:
    n = max(0, -(-(stop - start) // step))
    x = primitives.iota(dtype=dtype, shape=(n,), dimension=0)
    if step != 1:
        x = primitives.mul(x, literal(step, typeof(x)))
    return primitives.add(x, literal(start, typeof(x))) if start else x
