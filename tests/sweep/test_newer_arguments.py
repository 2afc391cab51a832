"""Arguments that JAX has from 0.11 on and functrans has on every version: their values are those of
JAX where it has them, and of the distributions."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax, random
from tests.support.versions import NEWER

X = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], np.float32)
KEY = jax.random.key(7)


# --- where results lie ----------------------------------------------------------------------------

PLACED = {
    "reduce_sum": lambda m, where: m.lax.reduce_sum(X, (0,), out_sharding=where),
    "reduce_max": lambda m, where: m.lax.reduce_max(X, (0,), out_sharding=where),
    "reduce_min": lambda m, where: m.lax.reduce_min(X, (1,), out_sharding=where),
    "histogram": lambda m, where: m.numpy.histogram(X, 4, out_sharding=where),
    "one_hot": lambda m, where: m.nn.one_hot(jnp.array([1, 0]), 3, out_sharding=where),
    "one_hot of a list": lambda m, where: m.nn.one_hot([1, 0], 3, out_sharding=where),
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


DRAWN = {
    "bits": (), "uniform": (), "randint": ((), 0, 9), "bernoulli": (0.5,), "normal": (),
    "gumbel": (), "poisson": (2.0,), "gamma": (2.0,), "dirichlet": (np.ones(3),),
    "permutation": (4,), "categorical": (np.zeros((2, 3)),), "orthogonal": (3,),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_samples_lie_where_they_are_wanted(name, rows):
    mesh = jax.sharding.NamedSharding(rows.mesh, jax.sharding.PartitionSpec())
    draw = getattr(random, name)
    plain, placed = (draw(KEY, *DRAWN[name], out_sharding=where) for where in (None, mesh))
    assert_array_equal(plain, placed)
    assert placed.sharding == mesh != plain.sharding


@pytest.mark.parametrize("stable", [True, False])
def test_of_equal_elements_the_first_comes_first(stable):
    x = np.array([[2, 7, 7, 1, 2], [0, 0, 0, 0, 0]], np.int32)
    values, places = lax.top_k(x, 3, is_stable=stable)
    assert_array_equal(places, [[1, 2, 0], [0, 1, 2]])
    assert_array_equal(values, [[7, 7, 2], [0, 0, 0]])
    if NEWER:
        assert_array_equal(values, jax.lax.top_k(x, 3, is_stable=stable)[0])


# --- samples by a formula -------------------------------------------------------------------------

PARAMETERS = np.array([0.01, 0.05, 0.3, 1.0, 2.5, 7.0, 40.0, 1e4], np.float32)[:, None]
OF_GAMMA = ["gamma", "loggamma", "chisquare"]
SAMPLERS = {
    **{name: lambda m, name=name, **how: getattr(m.random, name)(KEY, PARAMETERS, (8, 999), **how)
       for name in OF_GAMMA},
    "beta": lambda m, **how: m.random.beta(KEY, PARAMETERS, PARAMETERS.T, **how),
    "poisson": lambda m, **how: m.random.poisson(KEY, PARAMETERS, (8, 999), **how),
}  # fmt: skip


@pytest.mark.skipif(not NEWER, reason="JAX 0.10 draws exact samples only")
@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_are_those_of_jax(name):
    ours, theirs = (SAMPLERS[name](m, method="approximate") for m in (ft, jax))
    assert ours.dtype == theirs.dtype
    if name == "poisson":
        assert np.mean(ours != theirs) < 1e-3  # rounding decides where two counts are as near
        assert np.max(np.abs(ours - theirs)) <= 1
    else:
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 if name == "loggamma" else 1e-30)


@pytest.mark.skipif(not NEWER, reason="JAX 0.10 draws exact samples only")
def test_special_parameters():
    special = np.array([np.nan, -1.0, -5.0, 0.0, np.inf, 1e-30, 1e30], np.float32)
    for name in ("gamma", "chisquare"):
        draws = [getattr(m.random, name)(KEY, special, method="approximate") for m in (ft, jax)]
        assert_allclose(*draws, rtol=1e-4)
    for dtype in ("float16", "bfloat16"):
        draws = [m.random.gamma(KEY, 2.5, (9,), dtype, method="approximate") for m in (ft, jax)]
        assert draws[0].dtype == draws[1].dtype
        assert_allclose(*[np.asarray(x, np.float32) for x in draws], rtol=2e-2)
    for dtype in ("int16", "uint8"):
        draws = [m.random.poisson(KEY, 9.5, (9,), dtype, method="approximate") for m in (ft, jax)]
        assert_array_equal(*draws)


@pytest.mark.parametrize("a", [0.2, 0.7, 3.0, 50.0])
def test_gamma_samples_are_distributed_so(a):
    x = np.asarray(random.gamma(KEY, a, (20_000,), method="approximate"))
    assert scipy.stats.kstest(x, scipy.stats.gamma(a).cdf).pvalue > 1e-3
    logs = np.asarray(random.loggamma(KEY, a, (20_000,), method="approximate"))
    assert_allclose(np.exp(logs), x, rtol=1e-4, atol=1e-30)
    y = np.asarray(random.beta(KEY, a, 2.0, (20_000,), method="approximate"))
    assert scipy.stats.kstest(y, scipy.stats.beta(a, 2.0).cdf).pvalue > 1e-3
    z = np.asarray(random.chisquare(KEY, a, (20_000,), method="approximate"))
    assert scipy.stats.kstest(z, scipy.stats.chi2(a).cdf).pvalue > 1e-3


@pytest.mark.parametrize("mean", [0.0, 0.2, 6.9, 7.1, 60.0, 1e6])
def test_counts_are_distributed_so(mean):
    k = np.asarray(random.poisson(KEY, mean, (20_000,), method="approximate"))
    assert abs(k.mean() - mean) <= 5 * np.sqrt(mean / k.size)
    edges = np.unique(scipy.stats.poisson(mean).ppf([0.05, 0.2, 0.4, 0.6, 0.8, 0.95]))
    for edge in edges:
        p = scipy.stats.poisson(mean).cdf(edge)
        assert abs((k <= edge).mean() - p) <= 5 * np.sqrt(p * (1 - p) / k.size) + 1e-4


def test_the_derivative_is_that_of_the_formula():
    def total(a, log):
        draw = random.loggamma if log else random.gamma
        return jnp.sum(draw(KEY, a, (5,), method="approximate"))

    with jax.enable_x64(True):
        for log in (False, True):
            slope = ft.jit(ft.grad(lambda a, log=log: total(a, log)))(np.float64(2.5))
            h = 1e-5
            assert_allclose(slope, (total(2.5 + h, log) - total(2.5 - h, log)) / (2 * h), rtol=1e-6)


def test_under_vmap_and_jit():
    keys = ft.random.split(KEY, 3)
    draws = ft.jit(ft.vmap(lambda k: random.gamma(k, 2.0, (4,), method="approximate")))(keys)
    for key, row in zip(keys, draws, strict=True):
        assert_allclose(row, random.gamma(key, 2.0, (4,), method="approximate"), rtol=1e-5)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_methods(name):
    plain, exact = SAMPLERS[name](ft), SAMPLERS[name](ft, method="exact")
    assert_array_equal(plain, exact)
    assert not np.array_equal(plain, SAMPLERS[name](ft, method="approximate"))
    with pytest.raises(errors.InvalidArgument, match="'exact' or 'approximate', got 'fast'"):
        SAMPLERS[name](ft, method="fast")
    assert inspect.signature(getattr(random, name)).parameters["method"].default == "exact"
