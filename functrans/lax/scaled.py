"""Products of arrays of narrow floats with a scale for each block of elements.

lhs       [..., K]     a block is K / L neighbours along a contracted axis
lhs_scale [..., L]     one factor for each block
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from functrans.lax.arguments import as_array, mismatch
from functrans.lax.contraction import dot_general
from functrans.primitives.conversion import convert_element_type
from functrans.primitives.elementwise import mul
from functrans.primitives.shape import broadcast_in_dim, reshape
from functrans.trace import typeof

__all__ = ["scaled_dot"]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def scaled_dot(
    lhs: Any, rhs: Any, *, lhs_scale: Any = None, rhs_scale: Any = None,
    dimension_numbers: Any = None, preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """Multiply lhs times its scales with rhs times its scales, in bfloat16.

    Unlike JAX's it has derivatives, with respect to operands and scales whose dtypes have some.

    Arguments:
      lhs, rhs: arrays of one number of axes, of any dtype.
      lhs_scale, rhs_scale: of as many axes; along a contracted axis one factor for each block of
        at least two elements, of the operand's size along the others. None: not scaled.
      dimension_numbers: as in `dot_general`; None: those of stacked matrices.
      preferred_element_type: of the result and of the sums; bfloat16 if None.

    Raises:
      TypeMismatch: shapes that do not fit.

    Source: `jax.lax.scaled_dot`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.scaled_dot(jnp.ones((1, 4)), jnp.ones((4, 1)), lhs_scale=jnp.full((1, 2), 3.0)))
      [[12]]
    """
    x, y = as_array(lhs), as_array(rhs)
    n = typeof(x).ndim
    if dimension_numbers is None:
        if n < 2:
            raise mismatch("scaled_dot", f"needs operands of at least two axes, got {typeof(x)}")
        stack = tuple(range(n - 2))
        dimension_numbers = (((n - 1,), (n - 2,)), (stack, stack))
    (over_x, over_y), _ = dimension_numbers
    x, y = _scaled("lhs", x, lhs_scale, over_x), _scaled("rhs", y, rhs_scale, over_y)
    element = BFLOAT16 if preferred_element_type is None else preferred_element_type
    return dot_general(x, y, dimension_numbers, preferred_element_type=element)


def _scaled(side: str, x: Any, scale: Any, over: Sequence[int]) -> Any:
    if scale is None:
        return convert_element_type(x, dtype=BFLOAT16)
    scale = as_array(scale)
    t, s = typeof(x), typeof(scale)
    fits = t.ndim == s.ndim
    for i, (n, m) in enumerate(zip(t.shape, s.shape, strict=False)):
        fits = fits and (m > 0 and n % m == 0 and n // m > 1 if i in over else n == m)
    if not fits:
        raise mismatch(
            "scaled_dot", f"{side} {t} and its scale {s} do not fit: along the contracted axes "
            f"{tuple(over)} there is a factor for each block of at least two, along the others for "
            "each element",
        )  # fmt: skip
    x, scale = (convert_element_type(z, dtype=BFLOAT16) for z in (x, scale))
    return mul(x, over_blocks(scale, t.shape))


def over_blocks(scale: Any, shape: tuple[int, ...]) -> Any:
    """Each factor as often as its block has elements."""
    cut: list[int] = []  # [a, b, c] -> [a, b, 1, c] -> [a, b, block, c] -> [a, b block, c]
    dimensions = []
    for n, m in zip(shape, typeof(scale).shape, strict=True):
        dimensions.append(len(cut))
        cut += [m] if n == m else [m, n // m]
    if len(cut) == len(shape):
        return scale
    wide = broadcast_in_dim(scale, shape=tuple(cut), dimensions=tuple(dimensions))
    return reshape(wide, shape=shape)
