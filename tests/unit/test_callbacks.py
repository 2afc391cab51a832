"""Callbacks: what they are given, what they return, what they raise, against JAX."""

import contextlib
import logging
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans import errors
from tests.support.observing import NUMBER, both, example, transformed

pytestmark = pytest.mark.smoke

# --- callbacks with results -----------------------------------------------------------------------


METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


@pytest.mark.parametrize("method", METHODS)
def test_pure_callback_under_vmap(method):
    """What it gives, and the shapes that it sees."""

    def make(L, np_, log):
        def host(x, y):
            log(np_.array(x.shape), np_.array(y.shape))
            return np.asarray(x) * 2 + np.asarray(y), {"shape": np.zeros(x.shape, "int32") + 7}

        def f(x, y):
            shape = np_.shape(x)
            like = L.ShapeDtypeStruct(shape, np_.float32), {"shape": L.ShapeDtypeStruct(shape, np_.int32)}
            return L.pure_callback(host, like, x, y, vmap_method=method)

        mapped = L.vmap(L.vmap(f, in_axes=(0, None)), in_axes=(1, None))
        return lambda x, y: (mapped(x, y), L.jit(mapped)(x, y))

    both(make, np.arange(6, dtype="float32").reshape(2, 3), np.float32(1))


@pytest.mark.parametrize("names", [(), ("jit", "vmap")])
def test_io_callback(names):
    def make(L, np_, log):
        def f(x):
            like = [L.ShapeDtypeStruct(np_.shape(x), np_.float32), None]
            return L.experimental.io_callback(lambda x, *, by: [np.asarray(x) * by, log(x)], like, x, by=2)[0]

        return f

    both(transformed(make, names), example(names), in_order=False)


def test_a_pure_callback_without_results_is_not_called():
    for L in (ft, jax):
        assert L.pure_callback(np.sin, None, 1.0) is None
        assert L.jit(lambda x, L=L: L.pure_callback(np.sin, (), x))(1.0) == ()


@pytest.mark.parametrize("wide", [False, True])
def test_dtypes_of_results(wide):
    """Results of Python are 32 bit where 64-bit types are disabled."""

    def make(L, np_, log):
        real, whole = (np_.float64, np_.int64) if wide else (np_.float32, np_.int32)
        like = [L.ShapeDtypeStruct((2,), real), L.ShapeDtypeStruct((), whole)]
        return L.jit(lambda x: L.pure_callback(lambda x: [np.ones(2) / 3, 4], like, x))

    with jax.enable_x64(wide):
        both(make, np.ones(2, "float32"))


@pytest.mark.parametrize("names", [(), ("jit", "vmap")])
def test_a_callback_may_use_functrans_itself(names):
    def make(L, np_, log):
        def host(x):
            return L.jit(L.grad(np_.sin))(x) + L.vmap(np_.sin)(x[None])[0]

        return lambda x: L.pure_callback(host, NUMBER, x, vmap_method="sequential")

    both(transformed(make, names), example(names))


# --- what a callback is given ---------------------------------------------------------------------


class Unhashable:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> None:
        self.seen.append(np.asarray(x).tolist())


@pytest.mark.parametrize("transform", [lambda f: f, ft.jit, ft.vmap])
def test_callables_of_any_kind(transform):
    seen = Unhashable()

    def f(x):
        ft.debug.callback(seen, x)
        ft.debug.callback(seen.seen.append, 2)
        return x

    transform(f)(np.ones(2, "float32"))
    ft.effects_barrier()
    assert len(seen.seen) == (3 if transform is ft.vmap else 2)


def test_formats():
    def make(L, np_, log):
        def f(x, n):
            L.debug.print("{a[0]:.3f} {b.shape} {{}} {c!r:>6}", a=x, b=x, c="text", ordered=True)
            L.debug.print("{0} {1} {0}", x, [x, (n, None)], ordered=True)
            L.debug.print("{} {:d}", True, n, ordered=True)
            L.debug.print("", ordered=True)
            L.debug.print("no places", x, ordered=True, skip_format_check=True)
            with np.printoptions(precision=2):
                L.debug.print("{}", x, ordered=True)
            return x

        return f

    args = np.array([1 / 3, 2 / 3], "float32"), np.int32(3)
    both(make, *args)
    both(lambda *L: L[0].jit(make(*L)), *args)


def test_log(caplog):
    with caplog.at_level(logging.INFO, logger="functrans.debug"):
        ft.jit(lambda x: ft.debug.log("x is {x}", x=x))(2.0)
        ft.effects_barrier()
    assert [r.getMessage() for r in caplog.records] == ["x is 2.0"]
    assert caplog.records[0].pathname == __file__


def of_integers(L, np_, log):
    """They have no derivative to ask for."""

    def f(x):
        n = x.astype(np_.int32)
        return x * L.pure_callback(lambda n: np.float32(n) * 3, L.ShapeDtypeStruct((), np_.float32), n)

    return L.grad(f)


def on_a_device(L, np_, log):
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def f(x):
        y = L.pure_callback(lambda x: np.asarray(x) + 1, NUMBER, x, sharding=device)
        return L.experimental.io_callback(lambda x: x, NUMBER, y, sharding=device)

    return L.jit(f)


def of_keys(L, np_, log):
    def f(x):
        key = L.random.key(x.astype(np_.int32))
        L.debug.callback(lambda k: log(jax.random.key_data(k)), key)
        return 0

    return f


@pytest.mark.parametrize("make", [of_integers, on_a_device, of_keys])
def test_operands_and_results_as_in_jax(make):
    both(make, np.float32(2.5))


# --- exceptions -----------------------------------------------------------------------------------


class Mine(Exception):
    pass


def failing(x: Any) -> Any:
    if np.asarray(x) < 0:
        raise Mine("negative")
    return np.asarray(x)


CALLS: dict[str, Callable[..., Any]] = {
    "debug": lambda L, x: (L.debug.callback(failing, x), x)[1],
    "ordered debug": lambda L, x: (L.debug.callback(failing, x, ordered=True), x)[1],
    "pure": lambda L, x: L.pure_callback(failing, x, x),
    "io": lambda L, x: L.experimental.io_callback(failing, x, x),
    "ordered io": lambda L, x: L.experimental.io_callback(failing, x, x, ordered=True),
}


@pytest.mark.parametrize("how", CALLS)
def test_exceptions_reach_the_user(how):
    def f(x):
        return CALLS[how](ft, x) * 2

    with pytest.raises(Mine, match="negative"):
        f(jnp.float32(-1))
    assert float(f(jnp.float32(1))) == 2

    compiled = ft.jit(f)

    def run(x: Any) -> float:
        y = float(compiled(x))
        jax.effects_barrier()
        return y

    with pytest.raises(jax.errors.JaxRuntimeError, match="negative"):
        run(jnp.float32(-1))
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.effects_barrier()
    assert run(jnp.float32(1)) == 2


@pytest.mark.parametrize("wrong", [np.ones(3, "float32"), np.ones(2, "int8"), (), [1.0, 2.0]])
def test_results_of_the_wrong_type(wrong):
    def f(x):
        return ft.pure_callback(lambda x: wrong, ft.ShapeDtypeStruct((2,), np.float32), x)

    with pytest.raises(errors.CallbackResult, match=r"promises \(f32\[2\]\), at\n.*test_callbacks"):
        f(1.0)
    for compiled in (ft.jit(f), ft.jit(lambda x: jax.pure_callback(lambda x: wrong, NUMBER, x))):
        with pytest.raises(RuntimeError, match=r"defined at .*test_callbacks.*promises"):
            np.asarray(compiled(1.0))

    def user(x):
        return wrong

    def g(x):
        return jax.pure_callback(user, jax.ShapeDtypeStruct((2,), np.float32), x)

    with pytest.raises(RuntimeError, match=r"user, defined at .*test_callbacks.py:\d+.* promises"):
        np.asarray(ft.jit(g)(1.0))


# --- programs -------------------------------------------------------------------------------------


def test_a_program_shows_its_callbacks():
    def f(x):
        ft.debug.print("x = {}", x)
        y = ft.pure_callback(np.sin, NUMBER, x)
        return ft.io_callback(failing, NUMBER, y, ordered=True)

    program = ft.ir.check(ft.make_ir(f)(np.float32(1)))
    shown = re.sub(r" #\d+>", ">", str(program))  # the second of a name has a number
    assert shown.splitlines()[1:-2] == [
        "  debug_callback[callback=<print 'x = {}'>] a",
        "  b: f32[] = pure_callback[callback=<sin>, results=(f32[],)] a",
        "  c: f32[] = io_callback[callback=<failing>, results=(f32[],), ordered=True] b",
    ]
    ft.ir.check(ft.make_ir(ft.vmap(lambda x: ft.debug.print("{}", x)))(np.ones(3)))
    assert ft.ir.equal(ft.ir.parse(str(program)), program)
