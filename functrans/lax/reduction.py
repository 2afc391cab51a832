"""`jax.lax` names over primitives/reductions/folds.py and primitives/reductions/cumulative.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class _Position(Protocol):
    def __call__(self, operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array: ...


class _Running(Protocol):
    def __call__(self, operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array: ...


def _reduction(name: str, what: str, example: str, weak: bool = True) -> _Reduction:
    """Make a function (operand, axes) of the primitive of the same name. `weak`: whether the result may
    be weakly typed."""
    primitive = PRIMITIVES[name]

    def reduction(operand: ArrayLike, axes: Sequence[int]) -> Array:
        x = as_array(operand)
        return primitive(x if weak else strong(x), axes=_axes(axes, len(x.shape), name))

    return documented(reduction, name, f"{what} over the axes `axes`.", example)


def _placed_reduction(name: str, what: str, example: str) -> _PlacedReduction:
    """Make a reduction with the keyword `out_sharding`."""
    plain = _reduction(name, what, example)

    def reduction(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Device = None) -> Array:
        return placed(plain(operand, axes), out_sharding)

    return documented(reduction, name, f"{what} over the axes `axes`.", example)


reduce_sum: _PlacedReduction = _placed_reduction("reduce_sum", "Sum", "np.ones((2, 3)), (1,) -> [3. 3.]")
reduce_prod: _Reduction = _reduction("reduce_prod", "Multiply", "np.array([2, 3]), (0,) -> 6")
reduce_max: _PlacedReduction = _placed_reduction(
    "reduce_max", "Take the largest element", "np.array([2, 3]), (0,) -> 3"
)
reduce_min: _PlacedReduction = _placed_reduction(
    "reduce_min", "Take the smallest element", "np.array([2, 3]), (0,) -> 2"
)
_BITS = "of booleans or bits"
reduce_and: _Reduction = _reduction("reduce_and", f"`and` {_BITS}", "np.array([2, 3]), (0,) -> 2", weak=False)
reduce_or: _Reduction = _reduction("reduce_or", f"`or` {_BITS}", "np.array([2, 3]), (0,) -> 3", weak=False)
reduce_xor: _Reduction = _reduction("reduce_xor", f"`xor` {_BITS}", "np.array([2, 3]), (0,) -> 1", weak=False)


# --- positions ------------------------------------------------------------------------------------


def _position(name: str, of: str, example: str) -> _Position:
    """Make a function (operand, axis, index_dtype) of the primitive of the same name."""
    primitive = PRIMITIVES[name]

    def position(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
        x, axis = as_array(operand), integer(axis, name, "axis")
        shape = x.shape
        if not 0 <= axis < len(shape):
            raise invalid(name, f"Invalid axis {axis} for operand shape {shape}")
        if not shape[axis]:
            raise invalid(name, f"axis {axis} of shape {shape} has no elements to choose from")
        return primitive(x, axes=(axis,), index_dtype=canonical_dtype(np.dtype(index_dtype)))

    does = f"Return the index of the {of} along an axis: the first one, or the first NaN."
    return documented(position, name, does, example)


argmax: _Position = _position("argmax", "maximum", "np.array([1, 3, 3]), 0, np.int32 -> 1")
argmin: _Position = _position("argmin", "minimum", "np.array([1, 3, 1]), 0, np.int32 -> 0")


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
