"""The value that stands for an array while a function is traced, and the types of all values.

In: anything a user may call an array. Out: its `ArrayType`; or the error for what is none, for a
tracer that outlived its trace, for a tracer whose value Python asks for where only its type is
known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.flags import flags
from functrans.ir.program import Literal, Var
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, canonical_dtype


class Tracer:
    """Stands for an array while a function is traced. Behaves as a `jax.Array`; its operators and
    methods are given to it by `functrans.numpy`.

    `owner` is its trace; `ref` is what the trace knows it by: a Var or Literal of the program being
    recorded.
    """

    __slots__ = ("__weakref__", "owner", "ref", "type")

    __array_priority__ = 1000

    def __init__(self, trace: Any, type: ArrayType, ref: Any):
        self.owner = trace
        self.type = type
        self.ref = ref

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.dtype)
    weak_type = property(lambda self: self.type.weak_type)
    ndim = property(lambda self: len(self.type.shape))
    size = property(lambda self: self.type.size)
    itemsize = property(lambda self: self.type.dtype.itemsize)
    nbytes = property(lambda self: self.type.size * self.type.dtype.itemsize)

    @property
    def aval(self) -> Any:
        """The abstract value, as JAX spells it."""
        return jax.core.ShapedArray(self.shape, self.dtype, weak_type=self.weak_type)

    def concrete(self) -> Any:
        """The array behind it, or None where only the type is known."""
        return None

    # What Python asks of a value: answered if there is one, else an error that says what to do.

    def __bool__(self) -> bool:
        return _ask_bool(self, bool)

    def __float__(self) -> float:
        return _ask_number(self, float)

    def __int__(self) -> int:
        return _ask_number(self, int)

    def __complex__(self) -> complex:
        return _ask_number(self, complex)

    def __index__(self) -> int:
        return _ask_index(self, operator.index)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        # Not even where the value is known: np.sin(x) would have no derivative, silently.
        return _ask_array(self, lambda _: _no_derivative(self))

    def item(self, *args: int) -> Any:
        return _ask_number(self, lambda v: v.item(*args))

    def tolist(self) -> Any:
        return _ask_array(self, lambda v: v.tolist())

    def __repr__(self) -> str:
        value = self.concrete()
        return f"Traced<{self.type}>" + (f" with value {value}" if value is not None else "")

    def __str__(self) -> str:
        value = self.concrete()
        return repr(self) if value is None else str(value)

    def __format__(self, spec: str) -> str:
        value = self.concrete()
        return repr(self) if value is None else format(value, spec)

    def __reduce__(self) -> Any:
        raise errors.AbstractValueError(
            f"a traced {self.type} cannot be pickled, at\n    {describe(user_source())}\n"
            "Return it from the transformed function and pickle the array there, or hand its value "
            "to Python with debug.callback."
        )

    def __hash__(self):
        raise errors.NotSupported(
            f"a traced {self.type} cannot be hashed: it has no value yet, at\n"
            f"    {describe(user_source())}\n"
            "It cannot be a key of a dict, a member of a set or a static argument."
        )


# --- types of values ------------------------------------------------------------------------------


def _type_of_numpy(x: Any) -> ArrayType:
    if x.dtype.kind in "OSUMm":
        raise errors.NotAnArray(_not_an_array(x))
    return ArrayType(x.shape, canonical_dtype(x.dtype))


# Arrays that one compiled operation makes share their abstract value, so its type is looked up by
# identity; the abstract value is kept with it, so that the identity is not given away again.
_OF_ABSTRACT: dict[int, tuple[Any, ArrayType]] = {}


def _type_of_array(x: Any) -> ArrayType:
    if len(_OF_ABSTRACT) > 20_000:
        _OF_ABSTRACT.clear()
    made = ArrayType(x.shape, x.dtype, x.weak_type)
    _OF_ABSTRACT[id(x.aval)] = x.aval, made
    return made


_SCALAR_TYPES: dict[tuple, ArrayType] = {}


def _type_of_scalar(x: Any) -> ArrayType:
    key = (x.__class__, flags.jax_enable_x64)
    found = _SCALAR_TYPES.get(key)
    if found is None:
        weak = x.__class__ is not bool
        found = _SCALAR_TYPES[key] = ArrayType((), jax.dtypes.result_type(x), weak)
    return found


_CONCRETE = type(jax.numpy.zeros(()))
# The classes of almost all arrays: asked before `isinstance`, which takes four times as long.
ARRAYS: set[type] = {Tracer, _CONCRETE}

_TYPE_OF: dict[type, Callable[[Any], ArrayType]] = {
    Tracer: lambda x: x.type,
    Literal: lambda x: x.type,
    np.ndarray: _type_of_numpy,
    bool: _type_of_scalar,
    int: _type_of_scalar,
    float: _type_of_scalar,
    complex: _type_of_scalar,
}


def register_type(kind: type, handler: Callable[[Any], ArrayType]) -> None:
    """Say how `typeof` reads arrays of a class."""
    _TYPE_OF[kind] = handler
    ARRAYS.add(kind)


def typeof(x: Any) -> ArrayType:
    """The ArrayType of a tracer, array or Python scalar; TypeError for anything else."""
    if x.__class__ is _CONCRETE:
        found = _OF_ABSTRACT.get(id(x.aval))
        return _type_of_array(x) if found is None else found[1]
    handler = _TYPE_OF.get(x.__class__)
    if handler is not None:
        return handler(x)
    return _typeof_other(x)


def _typeof_other(x: Any) -> ArrayType:
    if isinstance(x, (Tracer, Literal)):
        return x.type
    if isinstance(x, jax.Array):  # also JAX's own tracers and typed keys
        return ArrayType(x.shape, x.dtype, getattr(x, "weak_type", False))
    if isinstance(x, (np.ndarray, np.generic)):
        return _type_of_numpy(x)
    if isinstance(x, jax.ShapeDtypeStruct):
        return ArrayType(x.shape, canonical_dtype(x.dtype), bool(x.weak_type))
    if isinstance(x, (bool, int, float, complex)):  # subclasses, IntEnum
        kind = next(k for k in (bool, int, float, complex) if isinstance(x, k))
        return _type_of_scalar(kind(x))  # type: ignore[arg-type]
    if hasattr(x, "__jax_array__"):
        return typeof(x.__jax_array__())
    raise errors.NotAnArray(_not_an_array(x))


def _not_an_array(x: Any) -> str:
    kind = type(x)
    name = kind.__qualname__ if kind.__module__ == "builtins" else (
        f"{kind.__module__}.{kind.__qualname__}"
    )  # fmt: skip
    what = f"value {x!r:.80} of type {name}"
    if isinstance(x, (np.ndarray, np.generic)):
        what = f"NumPy array of dtype {x.dtype}"
    return (
        f"{what} is not an array or a number, at\n    {describe(user_source())}\n"
        "Arguments and results are jax arrays, NumPy arrays, Python scalars, or pytrees "
        "(lists, tuples, dicts, registered classes) of these. For other arguments of a jitted "
        "function use static_argnums/static_argnames."
    )


# --- misuse ---------------------------------------------------------------------------------------


def check_alive(x: Tracer, innermost: Any) -> None:
    """Raise LeakedTracer unless the tracer belongs to a trace that is active in this thread."""
    trace = innermost
    while trace is not None:
        if trace is x.owner:
            return
        trace = trace.parent
    raise leaked(x)


def leaked(x: Tracer) -> errors.LeakedTracer:
    made = getattr(x.owner, "equations", None) or ()
    eqn = next((e for e in made if x.ref in e.outputs), None) if isinstance(x.ref, Var) else None
    where = f"It was made at\n    {describe(eqn.source)}\n" if eqn is not None else ""
    again = "in another thread, or " if x.owner is not None and x.owner.alive else ""
    error = errors.LeakedTracer(
        f"a traced value {x.type} was used {again}after the transformation that made it had ended. "
        f"{where}It was used at\n    {describe(user_source())}\n"
        "A function that is transformed must hand its results back by `return`; storing them in a "
        "global, an attribute or a list that outlives the call keeps a tracer, not a value. Return "
        "the value as an extra output (has_aux=True for grad) instead."
    )
    error.owner = x.owner
    return error


def _no_derivative(x: Tracer) -> Any:
    raise errors.AbstractArrayError(
        f"a NumPy function or numpy.asarray() was given a traced {x.type}, which is being "
        f"differentiated, at\n    {describe(user_source())}\n"
        "Its result would have no derivative. Use the function of the same name in "
        "functrans.numpy; to look at the value, numpy.asarray(lax.stop_gradient(x))."
    )


# --- what Python may ask of a tracer --------------------------------------------------------------


def concrete_value(x: Any) -> Any:
    """The concrete array behind a value, or None."""
    return x.concrete() if isinstance(x, Tracer) else x


def _needs_value(error: type[errors.AbstractValueError], what: str, instead: str) -> Callable:
    def ask(self: Tracer, convert: Callable[[Any], Any]) -> Any:
        value = self.concrete()
        if value is not None:
            return convert(value)
        trace = self.owner
        if trace is not None and not trace.alive:
            raise leaked(self)
        raise error(
            f"{what} needs the value of a traced {self.type}, but inside jit and vmap only its "
            f"type is known, at\n    {describe(user_source())}\n{instead}"
        )

    return ask


_ask_bool = _needs_value(
    errors.AbstractBoolError,
    "a Python `if`, `while`, `and`, `or`, `not` or bool()",
    "Use jnp.where(condition, x, y) or lax.select for values, lax.cond / lax.while_loop for "
    "control flow, `&`, `|`, `~` for logic; or mark the argument static (static_argnums), or call "
    "the function without jit.",
)
_ask_number = _needs_value(
    errors.AbstractValueError,
    "float(), int() or complex()",
    "Keep it an array (x.astype(...) changes its dtype), mark the argument static "
    "(static_argnums), or return it and convert outside.",
)
_ask_index = _needs_value(
    errors.AbstractIndexError,
    "a Python integer (a list index, range(), a shape)",
    "Index an array rather than a list (jnp.asarray(items)[i]), loop with lax.fori_loop, or mark "
    "the argument static (static_argnums).",
)
_ask_array = _needs_value(
    errors.AbstractArrayError,
    "a NumPy function or numpy.asarray()",
    "Use the function of the same name in functrans.numpy, or call it outside the transformed "
    "function.",
)
