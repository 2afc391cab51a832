"""x[index], x.at[index].get(...), x.at[index].set(...) and related methods; the error for x[index] = ..."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors, runtime
from functrans.ir.program import Literal
from functrans.ir.source import brief, here
from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import mode_of, promises
from functrans.numpy import promotion
from functrans.numpy.arithmetic import power
from functrans.numpy.creation import foreign
from functrans.numpy.index_plans import index_array, index_dtype, reading, wrapped, writing
from functrans.numpy.index_structure import from_sequence, structure
from functrans.numpy.ufuncs import divide
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.primitives.indexing.gather import FILL, PROMISE, gather
from functrans.primitives.indexing.scatter import (
    scatter,
    scatter_add,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
)
from functrans.primitives.shape.moving import reshape, rev, slice_
from functrans.records import NamedTuple
from functrans.trace import concrete_value, full, literal, materialize, typeof
from functrans.typing import Array, ArrayLike, PyTree

_WINDOW: Any = jax.ds(0, 1).__class__


class How(NamedTuple):
    """How to use indices: the mode for those out of bounds and two promises, as in `gather`; and whether
    negative ones count from the end."""

    mode: str
    indices_are_sorted: bool = False
    unique_indices: bool = False
    wrap: bool = True


def getitem(x: ArrayLike, index: PyTree, how: How = How(PROMISE), fill: Any = None) -> Any:  # noqa: B008
    """Return the elements x[index], by NumPy's rules.

    Out-of-bounds indices are clamped, as in JAX; `x.at[index].get(mode=...)` has other modes. The fill
    value is as in `gather`.
    Source: `jax.Array.__getitem__`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.indexing.getitem(jnp.arange(5), slice(1, None, 2)))
      [1 3]
    """
    if _has_window(index):
        return runtime.at_by_jax(x, index).get()
    t = typeof(x)
    parts, arrays = structure(index)
    by_window = how.mode != FILL
    if not by_window:
        parts, arrays = _ints_as_arrays(parts, arrays)
    plan = reading(t.shape, parts, by_window, how.wrap)
    if plan.cut is not None:
        x = slice_(x, **plan.cut)
    if plan.reverse:
        x = rev(x, dimensions=plan.reverse)
    if plan.window is not None:
        x = _window(x, *plan.window, arrays, how.wrap)
    elif plan.indices is not None:
        params = plan.indices.axes | promises(*how[:3])
        if how.mode == FILL and fill is not None:
            params["fill"] = fill
        x = gather(x, index_array(plan.indices, arrays, how.wrap, index_dtype(t.shape)), **params)
    return x if plan.out is None else reshape(x, shape=plan.out)


def _has_window(index: Any) -> bool:
    """Return whether an index holds a `jax.ds(start, size)`, which JAX's own indexing knows."""
    kind = index.__class__
    return any([i.__class__ is _WINDOW for i in index]) if kind is tuple else kind is _WINDOW


def _ints_as_arrays(parts: Sequence[Any], arrays: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Convert static ints to scalar arrays: in mode "fill_or_drop" they may be out of bounds."""
    given = iter(arrays)
    made: list[Any] = []
    for part in parts:
        if part.__class__ is int:
            made.append(np.array(part))
        elif part.__class__ is tuple and part[0] == "array":
            made.append(next(given))
    return tuple([("array", ()) if p.__class__ is int else p for p in parts]), made


def _window(x: Any, starts: Sequence[Any], sizes: Any, arrays: Sequence[Any], wrap: bool) -> Any:
    dtype = index_dtype(typeof(x).shape)
    given = iter(arrays)
    made: list[Any] = []
    for start in starts:
        if start.__class__ is int:
            n, start = start, next(given)
            signed = dtype_class(typeof(start).dtype) == "int"
            start = promotion.cast_to(start, dtype)
            if wrap and signed:
                start = wrapped(start, (n,))
        made.append(start)
    return dynamic_slice(x, *made, sizes=sizes)


def fill_of(fill_value: Any, dtype: Any, name: str) -> Any:
    """Convert a user's fill value to a parameter: a Python number, or None for the default."""
    if fill_value is None or dtype_class(dtype) == "key":
        return None
    value = concrete_value(fill_value)
    if value is None or np.ndim(value) != 0:
        raise promotion.invalid(
            name,
            f"fill_value must be a concrete scalar, got {brief(fill_value)}",
            "Use jnp.where(in_bounds, x.at[i].get(mode='clip'), value) for a computed value.",
            errors.AbstractValueError if value is None else errors.InvalidArgument,
        )
    number = literal(value, ArrayType((), dtype)).value
    return None if number != number else number  # NaN is the default


def setitem(x: ArrayLike, index: PyTree, value: ArrayLike) -> None:
    """Raise an error for x[index] = value that says what to write instead."""
    raise errors.NotSupported(
        f"a traced {typeof(x)} cannot be changed in place (arrays are immutable), {here()}\n"
        "Write `x = x.at[i].set(y)` for `x[i] = y`, and `x = x.at[i].add(y)` for `x[i] += y`."
    )


def write(x: Any, index: Any, values: Any, primitive: Any, name: str, how: How) -> Any:
    """Return x with its elements at an index combined with values by a scatter."""
    t = typeof(x)
    parts, arrays = structure(index)
    plan = writing(t.shape, parts, how.wrap)
    if isinstance(values, (list, tuple, range)):
        values = from_sequence(values)
    elif foreign(values):
        values = np.asarray(values)
    if 0 in plan.slices:
        _check_shape(values, plan.value, name)
        return x
    if values.__class__ in promotion.SCALARS:
        out, number = promotion.align(x, values, name)
        values = Literal(number.value, ArrayType(plan.slices, typeof(number).dtype))
    else:
        _check_shape(values, plan.value, name)
        out, values = promotion.promote_dtypes((x, values), name)
        values = _reshaped(promotion.expand(values, plan.value), plan.slices)
    _warn_of_cast(out, values, t)
    if plan.window is not None and primitive is scatter:
        out = dynamic_update_slice(out, _reshaped(values, plan.indices.axes["sizes"]), *plan.window)
    else:
        i = index_array(plan.indices, arrays, how.wrap, index_dtype(t.shape))
        ascending = how.indices_are_sorted or plan.sorted
        unique = how.unique_indices or plan.unique or set(typeof(i).shape[:-1]) <= {1}
        out = primitive(out, i, values, **plan.indices.axes, **promises(how.mode, ascending, unique))
    return materialize(promotion.cast(out, t.dtype, t.weak_type))


def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if typeof(x).shape == shape else reshape(x, shape=shape)


def _check_shape(values: Any, shape: tuple[int, ...], name: str) -> None:
    have = typeof(values).shape
    fit = [m in (1, n) for m, n in zip(have[::-1], shape[::-1], strict=False)]
    if len(have) > len(shape) or not all(fit):
        raise errors.InvalidArgument(
            f"{name}: values of shape {have} do not broadcast to the shape {shape} that the index "
            f"selects, {here()}\n"
            "Pass a scalar, or as many values as are selected."
        )


def _warn_of_cast(out: Any, values: Any, t: ArrayType) -> None:
    if typeof(out).dtype != t.dtype:
        warnings.warn(
            f"scatter inputs have incompatible types: values of dtype {typeof(values).dtype} are "
            f"cast to {t.dtype}, which may lose information, {here()}\n"
            "In the future this will be an error; cast them with .astype(...).",
            FutureWarning,
            stacklevel=2,
        )


_UPDATES = ("set", "add", "subtract", "multiply", "divide", "power", "min", "max", "apply", "get")


class At:
    """`x.at`: indexing it returns the update methods of those elements. Source: `jax.Array.at`."""

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array: Any = array

    def __getitem__(self, index: Any) -> AtRef:
        if _has_window(index):
            return runtime.at_by_jax(self.array, index)
        return AtRef(self.array, index)

    def __call__(self, *args: Any) -> Any:
        raise promotion.mismatch(
            "at", "x.at is not a function", "Indices go in square brackets: x.at[i].set(y)."
        )

    def __getattr__(self, name: str) -> Any:
        if name not in _UPDATES:
            raise AttributeError(name)
        raise errors.UnknownUpdate(
            f"x.at.{name} needs an index, {here()}\n"
            f"Indices go in square brackets after `at`: x.at[i].{name}(...); x.at[:] is all of x."
        )

    def __repr__(self) -> str:
        return f"At({self.array!r})"


def _updater(name: str, primitive: Any, sign: str) -> Callable[..., Any]:
    def update(
        self: AtRef,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: None = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        mode = mode_of(mode, FILL, f"at[].{name}")
        how = How(mode, indices_are_sorted, unique_indices, wrap_negative_indices)
        return write(self.array, self.index, values, primitive, f"at[].{name}", how)

    update.__name__ = name
    update.__qualname__ = f"AtRef.{name}"
    update.__doc__ = f"Return x after `x[index] {sign} values`. Source: `jax.numpy.ndarray.at`."
    return update


class AtRef:
    """`x.at[index]`. Each method returns a new array and leaves x unchanged.

    mode: how to treat indices out of bounds: "drop" (or "fill"; the default of updates), "clip",
      "promise_in_bounds" (the default of `get`). indices_are_sorted, unique_indices: promises that
      allow faster code. wrap_negative_indices: whether negative indices count from the end.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.jit(lambda x: x.at[1:].add(10))(jnp.arange(3)))
      [ 0 11 12]
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any):
        self.array: Any = promotion.array_of(array, "at")
        self.index: Any = index

    def __getattr__(self, name: str) -> Any:
        near = difflib.get_close_matches(name, _UPDATES, 1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise errors.UnknownUpdate(
            f"x.at[i] has no attribute {name!r}, {here()}\n"
            f"{hint}It has {', '.join(_UPDATES)}: each returns a new array; x[i] reads elements."
        )

    def __repr__(self) -> str:
        return f"AtRef({self.array!r}, {self.index!r})"

    set: Callable[..., Array] = _updater("set", scatter, "=")
    add: Callable[..., Array] = _updater("add", scatter_add, "+=")
    subtract: Callable[..., Array] = _updater("subtract", scatter_sub, "-=")
    multiply: Callable[..., Array] = _updater("multiply", scatter_mul, "*=")
    mul: Callable[..., Array] = multiply
    min: Callable[..., Array] = _updater("min", scatter_min, "= minimum(x[index], ...) of")
    max: Callable[..., Array] = _updater("max", scatter_max, "= maximum(x[index], ...) of")

    def divide(self, values: Any, **how: Any) -> Any:
        """Return x after `x[index] /= values`, in floats. Source: `jax.numpy.ndarray.at`."""
        return divide(self.array, self._ones().multiply(values, **how))

    div = divide

    def power(self, values: Any, **how: Any) -> Any:
        """Return x after `x[index] **= values`. Source: `jax.numpy.ndarray.at`."""
        return power(self.array, self._ones().multiply(values, **how))

    def _ones(self) -> AtRef:
        return AtRef(full(1, typeof(self.array)), self.index)

    def apply(
        self,
        func: Callable[[Any], Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """Return x after `x[index] = func(x[index])`, applied once even at repeated indices.

        Source: `jax.numpy.ndarray.at`.
        """
        mode = mode_of(mode, FILL, "at[].apply")
        how = How(mode, indices_are_sorted, unique_indices, wrap_negative_indices)
        found = func(getitem(self.array, self.index, how))
        return write(self.array, self.index, found, scatter, "at[].apply", how)

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        out_sharding: None = None,
        wrap_negative_indices: bool = True,
        **strategy: Any,
    ) -> Any:
        """Return x[index]; `mode` chooses what indices out of bounds read, "fill": `fill_value`
        (by default NaN, for integers the extreme value). With a `strategy`, of which JAX knows some
        since 0.12, it is JAX's function. Source: `jax.numpy.ndarray.at`.
        """
        if strategy:
            return runtime.at_by_jax(self.array, self.index).get(
                indices_are_sorted=indices_are_sorted,
                unique_indices=unique_indices,
                mode=mode,
                fill_value=fill_value,
                wrap_negative_indices=wrap_negative_indices,
                **strategy,
            )
        fill = fill_of(fill_value, typeof(self.array).dtype, "at[].get")
        mode = mode_of(mode, PROMISE, "at[].get")
        how = How(mode, indices_are_sorted, unique_indices, wrap_negative_indices)
        return getitem(self.array, self.index, how, fill)
