"""Options of XLA's compiler that a program's operations choose: which, once, and nobody else's."""

from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.api.programs import make_ir
from functrans.passes import compiler_options
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke

X = np.linspace(-1, 1, 2 * 32 * 6 * 6, dtype="float32").reshape(2, 32, 6, 6)
W = np.linspace(1, 2, 32 * 32 * 3 * 3, dtype="float32").reshape(32, 32, 3, 3)
SET = "products and sums"


def convolved(x: Any, w: Any = W) -> Any:
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME")
    return (y - jnp.mean(y, 0)) / jnp.sqrt(jnp.var(y, (0, 2, 3), keepdims=True) + 1e-5)


def grouped(x: Any) -> Any:
    alone = lax.conv_general_dilated(x, W[:, :1], (1, 1), "SAME", feature_group_count=32)
    return alone + convolved(x)


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The images here are small, so that the tests are fast."""
    monkeypatch.setattr(compiler_options, "BIG", 0)


@pytest.fixture
def traces() -> Any:
    """A function with a convolution, and the list of its traces."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append(x)
        return convolved(x) if x.ndim == 4 else x * 2

    return f, seen


def test_the_choice(monkeypatch: pytest.MonkeyPatch):
    assert compiler_options.choice(ft.jit(convolved).program(X)) == SET
    for limit, chosen in ((W.size + 1, compiler_options.DEFAULT), (W.size, SET)):
        monkeypatch.setattr(compiler_options, "BIG", limit)
        assert compiler_options.choice(make_ir(convolved)(X)) == chosen
    monkeypatch.setattr(compiler_options, "BIG", 0)
    text = str(ft.passes.explain(convolved)(X))
    assert "options on a CPU\n    products and sums: normalized convolutions, at" in text
    assert "test_compiler_options.py" in text.partition("compiler options on a CPU")[2]
    assert compiler_options.choice(make_ir(jnp.sin)(X)) == compiler_options.DEFAULT
    narrow = make_ir(lambda x: convolved(x[:, :8], W[:8, :8]))(X)
    assert compiler_options.choice(narrow) == compiler_options.DEFAULT
    alone = make_ir(lambda x: lax.conv_general_dilated(x, W, (1, 1), "SAME"))(X)
    assert compiler_options.choice(alone) == compiler_options.DEFAULT
    assert compiler_options.choice(make_ir(grouped)(X)) == compiler_options.DEFAULT
    loop = make_ir(lambda x: lax.map(lambda x: convolved(x[None]), x))(X)
    assert compiler_options.choice(loop) == SET


def looped(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, c: jnp.sin(c), x)


def test_the_choice_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for f in (
        looped,
        lambda x: jnp.cumsum(lax.map(jnp.cos, x)),
        ft.jit(ft.grad(lambda x: jnp.sum(looped(x)))),
    ):
        assert compiler_options.choice(ft.jit(f).program(X)) == compiler_options.SMALL_GRAPHS
    assert compiler_options.choice(ft.jit(convolved).program(X)) == compiler_options.DEFAULT
    text = str(ft.passes.explain(looped)(X)).partition("compiler options on a GPU")[2]
    assert "small graphs: a loop, whose steps are started as graphs, at" in text
    assert "test_compiler_options.py" in text
    assert ft.passes.explain(ft.jit(looped, cpu="plain"))(X).options is None
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert compiler_options.choice(ft.jit(looped).program(X)) == compiler_options.DEFAULT


@pytest.mark.parametrize("name", compiler_options.SETS)
def test_products_with_operands_that_repeat(name: str):
    """XLA may fuse such operands into the library's call, which then reads past them."""
    x = np.linspace(-1, 1, 64 * 16, dtype="float32").reshape(64, 16)
    same = np.full((16, 8), 2.0, "float32")

    def products(x: Any) -> Any:
        columns, rows = jnp.broadcast_to(x[0, :, None], (16, 8)), jnp.broadcast_to(x[:8, 0], (16, 8))
        return x @ same, x @ columns, x @ rows, jnp.broadcast_to(x[0, 0], (4, 64)) @ x, x @ (same * x[0, 0])

    run = ft.jit(products, passes=(), compiler_options=compiler_options.SETS[name])
    for got, want in zip(run(x), ft.jit(products, cpu="plain")(x), strict=True):
        assert_close(got, want, 1e-5)


def test_a_function_is_traced_once_and_compiled_with_its_options(traces: Any):
    f, seen = traces
    run = ft.jit(f)
    plain = ft.jit(convolved, cpu="plain")(X)
    for _ in range(3):
        assert_close(run(X), plain, 1e-5)
    assert_close(ft.jit(f)(X), plain, 1e-5)  # it is shared
    assert len(seen) == 1
    text = run.lower(X).compile().as_text()
    assert len(seen) == 1
    assert "convolution" in text


def test_signatures_that_want_others_each(traces: Any):
    f, seen = traces
    run = ft.jit(f)
    for i in range(20):
        np.testing.assert_array_equal(run(X[0, 0, 0]), 2 * X[0, 0, 0])
        assert run(X).shape == X.shape
        if i == 10:
            count = len(seen)
    assert len(seen) == count  # no longer to and fro


def test_inside_of_someone_elses_jit(traces: Any):
    f, seen = traces
    run = ft.jit(f)
    want = 2 * ft.jit(convolved, cpu="plain")(X)
    assert_close(jax.jit(lambda x: run(x) * 2)(X), want, 1e-5)
    assert len(seen) == 1
    run(X)  # now compiled with options, which nobody may give inside another function
    assert_close(jax.jit(lambda x: run(x) + run(x))(X), want, 1e-5)
    assert run.eval_shape(X).shape == X.shape
    assert ft.jit(ft.grad(lambda x: jnp.sum(run(x))))(X).shape == X.shape


def test_a_user_s_options_count(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> Any:
        raise AssertionError("no choice is to be made")

    monkeypatch.setattr(compiler_options, "choice", refuse)
    given = {"xla_cpu_enable_fast_math": False}
    for how in ({"compiler_options": given}, {"cpu": "plain"}):
        ft.jit(lambda x: convolved(x) + 1, **how)(X)


def test_a_set_that_this_jaxlib_does_not_take(monkeypatch: pytest.MonkeyPatch):
    compiler_options._is_taken.cache_clear()
    monkeypatch.setitem(compiler_options.SETS, SET, {"xla_cpu_of_another_version": "x"})
    try:
        assert compiler_options.choice(make_ir(convolved)(X)) == compiler_options.DEFAULT
        assert ft.jit(lambda x: convolved(x) * 3)(X).shape == X.shape
    finally:
        compiler_options._is_taken.cache_clear()


def test_errors_of_the_function_itself_stay():
    def failing(x: Any) -> Any:
        raise RuntimeError("on purpose")

    run = ft.jit(failing)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            run(X)
    assert compiler_options.local.staged is None
