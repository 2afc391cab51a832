"""Why a jitted function was traced again."""

import functools
import logging
import sys

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans.inspect.cache import explain_cache

pytestmark = pytest.mark.smoke

X = np.ones(3, np.float32)


def line_here() -> int:
    return sys._getframe(1).f_lineno


def reasons(fun):
    """Why the last trace was made."""
    return "; ".join(explain_cache(fun).traces[-1].reasons)


def test_what_changed_of_the_arguments():
    @ft.jit
    def f(params, x, lr=0.1):
        return params["w"] * x * lr

    f({"w": X}, X)
    line = line_here() - 1
    f({"w": 2 * X}, 3 * X)  # a hit
    assert explain_cache(f).count == 1
    first = explain_cache(f).traces[0]
    assert (first.file, first.line, first.reasons) == (__file__, line, ())
    assert "^" in str(first)
    cases = [
        (({"w": X}, np.ones((4, 3), np.float32)), "x: f32[4,3], was f32[3] (different shape)"),
        (({"w": X}, X.astype(np.float16)), "x: f16[3], was f32[3] (different dtype)"),
        (({"w": X, "b": X}, X), "params['b']: f32[3], was not there"),
        (({"w": X}, X, 0.2), "lr: ~f32[], was not given"),
        (
            ({"w": X}, X, np.float32(0.2)),
            "lr: f32[], was ~f32[] (a weak type: an array, was a Python number)",
        ),
    ]
    for args, why in cases[:4]:
        f(*args)
        assert reasons(f) == why
    f(*cases[4][0])
    assert reasons(f) in (cases[4][1], "lr: f32[], was not given")
    assert explain_cache(f).count == 6


def test_the_nearest_call_gave_the_same_arguments():
    f = ft.jit(lambda params: params)
    f({"w": X})
    f({"w": X, "b": X})
    f({"w": X, "b": 1.0})  # one reason against either, and the shorter against the first
    assert reasons(f).startswith("params['b']: ~f32[], was f32[3] (different shape, a weak type:")


def test_static_values():
    f = ft.jit(lambda x, n, name="a": x * n, static_argnums=1, static_argnames="name")
    f(X, 2)
    f(X, 3)
    assert reasons(f) == "n: the static value 3, was the static value 2"
    f(X, 3, name="b")
    assert "name: the static value 'b', was not given" in reasons(f)

    class Config:
        def __repr__(self):
            return "Config()"

    g = ft.jit(lambda x, c: x, static_argnums=1)
    g(X, Config())
    g(X, Config())
    assert reasons(g).endswith("the static value Config() (a different object)")


def test_flags_and_nesting():
    f = ft.jit(lambda x: x * 2)
    f(X)
    with jax.enable_x64(True):
        f(X)
    assert "the flag jax_enable_x64: True, was False" in reasons(f)
    ft.grad(lambda x: jnp.sum(f(x)))(X)
    assert explain_cache(f).count == 2  # nor is it traced again inside another transformation


def test_what_captures_a_value_of_another_transformation_is_traced_for_each():
    def outer(y):
        f = ft.jit(lambda x: x * y)
        f(X)
        ft.grad(lambda x: jnp.sum(f(x)))(X)
        assert reasons(f).startswith("its first call inside another transformation")
        return y

    jax.jit(outer)(2.0)


def test_other_function_objects():
    made = []
    for scale in (1.0, 2.0):
        f = ft.jit(lambda x: x * scale)  # noqa: B023
        f(X)
        made.append(f)
    assert explain_cache(f).count == 2
    assert "a new function object, defined at the same line" in reasons(f)
    for number in (1.0, 2.0):
        f = ft.jit(functools.partial(_scaled, number))
        f(X)
    assert "args[0] of the partial, which it closes over: 2.0, was 1.0" in reasons(f)

    def closing(scale):
        return ft.jit(lambda x: x * scale)

    closing(1.0)(X)
    last = closing(2.0)
    last(X)
    assert "scale, which it closes over: 2.0, was 1.0" in reasons(last)
    assert explain_cache(last).count == 2


def _scaled(scale, x):
    return scale * x


def test_jit_called_again_on_one_function():
    def f(x):
        return x + 1

    for _ in range(2):
        ft.jit(f)(X)
    assert explain_cache(f).count == 1
    ft.jit(f, passes=())(X)
    assert reasons(f).startswith("jit was called again on the same function")
    jitted = ft.jit(f)
    jitted(X)
    jitted.clear_cache()
    jitted(X)
    assert "the cache was cleared" in reasons(f)


def test_what_a_function_closes_over_may_be_anything():
    class Odd:
        def __repr__(self):
            raise ValueError

        __hash__ = None

    odd, big = Odd(), {"w": [X] * 100}
    f = ft.jit(lambda x: (x, odd, big, jnp, np)[0])  # modules have a `shape` too
    f(X)
    assert explain_cache(f).count == 1


@pytest.mark.parametrize("loud", [False, True])
def test_the_log(monkeypatch, caplog, loud):
    monkeypatch.setenv("FUNCTRANS_EXPLAIN_CACHE", "1" if loud else "0")
    f = ft.jit(lambda x: x)
    with caplog.at_level(logging.WARNING, logger="functrans.cache"):
        f(X)
        caplog.clear()
        f(X)
        assert not caplog.records
        f(np.ones(2))
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == loud
    if loud:
        assert "x: f32[2], was f32[3]" in said[0]
        assert "test_explain_cache.py" in said[0]


def test_an_argument_given_by_name_instead_of_by_position():
    scaled = ft.jit(lambda x, n: x * n, static_argnames="n")
    scaled(1.0, 2), scaled(1.0, n=2), scaled(x=1.0, n=2), scaled(1.0, 2)
    reasons = [trace.reasons for trace in ft.explain_cache(scaled).traces]
    assert reasons == [
        (),
        ("n: passed by name, was passed by position",),
        ("x: passed by name, was passed by position",),
    ]
