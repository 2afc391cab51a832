"""`jit` and its relatives against `jax.jit`, option by option."""

import functools
import gc
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from tests.support.closeness import assert_close
from tests.support.tables import TABLES, functions

pytestmark = pytest.mark.smoke

X = np.array([0.5, -1.25, 2.0], "float32")
Y = np.array([1.0, 0.25, -0.5], "float32")


def assert_same(ours: Any, theirs: Any) -> None:
    left, right = jax.tree_util.tree_flatten(ours), jax.tree_util.tree_flatten(theirs)
    assert left[1] == right[1]
    assert_close(left[0], right[0])
    assert [y.weak_type for y in left[0]] == [y.weak_type for y in right[0]]


class Model:
    def __init__(self, scale: float):
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale

    def double(self, x: Any) -> Any:
        return self(x) * 2


def with_defaults(x, scale=2.0, *, shift=1.0):
    """Scale and shift."""
    return x * scale + shift


SHAPES_OF_CALLS = functions(TABLES / "transformations.txt", "calls of jit", "L, np", globals())


@pytest.mark.parametrize("name", SHAPES_OF_CALLS)
def test_calls(name: str):
    build = SHAPES_OF_CALLS[name]
    assert_same(build(ft, fnp), build(jax, jnp))


def test_a_jitted_method_binds_its_object():
    class Layer(NamedTuple):
        w: Any

        @ft.jit
        def apply(self, x: Any) -> Any:
            return x * self.w

    assert_close(Layer(Y).apply(X), X * Y)


def test_donation_inside_a_transformation_keeps_the_buffer():
    f = ft.jit(lambda x: fnp.sum(x * x), donate_argnums=0)
    x = jnp.asarray(X) + 0
    ft.grad(f)(x)
    assert not x.is_deleted()


def test_device():
    with pytest.warns(DeprecationWarning, match="device argument on jit"):
        f = ft.jit(lambda x: x * 2, device=jax.devices()[0])
    assert f(X).devices() == {jax.devices()[0]}


def test_unused_arguments():
    def names(**options: Any) -> int:
        text = ft.jit(lambda x, y: y * 2, **options).lower(X, Y).as_text()
        main = next(line for line in text.splitlines() if "@main" in line)
        return main.count("tensor<3xf32>") - 1  # one of them is the result

    assert names() == 1
    assert names(keep_unused=True) == 2


def test_a_nested_function_is_emitted_once():
    inner = ft.jit(lambda x: fnp.sin(x) * 2)

    def model(x):
        return inner(inner(inner(x)))

    text = ft.jit(model).lower(X).as_text()
    assert text.count("stablehlo.sine") == 1
    assert text.count("call @") == 3


def test_eval_shape_computes_nothing():
    huge = ft.ShapeDtypeStruct((1 << 20, 1 << 20), "float32")
    assert ft.eval_shape(lambda x: fnp.sum(x @ x, 0), huge).shape == (1 << 20,)


def test_jit_of_one_function_traces_once_and_keeps_nothing_alive():
    traces = []

    def made():
        big = jnp.ones(3)

        def f(x, k=1):
            traces.append(k)
            return x * k + big

        for _ in range(3):
            ft.jit(f)(jnp.ones(3))
            ft.jit(f, static_argnames="k")(jnp.ones(3), k=2)
            ft.jit(f, static_argnums=1)(jnp.ones(3), 2)
        assert traces == [1, 2, 2]  # by position is another signature, as in JAX
        for _ in range(3):
            ft.grad(lambda x: ft.jit(f)(x).sum())(jnp.ones(3))
        assert traces == [1, 2, 2]  # also inside a transformation
        ft.jit(f, passes=())(jnp.ones(3))
        assert len(traces) == 4
        return weakref.ref(f), ft.jit(lambda x: x * 3).lower

    function, lower = made()
    gc.collect()
    assert function() is None
    assert lower(2.0).compile()(2.0) == 6.0  # what is still there keeps its function


@pytest.mark.parametrize(
    "transform", [ft.grad, ft.value_and_grad, ft.jacfwd, ft.jacrev, ft.vmap, ft.checkpoint]
)
def test_what_is_made_of_a_jitted_function_does_not_pass_for_it(transform):
    made = transform(ft.jit(jnp.sin))
    for name in ("lower", "program", "trace", "clear_cache"):
        assert not hasattr(made, name)
    assert made.__name__ == "sin"


def test_messages_name_arguments_behind_static_ones():
    @functools.partial(ft.jit, static_argnums=0, static_argnames="p")
    def f(n, x, y, *, p=2, z=0.0):
        return x if y + z > n else -x

    for call in (
        lambda: f(3, 1.0, 2.0),
        lambda: f(3, 1.0, 2.0, p=1, z=1.0),
        lambda: ft.jit(lambda a: f(3, a, a, p=1))(1.0),
        lambda: f.program(3, 1.0, 2.0),
    ):
        with pytest.raises(ft.errors.AbstractBoolError, match=r"depends on y(, z)?\)"):
            call()


def test_numbers_kept_for_later_are_not_values_of_someones_jit():
    """The array that a single operation keeps of a Python number outlives that `jax.jit`."""
    ft.clear_caches()
    jax.jit(lambda x: fnp.log(-1.25) + x)(1.0)
    with jax.debug_nans(True), pytest.raises(ft.errors.NotFinite, match="NaN"):
        fnp.log(-1.25)
