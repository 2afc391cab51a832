"""What the tests of Taylor mode share."""

import math
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy

import functrans as ft
import functrans.lax
import functrans.nn
import functrans.numpy as jnp


def nested(f: Callable[..., Any], x: Sequence[Any], series: Sequence[Any], library: Any = jax) -> list[Any]:
    """The same by repeated `jvp` of a library along the curve."""

    def at(t: Any) -> Any:
        moved = []
        for y, terms in zip(x, series, strict=True):
            z = y
            for k, c in enumerate(terms, 1):
                z = z + (t**k / math.factorial(k)).astype(c.dtype) * c
            moved.append(z.astype(y.dtype))
        return f(*moved)

    def derivative(g: Callable[..., Any]) -> Callable[..., Any]:
        return lambda t: library.jvp(g, (t,), (library.numpy.ones_like(t),))[1]

    found, time = [], library.numpy.zeros(())
    for _ in range(len(series[0]) + 1):
        found.append(at(time))
        at = derivative(at)
    return found


OURS = types.SimpleNamespace(ft=ft, np=jnp, lax=functrans.lax, nn=functrans.nn)
JAX = types.SimpleNamespace(ft=jax, np=jax.numpy, lax=jax.lax, nn=jax.nn)
FUNCTIONS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {}


def function(make: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Callable[[Any], Any]]:
    """Enter a maker of a scalar function into the table; it is given either library."""
    FUNCTIONS[make.__name__] = make
    return make
