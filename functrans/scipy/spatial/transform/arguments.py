"""What `Rotation` asks of its arguments.

In: what the user gave, and the name of the function for messages. Out: arrays, or errors.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from functrans import numpy as jnp
from functrans.ir.types import dtype_class
from functrans.numpy.promotion import (
    array_of,
    broadcast_shape,
    cast,
    inexact_dtype,
    invalid,
    mismatch,
)
from functrans.trace import materialize, typeof

_SEQUENCE = "Write 'xyz' for axes that stay, 'XYZ' for axes that turn along; not both in one."


def reals(name: str, x: Any) -> Any:
    """An operand as an array of real numbers."""
    x = jnp.asarray(x) if isinstance(x, (list, tuple)) else array_of(x, name)
    t = typeof(x)
    if dtype_class(t.dtype) not in ("bool", "int", "uint", "float"):
        raise mismatch(name, f"takes real numbers, got {t}")
    return x


def floats(name: str, x: Any) -> Any:
    x = reals(name, x)
    return materialize(cast(x, inexact_dtype(typeof(x).dtype)))


def check_shape(name: str, what: str, x: Any, last: tuple[int, ...]) -> None:
    shape = typeof(x).shape
    if shape[-len(last) :] != last:
        wanted = ", ".join(map(str, last))
        raise invalid(
            name, f"{what} must be of shape [..., {wanted}], got {typeof(x)}",
            "Each rotation or vector lies along the last axis: jnp.moveaxis brings it there.",
        )  # fmt: skip


def check_stacks(name: str, *xs: Any) -> None:
    """The axes before the last one fit."""
    broadcast_shape([typeof(x).shape[:-1] for x in xs], name, [typeof(x) for x in xs])


def check_sequence(name: str, seq: Any, lengths: tuple[int, ...]) -> None:
    if not isinstance(seq, str):
        kind = type(seq).__qualname__
        raise mismatch(name, f"seq must be a string, got {seq!r:.60} of type {kind}", _SEQUENCE)
    if len(seq) not in lengths:
        count = "3 letters" if lengths == (3,) else "1 to 3 letters"
        raise invalid(name, f"seq must have {count}, got {seq!r}", _SEQUENCE)
    if not re.fullmatch("[xyz]+|[XYZ]+", seq):
        raise invalid(name, f"unknown sequence of axes {seq!r}", _SEQUENCE)
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise invalid(
            name, f"the sequence {seq!r} names one axis twice in a row", "Add the two angles."
        )
