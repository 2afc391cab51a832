"""`jax.lax` names over primitives/reductions/folds.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from functrans.lax.arguments import as_array, integers, placed
from functrans.lax.elementwise import documented
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.elementwise.conversion import strong
from functrans.typing import Array, ArrayLike, Device

__all__ = ["reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor"]


class _Reduction(Protocol):
    def __call__(self, operand: ArrayLike, axes: Sequence[int], *, out_sharding: Device = None) -> Array: ...


def _reduction(name: str, what: str, example: str, weak: bool = True) -> _Reduction:
    """Make a function (operand, axes) of the primitive of the same name. `weak`: whether the result may
    be weakly typed."""
    primitive = PRIMITIVES[name]

    @documented(name, f"{what} over the axes `axes`.", example)
    def reduction(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Device = None) -> Array:
        x = as_array(operand)
        y = primitive(x if weak else strong(x), axes=integers(axes, name, "axes"))
        return placed(y, out_sharding)

    return reduction


reduce_sum: _Reduction = _reduction("reduce_sum", "Sum", "np.ones((2, 3)), (1,) -> [3. 3.]")
reduce_prod: _Reduction = _reduction("reduce_prod", "Multiply", "np.array([2, 3]), (0,) -> 6")
reduce_max: _Reduction = _reduction("reduce_max", "Take the largest element", "np.array([2, 3]), (0,) -> 3")
reduce_min: _Reduction = _reduction("reduce_min", "Take the smallest element", "np.array([2, 3]), (0,) -> 2")
_BITS = "of booleans or bits"
reduce_and: _Reduction = _reduction("reduce_and", f"`and` {_BITS}", "np.array([2, 3]), (0,) -> 2", weak=False)
reduce_or: _Reduction = _reduction("reduce_or", f"`or` {_BITS}", "np.array([2, 3]), (0,) -> 3", weak=False)
reduce_xor: _Reduction = _reduction("reduce_xor", f"`xor` {_BITS}", "np.array([2, 3]), (0,) -> 1", weak=False)
