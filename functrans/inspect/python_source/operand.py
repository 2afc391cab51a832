"""Operands, as passed to a primitive's `numpy_source`."""

from __future__ import annotations

from typing import Any

from functrans.inspect.python_source.lift import Imports, dtype_text, number
from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class, is_inexact


class Operand(str):
    """The expression of an operand: a name, or a number if the operation broadcasts it.

    full : the same as an array of the operand's shape and dtype
    type : that type;  literal : whether it is a number
    """

    full: str
    type: ArrayType
    literal: bool
    element: str  # for a number: an element along the first axis

    def __new__(cls, text: str, type: ArrayType, full: str = "", literal: bool = False) -> Operand:
        made = super().__new__(cls, text)
        made.full, made.type, made.literal = full or text, type, literal
        return made

    def at(self, index: str) -> str:
        """Return element `index` along the first axis."""
        return self.element if self.literal else f"{self.full}[{index}]"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def size(self) -> int:
        return self.type.size


def of_literal(v: Literal, imports: Imports) -> Operand:
    """Return a literal as a number that takes its dtype from the other operand."""
    t = v.type
    kind = dtype_class(t.dtype)
    value: Any = v.value
    if kind == "complex":
        text = number(complex(value))
    elif is_inexact(t.dtype):
        text = number(float(value))
    else:
        text = repr(bool(value) if kind == "bool" else int(value))
    dtype = dtype_text(t.dtype, imports)
    scalar = text if kind == "bool" else f"{dtype}({text})"
    if not dtype.startswith("np."):
        text = scalar  # a Python number would widen dtypes that are not NumPy's own
    full = (
        f"np.full({t.shape}, {text}, {dtype})"
        if t.shape
        else (f"np.bool_({text})" if kind == "bool" else scalar)
    )
    made = Operand(text, t, full, literal=True)
    if t.shape:
        made.element = of_literal(Literal(value, t.update(shape=t.shape[1:])), imports).full
    return made
