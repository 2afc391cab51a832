"""A call of a jitted function that is compiled runs in JAX's C++, unless someone is tracing."""

import functools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.api.programs import make_ir
from functrans.passes import compiler_options
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke

X = np.array([0.5, -1.25, 2.0], "float32")


def python_of(call: Callable[[], Any]) -> set[str]:
    """The names of the Python functions that a call runs, besides itself."""
    ran: set[str] = set()
    sys.setprofile(lambda frame, event, _: ran.add(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return ran - {"<lambda>"}


class Scaled:
    def __call__(self, x: Any) -> Any:
        return x * 2


@pytest.mark.parametrize("options", compiler_options.SETS)
@pytest.mark.parametrize("fun", [lambda x: fnp.sin(x) * 2, Scaled(), lambda x, n=3: [x * n, None]])
def test_a_repeated_call_runs_no_python(fun: Callable[..., Any], options: str, monkeypatch):
    monkeypatch.setattr(compiler_options, "choice", lambda program: options)
    f, x = ft.jit(fun), jnp.asarray(X)
    first = f(x)
    assert python_of(lambda: f(x)) == set()
    ft.grad(lambda x: fnp.sum(x * jax.tree.leaves(f(x))[0]))(x)  # a call while tracing is forgotten
    assert python_of(lambda: f(x)) == set()
    assert python_of(lambda: ft.jit(fun)) >= {"jit"}
    jax.tree.map(assert_close, f(x), first)


def test_a_call_that_is_compiled_is_recorded_while_tracing():
    f = ft.jit(lambda: fnp.sin(X))
    f(), f()
    for lib in (ft, jax):
        assert "sin" in str(lib.make_jaxpr(lambda x: x + f())(X))
    seen: list[Any] = []
    g = ft.jit(lambda x: jax.debug.callback(seen.append, x) or x)
    ft.jit(lambda: g(3.0)).lower()
    jax.effects_barrier()
    assert seen == []


@pytest.mark.parametrize("called_first", [True, False])
@pytest.mark.parametrize("options", [{}, {"static_argnames": "n"}])
def test_a_call_and_uses_in_other_functions_share_a_trace(options: dict[str, Any], called_first: bool):
    traces: list[Any] = []

    @functools.partial(ft.jit, **options)
    def f(x: Any, n: Any = 2) -> Any:
        traces.append(n)
        return {"y": fnp.sum(x * n + X)}

    n = {"n": 3} if options else {}
    x = jnp.asarray(X)
    uses = [
        lambda: f(x, **n)["y"],
        lambda: ft.grad(lambda x: f(x, **n)["y"])(x)[0] + fnp.sum(x) * n.get("n", 2),
        lambda: ft.jit(lambda x: f(x, **n)["y"] * 1)(x),
        lambda: f.lower(x, **n).compile()(x)["y"],
        lambda: ft.vmap(lambda x: f(x, **n)["y"])(fnp.stack([x, x]))[0],
    ]
    found = [float(use()) for use in (uses if called_first else uses[::-1])]
    assert len(traces) == 1
    assert len(set(found)) == 2  # the gradient is another number
    f(x[:1], **n)
    assert len(traces) == 2
    f.clear_cache()
    f(x, **n)
    assert len(traces) == 3


def test_what_is_shared_depends_on_jax_s_settings_and_is_cleared_with_jax_s_caches():
    traces: list[Any] = []

    @ft.jit
    def f(x: Any) -> Any:
        traces.append(x)
        return x * jax.random.uniform(jax.random.key(0), (7,)).sum()

    first = ft.grad(f)(1.0)
    assert_close(f(1.0), first)
    with jax.threefry_partitionable(False):
        second = f(1.0)
        assert_close(ft.grad(f)(1.0), second)
    assert abs(first - second) > 1e-3
    assert len(traces) == 2
    jax.clear_caches()
    assert_close(f(1.0), first)
    assert len(traces) == 3


def test_a_thread_that_traces_does_not_disturb_another():
    f, x = ft.jit(lambda x: x * 2), jnp.asarray(X)
    f(x)

    def elsewhere(y: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(python_of, lambda: f(x)).result() == set()
            assert_close(pool.submit(f, x).result(), X * 2)
        return f(y)

    assert "jit" in str(make_ir(elsewhere)(x))
