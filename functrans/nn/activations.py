"""Activation functions, with the values, derivatives, dtypes and weak types of `jax.nn`.

They bind primitives directly, since networks call them often. Where JAX has a custom derivative
(relu at 0), the formula here is chosen so that its derivative is the same.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from functrans.ir.types import ArrayType, dtype_class, is_inexact
from functrans.numpy import ufuncs
from functrans.numpy.arithmetic import logaddexp
from functrans.numpy.promotion import (
    SCALARS,
    array_of,
    axis_index,
    cast,
    invalid,
    mismatch,
    to_inexact,
    value_of,
)
from functrans.numpy.selecting import where as select_where
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise.arithmetic import integer_pow, max_, min_
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.families import add, div, ge, gt, le, lt, mul, neg, splat, square
from functrans.primitives.elementwise.selection import clamp, select_n
from functrans.primitives.elementwise.special import erfc
from functrans.primitives.elementwise.transcendental import exp, expm1, log, log1p, logistic, sqrt
from functrans.primitives.elementwise.transcendental import tanh as tanh_of
from functrans.primitives.shape.moving import slice_axis
from functrans.trace import Tracer, typeof
from functrans.typing import Array, ArrayLike

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "identity", "leaky_relu", "log1mexp", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid",
    "silu", "soft_sign", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
]  # fmt: skip


_with_number = functools.partial(composite, numbers=(int, float))  # numbers are operands

# --- operands -------------------------------------------------------------------------------------


def _floats(x: Any, name: str, weak: bool = False) -> Any:
    """Convert x to floats. `weak`: integers become weakly typed, as after adding a Python float."""
    if x.__class__ is Tracer and is_inexact(x.type.dtype):
        return x
    x = value_of(x, name)
    t = typeof(x)
    if is_inexact(t.dtype):
        return x
    return cast(x, typeof(0.0).dtype, True) if weak else to_inexact(x)


def _numbers(x: Any, name: str) -> Any:
    """Convert booleans to weakly typed integers; return others unchanged."""
    if x.__class__ is Tracer and x.type.dtype != bool:
        return x
    x = value_of(x, name)
    t = typeof(x)
    return cast(x, typeof(0).dtype, True) if t.dtype == bool else x


def _must_be_float(x: Any, name: str) -> Any:
    if x.__class__ is not Tracer:
        x = value_of(x, name)
    t = typeof(x)
    if not is_inexact(t.dtype):
        raise mismatch(name, f"takes floats, not {t}", "Cast with x.astype(...) first.")
    return x


def _zero(x: Any) -> Any:
    return splat(0, typeof(x))


def _times(x: Any, factor: Any) -> Any:
    """Return x * factor, where factor may be an array that is broadcast."""
    plain = factor.__class__ in (int, float) and is_inexact(typeof(x).dtype)
    return mul(x, factor) if plain else ufuncs.multiply(x, factor)


def _compare(by: Any, x: Any, number: float) -> Any:
    """Compare x with a number; complex numbers as `jnp.greater` does."""
    y = splat(number, typeof(x))
    return ufuncs.lexicographic(by, x, y) if _is_complex(x) else by(x, y)


def _is_complex(x: Any) -> bool:
    return dtype_class(typeof(x).dtype) == "complex"


def _where(mask: Any, x: Any, y: Any) -> Any:
    """Select x where the mask is true, else y."""
    if typeof(x) is typeof(y) and typeof(mask).shape == typeof(x).shape:
        return select_n(mask, y, x)
    return select_where(mask, x, y)


# --- rectifiers -----------------------------------------------------------------------------------


def identity(x: ArrayLike) -> Array:
    """x.

    Source: `jax.nn.identity`.
    """
    return array_of(x, "identity")


def relu(x: ArrayLike) -> Array:
    """max(x, 0); its derivative at 0 is 0.

    Source: `jax.nn.relu`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.nn.relu(jnp.array([-1.0, 2.0])))
      [0. 2.]
    """
    x = _numbers(x, "relu")
    return select_n(_compare(le, x, 0), x, _zero(x))


@composite
def relu6(x: ArrayLike) -> Array:
    """min(max(x, 0), 6); its derivative at 0 and 6 is 0.

    Source: `jax.nn.relu6`.
    """
    x = _floats(x, "relu6", weak=True)
    t = typeof(x)
    if _is_complex(x):
        within = select_n(_compare(ge, x, 6), x, splat(6, t))
        return select_n(_compare(le, x, 0), within, _zero(x))
    scalar = ArrayType((), t.dtype, t.weak_type)
    return clamp(splat(0, scalar), x, splat(6, scalar))


@_with_number
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Array:
    """x where x >= 0, else negative_slope * x.

    Source: `jax.nn.leaky_relu`.
    """
    x = value_of(x, "leaky_relu")
    return _where(_compare(ge, x, 0), x, _times(x, negative_slope))


@_with_number
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x where x > 0, else alpha * (exp(x) - 1).

    Source: `jax.nn.elu`.
    """
    x = _floats(x, "elu", weak=True)
    positive = _compare(gt, x, 0)
    below = expm1(select_n(positive, x, _zero(x)))  # large x must not overflow where it is unused
    return _where(positive, x, _times(below, alpha))


@composite
def selu(x: ArrayLike) -> Array:
    """The scaled `elu` that preserves mean 0 and variance 1.

    Source: `jax.nn.selu`.
    """
    return mul(elu(x, 1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


@_with_number
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1).

    Source: `jax.nn.celu`.
    """
    x = _floats(x, "celu", weak=True)
    zero = _zero(x)
    positive, negative = max_(x, zero), min_(x, zero)
    if alpha.__class__ in SCALARS:
        return add(positive, mul(expm1(div(negative, alpha)), alpha))
    below = expm1(ufuncs.divide(negative, alpha))
    return ufuncs.add(positive, ufuncs.multiply(alpha, below))


@composite
def hard_tanh(x: ArrayLike) -> Array:
    """x clipped to [-1, 1].

    Source: `jax.nn.hard_tanh`.
    """
    x = _numbers(x, "hard_tanh")
    t = typeof(x)
    above = select_n(_compare(lt, x, -1), x, splat(-1, t))
    return select_n(_compare(gt, x, 1), above, splat(1, t))


@composite
def hard_sigmoid(x: ArrayLike) -> Array:
    """relu6(x + 3) / 6.

    Source: `jax.nn.hard_sigmoid`.
    """
    return div(relu6(add(_floats(x, "hard_sigmoid", weak=True), 3.0)), 6.0)


@composite
def hard_silu(x: ArrayLike) -> Array:
    """x * hard_sigmoid(x).

    Source: `jax.nn.hard_silu`.
    """
    x = _floats(x, "hard_silu", weak=True)
    return mul(x, hard_sigmoid(x))


hard_swish = hard_silu


@composite
def sparse_plus(x: ArrayLike) -> Array:
    """0 below -1, x above 1, (x + 1)^2 / 4 in between.

    Source: `jax.nn.sparse_plus`.
    """
    x = _floats(x, "sparse_plus", weak=True)
    between = div(square(add(x, 1.0)), 4.0)
    upper = select_n(_compare(ge, x, 1), between, x)
    return select_n(_compare(le, x, -1), upper, _zero(x))


@composite
def sparse_sigmoid(x: ArrayLike) -> Array:
    """0 below -1, 1 above 1, (x + 1) / 2 in between.

    Source: `jax.nn.sparse_sigmoid`.
    """
    x = _floats(x, "sparse_sigmoid", weak=True)
    return mul(min_(max_(add(x, 1.0), _zero(x)), splat(2, typeof(x))), 0.5)


# --- smooth ---------------------------------------------------------------------------------------


def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x)).

    Source: `jax.nn.sigmoid`.
    """
    return logistic(_must_be_float(x, "sigmoid"))


@composite
def silu(x: ArrayLike) -> Array:
    """x * sigmoid(x).

    Source: `jax.nn.silu`.

    Example:
      >>> import functrans as ft
      >>> print(ft.nn.silu(0.0))
      0.0
    """
    x = _must_be_float(x, "silu")
    return mul(x, logistic(x))


swish = silu


def tanh(x: ArrayLike) -> Array:
    """The hyperbolic tangent.

    Source: `jax.nn.tanh`.
    """
    return tanh_of(_floats(x, "tanh"))


@composite
def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x)).

    Source: `jax.nn.softplus`.

    Example:
      >>> import functrans as ft
      >>> print(ft.nn.softplus(100.0))
      100.0
    """
    x = _floats(x, "softplus", weak=_is_bool(x))
    if _is_complex(x):
        return logaddexp(x, 0)
    zero = _zero(x)
    positive = ge(x, zero)
    # -|x|; at 0 its derivative and that of the first term sum to 1/2
    distance = select_n(positive, x, neg(x))
    return add(select_n(positive, zero, x), log1p(exp(distance)))


def _is_bool(x: Any) -> bool:
    return x.__class__ is bool or getattr(x, "dtype", None) == np.dtype(bool)


@composite
def log_sigmoid(x: ArrayLike) -> Array:
    """log(sigmoid(x)).

    Source: `jax.nn.log_sigmoid`.
    """
    return neg(softplus(neg(_floats(x, "log_sigmoid"))))


@composite
def mish(x: ArrayLike) -> Array:
    """x * tanh(softplus(x)).

    Source: `jax.nn.mish`.
    """
    x = _floats(x, "mish", weak=_is_bool(x))
    return mul(x, tanh_of(softplus(x)))


@composite
def soft_sign(x: ArrayLike) -> Array:
    """x / (|x| + 1).

    Source: `jax.nn.soft_sign`.
    """
    x = _floats(x, "soft_sign", weak=_is_bool(x))
    return ufuncs.divide(x, add(abs_(x), 1.0))


@_with_number
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """(x + sqrt(x^2 + b)) / 2.

    Source: `jax.nn.squareplus`.
    """
    if b.__class__ in SCALARS:
        x = _floats(x, "squareplus", weak=b.__class__ in (float, complex))
        return div(add(x, sqrt(add(square(x), b))), 2.0)
    return ufuncs.divide(ufuncs.add(x, ufuncs.sqrt(ufuncs.add(ufuncs.square(x), b))), 2)


@composite
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """x * Phi(x), where Phi is the normal cumulative distribution function.

    Arguments:
      x: array.
      approximate: whether to approximate Phi with tanh, which is cheaper than erfc.

    Source: `jax.nn.gelu`.

    Example:
      >>> import functrans as ft
      >>> print(ft.nn.gelu(0.0))
      0.0
    """
    x = _floats(x, "gelu")
    t = typeof(x).strong()
    if not approximate:
        return mul(mul(x, 0.5), erfc(mul(neg(x), splat(math.sqrt(0.5), t))))
    inner = add(x, mul(integer_pow(x, y=3), 0.044715))
    tail = tanh_of(mul(inner, splat(math.sqrt(2 / math.pi), t)))
    return mul(x, mul(add(tail, 1.0), 0.5))


@composite
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along an axis, times the sigmoid of the second half.

    Source: `jax.nn.glu`.
    """
    x = _must_be_float(x, "glu")
    t = typeof(x)
    axis = axis_index(axis, t.ndim, "glu")
    n = t.shape[axis]
    if n % 2:
        raise invalid("glu", f"axis {axis} of {t} must have an even size")
    return mul(slice_axis(x, axis, 0, n // 2), logistic(slice_axis(x, axis, n // 2, n)))


@composite
def log1mexp(x: ArrayLike) -> Array:
    """log(1 - exp(-x)) for x > 0, without cancellation.

    Source: `jax.nn.log1mexp`.
    """
    x = _floats(x, "log1mexp")
    near = _compare(lt, x, math.log(2))
    half = splat(1, typeof(x))
    # each formula gets only arguments in its range, so that no NaN reaches the gradient
    small = log(neg(expm1(neg(select_n(near, half, x)))))
    large = log1p(neg(exp(neg(select_n(near, x, half)))))
    return select_n(near, large, small)
