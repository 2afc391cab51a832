"""The operation behind samples of gamma distributions: its bits, its derivative, its types."""

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import random
from tests.support.closeness import assert_close

pytestmark = pytest.mark.sweep

KEY = jax.random.key(3)


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
