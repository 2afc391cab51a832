"""Random loops as kernels and plainly (tests/matrix/loop_programs.py). The sweep and the heavy run
draw many more; one that ends the process is found by the worker that is gone."""

import jax
import numpy as np
import pytest

import functrans as ft
from tests.matrix.loop_programs import drawn

SEEDS = 16


def check(seed: int) -> None:
    """Equal up to the last bits: the compiler joins a product and a sum here and not there."""
    run, args, exact = drawn(seed)
    plain = ft.tree.leaves(ft.jit(lambda *xs: run(*xs), cpu="plain")(*args))
    found = ft.tree.leaves(ft.jit(run)(*args))
    floats = [np.asarray(y) for y in plain if y.dtype == np.float32]
    size = max([1e-3, *[float(abs(y[np.isfinite(y)]).max(initial=0)) for y in floats]])
    tolerance = 1e-4 if exact else 2e-3
    for x, y in zip(found, plain, strict=True):
        assert x.dtype == y.dtype
        if x.dtype != jax.dtypes.float0 and size < 1e4:  # derivatives of what is chaotic say nothing
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * size)


@pytest.mark.parametrize(
    "seed", [*range(SEEDS), *[pytest.param(s, marks=pytest.mark.sweep) for s in range(SEEDS, 40)]]
)
def test_random_loops(seed: int):
    check(seed)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(40, 2000))
def test_two_thousand_random_loops(seed: int):
    check(seed)
