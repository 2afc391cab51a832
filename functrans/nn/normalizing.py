"""Functions along axes: softmax, log_softmax, logsumexp."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy.promotion import align_all, axes_of, cast, expand, inexact_dtype, mask_of, value_of
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise.arithmetic import is_finite, sign
from functrans.primitives.elementwise.complex_numbers import abs_, real
from functrans.primitives.elementwise.conversion import convert_element_type, strong
from functrans.primitives.elementwise.families import add, lt, mul, ne, splat, sub
from functrans.primitives.elementwise.selection import select_n, stop_gradient
from functrans.primitives.elementwise.transcendental import exp, log
from functrans.primitives.reductions.folds import reduce_max, reduce_sum
from functrans.primitives.reductions.folds import softmax as powers_over_sum
from functrans.primitives.shape.moving import broadcast_in_dim, kept_axes, reshape
from functrans.trace import Tracer, typeof
from functrans.typing import Array, ArrayLike, Axis, PyTree

__all__ = ["log_softmax", "logsumexp", "softmax"]

Axes = tuple[int, ...]


# --- helpers --------------------------------------------------------------------------------------


def _floats(x: Any, name: str, beside: bool = False) -> Any:
    """Convert x to strongly typed floats. `beside`: the infinity that replaces excluded elements;
    integers become floats of its dtype."""
    if x.__class__ is not Tracer:
        x = value_of(x, name)
    t = typeof(x)
    if is_inexact(t.dtype) and not t.weak_type:
        return x
    default = beside and not is_inexact(t.dtype)
    return cast(x, typeof(0.0).dtype if default else inexact_dtype(t.dtype))


def _sum(x: Any, axes: Axes) -> Any:
    """Return the sum over axes; half precision is accumulated in float32."""
    dtype = typeof(x).dtype
    if dtype_class(dtype) == "float" and dtype.itemsize < 4:
        wide = cast(x, np.dtype(np.float32))
        return cast(reduce_sum(wide, axes=axes) if axes else wide, dtype)
    return reduce_sum(x, axes=axes) if axes else x


def _largest(x: Any, axes: Axes) -> Any:
    """Return the maximum over axes, treated as constant in differentiation."""
    x = stop_gradient(x)
    return reduce_max(x, axes=axes) if axes else x


def _back(x: Any, shape: tuple[int, ...], axes: Axes) -> Any:
    """Broadcast a reduced array back along the reduced axes."""
    if not axes:
        return x
    return broadcast_in_dim(x, shape=shape, dimensions=kept_axes(len(shape), axes))


def _with_ones(x: Any, shape: tuple[int, ...], axes: Axes) -> Any:
    """Restore the reduced axes of an array, with size 1."""
    return reshape(x, shape=tuple([1 if i in axes else n for i, n in enumerate(shape)]))


def _mask_of(where: Any, shape: tuple[int, ...], name: str) -> Any:
    return None if where is None else expand(mask_of(where, name), shape)


def _only(mask: Any, x: Any, otherwise: float) -> Any:
    return x if mask is None else select_n(mask, splat(otherwise, typeof(x)), x)


# --- softmax --------------------------------------------------------------------------------------


@composite
def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """exp(x) / sum(exp(x)) along axes.

    Arguments:
      x: array.
      axis: an int, several, or None for all.
      where: booleans that broadcast to x's shape: the elements to include; others become 0.

    Source: `jax.nn.softmax`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.nn.softmax(jnp.zeros(4)))
      [0.25 0.25 0.25 0.25]
    """
    x = _floats(x, "softmax", where is not None)
    shape = typeof(x).shape
    axes = axes_of(axis, len(shape), "softmax")
    mask = _mask_of(where, shape, "softmax")
    x = _only(mask, x, -math.inf)
    if not axes:  # each element separately
        return _only(mask, exp(sub(x, stop_gradient(x))), 0)
    return _only(mask, powers_over_sum(x, axes=axes), 0)


@composite
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """log(softmax(x)), without underflow; -inf where `where` is False.

    Source: `jax.nn.log_softmax`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.nn.log_softmax(jnp.zeros(1)))
      [0.]
    """
    x = _floats(x, "log_softmax", where is not None)
    shape = typeof(x).shape
    axes = axes_of(axis, len(shape), "log_softmax")
    mask = _mask_of(where, shape, "log_softmax")
    x = _only(mask, x, -math.inf)
    shifted = sub(x, _back(_largest(x, axes), shape, axes))
    total = _sum(_only(mask, exp(shifted), 0), axes)
    return _only(mask, sub(shifted, _back(log(total), shape, axes)), -math.inf)


@composite
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> PyTree:
    """log(sum(b exp(a))) over axes, without overflow.

    Arguments:
      a: array.
      axis: an int, several, or None for all.
      b: factors of the terms, broadcast with a.
      keepdims: keep the reduced axes, with size 1.
      return_sign: return log |sum| and the sign of the sum.
      where: booleans that broadcast to a's shape: the elements to include.

    Returns:
      The logarithm, NaN for a negative sum; with `return_sign` a pair.

    Source: `jax.nn.logsumexp`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.nn.logsumexp(jnp.array([1000.0, -jnp.inf])))
      1000.0
    """
    a = value_of(a, "logsumexp")
    if where is not None and typeof(a).dtype == bool:
        # with the number that replaces excluded elements
        a = convert_element_type(a, dtype=typeof(0).dtype, weak_type=b is not None)
    if b is None:
        a = _floats(a, "logsumexp")
    else:
        a, b = align_all((a, b), "logsumexp", inexact=True)
        a = select_n(ne(b, splat(0, typeof(b))), splat(-math.inf, typeof(a)), a)
    t = typeof(a)
    axes = axes_of(axis, t.ndim, "logsumexp")
    mask = _mask_of(where, t.shape, "logsumexp")
    is_complex = dtype_class(t.dtype) == "complex"
    a = _only(mask, a, 0)
    largest = _largest(_only(mask, real(a) if is_complex else a, -math.inf), axes)
    largest = select_n(is_finite(largest), splat(0, typeof(largest)), largest)
    shift = cast(largest, t.dtype) if is_complex else largest
    powers = exp(sub(a, _back(shift, t.shape, axes)))
    if b is not None:
        powers = mul(powers, b)
    total = _sum(_only(mask, powers, 0), axes)
    signed = strong(sign(total)) if return_sign or b is not None else None
    if return_sign or (b is not None and not is_complex):
        total = abs_(total)
    out = log(total)
    out = add(out, cast(largest, typeof(out).dtype))
    if b is not None and not return_sign and not is_complex:
        out = select_n(lt(signed, splat(0, typeof(out))), out, splat(math.nan, typeof(out)))
    if keepdims:
        out = _with_ones(out, t.shape, axes)
        signed = _with_ones(signed, t.shape, axes) if return_sign else None
    return (out, signed) if return_sign else out
