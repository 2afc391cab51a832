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
from functrans import lax, nn
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


def with_large(x: np.ndarray) -> np.ndarray:
    """One number that nvfp4 holds with a scale of 1 and not with one of 1/4."""
    x[1, 1] = 1e3
    return x


def rounded(mode: str, *scales: float) -> Function:
    made = [nn.get_scaled_dot_general_config(mode, jnp.full(1, s, np.float32)) for s in scales]
    return lambda x, y: nn.scaled_dot_general(x, y, (((1,), (1,)), ((), ())), configs=made)


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
            jnp.add, jnp.hypot, jnp.logaddexp, jnp.logaddexp2, jnp.maximum,
            jnp.minimum, jnp.multiply, lax.max, lax.min,
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
        lambda x, y: jnp.correlate(x, y, "full"), lambda y, x: jnp.correlate(y, x, "full")[::-1],
        A[0], B[1, :3],
    ),
    "cross": Exchange(jnp.cross, lambda y, x: -jnp.cross(y, x), A[:, :3], B[:, 1:]),
    "matvec": Exchange(jnp.matvec, lambda v, m: jnp.vecmat(v, m.T), A, B[2]),
    "vecdot": Exchange(jnp.vecdot, jnp.vecdot, A, B),
    "dot_general": Exchange(
        product((1, 3), (2, 0), ((0,), (1,))), product((2, 0), (1, 3), ((1,), (0,))),
        floats(2, 3, 5, 4), floats(4, 2, 3, 6), lambda out: out.swapaxes(1, 2),
    ),
    "tensordot": Exchange(
        lambda x, y: jnp.tensordot(x, y, ((2, 0), (0, -1))),
        lambda y, x: jnp.tensordot(y, x, ((0, -1), (2, 0))),
        floats(2, 3, 4), floats(4, 5, 2), lambda out: out.T,
    ),
    "scaled_dot_general, nvfp4": Exchange(
        rounded("nvfp4", 0.25, 1.0, 2.0), rounded("nvfp4", 1.0, 0.25, 2.0),
        with_large(floats(3, 32)), with_large(floats(4, 32)), lambda out: out.T,
    ),
    "scaled_dot_general, mxfp8": Exchange(
        rounded("mxfp8", 1.0, 1.0, 1.0), rounded("mxfp8", 1.0, 1.0, 1.0),
        floats(32, 32), floats(32, 32), lambda out: out.T,
    ),
    "scaled_matmul": Exchange(
        lambda x, y: nn.scaled_matmul(x, y, SCALED["x"], SCALED["y"]),
        lambda y, x: nn.scaled_matmul(y, x, SCALED["y"], SCALED["x"]),
        floats(1, 3, 8), floats(1, 5, 8), lambda out: out.swapaxes(1, 2),
    ),
}  # fmt: skip


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


def test_a_number_out_of_range_has_no_slope():
    """By the scale of its own operand: 1e3 is out of 6 * 448 / 4, and within 6 * 448."""
    x, y = EXCHANGED["scaled_dot_general, nvfp4"][2:4]
    f = EXCHANGED["scaled_dot_general, nvfp4"].f
    program = ft.make_ir(ft.grad(lambda x, y: jnp.sum(f(x, y)), (0, 1)))(x, y)
    dx, dy = ft.interpret(program, x, y)
    assert (dx[1, 1], np.count_nonzero(dx == 0)) == (0, 1)
    assert np.all(dy != 0)
