"""Tracers, and the types of all values.

In: any value a user may pass as an array. Out: its `ArrayType`; or the error for a value that is
not an array, for a leaked tracer, or for a tracer whose concrete value Python needs.
"""

from __future__ import annotations

import difflib
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from functrans import errors, jax_trace
from functrans.caching import Cache, cached
from functrans.flags import flags
from functrans.ir.program import Literal, Var
from functrans.ir.source import brief, here, location
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType, canonical_dtype

if TYPE_CHECKING:
    JaxTracer = jax.Array  # the operators and methods are attached at run time
else:
    JaxTracer = jax.core.Tracer


class Tracer(JaxTracer):
    """Stands for an array while a function is traced. It behaves as a `jax.Array`, and as a JAX
    tracer inside JAX. `functrans.numpy` attaches its operators and methods.

    `owner` is its trace. `ref` is its value in that trace: a Var or Literal of the program being
    recorded.
    """

    __slots__ = ("owner", "ref", "type")

    __array_priority__ = 1000
    __module__ = "jax.core"  # libraries for several backends (opt_einsum, autoray) ask for that of a class

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__module__ = Tracer.__module__
        _TYPE_OF[cls] = _TYPE_OF[Tracer]
        ARRAYS.add(cls)
        OURS.add(cls)

    def __init__(self, trace: Any, type: ArrayType, ref: Any):
        self.owner: Any = trace
        self.type: ArrayType = type
        self.ref: Any = ref

    shape: Any = property(operator.attrgetter("type.shape"))
    dtype: Any = property(operator.attrgetter("type.dtype"))
    weak_type: Any = property(operator.attrgetter("type.weak_type"))
    ndim: Any = property(operator.attrgetter("type.ndim"))
    size: Any = property(operator.attrgetter("type.size"))
    itemsize: Any = property(operator.attrgetter("type.dtype.itemsize"))

    @property
    def nbytes(self) -> int:
        return self.type.size * self.type.dtype.itemsize

    @property
    def aval(self) -> Any:
        """The type as a JAX abstract value."""
        return aval_of(self.type)

    @property
    def _trace(self) -> Any:
        """The trace that JAX dispatches operations on this tracer to."""
        if not self.owner.alive:
            raise leaked(self)
        return jax_trace.bridge()

    @property
    def __jax_array__(self) -> Any:
        raise AttributeError("__jax_array__")  # it is an array

    @property
    def _debug_info(self) -> Any:
        """JAX reads this to report which function a tracer leaked from; our error says more."""
        raise leaked(self)

    def _origin_msg(self) -> str:
        """Return what JAX's messages end with: on which arguments the value depends."""
        return depending(self)

    def to_concrete_value(self) -> Any:
        """Return the concrete array, or None if only the type is known; JAX asks too."""
        return None

    def __getattr__(self, name: str) -> Any:
        """Raise for a name that neither this class nor its subclasses define."""
        if name.startswith("_") or name in Tracer.__slots__:
            raise AttributeError(name)
        raise unknown_attribute(self, name)

    @boundary
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        # An error even if the value is known: np.sin(x) would silently have no derivative.
        return _ask_array(self, lambda _: _no_derivative(self))

    @boundary
    def item(self, *args: int) -> Any:
        return _ask_number(self, lambda v: v.item(*args))

    def __repr__(self) -> str:
        value = self.to_concrete_value()
        return f"Traced<{self.type}>" + (f" with value {value}" if value is not None else "")

    def __str__(self) -> str:
        value = self.to_concrete_value()
        return repr(self) if value is None else str(value)

    def __format__(self, spec: str) -> str:
        value = self.to_concrete_value()
        return repr(self) if value is None else format(value, spec)

    @boundary
    def __reduce__(self) -> Any:
        raise errors.AbstractValueError(
            f"a traced {self.type} cannot be pickled, {here()}\n"
            "Return it from the transformed function and pickle the result, or pass its value to "
            "Python with debug.callback."
        )


@cached("types as JAX spells them", 16_384)
def aval_of(t: ArrayType) -> Any:
    """Return a type as a JAX abstract value; cached, because JAX needs it for each operation."""
    return jax.core.ShapedArray(t.shape, t.dtype, weak_type=t.weak_type)


# --- types of values ------------------------------------------------------------------------------


_NO_NUMBERS = {np.object_, np.bytes_, np.str_, str, np.datetime64, np.timedelta64, np.void}
_NO_NUMBERS |= {np.longdouble, np.clongdouble}  # which XLA does not have


def _type_of_numpy(x: Any) -> ArrayType:
    if x.dtype.type in _NO_NUMBERS and x.dtype != jax.dtypes.float0:
        raise errors.NotAnArray(not_an_array(x))
    return ArrayType(x.shape, canonical_dtype(x.dtype))


# Arrays made by one compiled operation share their abstract value, so the type is looked up by
# its id. The cache holds the abstract value too, so that its id is not reused.
_OF_ABSTRACT = Cache("types of arrays", 4096)


def _type_of_array(x: Any) -> ArrayType:
    made = ArrayType(x.shape, x.dtype, x.weak_type)
    _OF_ABSTRACT.keep(id(x.aval), (x.aval, made))
    return made


def _type_of_scalar(x: Any) -> ArrayType:
    return _scalar_type(x.__class__, flags.jax_enable_x64)


@cached("types of numbers", 16)
def _scalar_type(kind: type, x64: bool) -> ArrayType:
    return ArrayType((), jax.dtypes.result_type(kind), kind is not bool)


# The class of concrete jax arrays, found by name: making one would initialize the devices while the user
# may still configure them (`jax_platforms`, `jax.distributed`).
CONCRETE: Any = next(
    kind
    for kind in jax.Array.__subclasses__()
    if kind.__name__ == "ArrayImpl" and kind.__module__.startswith("jaxlib.")
)
AnyTracer = jax.core.Tracer  # ours or JAX's
OURS: set[Any] = {Tracer}  # and its subclasses
# The classes of almost all arrays: tested before `isinstance`, which is four times slower.
ARRAYS: set[type[Any]] = {Tracer, CONCRETE}


def is_jax_tracer(x: Any) -> bool:
    return x.__class__ not in ARRAYS and isinstance(x, AnyTracer)


def is_high_level(x: Any) -> bool:
    """Return whether a value is a tracer of one of JAX's high-level types, which hold arrays."""
    return is_jax_tracer(x) and bool(jax.typeof(x).is_high)


_TYPE_OF: dict[type[Any], Callable[[Any], ArrayType]] = {
    Tracer: lambda x: x.type,
    Literal: lambda x: x.type,
    np.ndarray: _type_of_numpy,
    bool: _type_of_scalar,
    int: _type_of_scalar,
    float: _type_of_scalar,
    complex: _type_of_scalar,
}


def typeof(x: Any) -> ArrayType:
    """Return the ArrayType of a tracer, array or Python scalar.

    Raises: NotAnArray (a TypeError): x is none of these.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.typeof(jnp.ones((2, 3))))
      f32[2,3]
    """
    if x.__class__ is CONCRETE:
        key = id(x.aval)
        found = _OF_ABSTRACT.recent.get(key) or _OF_ABSTRACT.get(key)
        return _type_of_array(x) if found is None else found[1]
    handler = _TYPE_OF.get(x.__class__)
    if handler is not None:
        return handler(x)
    return _typeof_other(x)


def _typeof_other(x: Any) -> ArrayType:
    if isinstance(x, jax.Array):  # also JAX's tracers and typed keys
        return ArrayType(x.shape, x.dtype, getattr(x, "weak_type", False))
    if isinstance(x, (np.ndarray, np.generic)):
        return _type_of_numpy(x)
    if isinstance(x, jax.ShapeDtypeStruct):
        return ArrayType(x.shape, canonical_dtype(x.dtype), bool(x.weak_type))
    if isinstance(x, (bool, int, float, complex)):  # subclasses, IntEnum
        kind = next(k for k in (bool, int, float, complex) if isinstance(x, k))
        return _type_of_scalar(kind(x))  # type: ignore[arg-type]
    if getattr(x, "__jax_array__", None) is not None:
        return typeof(x.__jax_array__())
    raise errors.NotAnArray(not_an_array(x))


def type_like(x: Any) -> ArrayType:
    """Return `typeof(x)`, or the type that an object's `shape` and `dtype` say."""
    if hasattr(x, "dtype") and hasattr(x, "shape") and not isinstance(x, (jax.Array, np.ndarray, np.generic)):
        x = jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))
    return typeof(x)


def not_an_array(x: Any, path: str = "") -> str:
    """Return the message for a value, at a path of the arguments, that is not an array."""
    kind = type(x)
    name = kind.__qualname__ if kind.__module__ == "builtins" else (f"{kind.__module__}.{kind.__qualname__}")
    what = f"{path or 'value'} {brief(x)} of type {name}"
    if isinstance(x, (np.ndarray, np.generic)):
        what = f"{path or 'NumPy array'} of dtype {x.dtype}"
    return f"{what} is not an array or a number, {here()}\n{_instead_of(x)}"


def _instead_of(x: Any) -> str:
    """Return the advice for a value that is not an array."""
    if x is None:
        return "Pass an array or a number; to leave out an operand, leave out the operation."
    if isinstance(x, jax.Ref):
        return "Pass the value of the reference, ref[...]."
    if is_high_level(x):
        return (
            "JAX's high-level types, such as flax's variables with hijax=True, are not supported. "
            "Pass the arrays that they hold; for an nnx model, nnx.to_pure_dict(nnx.state(model))."
        )
    if isinstance(x, (np.ndarray, np.generic)):
        return "Pass numbers that XLA has, x.astype(np.float32); of a structured array its fields, x['name']."
    if hasattr(x, "__next__"):
        return "Convert it to a list or an array first: list(...), jnp.stack(list(...))."
    return (
        "Pass arrays, Python numbers, or pytrees of these (lists, tuples, dicts, registered "
        "classes). Make other arguments of jit static, with static_argnums or static_argnames."
    )


def check_kept(x: Any) -> None:
    """Raise DeletedArray for an array whose buffer was donated or deleted."""
    if x.__class__ is CONCRETE and x.is_deleted():
        raise errors.DeletedArray(
            f"an array {typeof(x)} was used after its buffer had been donated (donate_argnums) or "
            f"deleted (x.delete()), {here()}\n"
            "Use the result of the call that it was donated to, as in `x = step(x)`; or do not "
            "donate that argument."
        ) from None


# --- misuse ---------------------------------------------------------------------------------------


def is_active(owner: Any, innermost: Any, below: Any) -> bool:
    """Return whether a trace is active in this thread: `innermost`, a parent, or one below a trace of JAX."""
    trace = innermost
    while True:
        while trace is not None:
            if trace is owner:
                return True
            trace = trace.parent
        if below is None:
            return False
        trace, _, below = below


def check_alive(x: Tracer, innermost: Any, below: Any) -> None:
    """Raise LeakedTracer unless the tracer belongs to an active trace."""
    if not is_active(x.owner, innermost, below):
        raise leaked(x)


_OF_VALUES = ("numpy", "tolist", "cpu", "detach", "data", "values", "to_py", "tobytes")


def unknown_attribute(x: Tracer, name: str) -> errors.UnknownAttribute:
    """Return the error for an attribute that arrays lack, or lack while traced."""
    near = difflib.get_close_matches(name, [n for n in dir(x) if not n.startswith("_")], 1)
    if name in _OF_VALUES:
        fix = "It has no value while it is traced: return it, and convert the result with np.asarray."
    elif near:
        fix = f"Did you mean {near[0]!r}?"
    else:
        fix = "It has the attributes and methods of jax.Array; array functions are in jnp."
    return errors.UnknownAttribute(f"a traced array {x.type} has no attribute {name!r}, {here()}\n{fix}")


def leaked(x: Tracer) -> errors.LeakedTracer:
    made = getattr(x.owner, "equations", None) or ()
    eqn = next((e for e in made if x.ref in e.outputs), None) if isinstance(x.ref, Var) else None
    made_at = f"created at {location(eqn.source)}, and " if eqn is not None else ""
    again = "in another thread, or " if x.owner is not None and x.owner.alive else ""
    error = errors.LeakedTracer(
        f"a traced value {x.type} was used {again}after the transformation that created it had "
        f"ended. It was {made_at}used {here()}\n"
        "Return values from the function (extra ones with has_aux=True of grad): what a "
        "transformed function stores in a global, an attribute or a list is a tracer, not a value."
    )
    error.owner = x.owner
    return error


def _no_derivative(x: Tracer) -> Any:
    raise errors.AbstractArrayError(
        f"a NumPy function or numpy.asarray() was given a traced {x.type}, which is being "
        f"differentiated, {here()}\n"
        "Its result would have no derivative. Use the function of the same name in "
        "functrans.numpy; for the value alone, use numpy.asarray(lax.stop_gradient(x))."
    )


# --- conversions of tracers to Python values ------------------------------------------------------
#
# They need a concrete value, else raise an error with advice.


def concrete_value(x: Any) -> Any:
    """Return the concrete array of a value, or None. The value of a JAX tracer is never known."""
    if isinstance(x, Tracer):
        return x.to_concrete_value()
    return None if isinstance(x, AnyTracer) else x


# code object that calls a user's function -> (arguments, their names), from its frame's locals
CALLS: dict[Any, Callable[[dict[str, Any]], tuple[Sequence[Any], Sequence[str]]]] = {}


def depending(x: Tracer) -> str:
    """Say, for messages, on which arguments of the traced function a value depends. The arguments
    are found in the frames on the stack, so nothing is stored for this."""
    needed = {x.ref} if isinstance(x.ref, Var) else set()
    for eqn in reversed(getattr(x.owner, "equations", None) or ()):
        if not needed.isdisjoint(eqn.outputs):
            needed.update([v for v in eqn.inputs if isinstance(v, Var)])
    frame: Any = sys._getframe(1)
    while frame is not None and needed:
        names_of = CALLS.get(frame.f_code)
        if names_of is not None:
            values, names = names_of(frame.f_locals)
            found = [
                name
                for value, name in zip(values, names, strict=False)
                if isinstance(value, Tracer) and value.owner is x.owner and value.ref in needed
            ]
            if found:
                more = "" if len(found) <= 3 else f" and {len(found) - 3} more"
                return f" (it depends on {', '.join(found[:3])}{more})"
        frame = frame.f_back
    return ""


def _needs_value(error: type[errors.AbstractValueError], what: str, instead: str) -> Callable[..., Any]:
    def ask(self: Tracer, convert: Callable[[Any], Any]) -> Any:
        value = self.to_concrete_value()
        if value is not None:
            return convert(value)
        trace = self.owner
        if trace is not None and not trace.alive:
            raise leaked(self)
        if convert is bool and self.type.size != 1:
            raise errors.InvalidArgument(
                f"the truth value of a traced {self.type}, which has {self.type.size} elements, is "
                f"ambiguous, {here()}\nUse x.any(), x.all() or x.size > 0, or `&`, `|` and `~` by element."
            )
        raise error(
            f"{what} needs the value of a traced {self.type}, but inside jit and vmap only its "
            f"type is known{depending(self)}, {here()}\n{instead}"
        )

    return ask


_ask_bool = _needs_value(
    errors.AbstractBoolError,
    "a Python `if`, `while`, `and`, `or`, `not` or bool()",
    "Use jnp.where(condition, x, y) for values, lax.cond or lax.while_loop for control flow, `&`, "
    "`|`, `~` for logic; or mark the argument static (static_argnums).",
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
    "Index an array rather than a list (jnp.asarray(items)[i]), loop with lax.fori_loop, compute sizes "
    "with NumPy (np.prod(x.shape)), or mark the argument static (static_argnums).",
)
_ask_array = _needs_value(
    errors.AbstractArrayError,
    "a NumPy function or numpy.asarray()",
    "Use the function of the same name in functrans.numpy, index jnp.asarray(table) rather than a NumPy "
    "array, or call it outside the transformed function.",
)

for _name, _ask, _convert in (
    ("__bool__", _ask_bool, bool),
    ("__float__", _ask_number, float),
    ("__int__", _ask_number, int),
    ("__complex__", _ask_number, complex),
    ("__index__", _ask_index, operator.index),
    ("tolist", _ask_array, lambda value: value.tolist()),
):
    setattr(Tracer, _name, boundary(lambda self, ask=_ask, convert=_convert: ask(self, convert)))
