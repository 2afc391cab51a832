"""Bitwise operations on integers and booleans."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.mlir import hlo
from functrans.primitives.elementwise.families import BITS, INTS, Binary, Unary


def _unsigned(x: np.ndarray) -> np.ndarray:
    """Return the same bits as an unsigned integer."""
    return x.view(f"uint{8 * x.dtype.itemsize}")


class Shift(Binary):
    """Shift x by y bits. Shifting by the width or more, or by a negative number, shifts out all
    bits: the result is zero, or the sign for `shift_right_arithmetic`."""

    def reference(self, x: Any, y: Any) -> Any:
        width = 8 * x.dtype.itemsize
        inside = (y >= 0) & (y < width)
        by = np.where(inside, y, 0)
        rest = np.zeros_like(x)
        if self.name == "shift_left":
            shifted = np.left_shift(x, by.astype(x.dtype))
        elif self.name == "shift_right_logical":
            shifted = _unsigned(x) >> by.astype(_unsigned(x).dtype)
        else:
            signed = x.view(f"int{width}")
            shifted = signed >> by.astype(signed.dtype)
            rest = np.where(signed < 0, -1, 0).astype(x.dtype)
        return np.where(inside, shifted.astype(x.dtype), rest)


def _upper_half(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the upper half of the bits of x * y, by Python's integers."""
    return np.asarray(x, object) * np.asarray(y, object) >> (8 * x.dtype.itemsize)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    width = 8 * x.dtype.itemsize
    places = np.arange(width - 1, -1, -1).astype(_unsigned(x).dtype)
    bits = (_unsigned(x)[..., None] >> places) & 1
    return np.where(bits.any(-1), bits.argmax(-1), width)


not_: Unary = Unary("not", BITS, numpy=np.invert, op=hlo.not_)
population_count: Unary = Unary(
    "population_count", INTS, numpy=lambda x: np.bitwise_count(_unsigned(x)), op=hlo.popcnt
)
clz: Unary = Unary("clz", INTS, numpy=_leading_zeros, op=hlo.count_leading_zeros)

and_: Binary = Binary("and", BITS, numpy=np.bitwise_and, op=hlo.and_)
or_: Binary = Binary("or", BITS, numpy=np.bitwise_or, op=hlo.or_)
xor: Binary = Binary("xor", BITS, numpy=np.bitwise_xor, op=hlo.xor)

shift_left: Shift = Shift("shift_left", INTS, numpy=np.left_shift)
shift_right_logical: Shift = Shift("shift_right_logical", INTS, numpy=np.right_shift)
shift_right_arithmetic: Shift = Shift("shift_right_arithmetic", INTS, numpy=np.right_shift)
mulhi: Binary = Binary("mulhi", INTS, numpy=_upper_half)
