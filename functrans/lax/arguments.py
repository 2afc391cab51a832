"""Parsing of function arguments (arrays, axes, shapes), and the errors for them."""

from __future__ import annotations

import difflib
import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.flags import flags
from functrans.ir.source import brief, brief_with_type, here
from functrans.ir.types import ArrayType, dtype_class, is_key_dtype
from functrans.primitives.indexing.gather import FILL, PROMISE
from functrans.primitives.shape.moving import broadcast_in_dim, reshape
from functrans.runtime import F
from functrans.trace import Tracer, full, typeof


def as_array(x: Any) -> Any:
    """Convert a value to an operand: scalars become arrays."""
    if isinstance(x, (Tracer, jax.Array, np.ndarray)):
        return x
    given = getattr(x, "__jax_array__", None)  # None: a JAX tracer of a reference
    if given is not None:
        return given()
    t = typeof(x)
    if x.__class__ is int:
        check_fits(x, t)
    return x if is_key_dtype(t.dtype) else full(x, t)


def check_fits(value: int, type: ArrayType) -> None:
    """Raise IntegerOverflow for a Python int that does not fit the default integer type."""
    bits = 63 if flags.jax_enable_x64 else 31
    if not -(1 << bits) <= value < (1 << bits) and dtype_class(type.dtype) != "uint":
        raise errors.IntegerOverflow(
            f"the Python int {value} does not fit in int{bits + 1}, {here()}\n"
            "Write it as a float, or enable 64-bit types."
        )


def dtype_asked(dtype: Any) -> Any:
    """Return the dtype that a user gave; raise an error with a suggestion for an unknown one."""
    try:
        found = jax.numpy.dtype(dtype)
        if getattr(found, "kind", "") not in ("O", "S", "U", "M", "m"):
            return found
        raise TypeError
    except TypeError:
        near = difflib.get_close_matches(str(dtype), _DTYPES, 1)
        if isinstance(dtype, int):
            hint = "Pass several sizes or axes as one tuple: zeros((3, 4))."
        else:
            hint = f"Did you mean {near[0]!r}? " if near and isinstance(dtype, str) else ""
            hint += "Examples of dtypes are 'float32', jnp.int32 and bool."
        raise errors.TypeMismatch(f"{brief(dtype)} is not a dtype, {here()}\n{hint}") from None


_DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bfloat16", "float16",
    "float32", "float64", "complex64", "complex128", "int", "float", "complex",
]  # fmt: skip


def invalid(
    name: str, problem: str, fix: str = "", error: type[errors.FunctransError] = errors.InvalidArgument
) -> errors.FunctransError:
    """Return the error for an invalid value of an argument."""
    return error(f"{name}: {problem}, {here()}" + (f"\n{fix}" if fix else ""))


def mismatch(name: str, problem: str, fix: str = "") -> errors.TypeMismatch:
    """Return the error for invalid operand types."""
    return errors.TypeMismatch(f"{name}: {problem}, {here()}" + (f"\n{fix}" if fix else ""))


def axis_index(axis: Any, ndim: int, name: str) -> int:
    """Return an axis as nonnegative; raise an error if it is out of range."""
    i = integer(axis, name, "axis")
    if not -ndim <= i < ndim:
        fix = f"Its axes are {-ndim} to {ndim - 1}." if ndim else "It has no axes."
        raise errors.AxisOutOfBounds(
            f"{name}: axis {i} is out of bounds for array of dimension {ndim}, {here()}\n{fix}"
        )
    return i % ndim


def member(
    kind: Any, value: Any, name: str, what: str, error: type[errors.FunctransError] = errors.InvalidArgument
) -> str:
    """Return the name of an enumeration member, given the member or its value."""
    try:
        return str(kind(value).name)
    except ValueError:
        choices = " or ".join([f"lax.{kind.__name__}.{m.name}" for m in kind])
        problem = f"{what} must be a lax.{kind.__name__}, got {brief(value)}"
        raise invalid(name, problem, f"Use {choices}.", error) from None


def integer(value: Any, name: str, what: str) -> int:
    """Return an argument that must be a concrete integer."""
    try:
        return operator.index(value)
    except TypeError as error:
        if isinstance(error, jax.errors.JAXTypeError):
            raise
        raise errors.NotAnArray(
            f"{name}: {what} must be a Python int, got {brief_with_type(value)}, {here()}"
        ) from None


def integers(values: Any, name: str, what: str) -> tuple[int, ...]:
    """Return an argument that must be a sequence of concrete integers, as a tuple."""
    try:
        return tuple([n if n.__class__ is int else operator.index(n) for n in values])
    except TypeError as error:
        if isinstance(error, jax.errors.JAXTypeError):
            raise
        raise mismatch(
            name,
            f"{what} must be a sequence of integers, got {brief(values)}",
            "For a single value, write (n,).",
        ) from None


def check_sizes(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return the shape after checking that no size is negative."""
    if any([n < 0 for n in shape]):
        raise errors.NegativeSize(
            f"{name}: the shape {shape} has a negative size, {here()}\nSizes must be >= 0."
        )
    return shape


def sizes_of(shape: Any) -> tuple[int, ...]:
    """Return a shape, given as one size or a sequence of sizes, as a tuple."""
    listed = shape.__class__ is tuple or (isinstance(shape, Iterable) and getattr(shape, "ndim", None) != 0)
    try:
        return tuple(
            [n if n.__class__ is int else operator.index(n) for n in (shape if listed else (shape,))]
        )
    except TypeError as error:
        if isinstance(error, jax.errors.JAXTypeError):
            raise
        raise mismatch(
            "shape", f"sizes must be integers, got {brief(shape)}", "Divide with n // 2, not n / 2."
        ) from None


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast x: its axes of size 1, or a scalar, to the shape."""
    ndim = typeof(x).ndim
    return repeated(x, shape, range(len(shape) - ndim, len(shape)) if ndim else ())


def repeated(x: Any, shape: tuple[int, ...], dimensions: Sequence[int]) -> Any:
    """Broadcast x to the shape, with axis i as axis `dimensions[i]`."""
    old = typeof(x).shape
    if old == shape:
        return x
    kept = [(n, d) for n, d in zip(old, dimensions, strict=True) if n == shape[d]]
    if len(kept) < len(old):
        x = reshape(x, shape=tuple([n for n, _ in kept]))
    return broadcast_in_dim(x, shape=shape, dimensions=tuple([d for _, d in kept]))


def placed(x: Any, where: Any) -> Any:
    """Put x on a device or under a sharding; return a tracer unchanged."""
    return x if where is None or isinstance(x, Tracer) else jax.device_put(x, where)


def placeable(make: F) -> F:
    """Wrap an array creation function so that it honors its arguments device and out_sharding."""

    @functools.wraps(make)
    def at_place(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        if not kwargs:
            return made
        return placed(placed(made, kwargs.get("device")), kwargs.get("out_sharding"))

    return at_place  # type: ignore[return-value]


# --- gather and scatter: indices out of bounds, and promises --------------------------------------

_Mode = jax.lax.GatherScatterMode
_MODES: dict[Any, str] = {_Mode.CLIP: "clip", _Mode.FILL_OR_DROP: FILL, _Mode.PROMISE_IN_BOUNDS: PROMISE}
_MODES |= {"clip": "clip", "fill": FILL, "drop": FILL, "promise_in_bounds": PROMISE}


def mode_of(mode: Any, usual: str, name: str) -> str:
    """Return the primitives' name of a user's mode; `usual` for None."""
    if mode is None:
        return usual
    found = _MODES.get(mode)
    if found is None:
        fix = "The modes are 'clip', 'fill' (or 'drop') and 'promise_in_bounds'."
        raise invalid(name, f"unknown mode {mode!r}", fix)
    return found


def promises(mode: str, indices_are_sorted: bool, unique_indices: bool) -> dict[str, Any]:
    """Return the parameters of a gather or scatter other than its axes."""
    said = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
    return {"mode": mode, **{name: True for name, promised in said.items() if promised}}
