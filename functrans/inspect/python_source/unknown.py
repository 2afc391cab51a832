"""Unknown values in the specialisation of a reference function: arrays that exist only when the
written file runs. An Unknown has an expression, and a shape and dtype if they are known.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType


class NotStatic(Exception):
    """The value is not known while the file is written."""


def _refuse(self: Any, *_: Any, **__: Any) -> Any:
    raise NotStatic


class Unknown:
    """A value of the written file: its expression `node`, its type or None.

    For `isinstance` it is an array. Whatever needs its numbers raises NotStatic.
    """

    def __init__(self, node: ast.expr, type: ArrayType | None = None):
        self.node = node
        self.known_type = type

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self._type().shape

    @property
    def dtype(self) -> Any:
        return self._type().dtype

    @property
    def ndim(self) -> int:
        return self._type().ndim

    @property
    def size(self) -> int:
        return self._type().size

    def _type(self) -> ArrayType:
        if self.known_type is None:
            raise NotStatic
        return self.known_type


for _asked in (
    "array", "bool", "len", "iter", "getitem", "index", "float", "eq", "ne", "lt", "le", "gt",
    "ge", "call", "int", "add", "radd", "sub", "rsub", "mul", "rmul", "neg", "contains",
):  # fmt: skip
    setattr(Unknown, f"__{_asked}__", _refuse)


def is_unknown(value: Any) -> bool:
    return type(value) is Unknown


def unknowns(value: Any) -> bool:
    """Return whether a structure contains an unknown."""
    if is_unknown(value):
        return True
    if type(value) in (tuple, list):
        return any([unknowns(v) for v in value])
    if type(value) is dict:
        return any([unknowns(v) for v in value.values()])
    if type(value) is slice:
        return any([unknowns(v) for v in (value.start, value.stop, value.step)])
    return False


def holds_array(value: Any) -> bool:
    """Return whether a structure contains a concrete array."""
    if isinstance(value, (tuple, list)):
        return any([holds_array(v) for v in value])
    return isinstance(value, np.ndarray) and not is_unknown(value)
