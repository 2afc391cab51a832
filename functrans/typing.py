"""Names for annotations: `jax.typing`'s, and those that our own signatures speak of.

A traced value is an `Array` and an `ArrayLike`, also in `isinstance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from jax import Array as Array
from jax.typing import DTypeLike as DTypeLike

from functrans.loading import hand_on as _hand_on

__all__ = ["Array", "ArrayLike", "Axis", "DTypeLike", "Device", "PyTree", "Shape"]

ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""What functions of arrays take: arrays, traced ones, NumPy's, and numbers."""

Axis: TypeAlias = int | Sequence[int] | None
"""One axis, counted from either end, or several; None means all, or none, as the function says."""

Shape: TypeAlias = int | Sequence[int]
"""Sizes of axes; one number for an array of one axis."""

Device: TypeAlias = Any
"""Where arrays live: a `jax.Device` or a sharding, of which JAX's stubs say nothing."""

PyTree: TypeAlias = Any
"""Arrays in tuples, lists, dicts and what else is registered; Python has no type for it."""

_hand_on(__name__)
