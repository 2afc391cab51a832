"""`jax.lax` names over primitives/sorting.py."""

from __future__ import annotations

from typing import Any

from functrans.ir.types import dtype_class
from functrans.lax.arguments import as_array, axis_index, integer, invalid, mismatch
from functrans.primitives import sorting as _sorting
from functrans.trace import typeof

__all__ = ["sort", "sort_key_val", "top_k"]


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort along an axis.

    Arguments:
        operand: an array, or a sequence of arrays of equal shapes of which the first `num_keys` are
            compared, the first one first, and the others are carried along.
        dimension: the axis.
        is_stable: keep equal elements in order.
        num_keys: how many of the arrays are compared.

    Returns:
        The sorted array, or a tuple of them. NaN stands last, -0.0 equals 0.0.

    Raises:
        TypeMismatch: shapes differ.
        InvalidArgument: the axis does not exist, or num_keys arrays are not there.

    Source: jax.lax.sort

    Example:
        >>> import numpy as np
        >>> print(sort(np.array([3, 1, 2])))
        [1 2 3]
    """
    several = isinstance(operand, (list, tuple))
    xs = [as_array(x) for x in operand] if several else [as_array(operand)]
    if not xs:
        raise mismatch("sort", "requires at least one operand")
    num_keys = integer(num_keys, "sort", "num_keys")
    if not 1 <= num_keys <= len(xs):
        raise invalid("sort", f"num_keys={num_keys} must lie in 1..{len(xs)}, the operands given")
    axis = axis_index(dimension, len(xs[0].shape), "sort")
    outs = _sorting.sort(*xs, dimension=axis, is_stable=bool(is_stable), num_keys=num_keys)
    return tuple(outs) if several else outs[0]


def sort_key_val(
    keys: Any, values: Any, dimension: int = -1, is_stable: bool = True
) -> tuple[Any, ...]:
    """Sort keys along an axis, and values with them.

    Source: `jax.lax.sort_key_val`.

    >>> import numpy as np
    >>> print(sort_key_val(np.array([2, 1]), np.array([10, 20]))[1])
    [20 10]
    """
    return sort((keys, values), dimension, is_stable, 1)


def top_k(operand: Any, k: int, *, axis: int = -1, is_stable: bool = True) -> list[Any]:
    """Find the k largest elements along an axis, in descending order, and where they stand.

    Source: `jax.lax.top_k`. The positions are int32; of equal elements the first comes first, with
    `is_stable=False`, from JAX 0.11 on, too.

    >>> import numpy as np
    >>> values, positions = top_k(np.array([1, 5, 3]), 2)
    >>> print(values, positions)
    [5 3] [1 2]
    """
    x = as_array(operand)
    shape = x.shape
    axis = axis_index(axis, len(shape), "top_k")
    if dtype_class(typeof(x).dtype) == "complex":
        raise invalid("top_k", "complex numbers have no order")
    k = integer(k, "top_k", "k")
    if not 0 <= k <= shape[axis]:
        raise invalid("top_k", f"k={k} must lie in 0..{shape[axis]}, the size of axis {axis}")
    return _sorting.top_k(x, k=k, axis=axis)
