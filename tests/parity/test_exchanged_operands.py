"""Functions of two operands of one kind: exchanged, with their options, they give the same.

Options that an operand has for itself (axes, scales, formats) are different ones for the two, so
what is done to one by the options of the other shows, in values and in gradients. Ties and numbers
that a format cannot hold are among the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.scipy import signal, special
from tests.support.closeness import assert_close
from tests.support.wide import each

pytestmark = pytest.mark.smoke

RNG = np.random.default_rng(4)
Function = Callable[[Any, Any], Any]


class Exchange(NamedTuple):
    """f(x, y) = turned(g(y, x))"""

    f: Function
    g: Function
    x: np.ndarray
    y: np.ndarray
    turned: Callable[[Any], Any] = lambda out: out


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def product(x_axes: tuple[int, ...], y_axes: tuple[int, ...], stacked: Any = ((), ())) -> Function:
    return lambda x, y: lax.dot_general(x, y, ((x_axes, y_axes), stacked))


A, B = floats(3, 4), floats(3, 4)
B[0] = A[0]  # ties
SCALED = {
    "x": jnp.asarray(2.0 ** RNG.integers(-3, 4, (1, 3, 2)), "float8_e8m0fnu"),
    "y": jnp.asarray(2.0 ** RNG.integers(-3, 4, (1, 5, 2)), "float8_e8m0fnu"),
}
EXCHANGED = {
    **{
        f"{function.__name__}": Exchange(function, function, A, B)
        for function in (
            jnp.add,
            jnp.hypot,
            jnp.logaddexp,
            jnp.logaddexp2,
            jnp.maximum,
            jnp.minimum,
            jnp.multiply,
            lax.max,
            lax.min,
        )
    },
    **{
        f"{function.__name__}": Exchange(function, function, np.abs(A) + 1, np.abs(B) + 1)
        for function in (special.beta, special.betaln)
    },
    "convolve": Exchange(jnp.convolve, jnp.convolve, A[0], B[1, :3]),
    "fftconvolve": Exchange(signal.fftconvolve, signal.fftconvolve, A, B[:2]),
    "polymul": Exchange(jnp.polymul, jnp.polymul, A[0], B[1, :3]),
    "correlate": Exchange(
        lambda x, y: jnp.correlate(x, y, "full"),
        lambda y, x: jnp.correlate(y, x, "full")[::-1],
        A[0],
        B[1, :3],
    ),
    "cross": Exchange(jnp.cross, lambda y, x: -jnp.cross(y, x), A[:, :3], B[:, 1:]),
    "matvec": Exchange(jnp.matvec, lambda v, m: jnp.vecmat(v, m.T), A, B[2]),
    "vecdot": Exchange(jnp.vecdot, jnp.vecdot, A, B),
    "dot_general": Exchange(
        product((1, 3), (2, 0), ((0,), (1,))),
        product((2, 0), (1, 3), ((1,), (0,))),
        floats(2, 3, 5, 4),
        floats(4, 2, 3, 6),
        lambda out: out.swapaxes(1, 2),
    ),
    "tensordot": Exchange(
        lambda x, y: jnp.tensordot(x, y, ((2, 0), (0, -1))),
        lambda y, x: jnp.tensordot(y, x, ((0, -1), (2, 0))),
        floats(2, 3, 4),
        floats(4, 5, 2),
        lambda out: out.T,
    ),
}


def test_values_and_gradients():
    def check(name: str) -> None:
        f, g, x, y, turned = EXCHANGED[name]
        straight = ft.interpret(ft.make_ir(f)(x, y), x, y)
        weights = np.cos(np.arange(straight[0].size)).reshape(straight[0].shape)
        exchanged = ft.interpret(ft.make_ir(lambda y, x: turned(g(y, x)))(y, x), y, x)
        assert_close(exchanged, straight, 1e-4, "value,")

        def slopes(function: Function, *args: Any) -> list[Any]:
            program = ft.make_ir(ft.grad(lambda *a: jnp.sum(function(*a) * weights), (0, 1)))
            return ft.interpret(program(*args), *args)

        dx, dy = slopes(f, x, y)
        assert_close(slopes(lambda y, x: turned(g(y, x)), y, x), [dy, dx], 1e-4, "gradient,")

    each(EXCHANGED, check)
