"""Fourier and cosine transforms against JAX: values, types, gradients; bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans import lax
from tests.support.closeness import assert_close

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(3, 5))
COMPLEX = REAL + 1j * RNG.normal(size=(3, 5))
DEEP = RNG.normal(size=(2, 3, 2, 3, 2))
OURS, THEIRS = fnp.fft, jnp.fft

# name: a function of numpy.fft, its operand
FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "fft": (lambda f: f.fft, COMPLEX),
    "fft real cut": (lambda f: lambda x: f.fft(x, 4, 0, "ortho"), REAL),
    "ifft": (lambda f: lambda x: f.ifft(x, norm="forward"), COMPLEX),
    "rfft": (lambda f: lambda x: f.rfft(x, n=8), REAL),
    "irfft": (lambda f: f.irfft, COMPLEX),
    "irfft odd": (lambda f: lambda x: f.irfft(x, n=7, norm="ortho"), COMPLEX),
    "hfft": (lambda f: f.hfft, COMPLEX),
    "ihfft": (lambda f: f.ihfft, REAL),
    "fft of all axes": (lambda f: lambda x: f.fft(x, axis=None), COMPLEX),
    "rfft of the last axis": (lambda f: lambda x: f.rfft(x, n=4, axis=None), REAL),
    "fft2": (lambda f: lambda x: f.fft2(x, s=(4, 4), axes=(1, 0)), COMPLEX),
    "ifft2": (lambda f: f.ifft2, COMPLEX),
    "rfft2": (lambda f: f.rfft2, REAL),
    "irfft2": (lambda f: lambda x: f.irfft2(x, norm="forward"), COMPLEX),
    "fftn": (lambda f: f.fftn, DEEP),
    "ifftn": (lambda f: f.ifftn, DEEP),
    "rfftn": (lambda f: f.rfftn, DEEP),
    "irfftn": (lambda f: f.irfftn, DEEP),
    "fftshift": (lambda f: f.fftshift, REAL),
    "ifftshift": (lambda f: lambda x: f.ifftshift(x, axes=1), REAL),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_jax(name):
    """Values, dtypes, shapes and gradients, in one compilation."""
    make, x = FUNCTIONS[name]

    def both(library: Any, module: Any, numpy: Any) -> Callable[..., Any]:
        f = make(module)
        slope = library.grad(lambda x: numpy.cos(numpy.abs(f(x))).sum() + numpy.real(f(x)).sum())
        return lambda x: (f(x), slope(x))

    with jax.enable_x64(True):
        ours, theirs = both(ft, OURS, fnp), both(jax, THEIRS, jnp)
        assert_close(*jax.jit(lambda x: (ft.jit(ours)(x), theirs(x)))(x), 1e-10, name)


@pytest.mark.parametrize("dtype", ["int32", "float16", "bool"])
@pytest.mark.parametrize("name", ["fft", "irfft"])
def test_dtypes_of_results(name, dtype):
    x = (np.arange(12) % 5).reshape(3, 4).astype(dtype)
    assert_close(getattr(fnp.fft, name)(x), getattr(jnp.fft, name)(x))


def test_weak_types():
    weak = jnp.where(jnp.eye(3) > 0, 2.0, 1.0)
    for name in ("fft", "rfft", "irfft", "ifft", "hfft"):
        for x in (weak, weak * 1j)[: 1 if name == "rfft" else 2]:
            ours, theirs = getattr(fnp.fft, name)(x), getattr(jnp.fft, name)(x)
            assert ours.weak_type == theirs.weak_type, name


@pytest.mark.parametrize("norm", ["ortho", "forward"])
def test_nothing_to_transform(norm):
    for name, x in (("fftn", REAL[:0, 0]), ("rfft2", REAL[:0]), ("ifft2", REAL[:0])):
        assert_close(*[getattr(library.fft, name)(x, norm=norm) for library in (fnp, jnp)])


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("n", [1, 4])
def test_frequencies(name, n):
    ours, theirs = getattr(fnp.fft, name), getattr(jnp.fft, name)
    assert_close(ours(n), theirs(n))
    assert_close(ours(n, d=0.5, dtype=np.float16), theirs(n, d=0.5, dtype=np.float16))
    assert_close(ours(n, dtype=np.int32), theirs(n, dtype=np.int32))


@pytest.mark.parametrize("name", ["irfft", "hfft", "irfft2", "irfftn"])
def test_no_numbers_along_an_axis(name):
    x = np.zeros((2, 0), np.complex64)
    assert_close(*[getattr(library.fft, name)(x) for library in (fnp, jnp)])


def test_vmap_is_a_batch_axis():
    program = ft.make_ir(ft.vmap(fnp.fft.rfft, 1))(np.ones((4, 7), np.float32))
    (equation,) = [e for e in program.equations if e.primitive.name == "fft"]
    assert equation.inputs[0].type.shape == (7, 4)


def test_lax_fft_takes_names_and_types():
    x = np.complex64(COMPLEX)
    for kind in ("FFT", "ifft", lax.FftType.IFFT):
        assert_close(lax.fft(x, kind, (5,)), jax.lax.fft(x, kind, (5,)))
    assert_close(lax.fft(x, "FFT", ()), x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fnp.fft.fft(REAL, norm="x"), ValueError, "invalid norm 'x'"),
        (lambda: fnp.fft.fft(REAL, n=0), ValueError, "lengths must be positive"),
        (lambda: fnp.fft.fft(REAL, axis=(0, 1)), ValueError, "Use fftn"),
        (lambda: fnp.fft.fft2(REAL, axes=(0,)), ValueError, "takes two axes"),
        (lambda: fnp.fft.fftn(REAL, axes=(0, 0)), ValueError, "duplicate"),
        (lambda: fnp.fft.rfft(COMPLEX), ValueError, "RFFT transforms real numbers"),
        (lambda: lax.fft(REAL, "x", (5,)), ValueError, "unknown type 'x'"),
        (lambda: lax.fft(REAL, "FFT", (4,)), ValueError, "takes last axes"),
        (lambda: fnp.fft.rfft(REAL.astype("float16")), ValueError, "RFFT takes float32"),
        (lambda: fnp.fft.fftn(REAL, axes=0), TypeError, "axes must be integers, got 0"),
        (lambda: fnp.fft.fft2(REAL, axes=None), TypeError, "axes must be integers, got None"),
        (lambda: fnp.fft.ifft2(REAL, s=3), TypeError, "s must be integers, got 3"),
        (lambda: fnp.fft.rfft(REAL, n=2.5), TypeError, "s must be integers"),
        (lambda: fnp.fft.hfft(REAL, axis=None), TypeError, "axis must be a Python int"),
        (lambda: fnp.fft.ihfft(REAL[0, 0]), IndexError, "axis -1 is out of bounds"),
        (lambda: fnp.fft.fftshift(REAL, axes=5), IndexError, "axis 5 is out of bounds"),
        (lambda: lax.fft(REAL, "RFFT", 5), TypeError, "fft_lengths must be integers, got 5"),
        (lambda: fnp.fft.fftfreq([3]), ValueError, "takes one n"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, ft.errors.FunctransError)
    assert "test_fft.py" in str(caught.value)
