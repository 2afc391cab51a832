"""cond, switch, while_loop, fori_loop, scan, map, associative_scan against JAX's."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import lax
from tests.support.closeness import assert_close
from tests.support.versions import NEWER

MINE = (ft, lax, ft_numpy)
JAX = (jax, jax.lax, jax_numpy)
_rng = np.random.default_rng(0)
W = jax_numpy.asarray(_rng.normal(size=(3, 3)) * 0.5, "float32")
X = jax_numpy.asarray(_rng.normal(size=(4, 3)), "float32")


# --- programs of (w, x), each over JAX's names; `i` is a traced counter ---------------------------


def rnn_reversed(ft, lax, np_, w, x):
    def step(carry, r):
        i, h = carry
        return (i + 1, np_.sin(w @ h) * i + r["a"]), {"out": h * w[0, 0], "i": i}

    carry, ys = lax.scan(step, (0, x[0]), {"a": x}, reverse=True, unroll=2)
    return carry[1].sum() + (ys["out"] ** 3).sum()


def switched(ft, lax, np_, w, x):
    fs = [lambda v: v @ w, lambda v: np_.exp(v) + w[1], lambda v: v]
    return sum((lax.switch(i, fs, x[i]) ** 2).sum() * (i + 1) for i in range(4))


def associated(ft, lax, np_, w, x):
    def fn(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    a, b = lax.associative_scan(fn, (np_.tanh(x), x @ w))
    c = lax.associative_scan(np_.multiply, x, axis=1, reverse=True)

    def affine(p, q):  # x -> A x + v, of arrays of two ranks
        return q[0] @ p[0], np_.einsum("tij,tj->ti", q[0], p[1]) + q[1]

    maps = np_.sin(x)[:, :, None] * w
    d, e = lax.associative_scan(affine, (maps, x))
    return (b**2).sum() + a.sum() + (c * x).sum() + d.sum() + (e**2).sum()


def updated_in_place(ft, lax, np_, w, x):
    def body(i, b):
        b = b.at[i].set(b[i - 1] * w[0, 0] + i)
        return b.at[3 - i].multiply(b[i]).at[0].add(x[i, 0])

    return (lax.fori_loop(1, 4, body, x[:, 0]) ** 2).sum()


PROGRAMS = [rnn_reversed, switched, associated, updated_in_place]


TRANSFORMED = {
    "value": lambda ft, f: f,
    "grad": lambda ft, f: ft.value_and_grad(f, (0, 1)),
    "vmap": lambda ft, f: lambda w, x: ft.vmap(f, (None, 0))(w, x[:, None, :] * x),
    "vmap(grad)": lambda ft, f: lambda w, x: ft.vmap(ft.grad(f, (0, 1)), (None, 2))(w, x[:, :, None] * w[0]),
    "grad(vmap)": lambda ft, f: ft.grad(
        lambda w, x: (ft.vmap(f, (0, None))(w * x[:2, :1, None], x) ** 2).sum(), (0, 1)
    ),
    "jvp(grad)": lambda ft, f: lambda w, x: ft.jvp(ft.grad(f), (w, x), (x[:3], x * 2)),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_equals_jax(program):
    def every(m, *names):
        f = functools.partial(program, m, *names)
        return lambda w, x: {how: transform(m, f)(w, x) for how, transform in TRANSFORMED.items()}

    want = jax.jit(every(*JAX))(W, X)
    assert_close(ft.jit(every(*MINE))(W, X), want, 3e-4)
    assert_close(program(*MINE, W, X), want["value"], 3e-4)
    made = ft.make_ir(TRANSFORMED["grad"](ft, functools.partial(program, *MINE)))(W, X)
    ft.ir.check(made)
    assert ft.ir.equal(ft.ir.parse(ft.ir.show(made), made.values), made)
    assert_close(ft.interpret(made, W, X), jax.tree.leaves(want["grad"]), 2e-4)


class Pair(NamedTuple):
    carry: object
    y: object


# --- values and types as JAX's --------------------------------------------------------------------

VALUES = [
    lambda lax, np_: lax.fori_loop(0, 5, lambda i, c: c * 2 + i, 1.0),
    lambda lax, np_: lax.fori_loop(0, 5, lambda i, c: c * 2 + i, 1),
    lambda lax, np_: lax.fori_loop(3, 1, lambda i, c: c + i, np_.ones(2)),
    lambda lax, np_: lax.scan(lambda c, x: (c + x, c * 2), 0, np_.arange(3.0)),
    lambda lax, np_: lax.scan(lambda c, _: (c + 1, None), 0, None, 3),
    lambda lax, np_: lax.scan(lambda c, x: (c, x["a"] + c), 1.0, {"a": np_.ones(3)}, unroll=True),
    lambda lax, np_: lax.scan(lambda c, x: (c + x, c), np_.zeros(()), np_.zeros((0,))),
    lambda lax, np_: lax.scan(lambda c, x: (not_(c), x & c), np_.bool_(True), np_.arange(4) > 1),
    lambda lax, np_: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 1.5), (0, 1)),
    lambda lax, np_: lax.map(lambda x: {"y": x * 2 + 1}, np_.arange(7), batch_size=3),
    lambda lax, np_: lax.map(lambda x: x + 1, np_.zeros((0, 2)), batch_size=2),
    lambda lax, np_: lax.associative_scan(np_.logical_or, np_.arange(5) == 2),
    lambda lax, np_: lax.associative_scan(np_.add, np_.full(4, 2.0)),
    lambda lax, np_: lax.associative_scan(np_.maximum, np_.array([3, 1, 4, 1, 5]), reverse=True),
    lambda lax, np_: lax.cond(np_.ones(()) > 0, lambda a: (a, 1), lambda a: (a * 2, 2), np_.ones(2)),
    lambda lax, np_: lax.cond(True, lambda a: np_.float32(1), lambda a: a, np_.float32(3)),
    lambda lax, np_: lax.cond(0, lambda: 1, lambda: 2),
    lambda lax, np_: lax.cond(False, 1.0, lambda x: x, 2.0, lambda x: x * 5),
    lambda lax, np_: lax.cond(True, lambda x: x, lambda x: -x, operand=3),
    lambda lax, np_: lax.switch(5, [lambda: 1, lambda: 2]),
    lambda lax, np_: lax.switch(np_.int8(-3), [lambda x: x, lambda x: x * 2], 4),
    lambda lax, np_: lax.scan(lambda c, x: (c * x, (c, x)), 1.5, np_.zeros((0,))),
    lambda lax, np_: lax.scan(lambda c, x: ((c[1], c[0] + x), c), (0.0, 1.0), np_.arange(3.0)),
    lambda lax, np_: lax.scan(lambda c, _: (1.0, c), np_.float32(2), None, 2),
    lambda lax, np_: lax.while_loop(lambda c: c < 3, lambda c: c + np_.float32(1), 0.0),
    lambda lax, np_: lax.scan(lambda c, x: (c, x), (), None, 3),
    lambda lax, np_: lax.scan(lambda c, x: (c * x, c), 2.0, np_.arange(1, 4.0), unroll=10),
    lambda lax, np_: lax.fori_loop(np.int8(0), np.int8(3), lambda i, c: i, 0),
    lambda lax, np_: lax.scan(lambda c, x: [c + x, (x, None)], np_.float32(0), np_.arange(3.0)),
    lambda lax, np_: lax.scan(
        lambda c, x: (tuple if NEWER else lambda pair: pair)(Pair(c + x, x)), np_.float32(0), np_.arange(3.0)
    ),  # JAX takes only tuples and lists from 0.11 on
    lambda lax, np_: lax.fori_loop(0, np_.int16(3), lambda i, c: c + i, np_.int16(0)),
]


def not_(c):
    return c ^ True


def of_each(lax, np_):
    return [f(lax, np_) for f in VALUES]


@pytest.mark.smoke
@pytest.mark.parametrize("jitted", [False, True])
def test_values_and_types(jitted):
    mine, theirs = functools.partial(of_each, lax, ft_numpy), functools.partial(of_each, jax.lax, jax_numpy)
    found = (ft.jit(mine) if jitted else mine)()
    want = (jax.jit(theirs) if jitted else theirs)()
    for i, (ours, its) in enumerate(zip(found, want, strict=True)):
        assert jax.tree.structure(ours) == jax.tree.structure(its), i
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(its), strict=True):
            b = jax_numpy.asarray(b)
            assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type), i
            np.testing.assert_array_equal(a, b)


def test_keys_are_carried_and_stacked():
    def f(random, lax):
        def step(key, other):
            key, sub = random.split(key)
            return key, (random.normal(sub), random.uniform(other), sub)

        return lax.scan(step, random.key(0), random.split(random.key(1), 3))

    mine = ft.jit(lambda: f(ft.random, lax))()
    theirs = jax.jit(lambda: f(jax.random, jax.lax))()
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)
