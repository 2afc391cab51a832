"""lax.reduce_window: what the primitive table does not say of it."""

from typing import Any

import jax
import numpy as np

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from tests.support.closeness import assert_close
from tests.support.versions import QUICK

X = np.random.default_rng(0).normal(size=(7, 9)).astype(np.float32)


def test_the_gradient_of_the_sum_of_window_sums():
    """Its cotangent is a literal, not an array."""

    def total(library, x):
        return library.lax.reduce_window(x, 0.0, library.lax.add, (2, 3), (2, 1), "SAME").sum()

    expected = jax.jit(jax.grad(lambda x: total(jax, x)), compiler_options=QUICK)(X)
    gradient = ft.grad(lambda x: total(ft, x))
    for g in (gradient, ft.jit(gradient)):
        assert_close(g(X), expected)
    assert_close(ft.vmap(gradient)(np.stack([X, X])), np.stack([expected] * 2))


def test_kinds_of_windows():
    """A computation that is one operation, from its identity, is the operation of its name."""

    def name(computation: Any, start: Any) -> str:
        program = ft.make_ir(lambda x: lax.reduce_window(x, start, computation, (2, 2)))(X)
        return program.equations[-1].primitive.name

    assert name(lax.add, 0.0) == "reduce_window_sum"
    assert name(lambda a, b: b + a, 0.0) == "reduce_window_sum"
    assert name(jnp.maximum, -jnp.inf) == "reduce_window_max"
    assert name(lax.min, np.float32(np.inf)) == "reduce_window_min"
    assert name(lax.add, 1.0) == "reduce_window"
    assert name(lax.max, 0.0) == "reduce_window"


def test_several_arrays_at_once():
    """Means of windows with their sizes; a start of one's own for each example."""

    def add(a: Any, b: Any) -> Any:
        return {"x": a["x"] + b["x"], "n": a["n"] + b["n"]}

    def folded(library: Any) -> Any:
        x = {"x": X, "n": np.ones_like(X)}
        start = {"x": np.float32(0), "n": np.float32(0)}
        return library.reduce_window(x, start, add, (3, 3), (1, 1), "SAME")

    assert_close(folded(lax), folded(jax.lax), 1e-5)

    def product(x: Any, start: Any) -> Any:
        return lax.reduce_window(x, start, lax.mul, (2, 2), (2, 2), ((1, 0), (0, 1)))

    starts = np.array([1.0, 2.0, -0.5], np.float32)
    mapped = ft.vmap(product, (None, 0))(X, starts)
    assert_close(mapped, np.stack([product(X, s) for s in starts]), 1e-5)


def test_whole_axes_are_folded_by_any_computation():
    """`reduce`: the place of the largest element, as a fold of pairs."""
    x, places = X.reshape(7, 3, 3), np.arange(63, dtype=np.int32).reshape(7, 3, 3)

    def largest(library: Any, numpy: Any, x: Any) -> Any:
        def join(a: Any, b: Any) -> Any:
            first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
            return tuple([numpy.where(first, one, other) for one, other in zip(a, b, strict=True)])

        starts = np.float32(-np.inf), np.int32(99)
        return library.reduce((x, places[: len(x)]), starts, join, (0, 2))

    def all_of_them(x: Any) -> Any:
        mapped = ft.vmap(lambda x: largest(lax, jnp, x)[0])(jnp.stack([x, -x]))
        slope = ft.grad(lambda x: largest(lax, jnp, x)[0].sum())(x)
        return largest(lax, jnp, x), largest(lax, jnp, x[:0]), mapped, slope

    theirs = jax.jit(lambda x: (largest(jax.lax, jax.numpy, x), largest(jax.lax, jax.numpy, x[:0])))(x)
    found, of_none, mapped, slope = ft.jit(all_of_them)(x)
    assert_close((found, of_none), theirs, 0.0)
    assert_close(largest(lax, jnp, x), theirs[0], 0.0)
    assert_close(mapped, np.stack([x.max((0, 2)), (-x).max((0, 2))]), 0.0)
    assert_close(slope, (x == x.max((0, 2), keepdims=True)).astype(np.float32), 0.0)


def test_gradients_of_computations_with_loops_and_rules_of_their_own():
    def power(a: Any, b: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, c: c * (i + 1), a * b) / 2

    def total(computation: Any) -> Any:
        return lambda x: lax.reduce_window(x, 1.0, computation, (2, 2), (1, 1), "VALID").sum()

    def largest(x: Any) -> Any:
        return jax.lax.reduce(x, -np.inf, jax.numpy.logaddexp, (1,)).sum()

    def native(x: Any) -> Any:
        return lax.reduce(x, -np.inf, jax.numpy.logaddexp, (1,)).sum()

    def slopes(x: Any) -> list[Any]:
        of_products = [ft.grad(total(f))(x) for f in (power, lambda a, b: a * b)]
        return [*of_products, ft.grad(largest)(x), ft.jacfwd(largest)(x), ft.grad(native)(x)]

    by_power, by_product, *of_largest = ft.jit(slopes, compiler_options=QUICK)(X)
    assert_close(by_power, by_product, 1e-5)
    wanted = jax.jit(jax.grad(largest), compiler_options=QUICK)(X)
    for slope in of_largest:
        assert_close(slope, wanted, 1e-5)
