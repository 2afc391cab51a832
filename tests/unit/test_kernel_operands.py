"""The many small operands of a loop are computed in its kernel; the results of as many are joined."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import functrans as ft
from functrans.passes import fusion_boundaries, kernels
from tests.support.closeness import assert_close

X = np.linspace(0.1, 2, 6, dtype="float32")


def ring(*state: Any) -> Any:
    """The numbers of a ring after some steps, each a number of its own."""

    def step(state: Any, _: Any) -> Any:
        behind = state[1:] + state[:1]
        return tuple(x + 0.1 * jnp.sin(y - x) for x, y in zip(state, behind, strict=True)), None

    return lax.scan(step, state, None, length=7)[0]


def numbers(x: Any) -> Any:
    return sum(y**2 for y in ring(*x))


def scaled(x: Any) -> Any:
    return sum(ring(*(jnp.exp(y) * 2 for y in x)))


def names(f: Any, *args: Any) -> tuple[list[str], list[str]]:
    """The operations of a program, and those in its kernels before the loops."""
    program = kernels.kernels(ft.passes.explain(f)(*args).after)
    inside = [e for e in program.equations if e.primitive.name == "one_kernel"]
    before = [[e.primitive.name for e in k.params["program"].equations if not e.programs] for k in inside]
    return [e.primitive.name for e in program.equations], [*itertools.chain(*before)]


def test_they_are_computed_in_the_kernel():
    outside, inside = names(numbers, X)
    assert outside[0] == "one_kernel"
    assert inside.count("split") == 1
    outside, inside = names(lambda x: numbers([x[i] for i in range(len(X))]), X)
    assert outside[0] == "one_kernel"
    assert inside.count("slice") == len(X)
    outside, inside = names(scaled, X)
    assert outside[0] == "one_kernel"
    assert inside.count("exp") == inside.count("mul") == len(X)


def test_those_of_the_way_back():
    outside, inside = names(ft.grad(numbers), X)
    assert outside[:2] == ["one_kernel"] * 2
    assert inside.count("split") == 1
    assert inside.count("mul") == len(X)


def test_few_are_left():
    outside, inside = names(numbers, X[:2])
    assert outside[0] == "split"
    assert not inside


def test_what_is_read_elsewhere_is_computed_once():
    def f(x: Any) -> Any:
        y = [jnp.exp(v) for v in x]
        return ring(*y), y

    outside, inside = names(f, X)
    assert outside.count("exp") == len(X)
    assert not inside


def test_large_ones_are_left():
    def f(x: Any) -> Any:
        return lax.scan(
            lambda c, _: (tuple(v * 0.5 for v in c), None), tuple(jnp.exp(v) for v in x), None, 5
        )[0]

    assert names(f, np.ones((6, 8), "float32"))[1].count("exp") == 6
    outside, inside = names(f, np.ones((6, 80), "float32"))
    assert outside.count("exp") == 6
    assert "exp" not in inside


@pytest.mark.parametrize("f", [numbers, scaled])
@pytest.mark.parametrize(
    "x", [X, -X, np.array([np.nan, 1, np.inf, -0.0, 2, 3], "float32"), np.ones(20, "float32")]
)
def test_results(f: Any, x: Any):
    plain = ft.jit(f, cpu="plain")(x)
    assert_close(ft.jit(f)(x), plain)
    assert_close(ft.jit(f)(x), jax.jit(f)(x), 1e-5)
    assert_close(ft.jit(ft.grad(f))(x), jax.jit(jax.grad(f))(x), 1e-5)
    assert_close(ft.jit(ft.vmap(f))(np.stack([x, x])), jax.vmap(f)(np.stack([x, x])), 1e-5)


@pytest.mark.parametrize("n", [6, 8, 20])
def test_many_pads_beside_each_other_are_joined(n: int):
    def f(x: Any) -> Any:
        return numbers([x[i] for i in range(n)])

    program = ft.passes.explain(ft.grad(f))(np.linspace(0, 1, n, dtype="float32")).after
    found = [e.primitive.name for e in fusion_boundaries.side_by_side(program).equations]
    assert ("concatenate" in found, "pad" in found) == ((True, False) if n >= 8 else (False, True))


def test_what_a_product_of_few_terms_makes_is_computed_once_for_another():
    x, first, second = (np.ones(shape, "float32") for shape in ((12, 4), (4, 6), (6, 2)))

    def f(x: Any, first: Any, second: Any) -> Any:
        return jnp.tanh(x @ first) @ second

    program = fusion_boundaries.chained(ft.make_ir(f)(x, first, second))
    found = [e.primitive.name for e in program.equations]
    assert found == ["dot_general", "tanh", "optimization_barrier", "dot_general"]
    assert fusion_boundaries.chained(program) is program
    alone = ft.make_ir(f)(np.ones((12, 40), "float32"), np.ones((40, 6), "float32"), second)
    assert fusion_boundaries.chained(alone) is alone


@pytest.mark.parametrize("times", [1, 2])
def test_a_diagonal_is_taken_once_for_what_it_is_broadcast_to(times: int):
    def jittered(x: Any) -> Any:
        for _ in range(times):  # called twice, the diagonal is a function that is not inlined
            x = jnp.where(jnp.eye(60, dtype=bool), jax.numpy.diagonal(x) + 0.1, x)
        return x

    x = np.linspace(0, 1, 3600, dtype="float32").reshape(60, 60)
    program = fusion_boundaries.spread(ft.jit(jittered).program(x))
    found = [e.primitive.name for e in program.equations]
    assert found.count("optimization_barrier") == times
    assert fusion_boundaries.spread(program) is program
    assert_close(ft.jit(jittered)(x), jittered(x))
    assert_close(jittered(x), x + 0.1 * times * np.eye(60, dtype="float32"), 1e-6)
    small = ft.jit(lambda x: jnp.diagonal(x) * x).program(x[:9, :9])
    assert fusion_boundaries.spread(small) is small
