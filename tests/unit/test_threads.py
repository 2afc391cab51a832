"""Tracing is per thread, and whatever happens in user code leaves no trace active."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans.ir.program import PRIMITIVES as P
from functrans.trace import state

pytestmark = pytest.mark.smoke

X = np.array([1.0, 2.0, 3.0], np.float32)


def total(x):
    return P["reduce_sum"](x, axes=(0,))


def run_together(*functions):
    """Run functions at once, each in a thread; their results, or the first exception."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [f.result(timeout=60) for f in [pool.submit(g) for g in functions]]


def test_two_threads_trace_at_once_and_do_not_see_each_other():
    barrier = threading.Barrier(2, timeout=60)

    def traced(first, second):
        def f(x):
            assert state.trace is not None
            for name in (first, second) * 10:
                barrier.wait()
                x = P[name](x)
            return x

        return lambda: ft.make_ir(f)(X)

    one, two = run_together(traced("sin", "cos"), traced("exp", "neg"))
    assert [e.primitive.name for e in one.equations] == ["sin", "cos"] * 10
    assert [e.primitive.name for e in two.equations] == ["exp", "neg"] * 10


def test_a_tracer_of_another_thread_is_refused():
    def f(x):
        def use():
            with pytest.raises(errors.LeakedTracer, match="another thread"):
                P["sin"](x)
            with pytest.raises(errors.LeakedTracer, match="another thread"):
                ft.grad(lambda y: total(P["mul"](x, y)))(X)
            return state.trace

        assert run_together(use) == [None]
        return P["cos"](x)

    np.testing.assert_allclose(ft.jit(f)(X), np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(ft.grad(lambda x: total(f(x)))(X), -np.sin(X), rtol=1e-6)


class Stop(Exception):
    pass


TRANSFORMS = {
    "make_ir": lambda f: ft.make_ir(f),
    "value_and_grad": lambda f: ft.value_and_grad(f),
    "jvp": lambda f: lambda x: ft.jvp(f, (x,), (x,)),
    "vjp": lambda f: lambda x: ft.vjp(f, x),
    "linearize": lambda f: lambda x: ft.linearize(f, x),
    "linear_transpose": lambda f: lambda x: ft.linear_transpose(f, x)(1.0),
    "jacfwd": lambda f: ft.jacfwd(f),
    "hessian": lambda f: ft.hessian(f),
    "eval_shape": lambda f: lambda x: ft.eval_shape(f, x),
    "jit in grad in vmap in jit": lambda f: ft.jit(
        ft.vmap(ft.grad(lambda x: ft.jit(f)(x)), in_axes=None, axis_size=2)
    ),
}


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, RecursionError])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_an_exception_in_user_code_leaves_nothing_active(name, error):
    fail = True

    def f(x):
        y = total(P["mul"](x, 3.0))
        if fail:
            raise error("from the user")
        return y

    g = TRANSFORMS[name](f)
    with pytest.raises(error, match="from the user"):
        g(X)
    assert state.trace is state.provenance is None
    fail = False
    g(X)  # the same function again, now without the exception


def test_an_exception_that_is_caught_inside_goes_on_in_the_outer_trace():
    def inner(x):
        P["sin"](x)
        raise Stop

    def f(x):
        for transform in (ft.jit(inner), ft.grad(inner), ft.vmap(inner)):
            with pytest.raises(Stop):
                transform(x)
        return total(P["mul"](x, x))

    np.testing.assert_allclose(ft.grad(f)(X), 2 * X)
    np.testing.assert_allclose(ft.jit(f)(X), (X * X).sum())
    program = ft.make_ir(f)(X)
    assert [e.primitive.name for e in program.equations] == ["mul", "reduce_sum"]


@pytest.mark.rest
@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="3.12.0 starts no thread after the main one ended"
)
def test_deep_functions_are_traced_after_the_main_thread_has_ended():
    code = """
import threading, time
import functrans as ft

def nested(x, n=30):
    return ft.jit(lambda x: nested(x, n - 1))(x) if n else x * 2

def late():
    time.sleep(0.3)
    print(nested(3.0))

threading.Thread(target=late).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "6.0\n", done.stderr
