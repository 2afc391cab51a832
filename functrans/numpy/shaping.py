"""Those functions that change the shape of arrays, or the order of their axes, or join them, that are
traced most often, and `squeeze`; the others are JAX's."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import brief
from functrans.ir.types import ArrayType
from functrans.lax.arguments import sizes_of
from functrans.numpy.linear import diagonal
from functrans.numpy.promotion import array_of, axes_of, axis_index, expand, invalid, mismatch, promote_dtypes
from functrans.numpy.selecting import astype
from functrans.primitives.shape import joining, moving
from functrans.trace import Tracer, materialize, typeof
from functrans.typing import Array, ArrayLike, Device, DTypeLike, Shape

__all__ = [
    "broadcast_to",
    "concatenate",
    "copy",
    "diagonal",
    "permute_dims",
    "ravel",
    "reshape",
    "squeeze",
    "transpose",
]


# --- reshape --------------------------------------------------------------------------------------


def reshape(
    a: ArrayLike, shape: Shape, order: str = "C", *, copy: bool | None = None, out_sharding: None = None
) -> Array:
    """Reshape an array; one size may be -1, and is inferred.

    Arguments:
      a: array.
      shape: an int or a sequence of ints.
      order: "C": the last axis varies fastest; "F": the first.

    Raises:
      TypeMismatch: the sizes do not agree.

    Source: `jax.numpy.reshape`.

    Example:
      >>> import functrans.numpy as jnp
      >>> jnp.reshape(jnp.arange(6), (2, -1)).shape
      (2, 3)
    """
    a = array_of(a, "reshape")
    t = typeof(a)
    new = _new_shape(t, shape)
    if order == "C":
        return a if new == t.shape else moving.reshape(a, shape=new)
    if order != "F":
        known = order in ("A", "K")
        raise invalid(
            "reshape",
            f"order must be 'C' or 'F', got {order!r}",
            "XLA chooses the memory layout of an array." if known else "Leave it out.",
            errors.UnsupportedChoice if known else errors.InvalidArgument,
        )
    back = moving.reshape(transpose(a), shape=new[::-1])
    return transpose(back)


def _new_shape(t: ArrayType, shape: Any) -> tuple[int, ...]:
    new = sizes_of(shape)
    if -1 in new:
        known = -math.prod(new)
        if new.count(-1) == 1 and known and t.size % known == 0:
            return tuple([t.size // known if n == -1 else n for n in new])
    elif math.prod(new) == t.size and min(new, default=0) >= 0:
        return new
    raise mismatch(
        "reshape",
        f"cannot reshape {t} ({t.size} elements) into shape {new}"
        + (f" ({math.prod(new)} elements)" if -1 not in new else ""),
        "One size may be -1; the others must divide the number of elements.",
    )


def ravel(a: ArrayLike, order: str = "C", *, out_sharding: Device = None) -> Array:
    """Flatten an array to one axis.

    Source: `jax.numpy.ravel`.
    """
    return reshape(array_of(a, "ravel"), (-1,), order)


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """Copy an array; a tracer is returned as it is, since arrays are immutable.

    Source: `jax.numpy.copy`.
    """
    check_order("copy", order)
    a = array_of(a, "copy")
    return a if isinstance(a, Tracer) else a.copy()


def check_order(name: str, order: str | None) -> None:
    """Raise an error for a memory order that is not supported."""
    if order not in (None, "K"):
        raise invalid(
            name,
            f"order must be 'K' or None, got {order!r}",
            "XLA chooses the memory layout of an array.",
            errors.UnsupportedChoice,
        )


# --- axes -----------------------------------------------------------------------------------------


def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permute axes; reverse them if `axes` is None.

    Source: `jax.numpy.transpose`.
    """
    a = array_of(a, "transpose")
    n = typeof(a).ndim
    if axes is None:
        return _permuted(a, tuple(range(n))[::-1])
    order = tuple([axis_index(i, n, "transpose") for i in axes]) if np.ndim(axes) == 1 else ()
    if np.ndim(axes) != 1 or sorted(order) != list(range(n)):
        raise invalid(
            "transpose",
            f"axes {axes} must name each axis of {typeof(a)} once",
            f"To reverse the axes: {tuple(range(n))[::-1]}.",
            errors.NotAPermutation,
        )
    return _permuted(a, order)


permute_dims = transpose


def _permuted(a: Any, order: tuple[int, ...]) -> Any:
    return a if order == tuple(range(len(order))) else moving.transpose(a, permutation=order)


def squeeze(a: Any, axis: Any = None) -> Any:
    """Drop axes of size 1: all, or those named.

    Source: `jax.numpy.squeeze`.
    """
    a = array_of(a, "squeeze")
    t = typeof(a)
    if axis is None:
        axes = tuple([i for i, n in enumerate(t.shape) if n == 1])
    else:
        axes = tuple(sorted(axes_of(axis, t.ndim, "squeeze")))
    return moving.squeeze(a, dimensions=axes) if axes else a


# --- broadcasting ---------------------------------------------------------------------------------


def broadcast_to(array: ArrayLike, shape: Shape, *, out_sharding: None = None) -> Array:
    """Broadcast an array to a shape.

    Source: `jax.numpy.broadcast_to`.
    """
    array = array_of(array, "broadcast_to")
    t = typeof(array)
    to = sizes_of(shape)
    lead = len(to) - t.ndim
    if lead < 0 or builtins.any(n not in (1, m) for n, m in zip(t.shape, to[lead:], strict=True)):
        raise invalid(
            "broadcast_to",
            f"Incompatible shapes for broadcasting: {t} and requested shape {to}",
            "Shapes are aligned from the right; sizes must be equal or 1.",
        )
    return expand(array, to)


# --- join -----------------------------------------------------------------------------------------


def concatenate(
    arrays: ArrayLike | Sequence[ArrayLike], axis: int | None = 0, dtype: DTypeLike | None = None
) -> Array:
    """Join arrays along an existing axis; flatten them first if axis is None.

    Source: `jax.numpy.concatenate`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.concatenate([jnp.zeros(2), jnp.ones(1)]))
      [0. 0. 1.]
    """
    name = "concatenate"
    xs = _pieces(name, arrays)
    if dtype is None:
        xs = [materialize(x) for x in promote_dtypes(xs, name)]
    else:
        xs = [astype(x, dtype) for x in xs]
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    n = typeof(xs[0]).ndim
    if n == 0:
        raise invalid(name, "scalars cannot be joined", "Use jnp.stack.")
    i = axis_index(axis, n, name)
    return joining.concatenate(*xs, dimension=i) if len(xs) > 1 else array_of(xs[0], name)


def _pieces(name: str, arrays: Any) -> list[Any]:
    """Return the arrays of a sequence, or the slices of an array."""
    if hasattr(arrays, "shape"):
        if typeof(arrays).ndim == 0:
            raise mismatch(name, f"takes a sequence of arrays, got {typeof(arrays)}")
        return list(array_of(arrays, name))
    if not isinstance(arrays, Iterable):
        raise mismatch(name, f"takes a sequence of arrays, got {brief(arrays)}", "Pass a list: [x, y].")
    xs = list(arrays)
    if not xs:
        raise invalid(name, "Need at least one array", "Pass a non-empty list.")
    return xs
