"""Functions that join and split arrays."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from functrans.numpy import primitives
from functrans.numpy.indexing import getitem
from functrans.numpy.promotion import array_of, axis_index, invalid, mismatch
from functrans.numpy.selecting import astype
from functrans.numpy.shaping import cast_all, expand_dims, ravel
from functrans.trace import Tracer, typeof
from functrans.typing import Array, ArrayLike, DTypeLike

__all__ = ["concatenate", "split", "stack", "unstack"]


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
    return _concatenate("concatenate", arrays, axis, dtype)


def _pieces(name: str, arrays: Any) -> list[Any]:
    """Return the arrays of a sequence, or the slices of an array."""
    if isinstance(arrays, (Tracer, np.ndarray)) or hasattr(arrays, "shape"):
        if typeof(arrays).ndim == 0:
            raise mismatch(name, f"takes a sequence of arrays, got {typeof(arrays)}")
        return list(unstack(arrays))
    if not isinstance(arrays, Iterable):
        raise mismatch(name, f"takes a sequence of arrays, got {arrays!r:.60}", "Write [x, y].")
    xs = list(arrays)
    if not xs:
        raise invalid(name, "Need at least one array", "Pass a non-empty list.")
    return xs


def _concatenate(name: str, arrays: Any, axis: Any, dtype: Any) -> Any:
    xs = _pieces(name, arrays)
    if dtype is None:
        xs = cast_all(name, xs)
    else:
        xs = [astype(x, dtype) for x in xs]
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    types = [typeof(x) for x in xs]
    n = types[0].ndim
    if n == 0:
        raise invalid(name, "scalars cannot be joined", "Use jnp.stack.")
    if any(t.ndim != n for t in types):
        shown = ", ".join(map(str, types))
        raise mismatch(
            name,
            f"Cannot concatenate arrays with different numbers of dimensions: got {shown}",
            "Add axes with jnp.expand_dims or x[None].",
        )
    i = axis_index(axis, n, name)
    if len(xs) == 1:
        return array_of(xs[0], name)
    rest = [(*t.shape[:i], *t.shape[i + 1 :]) for t in types]
    if any(r != rest[0] for r in rest):
        shown = ", ".join(map(str, types))
        raise mismatch(
            name,
            f"arrays may differ in size along axis {i} only, got {shown}",
            "Pad, slice or transpose them first.",
        )
    return primitives.concatenate(*xs, dimension=i)


def stack(
    arrays: ArrayLike | Sequence[ArrayLike], axis: int = 0, out: None = None, dtype: DTypeLike | None = None
) -> Array:
    """Join arrays of one shape along a new axis.

    Source: `jax.numpy.stack`.
    """
    xs = [array_of(x, "stack", i) for i, x in enumerate(_pieces("stack", arrays))]
    types = [typeof(x) for x in xs]
    if any(t.shape != types[0].shape for t in types):
        raise invalid(
            "stack",
            f"All input arrays must have the same shape. Got {', '.join(map(str, types))}",
            "jnp.concatenate joins arrays of different sizes.",
        )
    i = axis_index(axis, types[0].ndim + 1, "stack")
    return _concatenate("stack", [expand_dims(x, i) for x in xs], i, dtype)


# --- split ----------------------------------------------------------------------------------------


def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Return the slices along an axis as a tuple.

    Source: `jax.numpy.unstack`.
    """
    x = array_of(x, "unstack")
    t = typeof(x)
    if t.ndim == 0:
        raise invalid("unstack", "needs at least one axis, got a scalar")
    i = axis_index(axis, t.ndim, "unstack")
    n = t.shape[i]
    if n == 0:
        return ()
    pieces = primitives.split(x, sizes=(1,) * n, axis=i) if n > 1 else [x]
    return tuple([primitives.squeeze(p, dimensions=(i,)) for p in pieces])


def split(ary: ArrayLike, indices_or_sections: ArrayLike | Sequence[int], axis: int = 0) -> list[Array]:
    """Split along an axis: into equal parts, or before the given indices.

    Source: `jax.numpy.split`.
    """
    return _split("split", ary, indices_or_sections, axis)


def _split(name: str, ary: Any, sections: Any, axis: int) -> list[Any]:
    ary = array_of(ary, name)
    t = typeof(ary)
    i = axis_index(axis, t.ndim, name)
    n = t.shape[i]
    if isinstance(sections, (tuple, list)) or np.ndim(sections):
        ends = [min(max(k + n if k < 0 else k, 0), n) for k in map(operator.index, sections)]
        bounds = [0, *ends, n]
        pairs = list(itertools.pairwise(bounds))
        if any(a > b for a, b in pairs):
            pre = (slice(None),) * i
            return [getitem(ary, (*pre, slice(a, max(a, b)))) for a, b in pairs]
        sizes = [b - a for a, b in pairs]
    else:
        parts = operator.index(sections)
        if parts <= 0:
            raise invalid(name, f"the number of parts must be positive, got {parts}")
        size, rest = divmod(n, parts)
        if rest and name != "array_split":
            raise invalid(
                name,
                f"array split does not result in an equal division: axis {i} of {t} into {parts} "
                f"parts, remainder {rest}",
                "Use jnp.array_split, or pass the indices.",
            )
        sizes = [size + 1] * rest + [size] * (parts - rest)
    return list(primitives.split(ary, sizes=tuple(sizes), axis=i))
