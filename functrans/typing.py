"""Types for annotations: those of `jax.typing`, and those that our own signatures use.

A tracer is an `Array` and an `ArrayLike`, also for `isinstance`.
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
"""An array argument: a JAX array, a tracer, a NumPy array or a number."""

Axis: TypeAlias = int | Sequence[int] | None
"""An axis (negative: from the end) or several; the meaning of None depends on the function."""

Shape: TypeAlias = int | Sequence[int]
"""The sizes of the axes; a single number for one axis."""

Device: TypeAlias = Any
"""A `jax.Device` or a sharding; JAX's stubs do not type these."""

PyTree: TypeAlias = Any
"""Arrays in nested tuples, lists, dicts and registered classes; Python cannot type this."""

_hand_on(__name__)
