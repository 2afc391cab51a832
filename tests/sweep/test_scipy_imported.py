"""The modules of functrans.scipy that are JAX's own programs, against those of JAX."""

import importlib

import jax
import jax.numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp

RNG = np.random.default_rng(0)
SIGNAL, OTHER = (RNG.normal(size=300).astype("float32") for _ in range(2))
IMAGE, SMALL = RNG.normal(size=(9, 8)).astype("float32"), RNG.normal(size=(3, 2)).astype("float32")
PLACES = [RNG.uniform(0, 7, 5).astype("float32") for _ in range(2)]

CALLS = {  # module, name, arguments, keywords; derivatives are those of the first argument
    "convolve": ("signal", "convolve", (SIGNAL, OTHER[:5]), {"mode": "same"}),
    "convolve by fft": ("signal", "convolve", (SIGNAL, OTHER[:5]), {"method": "fft"}),
    "convolve2d": ("signal", "convolve2d", (IMAGE, SMALL), {"mode": "valid"}),
    "correlate": ("signal", "correlate", (SIGNAL, OTHER[:5]), {}),
    "correlate2d": ("signal", "correlate2d", (IMAGE, SMALL), {}),
    "fftconvolve": ("signal", "fftconvolve", (IMAGE, IMAGE[:4]), {"axes": (0,), "mode": "same"}),
    "detrend": ("signal", "detrend", (SIGNAL,), {}),
    "csd": ("signal", "csd", (SIGNAL, OTHER), {"nperseg": 64}),
    "welch": ("signal", "welch", (SIGNAL,), {"nperseg": 64, "fs": 2.0}),
    "stft": ("signal", "stft", (SIGNAL,), {"nperseg": 64}),
    "map_coordinates": ("ndimage", "map_coordinates", (IMAGE, PLACES), {"order": 1}),
    "map_coordinates, mirror": (
        "ndimage", "map_coordinates", (IMAGE, PLACES), {"order": 0, "mode": "mirror"},
    ),
    "vq": ("cluster.vq", "vq", (IMAGE, IMAGE[:3] + 0.1), {}),
    "trapezoid": ("integrate", "trapezoid", (SIGNAL,), {"dx": 0.1}),
}  # fmt: skip


def of(library, module, name):
    return getattr(importlib.import_module(f"{library}.scipy.{module}"), name)


def close(ours, theirs):
    a, b = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    for x, y in zip(a, b, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("call", CALLS)
def test_values_and_derivatives(call):
    module, name, args, keywords = CALLS[call]
    ours, theirs = of("functrans", module, name), of("jax", module, name)

    def total(np_, f):
        def loss(x):
            made = f(x, *args[1:], **keywords)
            floats = [v for v in jax.tree.leaves(made) if v.dtype != "int32"]
            return sum(np_.sum(np_.abs(v) ** 2) for v in floats), made

        return loss

    of_ours = ft.jit(ft.value_and_grad(total(jnp, ours), has_aux=True))
    of_theirs = jax.jit(jax.value_and_grad(total(jax.numpy, theirs), has_aux=True))
    close(of_ours(args[0]), of_theirs(args[0]))


def test_derivatives_of_functions_with_orders():
    """The order of expn is an argument as another; the largest degree of sph_harm_y is read off n
    though theta is traced."""

    def slopes(library):
        special, x = library.scipy.special, np.array([0.3, 2.0], np.float32)
        n, m = np.array([1, 2]), np.array([1])

        def of_expn(n):
            return lambda x: special.expn(n, x).sum()

        return (
            *[library.grad(of_expn(k))(x) for k in (0, 1, 3, np.array([2, 4]))],
            library.vmap(library.grad(lambda n, x: special.expn(n, x), 1))(n, x),
            library.grad(lambda t: special.sph_harm_y(n, m, t, x).real.sum())(x),
        )

    close(slopes(ft), slopes(jax))
    twice = ft.grad(ft.grad(lambda x: ft.scipy.special.expn(3, x)))(0.3)  # JAX has none
    close(twice, ft.scipy.special.expn(1, 0.3))


@pytest.mark.parametrize("call", ["convolve2d", "map_coordinates", "trapezoid"])
def test_at_top_level(call):
    module, name, args, keywords = CALLS[call]
    ours, theirs = of("functrans", module, name), of("jax", module, name)
    close(ours(*args, **keywords), theirs(*args, **keywords))


def test_quantising_nothing():
    for shape in ((0, 2), (0,)):
        x, codes = np.zeros(shape, np.float32), np.ones((3, *shape[1:]), np.float32)
        close(*[of(L, "cluster.vq", "vq")(x, codes) for L in ("functrans", "jax")])


def test_istft_gives_the_signal_back():
    signal = of("functrans", "signal", "stft")(SIGNAL, nperseg=64)[2]
    back = of("functrans", "signal", "istft")(signal, nperseg=64)[1]
    np.testing.assert_allclose(back[: len(SIGNAL)], SIGNAL, atol=1e-5)


def test_names():
    for module in ("cluster.vq", "integrate", "ndimage", "signal"):
        theirs = importlib.import_module(f"jax.scipy.{module}")
        names = [n for n in dir(theirs) if not n.startswith("_")]
        assert not [n for n in names if not hasattr(importlib.import_module(
            f"functrans.scipy.{module}"), n)]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: ft.scipy.special.spence(np.ones(2, int) > 0), TypeError, "spence(bool[2])"),
        (lambda: ft.scipy.stats.rankdata(np.ones(2, np.float32), "most"), ValueError, "'most'"),
        (lambda: ft.scipy.stats.beta.pdf(np.ones(2, np.complex64), 1, 2), TypeError, "pdf(c64[2]"),
        (lambda: ft.scipy.special.expi(), TypeError, "expi()"),
        (
            lambda: ft.scipy.stats.gaussian_kde(np.ones(3, np.complex64)),
            NotImplementedError,
            "complex data",
        ),
    ],
)
def test_misuse_of_imported_functions_names_the_call_and_the_line(call, error, names):
    with pytest.raises(error) as told:
        call()
    assert isinstance(told.value, ft.errors.FunctransError)
    assert names in str(told.value)
    assert "test_scipy_imported.py" in str(told.value)
