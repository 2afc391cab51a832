"""Activation functions, with the values, derivatives, dtypes and weak types of `jax.nn`.

They bind primitives directly, since networks call them often; rarer ones are JAX's. Where JAX has a
custom derivative (relu at 0), the formula here is chosen so that its derivative is the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy import ufuncs
from functrans.numpy.arithmetic import logaddexp
from functrans.numpy.promotion import cast, mismatch, to_inexact, value_of
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise.arithmetic import integer_pow
from functrans.primitives.elementwise.families import add, ge, le, mul, neg, splat
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.special import erfc
from functrans.primitives.elementwise.transcendental import exp, log1p, logistic
from functrans.primitives.elementwise.transcendental import tanh as tanh_of
from functrans.trace import Tracer, typeof
from functrans.typing import Array, ArrayLike

__all__ = ["gelu", "relu", "sigmoid", "silu", "softplus", "swish", "tanh"]


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


def _must_be_float(x: Any, name: str) -> Any:
    x = value_of(x, name)
    t = typeof(x)
    if not is_inexact(t.dtype):
        raise mismatch(name, f"takes floats, not {t}", "Cast with x.astype(...) first.")
    return x


def _is_complex(x: Any) -> bool:
    return dtype_class(typeof(x).dtype) == "complex"


# --- rectifiers -----------------------------------------------------------------------------------


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
    return select_n(ufuncs.lexicographic(le, x, zero) if _is_complex(x) else le(x, zero), x, zero)


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
    is_bool = x.__class__ is bool or getattr(x, "dtype", None) == np.dtype(bool)
    x = _floats(x, "softplus", weak=is_bool)
    if _is_complex(x):
        return logaddexp(x, 0)
    zero = splat(0, typeof(x))
    positive = ge(x, zero)
    # -|x|; at 0 its derivative and that of the first term sum to 1/2
    distance = select_n(positive, x, neg(x))
    return add(select_n(positive, zero, x), log1p(exp(distance)))


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
