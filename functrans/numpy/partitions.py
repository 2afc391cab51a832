"""Partial orders of the elements along an axis, and the order of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class
from functrans.lax.arguments import integer
from functrans.lax.sorting import top_k as lax_top_k
from functrans.numpy import prims
from functrans.numpy.indexing import put_along_axis
from functrans.numpy.promotion import array_of, axis_index, cast, inexact_dtype, invalid
from functrans.numpy.shaping import moveaxis
from functrans.numpy.sorting import sort
from functrans.primitives.call import composite
from functrans.trace import full, typeof

INT32 = np.dtype("int32")

__all__ = ["argpartition", "partition", "sort_complex", "top_k"]


def _prepared(name: str, a: Any, kth: int, axis: int) -> tuple[Any, int, int]:
    a = array_of(a, name)
    t = typeof(a)
    if dtype_class(t.dtype) == "complex":
        raise errors.UnsupportedDtype(
            f"{name}: takes real numbers, not {t}, at\n    {describe(user_source())}\n"
            "Use jnp.sort, which orders them by their real parts first."
        )
    i, kth = axis_index(axis, t.ndim, name), integer(kth, name, "kth")
    n = t.shape[i]
    if not -n <= kth < n:
        raise invalid(name, f"kth={kth} is out of bounds for axis {axis} of {t}")
    return moveaxis(a, i, -1), kth % n, i


def _negative(a: Any) -> Any:
    """In the opposite order; integers by their bits, so that the smallest one has a partner."""
    if dtype_class(typeof(a).dtype) in ("int", "uint", "bool"):
        return prims.not_(a)
    return prims.neg(a)


@composite
def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """Put the k-th smallest element along an axis in its place, smaller ones before it.

    Arguments:
      a: array of real numbers.
      kth: the place; negative counts from the end.
      axis: along which.

    Source: `jax.numpy.partition`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.partition(jnp.array([4, 1, 3, 2]), 1)[1])
      2
    """
    a, k, axis = _prepared("partition", a, kth, axis)
    n = typeof(a).shape[-1]
    small = _negative(lax_top_k(_negative(a), k + 1)[0])
    large = lax_top_k(a, n - k - 1)[0]
    joined = prims.concatenate(small, large, dimension=typeof(a).ndim - 1)
    return moveaxis(joined, -1, axis)


@composite
def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    """The indices that `partition` would take the elements from.

    Source: `jax.numpy.argpartition`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.argpartition(jnp.array([4, 1, 3, 2]), 1)[1])
      3
    """
    a, k, axis = _prepared("argpartition", a, kth, axis)
    n = typeof(a).shape[-1]
    small = lax_top_k(_negative(a), k + 1)[1]
    # the largest of what is left: what was taken counts as taken, also among equal elements
    left = full(1, typeof(a).update(dtype=INT32, weak_type=False))
    left = put_along_axis(left, small, 0, axis=-1, inplace=False)
    large = lax_top_k(left, n - k - 1)[1]
    joined = prims.concatenate(small, large, dimension=typeof(a).ndim - 1)
    # as in JAX, weak where the elements are
    return cast(moveaxis(joined, -1, axis), INT32, typeof(a).weak_type)


def top_k(
    a: Any, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True
) -> tuple[Any, Any]:
    """Find the k largest or smallest elements along an axis, the most extreme first.

    Arguments:
      a: array of real numbers.
      k: how many, from 0 to the size of the axis.
      axis: along which.
      mode: "largest" or "smallest".
      sorted: False: any order will do; here they are sorted always.

    Returns:
      (values, indices), the axis of size k; of equal elements the first come first.

    Source: `jax.numpy.top_k`, from JAX 0.11 on.

    Example:
      >>> import functrans.numpy as jnp
      >>> values, indices = jnp.top_k(jnp.array([4, 1, 3, 2]), 2, mode="smallest")
      >>> print(values, indices)
      [1 2] [1 3]
    """
    if mode not in ("largest", "smallest"):
        raise invalid("top_k", f'mode must be "largest" or "smallest", got {mode!r:.60}')
    a = array_of(a, "top_k")
    if mode == "largest":
        values, indices = lax_top_k(a, k, axis=axis)
    else:
        values, indices = lax_top_k(_negative(a), k, axis=axis)
        values = _negative(values)
    return values, indices


def sort_complex(a: Any) -> Any:
    """Sort along the last axis, by real parts and then by imaginary ones; the result is complex.

    Source: `jax.numpy.sort_complex`.
    """
    a = sort(array_of(a, "sort_complex"), axis=-1)
    return cast(a, np.promote_types(inexact_dtype(typeof(a).dtype), np.complex64))
