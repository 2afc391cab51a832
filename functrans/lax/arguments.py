"""Reading the arguments of functions: arrays, axes, shapes, and errors about them."""

from __future__ import annotations

import operator
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import is_key_dtype
from functrans.trace import Tracer, full, typeof


def as_array(x: Any) -> Any:
    """A value that the primitives of this family take: scalars become arrays."""
    if isinstance(x, (Tracer, jax.Array, np.ndarray)):
        return x
    if hasattr(x, "__jax_array__"):
        return x.__jax_array__()
    t = typeof(x)
    return x if is_key_dtype(t.dtype) else full(x, t)


def invalid(name: str, problem: str, fix: str = "") -> errors.InvalidArgument:
    """The error for an argument whose value a function does not take."""
    return errors.InvalidArgument(
        f"{name}: {problem}, at\n    {describe(user_source())}" + (f"\n{fix}" if fix else "")
    )


def axis_from_front(axis: int, ndim: int, name: str) -> int:
    """An axis, counted from the end if negative, as one counted from the front."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise invalid(name, f"axis {axis} is out of bounds for an array of {ndim} axes")
    return axis + ndim if axis < 0 else axis


def sizes_of(shape: Any) -> tuple[int, ...]:
    """A shape given as one size or a sequence of them."""
    if shape.__class__ is tuple:
        return tuple([n if n.__class__ is int else operator.index(n) for n in shape])
    if isinstance(shape, (list, np.ndarray)) and np.ndim(shape):
        return tuple([operator.index(n) for n in shape])
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple([operator.index(n) for n in shape])
