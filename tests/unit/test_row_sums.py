"""Sums of whole arrays by rows, products step by step and random numbers word by word: which programs the
calling thread runs, and values."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.backends import eager
from functrans.ir import PRIMITIVES

pytestmark = pytest.mark.smoke

SHORT = {
    "sum": jnp.sum,
    "mean of squares": lambda x: jnp.mean(x**2),
    "variance": jnp.var,
    "norm": jnp.linalg.norm,
    "product with itself": lambda x: jnp.sum((x - 0.5) * (x - 0.5)),
    "distance from the mean": lambda x: jnp.sum(jnp.abs(x - jnp.mean(x))),
    "selection": lambda x: jnp.sum(jnp.where(x > x[0], x, 0.0)),
    "a number": lambda x: jnp.sum(x * x[3] + x[4]),
    "two of one array": lambda x: jnp.sum(jnp.sin(x)) + jnp.sum(jnp.sin(x) * 2),
    "in two dimensions": lambda x: jnp.sum(x[:1000].reshape(10, 100) * 2),
    "what is summed is read": lambda x: (jnp.sin(x), jnp.sum(jnp.sin(x))),
    "written by a loop": lambda x: jnp.mean(lax.scan(lambda c, a: (c + a, jnp.tanh(c)), x[0], x)[1]),
    "weak": lambda x: jnp.sum(jnp.broadcast_to(x[0] * 2.0, (1500,))),
}


@pytest.mark.parametrize("case", SHORT)
@pytest.mark.parametrize(("size", "dtype"), [(1024, "float32"), (1500, "float64"), (16384, "float32")])
def test_values(case, size, dtype):
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=size).astype(dtype)
        f = ft.jit(SHORT[case])
        compiled = f.lower(x).compile()
        assert compiled.cost_analysis()["flops"] < 1000
        expected = jax.tree.map(np.asarray, SHORT[case](x.astype("float64")))
        tolerance = 100 * np.finfo(dtype).eps
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, tolerance, 50 * tolerance), f(x), expected)
        assert jax.tree.map(lambda a: a.dtype, f(x)) == jax.tree.map(lambda a: np.dtype(dtype), expected)


def policy(x, *weights):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


PRODUCTS = {
    "of a vector": (policy, (64,), (64, 64), (64, 64), (64, 64)),
    "of one row": (policy, (1, 100), (100, 64), (64, 3)),
    "of four rows": (policy, (4, 64), (64, 64)),
    "with a vector": (lambda w, x: jnp.sin(w @ x), (100, 128), (128,)),
    "of vectors": (jnp.dot, (1000,), (1000,)),
    "of stacks": (lambda x, y: x @ y, (2, 2, 64), (2, 64, 40)),
    "with a sum": (lambda x, w: jnp.mean((x @ w) ** 2), (200,), (200, 300)),
}


@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products(case, dtype):
    f, *shapes = PRODUCTS[case]
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        args = [rng.normal(size=shape).astype(dtype) / 8 for shape in shapes]
        compiled = ft.jit(f).lower(*args).compile()
        assert compiled.cost_analysis()["flops"] < 1000
        exact = f(*[x.astype("float64") for x in args])
        np.testing.assert_allclose(
            compiled(*args), exact, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-6
        )


DRAWS = {
    "numbers": lambda key: jax.random.uniform(key, (64,)),
    "of two shapes": lambda key: [
        jax.random.uniform(k, (3, i)) for i, k in enumerate(jax.random.split(key), 1)
    ],
    "bytes": lambda key: jax.random.bits(key, (4, 6), "uint8"),
    "wide": lambda key: jax.random.bits(key, (20,), "uint64"),
    "keys": lambda key: jax.random.split(key, (3, 7)),
    "of many keys": lambda key: jax.vmap(lambda k: jax.random.bits(k, (3, 2)))(jax.random.split(key, 6)),
    "keys of many keys": lambda key: jax.vmap(lambda k: jax.random.split(k, 3))(jax.random.split(key, 4)),
}


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("case", DRAWS)
def test_random_numbers(case, typed):
    """XLA counts a hash as a hundred operations for each word."""
    f = DRAWS[case]
    with jax.enable_x64(True):
        key = (jax.random.key if typed else jax.random.PRNGKey)(7)
        compiled = ft.jit(f).lower(key).compile()
        assert compiled.cost_analysis()["flops"] < 1000
        for drawn, expected in zip(*map(jax.tree.leaves, (compiled(key), jax.jit(f)(key))), strict=True):
            assert drawn.dtype == expected.dtype
            assert (drawn == expected).all()


LEFT = {  # to XLA
    "short": (lambda x: jnp.sum(x[:255]), (16384,)),
    "long": (jnp.sum, (32768,)),
    "integers": (lambda x: jnp.sum(x.astype("int32")), (16384,)),
    "one axis": (lambda x: jnp.sum(x.reshape(8, -1), axis=0), (16384,)),
    "beside other work": (lambda x: (jnp.sum(x), x * 2), (16384,)),
    "a matrix by columns": (lambda w, x: w @ x, (256, 256), (256,)),
    "many rows": (policy, (8, 64), (64, 64)),
    "large": (policy, (1000,), (1000, 1000)),
    "long products": (jnp.dot, (4000,), (4000,)),
    "half precision": (lambda x, w: x.astype("bfloat16") @ w.astype("bfloat16"), (64,), (64, 64)),
}


@pytest.mark.parametrize("case", LEFT)
def test_others_are_left_to_xla(case):
    f, *shapes = LEFT[case]
    args = [np.ones(shape, "float32") for shape in shapes]
    assert "while" not in ft.jit(f).lower(*args).compile().as_text()


def test_only_the_outermost_program_is_made_short():
    """In a loop, operations are not started by another thread."""
    w = np.ones((64, 64), "float32")

    def f(x):
        def step(c, _):
            return jnp.sort(jnp.tanh(jnp.repeat(c, 80)))[::80] @ w, None

        return lax.scan(step, x, None, length=4)[0]

    assert ft.jit(f).lower(w[0]).compile().as_text().count(" while(") == 1


def test_un_jitted_operations_run_beside_python():
    run = eager.compiled(PRIMITIVES["reduce_sum"], None, ("axes", (0,)))
    assert " while(" not in run.lower(np.ones(2000, "float32")).compile().as_text()


def test_the_profile_is_of_what_runs():
    def f(x):
        squares = x**2
        return jnp.mean(squares)

    text = str(ft.profile(f, repeats=2)(np.ones(2000, "float32")))
    assert "one kernel" in text
    assert "squares = x**2" in text
    assert "return jnp.mean(squares)" in text


def test_plain():
    x = np.ones(2000, "float32")
    assert "while" in ft.jit(jnp.sum).lower(x).compile().as_text()
    assert "while" not in ft.jit(jnp.sum, cpu="plain").lower(x).compile().as_text()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -0.0])
@pytest.mark.parametrize("at", [0, 1499])
def test_special_values(value, at):
    x = np.full(1500, -0.0, "float32")
    x[at] = value
    found = ft.jit(jnp.sum)(x)
    np.testing.assert_array_equal(found, np.sum(x))


def test_transformations():
    x = np.random.default_rng(0).normal(size=(3, 2000)).astype("float32")

    def loss(x):
        return jnp.mean((x - jnp.mean(x)) ** 2) * jnp.sum(jnp.sin(x))

    def same(x):
        return jax.numpy.mean((x - jax.numpy.mean(x)) ** 2) * jax.numpy.sum(jax.numpy.sin(x))

    for ours, theirs in (
        (ft.grad(loss), jax.grad(same)),
        (ft.value_and_grad(ft.checkpoint(loss)), jax.value_and_grad(same)),
        (lambda x: ft.jvp(loss, (x,), (x,)), lambda x: jax.jvp(same, (x,), (x,))),
    ):
        found, expected = ft.jit(ours)(x[0]), jax.jit(theirs)(x[0])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-5), found, expected)
        found, expected = ft.jit(ft.vmap(ours))(x), jax.jit(jax.vmap(theirs))(x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-5), found, expected)
    np.testing.assert_allclose(jax.jit(lambda x: ft.jit(loss)(x))(x[0]), same(x[0]), rtol=1e-4)
