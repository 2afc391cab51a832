"""The operators of tracers, `x + y`, `2 ** x`, `x < y`, `-x`, ..., and the methods and properties of
`jax.Array`, for tracers: functions of this package, with the array as their first argument.

Importing this module adds them to `Tracer`. `jax.Array`s and NumPy arrays on the left defer to
them. If an operand is not array-like (a list, a string), its own reflected method is tried, as
Python would; if that fails, the error is raised here.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from numbers import Number
from types import ModuleType, WrapperDescriptorType
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.source import here, operator_at, user_source
from functrans.ir.tracebacks import boundary, hide_frames, named_boundary
from functrans.ir.types import dtype_class
from functrans.numpy import arithmetic, indexing, linear, promotion, reductions, selecting, shaping, ufuncs
from functrans.trace import Tracer
from functrans.tracer import CONCRETE
from functrans.transforms.jvp import Dual

# Fast path: operands of these classes are accepted; others are checked by `_is_operand`.
_OPERANDS = {Tracer, Dual, CONCRETE, np.ndarray, int, float, complex, bool}


def _is_operand(x: Any) -> bool:
    """Return whether an operator accepts x; if not, Python tries the other operand."""
    return isinstance(x, (Tracer, jax.Array, np.ndarray, np.generic, int, float, complex)) or hasattr(
        x, "__jax_array__"
    )


def _operator(name: str, reflected: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Tracer, other: Any) -> Any:
        try:
            if other.__class__ in _OPERANDS or _is_operand(other):
                return function(self, other)
            return _others_turn(self, other, name, reflected)
        except Exception as error:
            hide_frames(error)
            raise

    return forward


def _reflected(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def backward(self: Tracer, other: Any) -> Any:
        try:
            if other.__class__ in _OPERANDS or _is_operand(other):
                return function(other, self)
            return _others_turn(self, other, name)
        except Exception as error:
            hide_frames(error)
            raise

    return backward


# --- operands that are not arrays -----------------------------------------------------------------

_WRITTEN = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def _others_turn(x: Tracer, other: Any, name: str, reflected: str = "") -> Any:
    """Let the other operand handle the operation: by its method `reflected`, by repeating or
    concatenating a sequence, or for an equality by `is` (but not for a list, which NumPy would
    compare elementwise). Otherwise raise the error that Python would raise."""
    if name in ("eq", "ne") and not isinstance(other, (list, tuple, set, dict)):
        return NotImplemented
    kind = type(other)
    of_python = kind.__module__ == "builtins"  # a class without support for arrays
    if reflected and not of_python:
        answer = _asked(other, reflected, x)
        if answer is not NotImplemented:
            return answer
    if isinstance(other, Sequence):
        count = x.shape == () and dtype_class(x.dtype) in ("int", "uint")
        if name == "mul" and (count or not of_python):
            return NotImplemented
        if name == "add" and not (of_python or reflected):
            answer = _joined(other, x)
            if answer is not None:
                return answer
    what = "None" if other is None else kind.__qualname__
    left, right = (x.type, what) if reflected else (what, x.type)
    sign = _WRITTEN.get(name)
    shown = f"{left} {sign} {right}" if sign else f"{name}({left}, {right})"
    raise errors.NotAnArray(
        f"{shown}: the operator {sign or name} takes arrays and numbers, not {what}, "
        f"{here()}\n{_instead_of(other)}"
    )


def _asked(other: Any, method: str, x: Tracer) -> Any:
    """Call `other.method(x)` as Python does, looked up in the class; else NotImplemented."""
    found: Any = next((vars(kind)[method] for kind in type(other).__mro__ if method in vars(kind)), None)
    if hasattr(found, "__get__"):
        found = found.__get__(other, type(other))
    return NotImplemented if found is None else found(x)


def _joined(left: Sequence[Any], x: Tracer) -> Any:
    """Compute `left + x` or `left += x` for a sequence written in C (a deque), which Python tries
    after our method; None if it does not accept an array. NotImplemented if the operator was called
    as a function, so that it is unknown which of the two is meant."""
    kind = type(left)
    sign = operator_at(user_source())
    mutable = hasattr(kind, "__iadd__")
    if mutable and not sign:
        return NotImplemented
    method = "__iadd__" if mutable and sign == "+=" else "__add__"
    if not isinstance(getattr(kind, method, None), WrapperDescriptorType):
        return None  # one written in Python was tried before
    try:
        return _asked(left, method, x)
    except errors.FunctransError:
        raise
    except TypeError:
        return None


def _instead_of(other: Any) -> str:
    """Suggest what to do about an operand that is not an array."""
    if other is None:
        return "A function without a return statement returns None; or an argument was left out."
    if type(other) in (list, tuple):
        return "Use one of its entries, or convert it to an array: jnp.asarray(...)."
    with contextlib.suppress(Exception):  # a user's container that fails to flatten
        names = tree.path_names(other)
        if names not in ([], [""]):
            shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            return f"Use one of its leaves ({shown}), or all of them with tree.map."
    if isinstance(other, Number):
        return "Numbers must be int, float or complex: use float(...)."
    if callable(other):
        return "It is a function: call it, and use its result."
    return "Pass an array or a number: jnp.asarray converts a list of numbers."


def _by_jax(name: str) -> Callable[..., Any]:
    """Return a method that calls a function this package re-exports from JAX, looked up lazily."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(sys.modules[__package__], name)(*args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"Source: `jax.numpy.{name}`."
    return call


_BINARY: dict[str, Callable[..., Any]] = {
    "add": ufuncs.add,
    "sub": ufuncs.subtract,
    "mul": ufuncs.multiply,
    "truediv": ufuncs.true_divide,
    "floordiv": _by_jax("floor_divide"),
    "mod": _by_jax("remainder"),
    "divmod": _by_jax("divmod"),
    "pow": arithmetic.power,
    "matmul": linear.matmul,
    "and": ufuncs.bitwise_and,
    "or": ufuncs.bitwise_or,
    "xor": ufuncs.bitwise_xor,
    "lshift": _by_jax("left_shift"),
    "rshift": _by_jax("right_shift"),
}
_COMPARISONS: dict[str, tuple[str, Callable[..., Any]]] = {  # with the reflected method
    "eq": ("eq", ufuncs.equal),
    "ne": ("ne", ufuncs.not_equal),
    "lt": ("gt", ufuncs.less),
    "le": ("ge", ufuncs.less_equal),
    "gt": ("lt", ufuncs.greater),
    "ge": ("le", ufuncs.greater_equal),
}


# The operators that Python looks up on the left operand.
OPERATORS = tuple([f"__{name}__" for name in (*_BINARY, *_COMPARISONS)])


def _rounded(x: Any, ndigits: int | None = None) -> Any:
    """Return round(x) as integers, as for a Python float; round(x, n) keeps x's dtype."""
    y = sys.modules[__package__].round(x, ndigits or 0)
    return selecting.astype(y, int) if ndigits is None else y


_UNARY: dict[str, Callable[..., Any]] = {
    "neg": ufuncs.negative,
    "pos": lambda x: x,
    "abs": ufuncs.absolute,
    "invert": ufuncs.invert,
    "round": _rounded,
}


# --- containers -----------------------------------------------------------------------------------


def _len(self: Tracer) -> int:
    if not self.shape:
        raise errors.TypeMismatch(
            f"len() of a {self.type}, which has no axes, {here()}\n"
            "Add an axis first: x[None] or jnp.atleast_1d(x)."
        )
    return self.shape[0]


def _iter(self: Tracer) -> Iterator[Any]:
    if not self.shape:
        raise errors.TypeMismatch(
            f"iteration over a {self.type}, which has no axes, {here()}\n"
            "Return several values as a tuple, or add an axis first."
        )
    return iter(sys.modules[__package__].unstack(self))


def _delete(self: Tracer, index: Any) -> None:
    raise errors.NotSupported(
        f"elements of a traced {self.type} cannot be deleted (arrays are immutable), {here()}\n"
        "Write `x = jnp.delete(x, i)` for `del x[i]`."
    )


def _array_namespace(self: Tracer, *, api_version: str | None = None) -> ModuleType:
    namespace = sys.modules[__package__]
    if api_version not in (None, namespace.__array_api_version__):
        raise promotion.invalid(
            "__array_namespace__",
            f"api_version {api_version!r} is not available",
            f"It is {namespace.__array_api_version__!r}.",
        )
    return namespace


# --- methods with other arguments than the function -----------------------------------------------


def _reshape(
    self: Tracer, *shape: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None
) -> Any:
    to = shape[0] if len(shape) == 1 else shape
    return shaping.reshape(self, to, order, copy=copy, out_sharding=out_sharding)


def _transpose(self: Tracer, *axes: Any) -> Any:
    if not axes or axes == (None,):
        return shaping.transpose(self)
    return shaping.transpose(self, axes[0] if not isinstance(axes[0], int) else axes)


def _astype(self: Tracer, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """Cast the array to another dtype. Source: `jax.Array.astype`."""
    return selecting.astype(self, dtype, copy=copy, device=device)


def _flat(self: Tracer) -> Any:
    raise errors.NotSupported(f"x.flat of a {self.type} is not supported, {here()}\nUse x.ravel().")


def _block_until_ready(self: Tracer) -> Any:
    """Wait for the concrete value, if there is one."""
    value = self.to_concrete_value()
    if value is not None:
        value.block_until_ready()
    return self


_NAMED = {  # functions whose first argument is the array
    reductions: "mean std sum var",
    shaping: "copy diagonal ravel squeeze",
    selecting: "clip",
    ufuncs: "conj conjugate",
    linear: "dot",
}
_JAXS = (
    "all any argmax argmin argpartition argsort choose cumprod cumsum max min nonzero prod ptp repeat round "
    "searchsorted sort swapaxes take trace"
)
_INHERITED = "byteswap compress to_device view"  # JAX's methods of its tracers
_METHODS: dict[str, Callable[..., Any]] = {
    **{name: getattr(module, name) for module, names in _NAMED.items() for name in names.split()},
    **{name: _by_jax(name) for name in _JAXS.split()},
    **{name: getattr(jax.core.Tracer, name) for name in _INHERITED.split()},
    "astype": _astype,
    "block_until_ready": _block_until_ready,
    "flatten": shaping.ravel,
    "reshape": _reshape,
    "transpose": _transpose,
}
_PROPERTIES: dict[str, Callable[..., Any]] = {
    "T": shaping.transpose,
    "mT": _by_jax("matrix_transpose"),
    "real": ufuncs.real,
    "imag": ufuncs.imag,
    "at": indexing.At,
    "flat": _flat,
}


def _attach() -> None:
    for name, function in _BINARY.items():
        setattr(Tracer, f"__{name}__", _operator(name, f"__r{name}__", function))
        setattr(Tracer, f"__r{name}__", _reflected(name, function))
    for name, (reflected, function) in _COMPARISONS.items():
        setattr(Tracer, f"__{name}__", _operator(name, f"__{reflected}__", function))
    for name, function in _METHODS.items():
        setattr(Tracer, name, named_boundary(function, name))
    for name, function in _PROPERTIES.items():
        setattr(Tracer, name, property(named_boundary(function, name)))
    setattr(Tracer, "__array_namespace__", _array_namespace)  # noqa: B010  # its type is JAX's
    special: dict[str, Callable[..., Any]] = {
        **_UNARY,
        "len": _len,
        "iter": _iter,
        "contains": lambda self, item: bool(ufuncs.equal(self, item).any()),
        "getitem": indexing.getitem,
        "setitem": indexing.setitem,
        "delitem": _delete,
        "trunc": _by_jax("trunc"),
        "floor": ufuncs.floor,
        "ceil": ufuncs.ceil,
        "copy": lambda self: self,
        "deepcopy": lambda self, memo: self,
    }
    for name, function in special.items():
        setattr(Tracer, f"__{name}__", boundary(function))


_attach()
