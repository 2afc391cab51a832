"""Functions that fill, choose or repeat elements by place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class
from functrans.lax.arguments import sizes_of
from functrans.numpy import prims
from functrans.numpy.arithmetic import remainder
from functrans.numpy.creation import ones
from functrans.numpy.indexing import At, nonzero, take
from functrans.numpy.promotion import (
    array_of,
    broadcast_shape,
    cast,
    expand,
    invalid,
    promote_dtypes,
)
from functrans.numpy.repeating import tile
from functrans.numpy.selecting import clip
from functrans.numpy.shaping import ravel, reshape
from functrans.numpy.ufuncs import refuse_out, truth
from functrans.trace import concrete_value, literal, materialize, typeof

__all__ = ["choose", "fill_diagonal", "mask_indices", "place", "resize"]


def _refuse_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise errors.InvalidArgument(
            f"{name} cannot change an array in place (arrays are immutable), at\n"
            f"    {describe(user_source())}\nWrite x = jnp.{name}(x, ..., inplace=False)."
        )


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """arr with the values, one after the other and again, where a mask holds.

    Arguments:
      arr: array.
      mask: as many truth values as arr has elements.
      vals: the values; of more than there are places the first are used.
      inplace: must be False, as arrays cannot be changed.

    Source: `jax.numpy.place`.

    Example:
      >>> import functrans.numpy as jnp
      >>> x = jnp.array([1, 2, 3])
      >>> print(jnp.place(x, x > 1, jnp.array([7, 8]), inplace=False))
      [1 7 8]
    """
    _refuse_inplace("place", inplace)
    arr, mask = array_of(arr, "place"), truth(array_of(mask, "place", 1), "place")
    t = typeof(arr)
    if typeof(mask).size != t.size:
        raise invalid("place", f"mask {typeof(mask)} and array {t} must be of the same size")
    vals = ravel(array_of(vals, "place", 2))
    n = typeof(vals).shape[0]
    if n == 0:
        if t.size == 0:
            return arr
        raise invalid("place", "cannot insert from an empty array of values")
    flat = reshape(mask, (t.size,))
    rank = prims.cumsum(cast(flat, np.dtype("int32")), axis=0, reverse=False)
    which = remainder(prims.sub(rank, literal(1, typeof(rank))), n)
    new = cast(take(vals, which, mode="clip"), t.dtype, t.weak_type)
    return reshape(materialize(prims.select_n(flat, ravel(arr), new)), t.shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """a with other values on its main diagonal.

    Arguments:
      a: array of two axes, or of more of equal size.
      val: scalar, or the values, which are repeated.
      wrap: of a tall matrix, begin a new diagonal below the end of the first, as NumPy does (JAX
        refuses).
      inplace: must be False, as arrays cannot be changed.

    Source: `jax.numpy.fill_diagonal`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.fill_diagonal(jnp.zeros((2, 2)), 3.0, inplace=False))
      [[3. 0.]
       [0. 3.]]
    """
    _refuse_inplace("fill_diagonal", inplace)
    a, val = array_of(a, "fill_diagonal"), array_of(val, "fill_diagonal", 1)
    shape = typeof(a).shape
    if len(shape) < 2:
        raise invalid("fill_diagonal", f"needs at least two axes, got {typeof(a)}")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise invalid("fill_diagonal", f"all axes must be of one size, got {typeof(a)}")
    if typeof(val).size == 0:
        raise invalid("fill_diagonal", f"val must not be empty, got {typeof(val)}")
    index = (np.arange(min(shape)),) * len(shape)
    if wrap and len(shape) == 2:  # a row stays empty between two diagonals
        index = np.unravel_index(np.arange(0, math.prod(shape), shape[1] + 1), shape)
    values = val if typeof(val).ndim == 0 else resize(ravel(val), index[0].shape)
    return At(a)[index].set(cast(values, typeof(a).dtype))


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """At each place the element there of the choice that an array of numbers names.

    Arguments:
      a: array of integers.
      choices: arrays, which broadcast with a; or one array, along its first axis.
      mode: for numbers out of range: "raise" (concrete a only), "wrap" or "clip".

    Raises:
      InvalidArgument: a number out of range in mode "raise".
      AbstractValueError: a is traced in mode "raise".

    Source: `jax.numpy.choose`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), jnp.array([3, 4])]))
      [3 2]
    """
    refuse_out("choose", out)
    a = array_of(a, "choose")
    if dtype_class(typeof(a).dtype) not in ("int", "uint"):
        raise invalid("choose", f"takes integers, got {typeof(a)}")
    if not isinstance(choices, (list, tuple)):
        rows = array_of(choices, "choose", 1)
        choices = [take(rows, k, axis=0) for k in range(typeof(rows).shape[0])]
    n = len(choices)
    if mode == "raise":
        _check_range(a, n)
    elif mode == "clip":
        a = clip(a, 0, n - 1)
    elif mode == "wrap":
        a = remainder(a, n)
    else:
        raise invalid("choose", f"mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    xs = promote_dtypes([array_of(c, "choose", 1) for c in choices], "choose")
    dtype = typeof(xs[0]).dtype
    types = [typeof(a), *[typeof(x) for x in xs]]
    shape = broadcast_shape([t.shape for t in types], "choose", types, errors.InvalidArgument)
    a, xs = expand(a, shape), [expand(x, shape) for x in xs]
    result = xs[0]
    for k, x in enumerate(xs[1:], 1):
        result = prims.select_n(prims.eq(a, literal(k, typeof(a))), result, x)
    return materialize(cast(result, dtype))


def _check_range(a: Any, n: int) -> None:
    value = concrete_value(a)
    if value is None:
        raise errors.AbstractValueError(
            f"choose: whether a traced number is out of range cannot be known, at\n"
            f"    {describe(user_source())}\nPass mode='clip' or mode='wrap'."
        )
    value = np.asarray(value)
    if ((value < 0) | (value >= n)).any():
        raise invalid("choose", f"an entry is out of range for {n} choices")


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> tuple[Any, Any]:
    """The indices at which a function such as `triu` leaves something of an [n, n] matrix of ones.

    Arguments:
      mask_func: (matrix, k) -> matrix.
      size: of the result; needed where the function gives something traced.

    Source: `jax.numpy.mask_indices`.

    Example:
      >>> import functrans.numpy as jnp
      >>> i, j = jnp.mask_indices(2, jnp.triu)
      >>> print(i, j)
      [0 0 1] [0 1 1]
    """
    i, j = nonzero(mask_func(ones((n, n)), k), size=size)
    return i, j


def resize(a: Any, new_shape: Any) -> Any:
    """The elements, one after the other and again, under another shape.

    Source: `jax.numpy.resize`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.resize(jnp.arange(3), (2, 2)))
      [[0 1]
       [2 0]]
    """
    shape = sizes_of(new_shape)
    if any(n < 0 for n in shape):
        raise invalid("resize", f"sizes must not be negative, got {shape}")
    flat = ravel(array_of(a, "resize"))
    n, size = typeof(flat).shape[0], math.prod(shape)
    if n == 0 or size == 0:
        return materialize(literal(0, typeof(flat).update(shape=shape)))
    flat = tile(flat, -(-size // n))
    flat = prims.slice_(flat, start=(0,), limit=(size,), strides=(1,))
    return reshape(flat, shape)
