"""Several steps of a loop in a turn, as on a GPU: the same numbers, and only where it is worth it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.backends import kernel_calls
from functrans.backends.lowering import Lowering
from functrans.passes import unrolling
from tests.matrix.test_loop_programs import check
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke

X = np.array([0.5, -1.25, 2.0], "float32")


def rows(n: int) -> np.ndarray:
    return np.linspace(-1, 1, 3 * n, dtype="float32").reshape(n, 3)


def recurrence(c: Any, x: Any) -> Any:
    c = jnp.sin(c) + x
    return c, (c * x, jnp.sum(c) > 0)


def scanned(reverse: bool = False) -> Callable[..., Any]:
    return lambda c, xs: lax.scan(recurrence, c, xs, reverse=reverse)


def summed(f: Callable[..., Any]) -> Callable[..., Any]:
    def total(*args: Any) -> Any:
        c, (ys, _) = f(*args)
        return jnp.sum(c) + jnp.sum(ys**2)

    return total


def turns(f: Callable[..., Any], *args: Any) -> list[int]:
    """How many steps a turn of each loop of a jitted function runs."""
    return [n for _, n in unrolling.unrolled(ft.jit(f).program(*args))]


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lowering, "steps_of_a_turn", lambda _, *loop: unrolling.steps_of_a_turn(*loop))
    monkeypatch.setattr(kernel_calls, "may_be_used", lambda _: False)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("length", [16, 35])
def test_values_and_gradients(length: int, steps: int, reverse: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unrolling, "STEPS", ((steps, 512),))
    monkeypatch.setattr(unrolling, "TURNS", 2)
    f, args = scanned(reverse), (X, rows(length))
    assert turns(f, *args) == [steps]
    assert f"tensor<{steps}x3xf32>" in ft.jit(f).lower(*args).as_text()
    jax.tree.map(np.testing.assert_array_equal, ft.jit(f)(*args), ft.jit(f, cpu="plain")(*args))
    gradient = ft.grad(summed(f), (0, 1))
    assert turns(gradient, *args) == [steps, steps]
    jax.tree.map(assert_close, ft.jit(gradient)(*args), ft.jit(gradient, cpu="plain")(*args))
    batched = ft.vmap(gradient, (None, 0))
    stack = np.stack([rows(length), 2 * rows(length)])
    jax.tree.map(assert_close, ft.jit(batched)(X, stack), ft.jit(batched, cpu="plain")(X, stack))


@pytest.mark.usefixtures("as_on_a_gpu")
def test_loops_without_rows_or_without_a_carry():
    for f in (
        lambda x: lax.fori_loop(0, 40, lambda i, c: jnp.sin(c) + i, x),
        lambda x: lax.map(lambda i: i * x, np.arange(33)),
        lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=32)[0],
    ):
        assert turns(f, X) == [4]
        assert_close(ft.jit(f)(X), ft.jit(f, cpu="plain")(X))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("seed", range(4))
def test_random_loops(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unrolling, "TURNS", 2)
    check(seed)


def test_a_program_for_a_gpu():
    def steps(f: Callable[..., Any]) -> str:
        return ft.jit(f).trace(X, rows(64)).lower(lowering_platforms=("cuda",)).as_text()

    assert "tensor<4x3xf32>" in steps(scanned())
    plain = ft.jit(scanned(), cpu="plain").trace(X, rows(64)).lower(lowering_platforms=("cuda",))
    assert "tensor<4x3xf32>" not in plain.as_text()
    assert "tensor<4x3xf32>" not in ft.jit(scanned()).lower(X, rows(64)).as_text()


def test_the_choice():
    def loop(step: Callable[[Any], Any], length: int = 64, **options: Any) -> Callable[..., Any]:
        return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=length, **options)[0]

    def many(n: int) -> Callable[[Any], Any]:
        def step(c: Any) -> Any:
            for _ in range(n):
                c = jnp.sin(c)
            return c

        return step

    assert turns(loop(jnp.sin), X) == [4]
    assert turns(loop(jnp.sin, 20), X) == [2]
    assert turns(loop(jnp.sin, 12), X) == []
    assert turns(loop(many(100)), X) == [2]
    assert turns(loop(many(600)), X) == []
    assert turns(loop(jnp.sin, unroll=3), X) == []
    assert turns(loop(ft.jit(jnp.sin)), X) == [4]
    assert turns(loop(jnp.sin), ft.ShapeDtypeStruct((2048, 2048), "float32")) == []
    assert turns(loop(lambda c: ft.debug.print("{}", c) or c), X) == []
    assert turns(loop(loop(jnp.sin)), X) == [4]  # the inner one
    assert turns(loop(lambda c: jnp.convolve(c, X, "same")), X) == []
    assert turns(loop(lambda c: lax.cond(c[0] > 0, jnp.sin, jnp.cos, c)), X) == []
    assert turns(lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: c + 1, x), X) == []


def test_the_report(monkeypatch: pytest.MonkeyPatch):
    report = str(ft.passes.explain(scanned())(X, rows(64)))
    assert "loops on a CPU" in report
    assert "in a turn" not in report
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    report = str(ft.passes.explain(scanned())(X, rows(64)))
    assert "loops on a GPU\n    4 steps in a turn: test_unrolling.py" in report
    assert "loops on a CPU" not in report
    report = str(ft.passes.explain(ft.jit(scanned(), cpu="plain"))(X, rows(64)))
    assert "in a turn" not in report
