"""Arguments that JAX has from 0.11 on and functrans has on every version: their values are those of
JAX where it has them, and of the distributions."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from tests.support.versions import NEWER

X = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], np.float32)


# --- where results lie ----------------------------------------------------------------------------

PLACED = {
    "reduce_sum": lambda m, where: m.lax.reduce_sum(X, (0,), out_sharding=where),
    "reduce_max": lambda m, where: m.lax.reduce_max(X, (0,), out_sharding=where),
    "reduce_min": lambda m, where: m.lax.reduce_min(X, (1,), out_sharding=where),
}


@pytest.fixture
def rows() -> jax.sharding.NamedSharding:
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))


@pytest.mark.parametrize("name", PLACED)
def test_results_lie_where_they_are_wanted(name, rows):
    run = PLACED[name]
    plain, placed = (jax.tree.leaves(run(ft, where)) for where in (None, rows))
    for x, y in zip(plain, placed, strict=True):
        assert_array_equal(x, y)
        assert x.dtype == y.dtype
        assert y.sharding == rows
        assert x.sharding != rows
    traced = jax.tree.leaves(ft.jit(lambda: run(ft, rows))())  # the compiler's to choose
    for x, y in zip(plain, traced, strict=True):
        assert_allclose(x, y)
    if NEWER:
        for x, y in zip(plain, jax.tree.leaves(run(jax, None)), strict=True):
            assert_array_equal(x, y)
