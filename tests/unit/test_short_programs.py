"""Which programs the calling thread runs on a CPU without being asked: those that take less time than another
thread's start."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.backends import xla
from functrans.backends.lowering import Lowering
from functrans.backends.xla import asked, short
from tests.support.closeness import assert_close
from tests.support.tables import functions
from tests.unit.test_blocking import diffused
from tests.unit.test_kernels import LOOPS

pytestmark = pytest.mark.smoke


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Why programs are lowered so that the calling thread runs them. JAX's cache on disk takes them."""
    found: list[Any] = []
    plainly = Lowering.run_in_the_calling_thread
    monkeypatch.setattr(xla, "_CALLS_ARE_CACHED", True)

    def run(self: Lowering, why: Any) -> None:
        plainly(self, why)
        found.extend(self.module_ctx.host_callbacks)

    monkeypatch.setattr(Lowering, "run_in_the_calling_thread", run)
    return found


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=shape).astype("float32") / 8


def policy(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def repeated(step: Callable[[Any], Any], n: int) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda x, _: (step(x), None), x, None, length=n)[0]


SHORT = functions(LOOPS, "run by the calling thread", "", globals())

LONG = functions(LOOPS, "run by other threads", "", globals())


@pytest.mark.parametrize("case", SHORT)
def test_short_programs(case: str, reasons: list[Any]):
    f, *args = SHORT[case]()
    run = ft.jit(f)
    found = run(*args)
    assert reasons == [short]
    for expected in (ft.jit(f, cpu="plain")(*args), run(*args)):
        jax.tree.map(lambda a, b: assert_close(a, b, 1e-5), found, expected)
    assert reasons == [short]


@pytest.mark.parametrize("case", LONG)
def test_long_programs(case: str, reasons: list[Any]):
    f, *args = LONG[case]()
    ft.jit(f).lower(*args)
    assert reasons == []


X = normal(64, 64)


def product(x: Any) -> Any:
    return jnp.tanh(x @ x)


def test_who_decides(reasons: list[Any]):
    ft.jit(product, cpu="plain")(X)
    jax.jit(ft.jit(product)).lower(X).compile()  # it is JAX's program
    (X @ product(X)).sum()
    assert short not in reasons
    ft.jit(product, cpu="blocking")(X)
    assert reasons.pop() is asked
    ft.jit(lambda x: ft.jit(product, cpu="plain")(x))(X)
    assert reasons.pop() is short


def test_a_program_of_jax_is_its_own(reasons: list[Any]):
    inlined, mapped = ft.jit(product, inline=True), jax.vmap(ft.jit(product))
    for f in (inlined, lambda x: mapped(x[None]), jax.grad(lambda x: inlined(x).sum())):
        jax.jit(f)(X)
    assert reasons == []


def test_a_call_does_not_wait_for_its_arguments(reasons: list[Any]):
    long, run = ft.jit(lambda x: diffused(x, 20_000)), ft.jit(product)
    run(jnp.asarray(X))
    assert reasons == [short]
    x = long(X)
    y = run(x)
    assert not x.is_ready()
    assert not y.is_ready()
    assert_close(y, product(x), 1e-5)


def test_programs_that_are_compiled_ahead_of_time_are_those_of_calls(reasons: list[Any]):
    """JAX calls them as if they had no callbacks: others it calls by Python code."""
    for called_before in (False, True):
        run = ft.jit(lambda x: product(x) * 2)
        if called_before:
            run(X)
        lowered = (run.lower(X), run.trace(X).lower())
        assert reasons.pop() is short
        executables = []
        for each in lowered:
            compiled = each.compile()
            assert not compiled._executable.unsafe_call.has_host_callbacks
            executables.append(compiled._executable)
            assert_close(run(X), compiled(X), 0)
        assert executables[0] is executables[1] is run.lower(X).compile()._executable
        assert executables[0] is lowered[0]._lowering._executable
    assert asked in ft.jit(product, cpu="blocking").lower(X)._lowering.compile_args["host_callbacks"]


def test_a_disk_cache_that_does_not_take_callbacks(reasons: list[Any], monkeypatch: pytest.MonkeyPatch):
    """JAX 0.10 does not keep programs with callbacks on disk."""
    monkeypatch.setattr(xla, "_CALLS_ARE_CACHED", False)
    for folder, expected in (("/somewhere", []), (None, [short])):
        before = jax.config.jax_compilation_cache_dir
        jax.config.update("jax_compilation_cache_dir", folder)
        try:
            ft.jit(lambda x: product(x) + 1).lower(X)
        finally:
            jax.config.update("jax_compilation_cache_dir", before)
        assert reasons == expected
