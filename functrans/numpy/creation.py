"""Arrays from numbers and from lists of traced numbers, which are common: JAX's take ten times as long.

While a program is staged, `zeros`, `ones`, `full` and similar functions return literals, without an
equation; `arange` and `eye` use `iota`, so the program contains no large constants.
"""

from __future__ import annotations

import array as array_module
import math
from collections.abc import Iterable
from numbers import Number
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.source import brief, here
from functrans.ir.tracebacks import leave_to_jax
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_key_dtype, promote
from functrans.lax.arguments import check_sizes, mismatch, placeable, placed, sizes_of
from functrans.numpy.promotion import SCALARS, another, array_of, captured, cast, invalid, user_dtype
from functrans.numpy.selecting import astype
from functrans.numpy.shaping import broadcast_to, check_order, reshape
from functrans.primitives.distributed.sharding import traced_by_jax
from functrans.primitives.elementwise.families import add, mul
from functrans.primitives.random.bits import impl_of, random_wrap, word_type
from functrans.primitives.shape.joining import iota, stack
from functrans.trace import AnyTracer, concrete_value, is_jax_tracer, literal, staging_trace, typeof
from functrans.trace import full as full_of_numbers
from functrans.typing import Array, ArrayLike, Device, DTypeLike, PyTree, Shape

__all__ = ["arange", "array", "asarray", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like"]


# --- from Python objects --------------------------------------------------------------------------


@placeable
def array(
    object: PyTree,
    dtype: DTypeLike | None = None,
    *,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    device: Device = None,
    out_sharding: None = None,
) -> Array:
    """Make an array from a number, an array, or nested lists of these, which may contain tracers.

    Arguments:
      object: the data.
      copy: copy an array, so that the result stays valid if the original is donated.
      order: None or "K".
      dtype: dtype of the result; by default JAX's promotion of the elements.
      ndmin: minimal number of axes; new axes are added in front.
      device: device or sharding of the result, outside of transformations.

    Raises:
      NotAnArray: an element is not a number.
      UnsupportedChoice: another order.

    Source: `jax.numpy.array`.

    Example:
      >>> import functrans.numpy as jnp
      >>> jnp.array([[1, 2], [3, 4]]).dtype
      dtype('int32')
    """
    check_order("array", order)
    if isinstance(object, np.ma.MaskedArray):
        object = object.data
    made = _array(object, dtype)
    made = another(made, object) if copy else made
    n = typeof(made).ndim
    return made if n >= ndmin else reshape(made, (1,) * (ndmin - n) + typeof(made).shape)


@placeable
def asarray(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Device = None,
    out_sharding: None = None,
) -> Array:
    """Convert to an array as `array` does, without a copy if possible.

    Source: `jax.numpy.asarray`.
    """
    check_order("asarray", order)
    made = _array(a, dtype)
    return another(made, a) if copy else made


INTEGERS = ("int", "uint")
_BUFFERS = (bytearray, memoryview, array_module.array)


def _array(object: Any, dtype: Any) -> Any:
    to = None if dtype is None else user_dtype(dtype)
    if isinstance(object, (list, tuple, range)):
        return _nested(object, to)
    if object is None:  # of JAX's class
        raise invalid("array", "None is not an array or a number", "Use jnp.nan for a missing number.")
    if object.__class__ in SCALARS and to is not None:  # it may fit in the dtype only, or not at all
        made = _nested(object, to)
        return made if staging_trace() is None else filled(object, ArrayType((), to))
    if foreign(object):
        object = np.asarray(object)
    if isinstance(object, jax.Array):
        x = captured(object)
    elif to is not None and isinstance(object, (np.ndarray, np.generic)) and _cast_by_numpy(object):
        x = captured(object.astype(to))
    else:
        x = array_of(object, "array")
    return x if to is None else astype(x, to)


def _cast_by_numpy(x: Any) -> bool:
    """Return whether x holds Python objects or dates, or real numbers that are truncated to 32 bits."""
    return x.dtype.kind in "OMm" or (canonical_dtype(x.dtype) != x.dtype and x.dtype.kind != "c")


def _nested(items: Any, dtype: Any) -> Any:
    leaves = tree.leaves(items)
    if any(isinstance(x, range) or foreign(x) for x in _of_each_class(leaves)):
        items = tree.map(_unpacked, items)
        leaves = tree.leaves(items)
    if dtype is not None or not leaves:
        to = or_float(dtype)
    else:
        kinds = {x.__class__ if x.__class__ in SCALARS else typeof(x): x for x in leaves}
        to = promote(tuple(map(typeof, kinds.values())))[0]
    if any(isinstance(x, jax.Array) or hasattr(x, "__jax_array__") for x in _of_each_class(leaves)):
        return _stacked(items, to)
    try:
        if dtype_class(to) in INTEGERS:
            return captured(np.array(items, to))
        made = np.array(items)
        if made.dtype.kind == "c" and to.kind not in "cb" and any(x.__class__ is complex for x in leaves):
            raise TypeError
        if made.dtype.hasobject:
            if any(x is None for x in made.flat):
                raise TypeError  # of floats it would be a NaN
            if all(isinstance(x, int) for x in made.flat):  # of more than 64 bits
                made = made.astype(np.float64)
        return captured(made.astype(to))
    except TypeError:
        strange = [x for x in np.array(items, object).flat if not isinstance(x, Number)]
        if not strange:
            raise mismatch("array", f"{brief(items)} is complex, {to} is not", "Take its .real.") from None
        raise invalid(
            "array",
            f"{brief(strange[0])} cannot be an element of an array, got {brief(items)}",
            "Use jnp.nan for missing numbers.",
        ) from None
    except OverflowError:
        raise invalid(
            "array",
            f"{brief(leaves)} contains a number that does not fit in {to}",
            "Pass a dtype that can hold it." if dtype else "Write it as a float, or enable 64-bit types.",
            errors.IntegerOverflow,
        ) from None
    except ValueError:
        what = "the lists have different lengths"
        hint = "Pad them to equal lengths, or keep a list of arrays."
        if dtype_class(to) in INTEGERS and any(isinstance(x, float) and x != x for x in leaves):
            what, hint = f"{to} cannot hold NaN", "Use a dtype of floats, or jnp.nan_to_num."
        raise invalid("array", f"{what}: {brief(items)}", hint) from None


def _of_each_class(leaves: list[Any]) -> Iterable[Any]:
    return {x.__class__: x for x in leaves}.values()


def _unpacked(x: Any) -> Any:
    return np.asarray(x) if foreign(x) else list(x) if isinstance(x, range) else x


def foreign(x: Any) -> bool:
    """Return whether x is a buffer or an array of another library, which NumPy can read."""
    ours = (jax.Array, np.ndarray, np.generic)
    return isinstance(x, _BUFFERS) or (hasattr(x, "__array__") and not isinstance(x, ours))


def _stacked(items: Any, dtype: Any) -> Any:
    if not isinstance(items, (list, tuple)):
        return _array(items, dtype)
    if not items:
        return filled(0, ArrayType((0,), dtype))
    return stack([_stacked(x, dtype) for x in items], 0)


# --- filled ---------------------------------------------------------------------------------------


def filled(value: Any, t: ArrayType) -> Any:
    """Return an array filled with one number; random keys are filled with keys of that number, as in JAX."""
    if not is_key_dtype(t.dtype):
        return full_of_numbers(value, t)
    return random_wrap(full_of_numbers(value, word_type(t)), impl=impl_of(t.dtype))


@placeable
def zeros(
    shape: Shape, dtype: DTypeLike | None = None, *, device: Device = None, out_sharding: None = None
) -> Array:
    """Return an array of zeros; float by default.

    Source: `jax.numpy.zeros`.
    """
    return filled(0, ArrayType(check_sizes(sizes_of(shape), "zeros"), or_float(dtype)))


@placeable
def ones(
    shape: Shape, dtype: DTypeLike | None = None, *, device: Device = None, out_sharding: None = None
) -> Array:
    """Return an array of ones; float by default.

    Source: `jax.numpy.ones`.
    """
    return filled(1, ArrayType(check_sizes(sizes_of(shape), "ones"), or_float(dtype)))


def or_float(dtype: Any) -> Any:
    """Return the dtype that a user gave, or the default float dtype."""
    return canonical_dtype(np.dtype("float64")) if dtype is None else user_dtype(dtype)


@placeable
def full(
    shape: Shape,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: Device = None,
    out_sharding: None = None,
) -> Array:
    """Return an array filled with a value, which may be a tracer and is broadcast.

    Source: `jax.numpy.full`.
    """
    to = check_sizes(sizes_of(shape), "full")
    if fill_value.__class__ is complex and dtype is not None:
        fill_value = _array(fill_value, dtype)
    if fill_value.__class__ in SCALARS:
        t = typeof(fill_value).update(shape=to)
        return filled(fill_value, t if dtype is None else ArrayType(to, user_dtype(dtype)))
    x = array_of(fill_value, "full", 1)
    return broadcast_to(x if dtype is None else astype(x, dtype), to)


def _like(a: Any, dtype: Any, shape: Any, name: str) -> ArrayType:
    if is_jax_tracer(a) and traced_by_jax():  # the result has the sharding of `a`
        leave_to_jax()
    t = typeof(a) if hasattr(a, "dtype") else typeof(array_of(a, name))
    to = t.shape if shape is None else check_sizes(sizes_of(shape), name)
    return ArrayType(to, t.dtype, t.weak_type) if dtype is None else ArrayType(to, user_dtype(dtype))


def _beside(a: Any, made: Any) -> Any:
    """Return `made` where JAX puts it: where `a` is committed to, if the shape is the same."""
    if isinstance(a, AnyTracer) or isinstance(made, AnyTracer) or typeof(made).weak_type:
        return made
    where = getattr(a, "sharding", None)
    if where is None or not getattr(a, "committed", True):  # a ShapeDtypeStruct says where it will be
        return made
    return placed(made, where) if made.shape == a.shape or where.is_fully_replicated else made


@placeable
def zeros_like(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    *,
    device: Device = None,
    out_sharding: None = None,
) -> Array:
    """Return zeros with the shape and dtype of another array.

    Source: `jax.numpy.zeros_like`.
    """
    return _beside(a, filled(0, _like(a, dtype, shape, "zeros_like")))


@placeable
def ones_like(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    *,
    device: Device = None,
    out_sharding: None = None,
) -> Array:
    """Return ones with the shape and dtype of another array.

    Source: `jax.numpy.ones_like`.
    """
    return _beside(a, filled(1, _like(a, dtype, shape, "ones_like")))


@placeable
def full_like(
    a: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    *,
    device: Device = None,
    out_sharding: None = None,
) -> Array:
    """Return an array with the shape and dtype of another array, filled with one value.

    Source: `jax.numpy.full_like`.
    """
    t = _like(a, dtype, shape, "full_like")
    if fill_value.__class__ in SCALARS:
        return _beside(a, filled(fill_value, t))
    made = array_of(fill_value, "full_like", 1)
    weak = t.weak_type and not typeof(made).ndim
    return broadcast_to(cast(made, t.dtype, weak), t.shape)


# --- ranges ---------------------------------------------------------------------------------------


def _known(x: Any) -> Any:
    """Return a number that must be concrete, as one of NumPy's or Python's own types (not bfloat16)."""
    value = concrete_value(x)
    if value is None:
        raise errors.AbstractValueError(
            f"arange: the size of the result needs the value of {x!r}, which is unknown inside jit "
            f"and vmap, {here()}\n"
            "Pass Python numbers, mark the argument static (static_argnums), or use jnp.linspace "
            "or lax.iota with a fixed size."
        )
    extended = getattr(value, "dtype", np.dtype(float)).kind == "V"
    return value.item() if extended else value


@placeable
def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: Device = None,
    out_sharding: None = None,
) -> Array:
    """start, start + step, ... below stop.

    Raises:
      AbstractValueError: a bound is traced, so that the size is unknown.

    Source: `jax.numpy.arange`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.arange(2, 8, 3))
      [2 5]
    """
    given = [x for x in (start, stop, step) if x is not None]
    types = [typeof(x).update(shape=()) for x in given]
    to = promote(tuple(types))[0] if dtype is None else user_dtype(dtype)
    kinds = {dtype_class(t.dtype) for t in types}
    if "complex" in kinds:
        raise invalid("arange", f"takes real numbers, got {given}", "Use jnp.linspace.")
    numbers: list[Any] = [x if x is None else _known(x) for x in (start, stop, step)]
    first, end = (0, numbers[0]) if stop is None else numbers[:2]
    by = 1 if step is None else numbers[2]
    if by == 0:
        raise invalid(
            "arange", "step must not be zero", "For a constant array, use jnp.full.", errors.DivisionByZero
        )
    if kinds <= set(INTEGERS) and dtype_class(to) in INTEGERS:
        first, end, by = int(first), int(end), int(by)
        n = -((first - end) // by)
    elif first == 0 and by == 1 and dtype_class(to) != "bool":
        n = math.ceil(end)
    else:
        return captured(np.arange(first, end, by, dtype=to))
    x = iota(dtype=to, shape=(max(0, n),), dimension=0)
    if by != 1:
        x = mul(x, literal(by, typeof(x)))
    return add(x, literal(first, typeof(x))) if first else x
