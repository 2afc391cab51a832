"""The operators of traced arrays: `x + y`, `2 ** x`, `x < y`, `-x`, ...

Importing this module gives them to `Tracer`. An operand that no array function takes (a list, a
string) is refused with NotImplemented, so that Python asks the other operand; jax and NumPy arrays
on the left leave the work to ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from functrans.ir.tracebacks import boundary, hide_frames
from functrans.numpy import arithmetic, floating, linear, ufuncs
from functrans.trace import Tracer
from functrans.tracer import CONCRETE
from functrans.transforms.jvp import Dual

# Operands of these classes are taken at once; of others `_is_operand` is asked.
_OPERANDS = {
    Tracer, Dual, CONCRETE, np.ndarray, int, float, complex, bool,
}  # fmt: skip


def _is_operand(x: Any) -> bool:
    """May an operator take it? Else Python asks the other operand."""
    return isinstance(
        x, (Tracer, jax.Array, np.ndarray, np.generic, int, float, complex)
    ) or hasattr(x, "__jax_array__")


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Tracer, other: Any) -> Any:
        if other.__class__ in _OPERANDS or _is_operand(other):
            try:
                return function(self, other)
            except Exception as error:
                hide_frames(error)
                raise
        return NotImplemented

    return forward


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def backward(self: Tracer, other: Any) -> Any:
        if other.__class__ in _OPERANDS or _is_operand(other):
            try:
                return function(other, self)
            except Exception as error:
                hide_frames(error)
                raise
        return NotImplemented

    return backward


_BINARY: dict[str, Callable[..., Any]] = {
    "add": ufuncs.add,
    "sub": ufuncs.subtract,
    "mul": ufuncs.multiply,
    "truediv": ufuncs.true_divide,
    "floordiv": arithmetic.floor_divide,
    "mod": arithmetic.remainder,
    "divmod": arithmetic.divmod,
    "pow": arithmetic.power,
    "matmul": linear.matmul,
    "and": ufuncs.bitwise_and,
    "or": ufuncs.bitwise_or,
    "xor": ufuncs.bitwise_xor,
    "lshift": ufuncs.left_shift,
    "rshift": ufuncs.right_shift,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": ufuncs.equal,
    "ne": ufuncs.not_equal,
    "lt": ufuncs.less,
    "le": ufuncs.less_equal,
    "gt": ufuncs.greater,
    "ge": ufuncs.greater_equal,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": ufuncs.negative,
    "pos": ufuncs.positive,
    "abs": ufuncs.absolute,
    "invert": ufuncs.invert,
    "round": lambda self, ndigits=0: floating.round(self, ndigits or 0),
}


def _attach() -> None:
    for name, function in _BINARY.items():
        setattr(Tracer, f"__{name}__", _operator(function))
        setattr(Tracer, f"__r{name}__", _reflected(function))
    for name, function in _COMPARISONS.items():
        setattr(Tracer, f"__{name}__", _operator(function))
    for name, function in _UNARY.items():
        setattr(Tracer, f"__{name}__", boundary(function))


_attach()
