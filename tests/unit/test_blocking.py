"""`ft.jit(f, cpu="blocking")`: on a CPU the thread that calls runs the program."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.backends import xla
from tests.support.closeness import assert_close
from tests.unit.test_dispatch import python_of

pytestmark = pytest.mark.smoke

X = jnp.arange(256.0).reshape(16, 16) / 256
MANY = 20_000  # steps, which take milliseconds


def diffused(x: Any, steps: int = 20) -> Any:
    def step(_: Any, x: Any) -> Any:
        return x / 2 + (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0)) / 4

    return jax.lax.fori_loop(0, steps, step, x)


def asked(x: Any) -> Any:
    return jax.pure_callback(lambda x: 2 * np.asarray(x), x, x) + jnp.sin(x @ x)


def test_results_are_computed_when_a_call_returns():
    def long(x: Any) -> Any:  # JAX 0.10 may find a program in its disk cache that does not block
        return diffused(x, MANY)

    run = ft.jit(long, cpu="blocking")
    for _ in range(3):
        assert run(X).is_ready()
    assert python_of(lambda: run(X)) == set()


def runs_here(jitted: Any) -> bool:
    """Whether the thread that calls is asked to run the program: XLA is given a host callback."""
    return xla.asked in jitted.lower(X)._lowering.compile_args["host_callbacks"]


def test_only_the_outermost_function_decides():
    run, plainly = ft.jit(diffused, cpu="blocking"), ft.jit(diffused)
    assert runs_here(run)
    assert not runs_here(plainly)
    assert not runs_here(ft.jit(lambda x: run(x)))
    assert not runs_here(jax.jit(lambda x: run(x)))
    assert runs_here(ft.jit(lambda x: plainly(x), cpu="blocking"))
    assert runs_here(ft.jit(jax.jit(diffused), cpu="blocking"))


def test_donated_buffers_and_static_arguments():
    run = ft.jit(diffused, cpu="blocking", donate_argnums=0, static_argnums=1)
    for steps in (3, 3, 4, 3):
        x = X + 0
        assert_close(run(x, steps), diffused(X, steps))
        assert x.is_deleted()


def test_threads():
    run = ft.jit(lambda x: diffused(x, MANY // 10), cpu="blocking")
    expected = run(X)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: run(X), range(12)):
            assert (found == expected).all()


def test_a_nan_is_found():
    run = ft.jit(lambda x: jnp.log(x - 300) + x @ x, cpu="blocking")
    with jax.debug_nans(True):
        for _ in range(2):
            with pytest.raises(FloatingPointError, match="first made by equation 1"):
                run(X)
