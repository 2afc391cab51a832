"""Products with a scale for each block."""

from __future__ import annotations

import jax
import jax.numpy as jj
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax

RNG = np.random.default_rng(0)
X = jj.asarray(RNG.normal(size=(2, 3, 8)), "float8_e4m3fn")
Y = jj.asarray(RNG.normal(size=(2, 5, 8)), "float8_e4m3fn")
SX = jj.asarray(2.0 ** RNG.integers(-3, 4, (2, 3, 2)), "float8_e8m0fnu")
SY = jj.asarray(2.0 ** RNG.integers(-3, 4, (2, 5, 2)), "float8_e8m0fnu")
ROWS = (((2,), (2,)), ((0,), (0,)))


def test_scaled_dot():
    def run(lib):
        def f(x, y, sx, sy):
            dot = lib.lax.scaled_dot
            return [
                dot(x, y, lhs_scale=sx, rhs_scale=sy, dimension_numbers=ROWS,
                    preferred_element_type=np.float32),
                dot(x, y, lhs_scale=sx, dimension_numbers=ROWS),
                dot(x, lib.numpy.swapaxes(y, 1, 2), preferred_element_type=np.float32),
            ]  # fmt: skip

        return lib.jit(f)(X, Y, SX, SY)

    for a, b in zip(run(ft), run(jax), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=1e-2)


def test_scaled_matmul():
    """Exact, up to the rounding of float32 sums. (JAX's has no program for CPUs.)"""
    x, y, sx, sy = (np.asarray(z, np.float64) for z in (X, Y, SX, SY))
    wanted = np.einsum("bmk,bnk->bmn", x * sx.repeat(4, 2), y * sy.repeat(4, 2))
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 1e-2)):
        got = ft.nn.scaled_matmul(X, Y, SX, SY, preferred_element_type=jnp.dtype(dtype))
        assert got.dtype == dtype
        np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=tolerance, atol=1e-5)


def test_derivatives_and_batches():
    x, y, sx, sy = (jnp.asarray(z, jnp.float32) for z in (X, Y, SX, SY))

    def by_hand(x, sx):
        scaled = x * jnp.repeat(sx, 4, axis=-1), y * jnp.repeat(sy, 4, axis=-1)
        return jnp.sum(jnp.sin(jnp.einsum("bmk,bnk->bmn", *scaled) / 8))

    def scaled(x, sx):
        return jnp.sum(jnp.sin(ft.nn.scaled_matmul(x, y, sx, sy) / 8))

    ours, wanted = ft.jit(lambda *xs: [ft.grad(f, (0, 1))(*xs) for f in (scaled, by_hand)])(x, sx)
    for a, b in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    each = ft.vmap(lambda x: ft.nn.scaled_matmul(x, y, sx, sy))(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(each[1], 2 * each[0], rtol=1e-6)


def test_misuse():
    with pytest.raises(ValueError, match="must agree in batch"):
        ft.nn.scaled_matmul(X, Y[..., :4], SX, SY)
    with pytest.raises(ValueError, match="cannot be cut into 3 blocks"):
        ft.nn.scaled_matmul(X, Y, SX[..., [0, 0, 1]], SY[..., [0, 0, 1]])
    with pytest.raises(ValueError, match="takes arrays of three axes"):
        ft.nn.scaled_matmul(X[0], Y, SX, SY)
    with pytest.raises(TypeError, match=r"lhs .* and its scale .* do not fit"):
        lax.scaled_dot(X, Y, lhs_scale=SX[:, :2], dimension_numbers=ROWS)
