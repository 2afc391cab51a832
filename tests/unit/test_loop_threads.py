"""Loops with large steps keep XLA's threads (passes/threads.py): where XLA would make one kernel of
them, their condition reads the number of the replica."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import functrans as ft
from functrans.passes import machines, threads
from tests.support.versions import NEWEST

LARGE = np.linspace(0, 1, 1024 * 512, dtype=np.float32).reshape(1024, 512)


def step(u: Any) -> Any:
    return jnp.exp(-u) * 0.9


LOOPS: dict[str, Callable[[Any], Any]] = {
    "counted": lambda u: lax.fori_loop(0, 4, lambda i, u: step(u), u),
    "while": lambda u: lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, step(c[1])), (0, u))[1],
    "test": lambda u: lax.while_loop(lambda u: step(u).min() < 0.3, lambda u: u + 1, u),
    "scan": lambda u: lax.scan(lambda c, _: (step(c), None), u, None, length=4)[0],
    "called": lambda u: lax.scan(lambda c, _: (jax.jit(step)(c), None), u, None, length=4)[0],
    "nested": lambda u: lax.fori_loop(0, 2, lambda i, u: lax.fori_loop(0, 2, lambda j, u: step(u), u), u),
}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machines, "CORES", 2)
    monkeypatch.setattr(threads, "_XLA_MAKES_KERNELS", True)
    ft.clear_caches()
    yield
    ft.clear_caches()


def marks(f: Callable[..., Any], *args: Any) -> int:
    return f.lower(*args).as_text().count("replica_id")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", LOOPS)
def test_large_steps_and_only_they_are_marked(name: str):
    f = LOOPS[name]
    assert marks(ft.jit(f), LARGE) == 1
    assert marks(ft.jit(f), LARGE[:400]) == 0
    assert marks(ft.jit(f, cpu="plain"), LARGE) == 0
    np.testing.assert_allclose(ft.jit(f)(LARGE), jax.jit(f)(LARGE), rtol=1e-6)


def test_loops_of_gradients_are_marked():
    slope = ft.jit(ft.grad(lambda u: jnp.sum(LOOPS["scan"](u))))
    assert marks(slope, LARGE) == 2
    wanted = jax.grad(lambda u: jnp.sum(LOOPS["scan"](u)))(LARGE)
    np.testing.assert_allclose(slope(LARGE), wanted, rtol=1e-5)


def test_products_with_a_vector():
    power = ft.jit(lambda m: lax.fori_loop(0, 4, lambda i, v: m @ v / 9, jnp.ones(1024)))
    assert marks(power, np.ones((1024, 1024), np.float32)) == 1


def test_no_mark_without_threads(monkeypatch: pytest.MonkeyPatch):
    exported = jax.export.export(jax.jit(ft.jit(LOOPS["scan"])))(LARGE)
    assert "replica_id" not in exported.mlir_module()
    monkeypatch.setattr(machines, "CORES", 1)
    ft.clear_caches()
    assert marks(ft.jit(LOOPS["scan"]), LARGE) == 0


@pytest.mark.skipif(not NEWEST, reason="XLA leaves loops of more than 1,024 bytes")
def test_xla_makes_no_kernel_of_them():
    """XLA says so in the compiled program. If the plain one has no kernel, the mark can go."""
    f, call = LOOPS["counted"], "xla_cpu_small_call"
    assert call not in ft.jit(f).lower(LARGE).compile().as_text()
    assert call in ft.jit(f, cpu="plain").lower(LARGE).compile().as_text()
