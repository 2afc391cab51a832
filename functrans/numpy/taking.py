"""Elements by index along an axis, and the indices of elements that are not zero."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class
from functrans.lax.arguments import mode_of
from functrans.numpy.arithmetic import remainder
from functrans.numpy.indexing import AtRef, fill_of, getitem
from functrans.numpy.promotion import array_of, axis_index, captured, cast, expand, invalid, promote_dtypes
from functrans.numpy.ufuncs import truth
from functrans.primitives.elementwise.arithmetic import rem
from functrans.primitives.elementwise.families import div, ge, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.gather import FILL, PROMISE
from functrans.primitives.reductions.cumulative import cumsum
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import reshape
from functrans.trace import concrete_value, full, literal, materialize, typeof
from functrans.typing import Array, ArrayLike


def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Take elements of a at indices along an axis; of the flattened array if axis is None.

    Arguments:
      mode: for out-of-bounds indices: "fill" (the default: NaN, or `fill_value`), "clip", "wrap".
      unique_indices, indices_are_sorted: promises that allow XLA optimizations.

    Source: `jax.numpy.take`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.take(jnp.arange(4.0), jnp.array([3, 9])))
      [ 3. nan]
    """
    a, indices = array_of(a, "take"), array_of(indices, "take", 1)
    if axis is None:
        a, axis = a if typeof(a).ndim == 1 else reshape(a, shape=(typeof(a).size,)), 0
    axis = axis_index(axis, typeof(a).ndim, "take")
    n = typeof(a).shape[axis]
    if typeof(indices).dtype == np.dtype(bool):
        indices = cast(indices, np.dtype("int32"))
    if dtype_class(typeof(indices).dtype) not in ("int", "uint"):
        raise errors.NotIntegers(
            f"take: indices must be of integer type, got {typeof(indices)}, {here()}\n"
            "Cast them with i.astype(int)."
        )
    if n == 0 and typeof(indices).size:
        raise errors.InvalidIndex(f"take: cannot do a non-empty take from an empty axis, {here()}")
    if mode == "wrap":
        indices, how = remainder(indices, n or 1), PROMISE
    elif mode in (None, "fill", "clip"):
        how = mode_of(mode, FILL, "take")
    else:
        raise invalid("take", f"mode must be 'fill', 'clip' or 'wrap', got {mode!r}")
    index = (*[slice(None)] * axis, indices)
    fill = fill_of(fill_value, typeof(a).dtype, "take")
    return materialize(
        getitem(a, index, how, fill, indices_are_sorted, unique_indices, wrap=mode in (None, "fill"))
    )


# --- indices of elements --------------------------------------------------------------------------


def nonzero(
    a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> tuple[Array, ...]:
    """Return the indices of the nonzero elements: one vector per axis.

    Arguments:
      size: static size of the result, required inside jit and vmap; the indices are truncated or
        padded to it.
      fill_value: padding value: a scalar, or a tuple with one per axis; default 0.

    Raises:
      AbstractValueError: no size is given, and the values are not concrete.

    Source: `jax.numpy.nonzero`.

    Example:
      >>> import functrans.numpy as jnp
      >>> (i,) = jnp.nonzero(jnp.array([0, 7, 0, 8]), size=3, fill_value=-1)
      >>> print(i)
      [ 1  3 -1]
    """
    a = array_of(a, "nonzero")
    t = typeof(a)
    if not t.shape:
        raise invalid(
            "nonzero", "calling nonzero on an array without axes is not allowed", "Use jnp.atleast_1d(x)."
        )
    dtype = canonical_dtype(np.dtype("int64"))
    if size is None:
        value = concrete_value(a)
        if value is None:
            raise errors.AbstractValueError(
                f"nonzero: the number of nonzero elements of a traced {t} depends on its values, but inside "
                f"jit and vmap only its type is known, {here()}\n"
                "Fix the number with size=: jnp.nonzero(x, size=n, fill_value=...); or use a mask "
                "and jnp.where(mask, x, other)."
            )
        found = np.nonzero(np.asarray(value))
        return tuple([captured(f.astype(dtype)) for f in found])
    size = operator.index(size)
    if t.size == 0 or size == 0:
        return tuple([full(0, ArrayType((size,), dtype)) for _ in t.shape])
    flat, count = _places(truth(a, "nonzero"), size, dtype)
    many = _split_places(flat, t.shape)
    if fill_value is not None:
        fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * t.ndim
        if len(fills) != t.ndim or any(np.ndim(concrete_value(f)) for f in fills):
            raise invalid("nonzero", f"fill_value must be a scalar or a tuple of {t.ndim}")
        beyond = ge(iota(dtype=dtype, shape=(size,), dimension=0), expand(count, (size,)))
        pairs = [promote_dtypes(pair, "nonzero") for pair in zip(many, fills, strict=True)]
        many = [select_n(beyond, m, expand(fill, (size,))) for m, fill in pairs]
    return tuple([materialize(m) for m in many])


def _places(mask: Any, size: int, dtype: Any) -> tuple[Any, Any]:
    """Return the first `size` indices where a flattened mask is true, padded with zeros, and their
    number. The k-th index is written to position k - 1; others are out of bounds and dropped."""
    n = typeof(mask).size
    mask = reshape(mask, shape=(n,))
    rank = cumsum(cast(mask, dtype), axis=0, reverse=False)
    to = select_n(mask, literal(size, ArrayType((n,), dtype)), sub(rank, 1))
    count = iota(dtype=dtype, shape=(n,), dimension=0)
    zeros = full(0, ArrayType((size,), dtype))
    places = AtRef(zeros, to).set(count, wrap_negative_indices=False)
    return places, getitem(rank, -1)


def _split_places(flat: Any, shape: tuple[int, ...]) -> list[Any]:
    """Convert indices of a flattened array to indices along its axes."""
    made, stride = [], 1
    for n in reversed(shape):
        i = flat if stride == 1 else div(flat, stride)
        made.append(rem(i, n))
        stride *= n
    return made[::-1]


__all__ = ["nonzero", "take"]
