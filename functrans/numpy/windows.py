"""Window functions of signal processing, and the Bessel function that one of them is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.special import bessel_i0e
from functrans.numpy import prims
from functrans.numpy.creation import canonical_float
from functrans.numpy.promotion import array_of, invalid, to_inexact
from functrans.numpy.ufuncs import absolute, cos, divide, exp, multiply, named, sqrt, square
from functrans.numpy.ufuncs import subtract as minus
from functrans.primitives.call import composite
from functrans.trace import full, typeof

__all__ = ["bartlett", "blackman", "hamming", "hanning", "i0", "kaiser"]


@composite
def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 0, of real numbers.

    Source: `jax.numpy.i0`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.i0(jnp.array(0.0)).round(3))
      1.0
    """
    x = to_inexact(array_of(x, "i0"))
    t = typeof(x)
    if dtype_class(t.dtype) != "float":
        raise invalid("i0", f"takes real numbers, not {t}")
    return grown(bessel_i0e, x)


def grown(decayed: Callable[[Any], Any], x: Any) -> Any:
    """e^|x| times a function: a Bessel function of its multiple by e^-|x|."""
    size = multiply(x, prims.sign(x))  # |x|, with a derivative of 0 at 0
    return multiply(exp(size), decayed(x))


def _window(name: str, summary: str, of_places: Callable[..., Any]) -> Callable[..., Any]:
    """A window of M points: `of_places(n, M)` of the places n = 0, 1, ... as floats."""

    def of(M: int) -> Any:
        size = _size(name, M)
        dtype = canonical_float()
        if size <= 1:
            return full(1, ArrayType((size,), dtype))
        return of_places(prims.iota(dtype=dtype, shape=(size,), dimension=0), size)

    return named(of, name, summary)


def _size(name: str, M: Any) -> int:
    size = int(M)
    if size < 0:
        raise invalid(name, f"the number of points must not be negative, got {size}")
    return size


def _waves(n: Any, M: int, k: int) -> Any:
    """cos(k phase), of phases from 0 to 2 pi."""
    return cos(divide(multiply(2 * math.pi * k, n), M - 1))


bartlett = _window(
    "bartlett", "Bartlett's window, a triangle, of M points.",
    lambda n, M: minus(1, absolute(divide(minus(multiply(2, n), M - 1), M - 1))),
)  # fmt: skip
blackman = _window(
    "blackman", "Blackman's window, of two waves, of M points.",
    lambda n, M: prims.add(
        minus(0.42, multiply(0.5, _waves(n, M, 1))), multiply(0.08, _waves(n, M, 2))
    ),
)  # fmt: skip
hamming = _window(
    "hamming", "Hamming's window, a raised wave, of M points.",
    lambda n, M: minus(0.54, multiply(0.46, _waves(n, M, 1))),
)  # fmt: skip
hanning = _window(
    "hanning", "Hann's window, a wave, of M points.",
    lambda n, M: multiply(0.5, minus(1, _waves(n, M, 1))),
)  # fmt: skip


def kaiser(M: int, beta: Any) -> Any:
    """Kaiser's window of M points.

    Arguments:
      beta: its shape, from 0, a rectangle, on; may be traced.

    Source: `jax.numpy.kaiser`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.kaiser(3, 0.0))
      [1. 1. 1.]
    """
    size = _size("kaiser", M)
    dtype = canonical_float()
    if size <= 1:
        return full(1, ArrayType((size,), dtype))
    n = prims.iota(dtype=dtype, shape=(size,), dimension=0)
    half = 0.5 * (size - 1)
    inside = sqrt(minus(1, square(divide(minus(n, half), half))))
    return divide(i0(multiply(beta, inside)), i0(beta))
