"""Values as Python expressions: numbers, dtypes, small arrays, functions of NumPy and SciPy; and
operands (`Operand`), which have an expression already.

In: a value that a reference function reads. Out: the expression that computes it in the written
file, or NotLiftable.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class, is_key_dtype


class NotLiftable(Exception):
    """The value cannot be written as an expression."""


def lift(value: Any, imports: set[str], other: Callable[[Any], str]) -> str:
    """Return the expression of a value. `other` makes that of a function or an array."""

    def each(values: Any) -> list[str]:
        return [lift(v, imports, other) for v in values]

    kind = type(value)
    if value is None or value is Ellipsis or kind in (bool, int, str, bytes):
        return repr(value)
    if kind in (float, complex):
        return number(value)
    if isinstance(value, tuple):
        return f"({', '.join(each(value))}{',' * (len(value) == 1)})"
    if kind is list:
        return f"[{', '.join(each(value))}]"
    if kind is dict:
        pairs = zip(each(value), each(value.values()), strict=True)
        return f"{{{', '.join([f'{k}: {v}' for k, v in pairs])}}}"
    found = _of_numpy(value, imports)
    if found is not None:
        return found
    if isinstance(value, np.ndarray) or is_ours(value):
        return other(value)
    owner = getattr(value, "__self__", None)
    if callable(value) and owner is not None and not isinstance(owner, types.ModuleType):
        return f"{lift(owner, imports, other)}.{value.__name__}"
    raise NotLiftable(value)


def number(value: complex) -> str:
    """Return a Python number as code, with `np.inf` and `np.nan` where there is no literal."""
    if isinstance(value, complex):
        real, imag = number(value.real), number(value.imag)
        plain = math.isfinite(value.real) and math.isfinite(value.imag)
        return repr(value) if plain else f"complex({real}, {imag})"
    if value != value:
        return "np.nan"
    if value in (math.inf, -math.inf):
        return "np.inf" if value > 0 else "-np.inf"
    return repr(value)


def dtype_text(dtype: Any, imports: set[str]) -> str:
    """Return e.g. `np.float32` or `ml_dtypes.bfloat16`; for a key, the dtype of its words."""
    if is_key_dtype(dtype):
        return "np.uint32"
    name = np.dtype(dtype).name
    if name in ("bool", "void"):  # void: float0, of the tangents of integers
        return "bool"
    if hasattr(np, name):
        return f"np.{name}"
    imports.add("ml_dtypes")
    return f"ml_dtypes.{name}"


def _of_numpy(value: Any, imports: set[str]) -> str | None:
    """Return dtypes, scalars, modules and functions of NumPy, SciPy and ml_dtypes."""
    if isinstance(value, np.dtype):
        return f"np.dtype({dtype_text(value, imports)})"
    if isinstance(value, np.generic):
        return f"{dtype_text(value.dtype, imports)}({lift(value.item(), imports, repr)})"
    if isinstance(value, type) and issubclass(value, np.generic):
        return dtype_text(value, imports)
    if isinstance(value, types.ModuleType):
        return _module_text(value.__name__, imports)
    return function_name(value, imports) if callable(value) else None


def _module_text(name: str, imports: set[str]) -> str | None:
    if name.partition(".")[0] not in ("numpy", "scipy", "ml_dtypes", "math", "functools", "itertools"):
        return None
    if name.partition(".")[0] == "numpy":
        return "np" + name.removeprefix("numpy")
    imports.add(name)
    return name


def function_name(function: Any, imports: set[str]) -> str | None:
    """Return the name of a NumPy or SciPy function, e.g. `scipy.special.erf`; None for others."""
    name, home = getattr(function, "__name__", ""), getattr(function, "__module__", None) or ""
    for module in ("numpy", "numpy.linalg", "numpy.fft", ".".join(home.split(".")[:2]), "scipy.special"):
        if getattr(sys.modules.get(module), name, None) is function:
            shown = _module_text(module, imports)
            return shown and f"{shown}.{name}"
    return None


def is_ours(function: Any) -> bool:
    """Return whether it is a function or method of this library, or of a user's module: to be copied."""
    function, _ = plain(function)
    others = ("numpy", "scipy", "ml_dtypes", "jax", "importlib")
    return function is not None and function.__module__.partition(".")[0] not in others


def plain(function: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a Python function, or None for another kind; and a method's object, its first argument."""
    given: tuple[Any, ...] = ()
    while not isinstance(function, types.FunctionType | None):
        if isinstance(function, types.MethodType):
            function, given = function.__func__, (function.__self__, *given)
        else:
            function = getattr(function, "__wrapped__", None)
    return function, given


# --- operands -------------------------------------------------------------------------------------


class Operand(str):
    """The expression of an operand, as passed to a primitive's `numpy_source`: a name, or a number
    if the operation broadcasts it.

    full : the same as an array of the operand's shape and dtype
    type : that type;  literal : whether it is a number
    """

    full: str
    type: ArrayType
    shape: tuple[int, ...]
    dtype: Any
    ndim: int
    size: int
    literal: bool
    element: str  # for a number: an element along the first axis

    def __new__(cls, text: str, type: ArrayType, full: str = "", literal: bool = False) -> Operand:
        made = super().__new__(cls, text)
        made.full, made.type, made.literal = full or text, type, literal
        made.shape, made.dtype, made.ndim, made.size = type.shape, type.dtype, type.ndim, type.size
        return made

    def at(self, index: str) -> str:
        """Return element `index` along the first axis."""
        return self.element if self.literal else f"{self.full}[{index}]"


def of_literal(v: Literal, imports: set[str]) -> Operand:
    """Return a literal as a number that takes its dtype from the other operand."""
    t = v.type
    kind = dtype_class(t.dtype)
    cast: Any = {"complex": complex, "float": float, "bool": bool}.get(kind, int)
    text = number(cast(v.value))
    dtype = dtype_text(t.dtype, imports)
    scalar = text if kind == "bool" else f"{dtype}({text})"
    if not dtype.startswith("np."):
        text = scalar  # a Python number would widen dtypes that are not NumPy's own
    if not t.shape:
        return Operand(text, t, f"np.bool_({text})" if kind == "bool" else scalar, literal=True)
    made = Operand(text, t, f"np.full({t.shape}, {text}, {dtype})", literal=True)
    made.element = of_literal(Literal(v.value, t.update(shape=t.shape[1:])), imports).full
    return made
