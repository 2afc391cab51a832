"""`functrans.image` against `jax.image`."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp

METHODS = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area"]
SHAPES = [(3, 12, 2), (5, 7, 2), (5, 0, 2)]
DTYPES = ["float32", "uint8", "float16", "complex64", "bool"]
IMAGE = np.random.default_rng(0).normal(size=(5, 7, 2)) * 4

SCALES = np.array([0.6, 1.7], np.float32)
SHIFTS = np.array([1.0, -0.8], np.float32)


def equal(ours, theirs, **tolerance):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(
            np.asarray(a, np.complex64), np.asarray(b, np.complex64), **tolerance
        )


@pytest.mark.parametrize("antialias", [True, False])
def test_resize(antialias):
    def run(lib):
        def f(x):
            return [lib.image.resize(x, s, m, antialias) for s in SHAPES for m in METHODS]

        return lib.jit(f)(IMAGE.astype(np.float32))

    equal(run(ft), run(jax), rtol=2e-5, atol=2e-5)


def test_dtypes():
    images = [(IMAGE * 3).clip(0, 200).astype(dtype) for dtype in DTYPES]

    def run(lib):
        def f(xs):
            return [lib.image.resize(x, (4, 8, 2), m) for x in xs for m in ("nearest", "bilinear")]

        return lib.jit(f)(images)

    equal(run(ft), run(jax), rtol=2e-3, atol=2e-3)


def test_scale_and_translate():
    def run(lib):
        def f(x, scale, shift):
            return [
                lib.image.scale_and_translate(x, (6, 9, 2), (0, 1), scale, shift, m, a)
                for m in METHODS[1:] for a in (True, False)
            ]  # fmt: skip

        return lib.jit(f)(IMAGE.astype(np.float32), SCALES, SHIFTS)

    equal(run(ft), run(jax), rtol=1e-4, atol=5e-5)


def test_gradients():
    def run(lib):
        def f(x, scale, shift):
            resized = lib.image.resize(x, (3, 9, 2), "cubic")
            moved = lib.image.scale_and_translate(x, (6, 9, 2), (0, 1), scale, shift, "lanczos3")
            return lib.numpy.sum(lib.numpy.sin(resized)) + lib.numpy.sum(lib.numpy.sin(moved))

        return lib.jit(lib.grad(f, (0, 1, 2)))(IMAGE.astype(np.float32), SCALES, SHIFTS)

    equal(run(ft), run(jax), rtol=1e-3, atol=1e-3)


def test_batches_and_methods():
    x = jnp.asarray(IMAGE, jnp.float32)
    rows = ft.vmap(lambda row: ft.image.resize(row, (14, 2), ft.image.ResizeMethod.LINEAR))(x)
    np.testing.assert_allclose(rows, ft.image.resize(x, (5, 14, 2), "triangle"), rtol=1e-5)
    assert {m.name: m.value for m in ft.image.ResizeMethod} == {
        m.name: m.value for m in jax.image.ResizeMethod
    }
    # a mean of constants is the constant; a linear ramp stays one away from the edges
    flat = ft.image.resize(jnp.full((7, 5), 3.0), (4, 11), "lanczos5")
    np.testing.assert_allclose(flat, 3.0, rtol=1e-6)


def test_misuse():
    x = jnp.ones((2, 3))
    with pytest.raises(ValueError, match='Unknown resize method "gauss"'):
        ft.image.resize(x, (4, 4), "gauss")
    with pytest.raises(ValueError, match="shape must have length"):
        ft.image.resize(x, (4,), "linear")
    with pytest.raises(ValueError, match="Nearest neighbor resampling is not"):
        ft.image.scale_and_translate(x, (4, 4), (0,), jnp.ones(1), jnp.ones(1), "nearest")
    with pytest.raises(ValueError, match="does not take these arguments"):
        ft.image.scale_and_translate(x, (4, 4), (0, 1), jnp.ones(1), jnp.ones(2), "linear")
    with pytest.raises(TypeError, match="Shapes must be 1D sequences of concrete values"):
        ft.jit(lambda n: ft.image.resize(x, (n, 4), "linear"))(3)
