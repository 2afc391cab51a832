"""Values as Python expressions: numbers, dtypes, small arrays, functions of NumPy and SciPy;
unknown values (`Unknown`) and operands (`Operand`), which have an expression already.

In: a value in the specialization of a reference function. Out: the `ast` node that computes it in
the written file, or NotLiftable.
"""

from __future__ import annotations

import ast
import math
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class, is_inexact, is_key_dtype

# --- unknown values -------------------------------------------------------------------------------
# In the specialization of a reference function: arrays that exist only when the written file runs.


class NotStatic(Exception):
    """The value is not known while the file is written."""


def _refuse(self: Any, *_: Any, **__: Any) -> Any:
    raise NotStatic


class _Typed:
    """The attributes of an array with the type `_type()`."""

    def _type(self) -> ArrayType:
        raise NotStatic

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


class Unknown(_Typed):
    """A value of the written file: its expression `node`, its type if it is known.

    For `isinstance` it is an array. Whatever needs its numbers raises NotStatic.
    """

    def __init__(self, node: ast.expr, type: ArrayType | None = None):
        self.node = node
        self.known_type = type

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return np.ndarray

    def _type(self) -> ArrayType:
        if self.known_type is None:
            raise NotStatic
        return self.known_type


for _asked in (
    "array", "bool", "len", "iter", "getitem", "index", "float", "eq", "ne", "lt", "le", "gt",
    "ge", "call", "int", "add", "radd", "sub", "rsub", "mul", "rmul", "neg", "contains",
):  # fmt: skip
    setattr(Unknown, f"__{_asked}__", _refuse)


def variables(names: Iterable[str]) -> dict[str, Unknown]:
    """Return variables of the written file, by name."""
    return {name: Unknown(ast.Name(name, ast.Load())) for name in names}


def is_unknown(value: Any) -> bool:
    return type(value) is Unknown


def parts(value: Any) -> Sequence[Any]:
    """Return the elements of a structure; none of another value."""
    if type(value) in (tuple, list):
        return value
    if type(value) is dict:
        return list(value.values())
    return (value.start, value.stop, value.step) if type(value) is slice else ()


def unknowns(value: Any) -> bool:
    """Return whether a structure contains an unknown."""
    return is_unknown(value) or any(map(unknowns, parts(value)))


def holds_array(value: Any) -> bool:
    """Return whether a structure contains a concrete array."""
    if isinstance(value, (tuple, list)):
        return any([holds_array(v) for v in value])
    return isinstance(value, np.ndarray) and not is_unknown(value)


# --- known values ---------------------------------------------------------------------------------

WRITTEN_OUT = 64  # most elements of an array that is written as numbers


class NotLiftable(Exception):
    """The value cannot be written as an expression."""


def expression(text: str) -> ast.expr:
    """Return the expression of a text."""
    return ast.parse(text, mode="eval").body


def lift(value: Any, imports: set[str]) -> ast.expr:
    """Return the expression of a value, including structures with unknowns in them."""

    def each(values: Any) -> list[ast.expr]:
        return [lift(v, imports) for v in values]

    kind = type(value)
    if kind is Unknown:
        return value.node
    if value is None or kind in (bool, int, str, bytes):
        return expression(repr(value))
    if value is Ellipsis:
        return ast.Constant(...)
    if kind in (float, complex):
        return expression(number(value))
    if kind is tuple:
        return ast.Tuple(each(value), ast.Load())
    if kind is list:
        return ast.List(each(value), ast.Load())
    if kind is dict:
        return ast.Dict(list(each(value)), each(value.values()))
    if kind is slice:
        return ast.Call(expression("slice"), each(parts(value)[: 3 if value.step is not None else 2]), [])
    if kind is range:
        used = [value.start, value.stop, value.step]
        used = used if value.step != 1 else used[:2] if value.start else used[1:2]
        return ast.Call(expression("range"), each(used), [])
    found = _of_numpy(value, imports)
    if found is not None:
        return expression(found)
    owner = getattr(value, "__self__", None)
    if callable(value) and owner is not None and not isinstance(owner, types.ModuleType):
        return ast.Attribute(lift(owner, imports), value.__name__, ast.Load())
    raise NotLiftable(value)


def number(value: float | complex) -> str:
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
    if name == "bool":
        return "bool"
    if name == "void":  # float0: the tangents of integers
        return "bool"
    if hasattr(np, name):
        return f"np.{name}"
    imports.add("ml_dtypes")
    return f"ml_dtypes.{name}"


def array_text(x: np.ndarray, imports: set[str]) -> str:
    """Return a small array of any dtype as numbers."""
    dtype = dtype_text(x.dtype, imports)
    wide = x if x.dtype.isbuiltin == 1 else x.astype(np.float64)
    text = _nested(wide.tolist())
    made = f"np.array({text}, {dtype})"
    return made if x.size else f"np.zeros({x.shape}, {dtype})"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join([_nested(v) for v in value])}]"
    return number(value) if isinstance(value, (float, complex)) else repr(value)


def _of_numpy(value: Any, imports: set[str]) -> str | None:
    """Return dtypes, scalars, small arrays, modules and functions of NumPy, SciPy and ml_dtypes."""
    if isinstance(value, np.dtype):
        return dtype_text(value, imports)
    if isinstance(value, np.generic):
        return f"{dtype_text(value.dtype, imports)}({_nested(value.item())})"
    if isinstance(value, np.ndarray):
        return array_text(value, imports) if value.size <= WRITTEN_OUT else None
    if isinstance(value, type) and issubclass(value, np.generic):
        return dtype_text(value, imports)
    if isinstance(value, types.ModuleType):
        return _module_text(value.__name__, imports)
    name = getattr(value, "__name__", None)
    if any(value is v for v in _BUILTINS):
        return str(name)
    return function_name(value, imports) if callable(value) and name else None


_BUILTINS = (
    abs, all, any, bool, complex, dict, divmod, enumerate, float, int, isinstance, len, list, map,
    max, min, object, range, reversed, round, set, slice, sorted, str, sum, tuple, type, zip,
)  # fmt: skip


def _module_text(name: str, imports: set[str]) -> str | None:
    if name.partition(".")[0] not in ("numpy", "scipy", "ml_dtypes", "math"):
        return None
    if name.partition(".")[0] == "numpy":
        return "np" + name.removeprefix("numpy")
    imports.add(name)
    return name


def function_name(function: Any, imports: set[str]) -> str | None:
    """Return the name of a NumPy or SciPy function, e.g. `scipy.special.erf`; None for others."""
    name = getattr(function, "__name__", "")
    for module, shown in ((np, "np"), (np.linalg, "np.linalg"), (np.fft, "np.fft")):
        if getattr(module, name, None) is function:
            return f"{shown}.{name}"
    home = getattr(function, "__module__", None) or (
        "scipy.special" if isinstance(function, np.ufunc) else None
    )
    if home is None or home.partition(".")[0] not in ("scipy", "math", "ml_dtypes"):
        return None
    public = ".".join(home.split(".")[:2])
    if getattr(sys.modules[public], name, None) is not function:
        return None
    imports.add(public)
    return f"{public}.{name}"


def is_ours(function: Any) -> bool:
    """Return whether it is a function of this library, to be specialized rather than called."""
    while not isinstance(function, types.FunctionType):
        inner = [getattr(function, name, None) for name in ("__wrapped__", "func", "__func__")]
        function = next(filter(None, inner), None)
        if function is None:
            return False
    module = getattr(function, "__module__", None) or ""
    return module.partition(".")[0] not in ("numpy", "scipy", "ml_dtypes", "jax", "importlib")


# --- operands -------------------------------------------------------------------------------------


class Operand(str, _Typed):
    """The expression of an operand, as passed to a primitive's `numpy_source`: a name, or a number
    if the operation broadcasts it.

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

    def _type(self) -> ArrayType:
        return self.type


def of_literal(v: Literal, imports: set[str]) -> Operand:
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
