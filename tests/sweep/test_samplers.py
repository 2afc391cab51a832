"""The samplers that loop and those of their samples, bit for bit those of jax.random."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, random
from functrans.primitives.base import PRIMITIVES
from tests.support.closeness import assert_close

KEY = jax.random.key(3)
A = np.array([0.05, 0.7, 1.0, 8.0], np.float32)
RATES = np.array([0, 0.5, 9.9, 10, 1e3, np.nan], np.float32)
TRIALS = np.array([0, 5, 100, 1000, -1, np.inf, np.nan, 20, 20], np.float32)
CHANCES = np.array([0.5, 0.1, 0.9, 0.3, 0.3, 0.3, 0.3, np.nan, 1], np.float32)
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4], np.float32)

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "gamma": ((A,), {}),
    "gamma of half precision": ((2.0,), {"shape": (4,), "dtype": "bfloat16"}),
    "loggamma": ((A,), {}),
    "beta": ((A, 2.0), {}),
    "chisquare": ((A,), {"shape": (2, 4)}),
    "dirichlet": ((A,), {"shape": (2,)}),
    "f": ((A, 3.0), {}),
    "t": ((3.0,), {"shape": (5,)}),
    "generalized_normal": ((1.5, (5,)), {}),
    "ball": ((3,), {"p": 1.3, "shape": (4,)}),
    "poisson": ((RATES,), {"shape": (20, 6)}),
    "poisson of short integers": ((4.0,), {"dtype": "int16"}),
    "binomial": ((TRIALS, CHANCES), {"shape": (20, 9)}),
    "multinomial": ((100, WEIGHTS), {"shape": (3, 4)}),
}  # fmt: skip
QUICK = ("dirichlet", "poisson")


@pytest.mark.parametrize("name", ["normal", "bits", "gumbel", "dirichlet", "randint", "ball"])
def test_a_shape_may_be_a_number(name: str):
    args = {"dirichlet": (A,), "randint": (3, 0, 9), "ball": (2, 2.0, 3)}.get(name, ())
    shape = {"shape": 3} if name not in ("randint", "ball") else {}
    found, wanted = (getattr(lib, name)(KEY, *args, **shape) for lib in (random, jax.random))
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert_close(found, wanted)


@pytest.mark.parametrize(
    "label", [c if c in QUICK else pytest.param(c, marks=pytest.mark.heavy) for c in CALLS]
)
def test_samples(label: str):
    args, kwargs = CALLS[label]
    name = label.partition(" ")[0]
    found = getattr(random, name)(KEY, *args, **kwargs)
    wanted = getattr(jax.random, name)(KEY, *args, **kwargs)
    assert found.weak_type == wanted.weak_type
    assert_close(found, wanted, 0.0)


@pytest.mark.parametrize("log_space", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_gradient_of_gamma_and_batches_of_keys(log_space: bool):
    """The derivative moves a sample so that the distribution function at it stays."""
    keys = jax.random.split(KEY, 2)

    def both(library: Any, keys: Any, a: Any) -> Any:
        def total(key: Any, a: Any) -> Any:
            sample = library.random.loggamma if log_space else library.random.gamma
            return sample(key, a).sum()

        return library.vmap(library.value_and_grad(total, 1), (0, None))(keys, a)

    a = A[1:3]
    found = ft.jit(lambda k, a: both(ft, k, a))(keys, a)
    assert_close(found, jax.jit(lambda k, a: both(jax, k, a))(keys, a), 1e-5)


def test_the_operation():
    gamma = PRIMITIVES["random_gamma"]
    data = jax.random.key_data(jax.random.split(KEY, 2))
    a = np.ones((2, 3), np.float32)
    program = ft.make_ir(lambda d, a: gamma(d, a, log_space=False))(data, a)
    by_jax = jax.vmap(lambda d, a: jax.random.gamma(jax.random.wrap_key_data(d), a))
    assert_close(ft.interpret(program, data, a), [by_jax(data, a)], 1e-5)
    with pytest.raises(errors.TypeMismatch, match="must have axes for the keys"):
        gamma(data, a[0], log_space=False)


@pytest.mark.parametrize("log_space", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_reference_draws_the_same_bits(dtype: str, log_space: bool):
    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype == "float64"):
        a = np.append(rng.exponential(size=(2, 500)), [[0.0, np.nan, 1e9]] * 2, 1).astype(dtype)
        keys = jax.random.split(KEY, 2)
        name = "loggamma" if log_space else "gamma"
        draw = lambda lib: lib.vmap(lambda k, a: getattr(lib.random, name)(k, a, None, dtype))  # noqa: E731
        [found] = ft.interpret(ft.make_ir(draw(ft))(keys, a), keys, a)
        assert_close(found, draw(jax)(keys, a), {"float32": 2e-5, "float64": 1e-12}.get(dtype, 0.0))


def test_the_drift_of_samples_is_that_of_their_parameters():
    """In float64 other bits would be drawn, and each sample would be another one."""
    report = ft.compare(lambda k, a: random.gamma(k, jnp.exp(a), (50,)))(KEY, 0.3)
    assert report.ok
    assert report.results[0].error < 1e-5
    assert report.amplified is None


COVARIANCE = np.array([[2, 0.5, 0.1], [0.5, 1, 0.2], [0.1, 0.2, 1.5]], np.float32)


@pytest.mark.parametrize(
    "method", ["cholesky", *[pytest.param(m, marks=pytest.mark.heavy) for m in ("eigh", "svd")]]
)
def test_normal_vectors(method: str):
    mean = np.arange(3.0, dtype=np.float32)
    args = KEY, np.stack([mean, -mean]), COVARIANCE, (4, 2), None, method
    found, wanted = random.multivariate_normal(*args), jax.random.multivariate_normal(*args)
    # the draws are JAX's to the bit; the product with the root of 3 x 3 is a sum here (cliffs.md)
    assert_close(found, wanted, 3e-7)

    def total(library: Any, cov: Any) -> Any:
        draws = library.random.multivariate_normal(KEY, mean, cov, (2,), method=method)
        return (draws**2).sum()

    ours = ft.grad(lambda c: total(ft, c))(COVARIANCE)
    assert_close(ours, jax.grad(lambda c: total(jax, c))(COVARIANCE), 1e-5)
    with pytest.raises(ValueError, match=r"cov.shape == \(\.\.\., n, n\) for n=2"):
        random.multivariate_normal(KEY, np.zeros(2), COVARIANCE)
    with pytest.raises(ValueError, match="method must be one of"):
        random.multivariate_normal(KEY, mean, COVARIANCE, method="lu")


def test_orthogonal_matrices():
    for args, kwargs in (((3,), {"m": 5}), ((2, (2,)), {"dtype": "complex64"})):
        found = random.orthogonal(KEY, *args, **kwargs)
        assert_close(found, jax.random.orthogonal(KEY, *args, **kwargs), 0.0)


def test_bad_arguments():
    with pytest.raises(ValueError, match="must be a float dtype"):
        random.gamma(KEY, 1.0, dtype="int32")
    with pytest.raises(ValueError, match="Incompatible shapes"):
        random.beta(KEY, A, 1.0, (3,))
    with pytest.raises(ValueError, match="requires alpha"):
        random.dirichlet(KEY, 1.0)
    with jax.enable_x64(True), pytest.raises(ValueError, match="cannot safely cast"):
        random.t(KEY, np.float64(3), dtype="float32")
    with pytest.raises(ValueError, match="Invalid integer data type"):
        random.poisson(KEY, 1.0, dtype="float32")
