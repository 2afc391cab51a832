"""Products with a scale for each block."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jj
import ml_dtypes
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


# --- scaled_dot_general ---------------------------------------------------------------------------


def configs(lib, mode):
    factor = lib.numpy.array([0.25], np.float32) if mode == "nvfp4" else None
    return [lib.nn.get_scaled_dot_general_config(mode, factor)] * 3


@pytest.fixture
def kernel(monkeypatch):
    """JAX's own rounding and derivatives, with einsum for the kernel that CPUs lack."""

    def multiply(a, b, s, u, preferred_element_type=np.float32):
        block = a.shape[2] // s.shape[2]
        a, b, s, u = (z.astype(np.float32) for z in (a, b, s, u))
        a, b = a * jj.repeat(s, block, 2), b * jj.repeat(u, block, 2)
        return jj.einsum("bmk,bnk->bmn", a, b).astype(preferred_element_type)

    where = importlib.import_module("jax._src.cudnn.scaled_matmul_stablehlo")
    monkeypatch.setattr(where, "scaled_matmul_wrapper", multiply)


SHAPES = [
    ((2, 32, 64), (2, 32, 64), ROWS),
    ((32, 2, 64), (64, 32), (((2,), (0,)), ((), ()))),
    ((2, 3, 32, 32), (2, 32, 3, 32), (((3,), (1,)), ((0, 1), (0, 2)))),
    ((2, 16, 32, 2), (16, 2, 32), (((1, 3), (0, 1)), ((), ()))),
]


def normal(rng, shape):
    return rng.normal(size=shape) * 4.0 ** rng.normal(size=shape)


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize("case", range(len(SHAPES)))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scaled_dot_general(kernel, mode, case, dtype):
    """Values and cotangents, for numbers of which one is beyond what nvfp4 can hold."""
    *shapes, dims = SHAPES[case]
    rng = np.random.default_rng(case)
    x, y = (jj.asarray(normal(rng, n), dtype) for n in shapes)
    x = x.at[(0,) * x.ndim].set(1e3)

    def run(lib):
        def f(x, y):
            options = {"preferred_element_type": np.dtype(dtype), "configs": configs(lib, mode)}
            return lib.nn.scaled_dot_general(x, y, dims, **options)

        def loss(x, y):
            out = f(x, y).astype(np.float32)
            return lib.numpy.sum(out * np.cos(np.arange(out.size)).reshape(out.shape))

        return f(x, y), *lib.jit(lib.grad(loss, (0, 1)))(x, y)

    for ours, theirs in zip(run(ft), run(jax), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        ours, theirs = (np.asarray(z, np.float32) for z in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * np.abs(theirs).max())


def rounded(x, mode, factor=1.0):
    """What the rounding makes of rows, by the definition of the formats."""
    block, narrow = {"mxfp8": (32, "float8_e4m3fn"), "nvfp4": (16, "float4_e2m1fn")}[mode]
    limit = float(ml_dtypes.finfo(narrow).max)
    blocks = np.asarray(x, np.float32).reshape(*x.shape[:-1], -1, block) / np.float32(factor)
    step = np.abs(blocks).max(-1, keepdims=True) / np.float32(limit)
    if mode == "mxfp8":
        step = 2.0 ** np.ceil(np.log2(np.maximum(step, 2.0**-126)))
    else:
        step = np.minimum(step, 448).astype("float8_e4m3fn").astype(np.float32)
    steps = np.where(step == 0, 1, step).astype(np.float32)
    elements = np.clip(blocks / steps, -limit, limit).astype(narrow).astype(np.float64)
    return (elements * step * factor).reshape(x.shape)


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
def test_rounding(mode):
    """Blocks of zeros, which JAX divides by zero, and contracted axes named in another order."""
    rng = np.random.default_rng(1)
    x, y = normal(rng, (3, 4, 32)).astype(np.float32), normal(rng, (5, 32, 4)).astype(np.float32)
    x[0, 0], x[1, 1] = 0, 1e-30
    got = ft.nn.scaled_dot_general(
        x, y, (((1, 2), (2, 1)), ((), ())), configs=configs(ft, mode)
    )  # fmt: skip
    factor = 0.25 if mode == "nvfp4" else 1.0
    rows = rounded(y.transpose(0, 2, 1).reshape(5, -1), mode, factor)
    wanted = rounded(x.reshape(3, -1), mode, factor) @ rows.T
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
def test_rounding_in_transformations(mode):
    """Batched as in a loop; a traced factor; mixed derivatives of the exact backward pass."""
    rng = np.random.default_rng(2)
    x, y = (jnp.asarray(normal(rng, (3, 32, 32)), np.float32) for _ in range(2))
    dims = (((1,), (1,)), ((), ()))

    def f(x, y, factor=0.25):
        how = ft.nn.get_scaled_dot_general_config(mode, jnp.asarray(factor, np.float32))
        return ft.nn.scaled_dot_general(x, y, dims, configs=[how] * 3)

    def loss(x, y, factor=0.25):
        return jnp.sum(jnp.sin(f(x, y, factor)))

    for g in (f, ft.grad(loss)):
        each = jnp.stack([g(a, b) for a, b in zip(x, y, strict=True)])
        np.testing.assert_allclose(ft.vmap(g)(x, y), each, rtol=1e-5)
    np.testing.assert_allclose(
        ft.vmap(f, (0, None, 0))(x, y[0], jnp.full(3, 0.25))[1], f(x[1], y[0]), rtol=1e-5
    )
    np.testing.assert_array_equal(ft.jit(f)(x[0], y[0], 0.25), f(x[0], y[0]))
    assert ft.grad(loss, 2)(x[0], y[0], 0.25) == 0
    if mode == "nvfp4":  # the straight-through derivative: of the product itself
        _, out = ft.jvp(lambda x: f(x, y[0]), (x[0],), (x[1],))
        np.testing.assert_allclose(out, x[1] @ y[0].T, rtol=1e-4, atol=1e-3)


def test_without_configs():
    x, y = jnp.asarray(X, np.float32), jnp.asarray(Y, np.float32)
    got = ft.nn.scaled_dot_general(x, y, ROWS)
    np.testing.assert_array_equal(got, lax.dot_general(x, y, ROWS))
    with pytest.warns(DeprecationWarning, match="no effect"):
        ft.nn.scaled_dot_general(x, y, ROWS, implementation="cudnn")


def test_misuse_of_scaled_dot_general():
    x, rows = jnp.ones((4, 32)), (((1,), (1,)), ((), ()))
    mx, nv = (ft.nn.get_scaled_dot_general_config(mode) for mode in ("mxfp8", "nvfp4"))
    dot = ft.nn.scaled_dot_general
    with pytest.raises(ValueError, match="knows mxfp8 and nvfp4"):
        ft.nn.get_scaled_dot_general_config("mxfp4")
    with pytest.raises(ValueError, match="configs of one mode"):
        dot(x, x, rows, configs=[mx, nv, nv])
    with pytest.raises(TypeError, match="gives float32, bfloat16 or float16"):
        dot(x, x, rows, None, configs=[mx] * 3)
    with pytest.raises(TypeError, match="rounds floating operands"):
        dot(x.astype(int), x, rows, configs=[mx] * 3)
    with pytest.raises(ValueError, match="blocks of 32, got 31"):
        dot(x[:, :31], x[:, :31], rows, configs=[mx] * 3)
    with pytest.raises(TypeError, match="differ in size"):
        dot(x, x[:, :16], rows, configs=[nv] * 3)
    with pytest.raises(ValueError, match="blocks of 32, got 4 contracted elements"):
        ft.grad(lambda x: dot(x, x, rows, configs=[mx] * 3).sum())(x)
    nvs = ft.nn.get_scaled_dot_general_config("nvfp4", jnp.ones(2))
    with pytest.raises(TypeError, match="one number for global_scale"):
        dot(x, x, rows, configs=[nvs] * 3)
