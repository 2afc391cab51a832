"""Dtype promotion and broadcasting of a user's operands, as the strict IR requires.

In: arrays, tracers, NumPy arrays, Python scalars of any shapes and dtypes. Out: values of one type,
to which a primitive can be bound. The promotion lattice is JAX's: Python scalars are weakly typed,
and take the dtype of the array they are combined with.
"""

from __future__ import annotations

import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors, runtime
from functrans.caching import Cache, cached
from functrans.flags import flags
from functrans.ir.program import Literal
from functrans.ir.source import brief_with_type, here, line_of, user_source
from functrans.ir.types import OF_FLOAT0, ArrayType, canonical_dtype, dtype_class, float0, is_inexact, promote
from functrans.lax.arguments import axis_index as axis_index
from functrans.lax.arguments import check_fits as check_fits
from functrans.lax.arguments import dtype_asked
from functrans.lax.arguments import invalid as invalid
from functrans.lax.arguments import mismatch as mismatch
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.shape.moving import broadcast_in_dim, squeeze
from functrans.trace import Tracer, full, literal, staging_trace, typeof
from functrans.tracer import ARRAYS, CONCRETE
from functrans.typing import Array

BOOL = np.dtype(bool)

# The rank of a Python scalar type in the lattice. A scalar takes the type of an array of equal or
# higher rank.
SCALARS: dict[type[Any], int] = {bool: 0, int: 1, float: 2, complex: 3}
_HEIGHT = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


@cached("heights of dtypes", 256)
def _height(dtype: Any) -> int:
    return _HEIGHT.get(dtype_class(dtype), -1)


# --- one operand ----------------------------------------------------------------------------------


def type_of(x: Any, name: str, position: int = 0) -> ArrayType:
    """Return the type of an operand; raise an error if it is not an array or scalar."""
    try:
        return typeof(x)
    except errors.NotAnArray:
        advice = (
            "Convert it to an array first: jnp.asarray(...)."
            if isinstance(x, (list, tuple))
            else "Operands must be arrays or Python scalars."
        )
        raise errors.NotAnArray(
            f"{name} requires ndarray or scalar arguments, got {brief_with_type(x)}"
            f" at position {position}, {here()}\n"
            f"{advice}"
        ) from None


@cached("JAX's functions beside ours", 256)
def of_jax(name: str) -> Callable[..., Any]:
    """Return JAX's function or method of ufuncs (`add.reduce`), for what one of ours does not do."""
    return runtime.delegated(operator.attrgetter(name)(jax.numpy), name, "functrans.numpy")


def mask_of(where: Any, name: str) -> Any:
    """Return the mask `where`; raise an error unless it is boolean."""
    where = value_of(where, name)
    if typeof(where).dtype is not BOOL:
        raise invalid(name, f"where must be booleans, got {typeof(where)}", "Pass where != 0.")
    return where


def scalar(value: Any, type: ArrayType) -> Literal:
    """Return the literal of a Python number with a type; cached."""
    kind = value.__class__
    if kind is int or (value != 0 and kind is not complex):  # as keys, 0.0 == -0.0
        return _scalar(value, kind, type)
    return literal(value, type)


@cached("numbers as operands", 4096)
def _scalar(value: Any, kind: type, type: ArrayType) -> Literal:
    if kind is int:
        check_fits(value, type)
    with np.errstate(over="ignore"):  # silent, as in JAX without jit
        return literal(value, type)


def value_of(x: Any, name: str, position: int = 0) -> Any:
    """Convert a scalar operand to a literal; return others unchanged."""
    kind = x.__class__
    if kind is Tracer or kind is Literal or isinstance(x, Tracer):
        return x
    if kind in SCALARS:
        return scalar(x, typeof(x))
    t = type_of(x, name, position)
    if kind is CONCRETE or isinstance(x, (jax.Array, np.ndarray)):
        return x
    if isinstance(x, np.generic):
        return literal(x, t)
    return value_of(x.__jax_array__(), name, position) if hasattr(x, "__jax_array__") else x


def array_of(x: Any, name: str, position: int = 0) -> Array:
    """Convert an operand to an array."""
    kind = x.__class__
    if kind is Tracer:
        return x
    if kind in SCALARS:
        t = typeof(x)
        if kind is int:
            check_fits(x, t)
        return full(x, t)
    if isinstance(x, (Tracer, jax.Array)):
        return x
    if kind is Literal:
        return full(x.value, x.type)
    type_of(x, name, position)
    if hasattr(x, "__jax_array__"):
        return array_of(x.__jax_array__(), name, position)
    return captured(x)


def captured(x: Any) -> Any:
    """Capture a concrete array while staging, so that tracers can index it."""
    if isinstance(x, Tracer):
        return x
    trace = staging_trace()
    if trace is None:
        return x if isinstance(x, jax.Array) else jax.numpy.asarray(x)
    if isinstance(x, np.generic):
        t = typeof(x)
        return Tracer(trace, t, literal(x, t))
    var = trace.capture(x)
    return Tracer(trace, var.type, var)


def cast(x: Any, dtype: Any, weak_type: bool = False) -> Any:
    """Cast x to another, already canonical dtype; a no-op if it has it."""
    t = typeof(x)
    if t.dtype == dtype and t.weak_type == weak_type:
        return x
    made = ArrayType(t.shape, dtype, weak_type)
    if x.__class__ is Literal:
        return literal(x.value, made)
    if x.__class__ is Tracer and x.ref.__class__ is Literal:
        return Tracer(x.owner, made, literal(x.ref.value, made))
    return convert_element_type(x, dtype=made.dtype, weak_type=weak_type)


def another(made: Any, given: Any) -> Any:
    """Return `made`, copied if it is the same concrete array as `given`."""
    return made.copy() if made is given and made.__class__ is CONCRETE else made


def cast_to(x: Any, dtype: Any) -> Any:
    """Cast x to a dtype; a weak type of the same dtype stays weak."""
    return x if typeof(x).dtype == dtype else cast(x, dtype)


def inexact_dtype(dtype: Any) -> Any:
    """Return the float dtype in which functions of integers are computed."""
    if is_inexact(dtype):
        return dtype
    return _float_of(dtype, flags.jax_enable_x64)


@cached("floats of integers", 256)
def _float_of(dtype: Any, x64: bool) -> Any:
    wide = dtype_class(dtype) in ("int", "uint") and np.dtype(dtype).itemsize == 8
    return canonical_dtype(np.dtype("float64" if wide else "float32"))


def to_inexact(x: Any) -> Any:
    """Convert integers and booleans to floats."""
    t = typeof(x)
    if is_inexact(t.dtype):
        return x
    return cast(x, inexact_dtype(t.dtype), t.weak_type)


# --- several operands -----------------------------------------------------------------------------


def align(x: Any, y: Any, name: str) -> tuple[Any, Any]:
    """Promote and broadcast two operands to equal shape and dtype."""
    if y.__class__ in SCALARS:
        t = x.type if isinstance(x, Tracer) else type_of(x, name)
        if SCALARS[y.__class__] <= _height(t.dtype) and x.__class__ not in SCALARS:
            return x if x.__class__ in ARRAYS else value_of(x, name), scalar(y, t)
    elif x.__class__ in SCALARS:
        t = y.type if isinstance(y, Tracer) else type_of(y, name, 1)
        if SCALARS[x.__class__] <= _height(t.dtype):
            return scalar(x, t), y if y.__class__ in ARRAYS else value_of(y, name, 1)
    elif isinstance(x, Tracer) and isinstance(y, Tracer) and x.type is y.type:
        return x, y
    x, y = align_all((x, y), name)
    return x, y


def align_all(xs: Sequence[Any], name: str, inexact: bool = False) -> list[Any]:
    """Promote and broadcast operands to one shape and dtype, a float or complex one if `inexact`."""
    xs = [x if x.__class__ is Tracer else value_of(x, name, i) for i, x in enumerate(xs)]
    types = tuple([typeof(x) for x in xs])
    plan = _PLANS.get((types, inexact, flags.jax_enable_x64))
    if plan is None or (flags.jax_numpy_dtype_promotion, flags.jax_numpy_rank_promotion) != _FREE:
        plan = _plan(types, name, inexact)
    return [x if steps is None else _follow(x, *steps) for x, steps in zip(xs, plan, strict=True)]


# (operand types, inexact?, is x64 enabled?) -> conversion of each operand: None, or (type to cast to, axes to
# drop, broadcast parameters)
_PLANS = Cache("plans of promotions", 8192)


def _plan(types: tuple[ArrayType, ...], name: str, inexact: bool) -> list[Any]:
    if any([t.dtype == float0 for t in types]):
        shown = ", ".join(map(str, types))
        raise errors.TypeMismatch(f"{name}({shown}): a float0 is no operand, {here()}\n{OF_FLOAT0}")
    try:
        dtype, weak = promote(types)
    except TypeError:  # a key among numbers
        raise errors.TypeMismatch(
            f"{name}({', '.join(map(str, types))}): PRNG keys do not support arithmetic, {here()}\n"
            "Draw numbers with random.uniform(key), ...; random.key_data(key) returns its bits."
        ) from None
    if inexact:
        dtype = inexact_dtype(dtype)
    shape = broadcast_shape([t.shape for t in types], name, types)
    _check_ranks(types, name)
    plan = []
    for t in types:
        fits = t.dtype == dtype and t.weak_type >= weak
        to = None if fits else (dtype, weak)
        plan.append(None if fits and t.shape == shape else (to, *_growth(t.shape, shape)))
    return _PLANS.keep((types, inexact, flags.jax_enable_x64), plan)


_FREE = ("standard", "allow")


def _check_ranks(types: Sequence[ArrayType], name: str) -> None:
    """Raise or warn about implicit rank promotion, as `jax_numpy_rank_promotion` says."""
    how = flags.jax_numpy_rank_promotion
    if how == "allow" or len({t.ndim for t in types if t.ndim}) < 2:
        return
    problem = (
        f"{name}({', '.join(map(str, types))}): the operands have different ranks, with "
        f"jax_numpy_rank_promotion={how!r}, {here()}\n"
        "Add axes with x[None, :] or jnp.expand_dims."
    )
    if how == "raise":
        raise errors.ImplicitPromotion(problem)
    warnings.warn(problem, stacklevel=2)


def _follow(x: Any, to: Any, dropped: Any, growth: Any) -> Any:
    if to is not None:
        x = cast(x, *to)
    if dropped:
        x = squeeze(x, dimensions=dropped)
    return x if growth is None else broadcast_in_dim(x, **growth)


def _growth(have: tuple[int, ...], shape: tuple[int, ...]) -> tuple[tuple[int, ...], Any]:
    """Return the axes of size 1 to drop and the broadcast_in_dim parameters from shape to shape."""
    if have == shape:
        return (), None
    lead = len(shape) - len(have)
    kept = tuple([i for i, n in enumerate(have) if shape[lead + i] == n])
    dropped = tuple([i for i in range(len(have)) if i not in kept])
    return dropped, {"shape": shape, "dimensions": tuple([lead + i for i in kept])}


def promote_dtypes(xs: Sequence[Any], name: str) -> list[Any]:
    """Promote operands to one dtype; each keeps its shape. One that has the dtype is unchanged, weakly
    typed or not: the result of an operation is weakly typed only if all operands are."""
    xs = [x if x.__class__ is Tracer else value_of(x, name, i) for i, x in enumerate(xs)]
    types = tuple([typeof(x) for x in xs])
    first = types[0]
    if all([t.dtype is first.dtype and not t.weak_type for t in types]):
        return xs
    dtype, weak = promote(types)
    return [
        x if t.dtype == dtype and t.weak_type >= weak else cast(x, dtype, weak)
        for x, t in zip(xs, types, strict=True)
    ]


def broadcast_shape(
    shapes: Sequence[tuple[int, ...]],
    name: str,
    types: Sequence[ArrayType] = (),
    error: type[Exception] = errors.ShapeMismatch,
) -> tuple[int, ...]:
    """Return the broadcast shape, by NumPy's rules."""
    try:
        return jax.lax.broadcast_shapes((), *shapes)
    except ValueError:
        raise _incompatible(shapes, name, types, error) from None


def _incompatible(shapes: Any, name: str, types: Any, error: type[Exception]) -> Exception:
    shown = ", ".join(map(str, types or shapes))
    plain = ", ".join(map(str, shapes))
    if error is errors.InvalidArgument:
        head = f"Incompatible shapes for broadcasting in {name}({shown}): shapes={plain}"
    else:
        head = f"{name}({shown}) got incompatible shapes for broadcasting: {plain}"
    return error(
        f"{head}, {here()}\n"
        "Shapes are aligned from the right; sizes must be equal or 1. Add axes with x[:, None] or "
        "jnp.expand_dims, or transpose one operand."
    )


def expand(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast x to a compatible shape."""
    have = typeof(x).shape
    if have == shape:
        return x
    return _follow(x, None, *_growth(have, shape))


# --- axes and dtypes ------------------------------------------------------------------------------


def axes_of(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Return nonnegative axes for an int, a sequence of ints or None (all axes)."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, int):
        return (axis_index(axis, ndim, name),)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    many = tuple([axis_index(a, ndim, name) for a in given])
    if len(set(many)) != len(many):
        raise invalid(name, f"duplicate value in axis {axis}")
    return many


_PYTHONS = (float, int, complex, bool)
_SHOWN: defaultdict[str, dict[Any, Any]] = defaultdict(dict)  # what Python keeps of each module's warnings


def user_dtype(dtype: Any) -> Any:
    """Return the canonical dtype for a dtype that a user gave."""
    if getattr(dtype, "type", None) is jax.dtypes.prng_key:
        return dtype
    asked = dtype_asked(dtype)
    found = canonical_dtype(asked)
    if found != asked and not any(dtype is t for t in _PYTHONS):  # these have no fixed width
        warn(
            f"dtype {asked} was requested, but 64-bit types are disabled: the result is {found}. Enable "
            f"them at startup with ft.config.update('jax_enable_x64', True), or request {found}.",
            errors.TruncatedDtype,
        )
    return found


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the user's line, which is shown once, as of other warnings."""
    source = user_source()
    if source is not None:
        file = source[0].co_filename
        warnings.warn_explicit(message, category, file, line_of(source), registry=_SHOWN[file])
