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
from tests.support.versions import NEWER

_rng = np.random.default_rng(0)
W = jax_numpy.asarray(_rng.normal(size=(3, 3)) * 0.5, "float32")
X = jax_numpy.asarray(_rng.normal(size=(4, 3)), "float32")


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
    lambda lax, np_: lax.map(lambda x: x + 1, np_.arange(3), batch_size=0),
    lambda lax, np_: lax.scan(lambda c, _: (c * 2, None), 1, None, length=3 / 1),
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
    lambda lax, np_: lax.fori_loop(2, 7, lambda i, c: c * 1.5 + i, np_.ones(2), unroll=3),
    lambda lax, np_: lax.fori_loop(
        1,
        4,
        lambda i, b: b.at[i].set(b[i - 1] * 3 + i).at[3 - i].multiply(b[i]).at[0].add(0.5),
        np_.arange(4.0),
    ),
    lambda lax, np_: lax.scan(
        lambda c, r: ((c[0] + 1, c[1] * c[0] + r["a"]), {"out": c[1], "i": c[0]}),
        *((0, np_.zeros(2)), {"a": np_.arange(8.0).reshape(4, 2)}),
        reverse=True,
        unroll=2,
    ),
    lambda lax, np_: [
        lax.switch(i, [np_.negative, np_.flip, np_.square], np_.arange(3.0)) for i in range(-1, 4)
    ],
    lambda lax, np_: lax.associative_scan(np_.add, np_.arange(12.0).reshape(3, 4), axis=1, reverse=True),
    lambda lax, np_: lax.associative_scan(
        lambda p, q: (q[0] @ p[0], np_.einsum("tij,tj->ti", q[0], p[1]) + q[1]),  # of two ranks
        (np_.arange(16.0).reshape(4, 2, 2), np_.arange(8.0).reshape(4, 2)),
    ),
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


def test_python_sees_the_functions_in_the_order_of_jax():
    def seen(lax):
        said = []

        def saying(what, out):
            return lambda x: (said.append(what), out(x))[1]

        lax.cond(True, saying("true", abs), saying("false", abs), 1.0)
        lax.switch(1, [saying("0", abs), saying("1", abs)], 1.0)
        lax.while_loop(saying("condition", lambda x: x < 9.0), saying("body", lambda x: x + 1.0), 1.0)
        return said

    assert seen(ft.lax) == seen(jax.lax) == ["true", "false", "0", "1", "condition", "body"]
