"""`compare` as its users meet it: faults anywhere in a program, unusual values, wrong input."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.extend.mlir.dialects import stablehlo as hlo

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from tests.support.wrong_lowerings import OffByOne, WrongSin, planted

pytestmark = pytest.mark.smoke

X = np.linspace(0.3, 2.0, 6, dtype="float32").reshape(2, 3)


# --- faults ---------------------------------------------------------------------------------------


@pytest.fixture
def wrong_sin():
    with planted(WrongSin, "wrong_sin", np.sin, hlo.sine, lambda x, y: jnp.cos(x)) as primitive:
        yield primitive


def double_first(f, x):
    return lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, f(c[1] * 2.0)), (0, x))


def with_own_rule(f, x):
    own = ft.custom_vjp(jnp.sin)
    own.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * f(x),))
    return ft.grad(lambda x: own(x).sum())(x)


def in_nested_loops(f, x):
    def row(c, xs):
        return c + lax.scan(lambda d, y: (d + f(y), None), 0.0, xs)[0], None

    return lax.scan(row, 0.0, x)


FAR = np.linspace(0.1, 3.0, 12, dtype="float32").reshape(3, 4)  # 1.5 < FAR[1, 2]


@pytest.mark.parametrize(
    ("f", "x", "steps"),
    [
        (double_first, np.float32(0.4), [2]),
        (lambda f, x: lax.cond(x[0, 0] < 1, f, jnp.cos, x), FAR, []),
        (lambda f, x: lax.switch(2, [jnp.cos, jnp.exp, f], x), FAR, []),
        (with_own_rule, FAR, []),
        (in_nested_loops, FAR, [1, 2]),
        (lambda f, x: lax.scan(lambda c, y: (c + f(y), c), 0.0, x, reverse=True), FAR[1], [3]),
        (lambda f, x: ft.vmap(lambda r: lax.scan(lambda c, y: (c, f(y)), 0.0, r))(x), FAR, [0]),
        (lambda f, x: ft.jvp(lambda x: ft.checkpoint(f)(jnp.exp(x)), (x,), (x,)), FAR, []),
        (lambda f, x: ft.jit(lambda x: ft.jit(f)(x) * 2)(x) + jnp.sin(x), FAR, []),
        (lambda f, x: f(x.astype("bfloat16")).sum(), FAR, []),
        (lambda f, x: f(x.astype("float16")) / 2, FAR, []),
        (lambda f, x: f(3.0 + ft.random.normal(ft.random.key(0), (9,))) * x[0, 0], FAR, []),
        (lambda f, x: jnp.concatenate([f(x[:0]), f(x)]), FAR, []),
    ],
    ids=[
        "while",
        "cond",
        "switch",
        "custom_vjp",
        "nested",
        "reverse",
        "vmap",
        "checkpoint",
        "jit",
        "bfloat16",
        "float16",
        "random",
        "empty",
    ],
)
def test_a_wrong_lowering_is_named_wherever_it_stands(wrong_sin, f, x, steps):
    report = ft.compare(lambda x: f(wrong_sin, x), compiled=False)(x)
    assert report.first.primitive == "wrong_sin"
    assert list(report.first.steps) == steps
    assert ft.compare(lambda x: f(jnp.sin, x), compiled=False)(x).ok


@pytest.mark.parametrize("dtype", ["int32", "uint8", "complex64", "bfloat16", "float32"])
def test_a_wrong_lowering_is_named_at_every_dtype(dtype):
    with planted(OffByOne, "off_by_one", np.negative, hlo.negate) as wrong:
        x = jnp.arange(5).astype(dtype)
        report = ft.compare(lambda x: wrong(x * x) + x, compiled=False)(x)
    assert report.first.primitive == "off_by_one"


# --- programs that are right ----------------------------------------------------------------------

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda: jnp.arange(3.0) * 2, ()),
        (lambda x: (x, 3, None), (X,)),
        (lambda x: (x.sum(), x @ x.T, jnp.sort(x), x.mean()), (X[:0],)),
        (lambda x: lax.scan(lambda c, y: (c + y.sum(), c), 0.0, x), (X[:0],)),
        (lambda x: lax.while_loop(lambda c: c.sum() < 0, jnp.sin, x), (X,)),
        (lambda k: lax.fori_loop(0, 3, lambda i, k: ft.random.split(k)[0], k), (KEY,)),
        (
            lambda ks: lax.scan(lambda c, k: (c + ft.random.normal(k), c), 0.0, ks),
            (jax.random.split(KEY, 4),),
        ),
        (lambda i: (i // 4, i % 4, i >> 1, jnp.cumsum(i), i.argmax()), (np.arange(-6, 6),)),
        (lambda i: i * np.uint8(77) + np.uint8(200), (np.arange(250, dtype="uint8"),)),
        (lambda x: (x.astype("int4") * 2 + 7, x.astype("float8_e4m3fn")), (X,)),
        (lambda z: (z @ z.T.conj(), jnp.abs(z), jnp.angle(z)), (X * np.complex64(1 + 2j),)),
        (lambda x: (jnp.log(x - 1), jnp.exp(x * 1000) - 1, jnp.sqrt(-x) / 0), (X,)),
        (lambda x: ft.pure_callback(np.sin, ft.ShapeDtypeStruct((2, 3), "float32"), x) * 2, (X,)),
        (lambda p, y=2.0: {"a": p["u"] * y, "b": (p["v"],)}, ({"u": X, "v": 2},)),
    ],
    ids=[
        "no arguments",
        "constants",
        "empty",
        "no steps",
        "while false",
        "key carried",
        "keys",
        "ints",
        "wraps",
        "small dtypes",
        "complex",
        "not finite",
        "callback",
        "trees",
    ],
)
def test_unusual_values_agree(f, args):
    report = ft.compare(f)(*args)
    assert report.ok, str(report)


def test_a_callback_gets_its_own_dtype_in_each_run():
    seen = []

    def note(x):
        seen.append(np.asarray(x).dtype.name)
        return np.sin(x)

    with jax.enable_x64(True):
        report = ft.compare(lambda x: ft.pure_callback(note, ft.ShapeDtypeStruct((2, 3), "float32"), x) * 2)(
            X
        )
    assert report.ok
    assert seen == ["float32"] * 3


# --- against another program ----------------------------------------------------------------------


def test_constants_that_differ_are_seen():
    one, two = jnp.arange(3.0), jnp.arange(3.0) + 1
    x = jnp.ones(3)
    report = ft.compare(lambda x: jnp.sin(x) * one, against=lambda x: jnp.sin(x) * two)(x)
    assert report.first.place == "equation 1 (mul)"
    report = ft.compare(lambda x: jnp.sin(x) * x, against=lambda x: jnp.sin(x) * two)(x)
    assert report.first.place == "equation 1 (mul)"  # one of them has no constant at all
    swapped = ft.compare(lambda x: x * one - two, against=lambda x: x * two - one)(x)
    assert swapped.first.place == "equation 0 (mul)"
    again = ft.compare(lambda x: x * one, against=lambda x: x * (jnp.arange(3.0) + 0))(x)
    assert again.ok

    def looped(c):
        return lambda x: lax.scan(lambda s, y: (s + y * c, y), jnp.zeros(3), x)

    assert ft.compare(looped(one), against=looped(two))(x).first.primitive == "scan"
