"""`jax.lax` names over primitives/special_incomplete.py, and a formula of several folders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from functrans.lax import elementwise as lax
from functrans.lax.elementwise import operand, operands
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.conversion import cast, strong
from functrans.trace import bind, literal, typeof

__all__ = [
    "bessel_i0e", "bessel_i1e", "betainc", "igamma", "igamma_grad_a", "igammac",
    "random_gamma_grad",
]  # fmt: skip


def _documented(function: Callable[..., Any], name: str, does: str, example: str) -> Any:
    arguments, _, result = example.partition(" -> ")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{does}\n\nSource: `jax.lax.{name}`.\n\n"
        f">>> from functrans import lax\n>>> print(lax.{name}({arguments}))\n{result}\n"
    )
    return function


def _of_one(name: str, does: str, example: str) -> Callable[[Any], Any]:
    p = PRIMITIVES[name]

    def function(x: Any) -> Any:
        return bind(p, (operand(x),), {})

    return _documented(function, name, does, example)


def _of_two(
    name: str, does: str, example: str, of_first: bool = False
) -> Callable[[Any, Any], Any]:
    """`of_first`: the second operand takes the dtype of the first; the result is never weak."""
    p = PRIMITIVES[name]

    def function(a: Any, x: Any) -> Any:
        a, x = operands(a, x)
        if not of_first:
            return bind(p, (a, x), {})
        return strong(bind(p, (a, cast(x, typeof(a).dtype)), {}))

    return _documented(function, name, does, example)


bessel_i0e = _of_one(
    "bessel_i0e", "The modified Bessel function I0, times e^-|x|.", "0.0 -> 1.0..."
)
bessel_i1e = _of_one("bessel_i1e", "The modified Bessel function I1, times e^-|x|.", "0.0 -> 0.0")
igamma = _of_two(
    "igamma", "The regularised incomplete gamma function P(a, x).", "1.0, 2.0 -> 0.86466..."
)
igammac = _of_two(
    "igammac", "Its complement Q(a, x) = 1 - P(a, x), precise where that is small.",
    "1.0, 2.0 -> 0.13533...",
)  # fmt: skip
igamma_grad_a = _of_two(
    "igamma_grad_a", "The derivative of P(a, x) in a.", "1.0, 2.0 -> -0.220825..."
)
random_gamma_grad = _of_two(
    "random_gamma_grad",
    "The derivative in a of a sample x of the gamma distribution, P(a, x) held fixed.",
    "1.0, 2.0 -> 1.63169...",
    of_first=True,
)


def normal_probability(x: Any) -> Any:
    """The distribution function of the standard normal distribution, of a float array."""
    t = typeof(x).strong()
    one, root = literal(1.0, t), literal(math.sqrt(0.5), t)
    w = lax.mul(x, root)
    z = lax.abs(w)
    far = lax.erfc(z)
    tail = lax.select(lax.gt(w, literal(0.0, t)), lax.sub(literal(2.0, t), far), far)
    y = lax.select(lax.lt(z, root), lax.add(one, lax.erf(w)), tail)
    return lax.mul(y, literal(0.5, t))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function I_x(a, b); differentiable in x.

    Source: `jax.lax.betainc`.

    >>> from functrans import lax
    >>> print(lax.betainc(1.0, 1.0, 0.25).round(3))
    0.25
    """
    a, b = operands(a, b)
    a, x = operands(a, x)
    b, x = operands(b, x)
    if typeof(a).shape != typeof(x).shape:  # the shape grew by the last one
        a, x = operands(a, x)
    return bind(PRIMITIVES["regularized_incomplete_beta"], (a, b, x), {})
