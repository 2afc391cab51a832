"""Those functions of `jax.nn` whose programs are shorter here, with JAX's values, derivatives, dtypes
and weak types; the others are JAX's.

JAX has custom derivatives of relu and softplus, which cost several times as much un-jitted: the
formulas here have the same derivatives. Its softmax and log_softmax have operations that need not be.
"""

from __future__ import annotations

import math
from typing import Any

from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy import ufuncs
from functrans.numpy.arithmetic import logaddexp
from functrans.numpy.promotion import axes_of, cast, expand, inexact_dtype, mask_of, to_inexact, value_of
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise.families import add, ge, le, neg, splat, sub
from functrans.primitives.elementwise.selection import select_n, stop_gradient
from functrans.primitives.elementwise.transcendental import exp, log, log1p
from functrans.primitives.reductions.folds import reduce_max, reduce_sum, wide_dtype
from functrans.primitives.reductions.folds import softmax as powers_over_sum
from functrans.primitives.shape.moving import broadcast_in_dim, kept_axes
from functrans.trace import Tracer, materialize, typeof
from functrans.typing import Array, ArrayLike, Axis

__all__ = ["log_softmax", "relu", "softmax", "softplus"]


# --- of each element ------------------------------------------------------------------------------


def relu(x: ArrayLike) -> Array:
    """max(x, 0); its derivative at 0 is 0.

    Source: `jax.nn.relu`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.nn.relu(jnp.array([-1.0, 2.0])))
      [0. 2.]
    """
    x = value_of(x, "relu")
    if typeof(x).dtype == bool:
        x = cast(x, typeof(0).dtype, True)
    zero = splat(0, typeof(x))
    is_complex = dtype_class(typeof(x).dtype) == "complex"
    return select_n(ufuncs.lexicographic(le, x, zero) if is_complex else le(x, zero), x, zero)


@composite
def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x)).

    Source: `jax.nn.softplus`.

    Example:
      >>> import functrans as ft
      >>> print(ft.nn.softplus(100.0))
      100.0
    """
    x = value_of(x, "softplus")
    t = typeof(x)
    if dtype_class(t.dtype) == "complex":
        return logaddexp(materialize(x), 0)
    # booleans become weakly typed, as after adding a Python float
    x = cast(x, typeof(0.0).dtype, True) if t.dtype == bool else to_inexact(x)
    zero = splat(0, typeof(x))
    positive = ge(x, zero)
    # -|x|; at 0 its derivative and that of the first term sum to 1/2
    distance = select_n(positive, x, neg(x))
    return add(select_n(positive, zero, x), log1p(exp(distance)))


# --- along axes ------------------------------------------------------------------------------------


def _prepared(x: Any, axis: Any, where: Any, name: str) -> tuple[Any, tuple[int, ...], Any]:
    """Return x as strongly typed floats, with -inf where the mask leaves an element out (integers become
    floats of its dtype); the axes; the mask, or None."""
    if x.__class__ is not Tracer:
        x = value_of(x, name)
    t = typeof(x)
    if t.weak_type or not is_inexact(t.dtype):
        default = where is not None and not is_inexact(t.dtype)
        x = cast(x, typeof(0.0).dtype if default else inexact_dtype(t.dtype))
    mask = None if where is None else expand(mask_of(where, name), t.shape)
    return _only(mask, x, -math.inf), axes_of(axis, t.ndim, name), mask


def _only(mask: Any, x: Any, otherwise: float) -> Any:
    return x if mask is None else select_n(mask, splat(otherwise, typeof(x)), x)


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the sum over axes; half precision is accumulated in float32."""
    dtype = typeof(x).dtype
    return cast(reduce_sum(cast(x, wide_dtype(dtype)), axes=axes), dtype)


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
    x, axes, mask = _prepared(x, axis, where, "softmax")
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
    x, axes, mask = _prepared(x, axis, where, "log_softmax")
    shape = typeof(x).shape
    kept = kept_axes(len(shape), axes)
    largest = broadcast_in_dim(reduce_max(stop_gradient(x), axes=axes), shape=shape, dimensions=kept)
    shifted = sub(x, largest)
    total = _sum(_only(mask, exp(shifted), 0), axes)
    return _only(mask, sub(shifted, broadcast_in_dim(log(total), shape=shape, dimensions=kept)), -math.inf)
