"""`jax.lax` names over primitives/reductions/folds.py and primitives/reductions/cumulative.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from functrans.ir.types import canonical_dtype
from functrans.lax.arguments import as_array, integer, integers, invalid, placed
from functrans.lax.elementwise import documented
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.elementwise.conversion import strong
from functrans.typing import Array, ArrayLike, Device, DTypeLike

__all__ = [
    "argmax",
    "argmin",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "reduce_prod",
    "reduce_sum",
    "reduce_xor",
]


def _axes(axes: Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    found = integers(axes, name, "axes")
    if any([not 0 <= a < ndim for a in found]):
        raise invalid(name, f"reduction axes {found} must lie in 0..{ndim - 1}")
    if len(set(found)) != len(found):
        raise invalid(name, f"duplicate value in axes {found}")
    return found


class _Reduction(Protocol):
    def __call__(self, operand: ArrayLike, axes: Sequence[int]) -> Array: ...


class _PlacedReduction(Protocol):
    def __call__(self, operand: ArrayLike, axes: Sequence[int], *, out_sharding: Device = None) -> Array: ...


class _Running(Protocol):
    def __call__(self, operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array: ...


def _reduction(name: str, what: str, example: str) -> _Reduction:
    """Make a function (operand, axes) of the primitive of the same name."""
    primitive = PRIMITIVES[name]

    def reduction(operand: ArrayLike, axes: Sequence[int]) -> Array:
        x = as_array(operand)
        return primitive(x, axes=_axes(axes, len(x.shape), name))

    return documented(reduction, name, f"{what} over the axes `axes`.", example)


def _placed_reduction(name: str, what: str, example: str) -> _PlacedReduction:
    """Make a reduction with the keyword `out_sharding`."""
    plain = _reduction(name, what, example)

    def reduction(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Device = None) -> Array:
        return placed(plain(operand, axes), out_sharding)

    return documented(reduction, name, f"{what} over the axes `axes`.", example)


def _bitwise(name: str, what: str, example: str) -> _Reduction:
    """Make a reduction whose result is never weakly typed."""
    plain = _reduction(name, what, example)

    def reduction(operand: ArrayLike, axes: Sequence[int]) -> Array:
        return plain(strong(as_array(operand)), axes)

    return documented(reduction, name, f"{what} of booleans or bits over the axes `axes`.", example)


reduce_sum: _PlacedReduction = _placed_reduction("reduce_sum", "Sum", "np.ones((2, 3)), (1,) -> [3. 3.]")
reduce_prod: _Reduction = _reduction("reduce_prod", "Multiply", "np.array([2, 3]), (0,) -> 6")
reduce_max: _PlacedReduction = _placed_reduction(
    "reduce_max", "Take the largest element", "np.array([2, 3]), (0,) -> 3"
)
reduce_min: _PlacedReduction = _placed_reduction(
    "reduce_min", "Take the smallest element", "np.array([2, 3]), (0,) -> 2"
)
reduce_and: _Reduction = _bitwise("reduce_and", "`and`", "np.array([2, 3]), (0,) -> 2")
reduce_or: _Reduction = _bitwise("reduce_or", "`or`", "np.array([2, 3]), (0,) -> 3")
reduce_xor: _Reduction = _bitwise("reduce_xor", "`xor`", "np.array([2, 3]), (0,) -> 1")


# --- positions ------------------------------------------------------------------------------------


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Return the index of the maximum along an axis: the first one, or the first NaN.

    Source: `jax.lax.argmax`.

    >>> print(argmax(np.array([1, 3, 3]), 0, np.int32))
    1
    """
    return _position("argmax", operand, axis, index_dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Return the index of the minimum along an axis: the first one, or the first NaN.

    Source: `jax.lax.argmin`.

    >>> print(argmin(np.array([1, 3, 1]), 0, np.int32))
    0
    """
    return _position("argmin", operand, axis, index_dtype)


def _position(name: str, operand: Any, axis: int, index_dtype: Any) -> Any:
    x, axis = as_array(operand), integer(axis, name, "axis")
    shape = x.shape
    if not 0 <= axis < len(shape):
        raise invalid(name, f"Invalid axis {axis} for operand shape {shape}")
    if not shape[axis]:
        raise invalid(name, f"axis {axis} of shape {shape} has no elements to choose from")
    return PRIMITIVES[name](x, axes=(axis,), index_dtype=canonical_dtype(np.dtype(index_dtype)))


# --- cumulative reductions ------------------------------------------------------------------------


def _running(name: str, what: str, example: str) -> _Running:
    """Make a function (operand, axis, reverse) of the primitive of the same name."""
    primitive = PRIMITIVES[name]

    def running(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
        x, axis = as_array(operand), integer(axis, name, "axis")
        if not 0 <= axis < len(x.shape):
            raise invalid(name, f"axis {axis} is out of bounds for shape {x.shape}")
        return primitive(x, axis=axis, reverse=bool(reverse))

    what = f"{what} along an axis, from its end if `reverse`."
    return documented(running, name, what, example)


cumsum: _Running = _running("cumsum", "Running sums", "np.array([1, 2, 3]) -> [1 3 6]")
cumprod: _Running = _running("cumprod", "Running products", "np.array([1, 2, 3]) -> [1 2 6]")
cummax: _Running = _running("cummax", "Running maxima", "np.array([1, 3, 2]) -> [1 3 3]")
cummin: _Running = _running("cummin", "Running minima", "np.array([3, 1, 2]) -> [3 1 1]")
cumlogsumexp: _Running = _running(
    "cumlogsumexp", "log of running sums of exp", "np.zeros(2, np.float32) -> [0. 0.69314...]"
)
