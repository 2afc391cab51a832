"""`jax.experimental.checkify` of functions that functrans has traced, beside JAX's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import functrans as ft
import functrans.numpy as fnp

X = jnp.array([0.5, -1.0, 2.0])
BIG = X * 100
TWO = jnp.stack([X, BIG])


def small(n):
    def f(x):
        checkify.check((x < 10).all(), "too large: {}", x)
        return (x * n.sin(x)).sum()

    return f


def scanned(lib, n):
    return lambda x: lib.lax.scan(lambda c, _: (c * 2, small(n)(c)), x, None, length=4)[1]


def repeated(lib, n):
    def body(c):
        checkify.check((c < 10).all(), "too large: {}", c)
        return n.sin(c) + c * 2

    return lambda x: lib.lax.while_loop(lambda c: (c < 20).all(), body, x)


def chosen(lib, n):
    return lambda x: lib.lax.cond(x[0] > 0, small(n), lambda x: x.sum(), x)


# name -> (function of (library, numpy) -> function, kinds of errors, arguments)
USER, FLOAT, DIV = checkify.user_checks, checkify.float_checks, checkify.div_checks
CASES = {
    "jit": (lambda lib, n: lib.jit(small(n)), USER, (X, BIG)),
    "jit in jit": (lambda lib, n: lib.jit(lib.jit(small(n))), USER, (X, BIG)),
    "jax.jit": (lambda lib, n: jax.jit(lib.jit(small(n))), USER, (X, BIG)),
    "grad": (lambda lib, n: lib.jit(lib.grad(small(n))), USER, (X, BIG)),
    "un-jitted grad": (lambda lib, n: lib.grad(small(n)), USER, (X, BIG)),
    "vmap": (lambda lib, n: lib.jit(lib.vmap(small(n))), USER, (TWO, TWO / 100)),
    "scan": (lambda lib, n: lib.jit(scanned(lib, n)), USER, (X / 10, X, BIG)),
    "while": (lambda lib, n: lib.jit(repeated(lib, n)), USER, (X, -X, BIG)),
    "cond": (lambda lib, n: lib.jit(chosen(lib, n)), USER, (X, BIG, -BIG)),
    "no check": (lambda lib, n: lib.jit(lambda x: n.log(x)), USER, (X,)),
    "NaN": (lambda lib, n: lib.jit(lambda x: n.log(x).sum()), FLOAT, (X, X * X)),
    "NaN, un-jitted": (lambda lib, n: lambda x: n.log(x).sum(), FLOAT, (X, X * X)),
    "NaN in a loop": (
        lambda lib, n: lib.jit(
            lambda x: lib.lax.scan(lambda c, _: (c - 1, n.log(c)), x, None, length=3)
        ), FLOAT, (X * X, X * X + 5),
    ),
    "division": (lambda lib, n: lib.jit(lambda x: 1 / (x - 2)), DIV, (X, X + 1)),
    "all": (lambda lib, n: lib.jit(lambda x: n.sqrt(x) / 2), USER | FLOAT | DIV, (X, X * X)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_is_what_jax_finds(name):
    make, kinds, arguments = CASES[name]
    ours = jax.jit(checkify.checkify(make(ft, fnp), errors=kinds))
    theirs = jax.jit(checkify.checkify(make(jax, jnp), errors=kinds))
    found = []
    for x in arguments:
        (error, out), (wanted, like) = ours(x), theirs(x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), out, like)
        said, should = [(e.get() or "").split("\n")[0] for e in (error, wanted)]
        assert said == should
        found.append(bool(said))
    assert len(set(found)) == min(len(arguments), 2)  # a right argument and a wrong one


def test_derivatives_of_checked_functions_of_ours():
    def value(f):
        return lambda x: checkify.checkify(f)(x)[1]

    wanted = jax.grad(value(jax.jit(small(jnp))))(X)
    for grad in (jax.grad, ft.grad):
        np.testing.assert_allclose(grad(value(ft.jit(small(fnp))))(X), wanted, rtol=1e-5)
    held = checkify.checkify(ft.jit(lambda x: ft.nn.relu(x).sum()), errors=FLOAT)
    at_zero = jax.grad(lambda x: held(x)[1])(jnp.zeros(2))  # relu's own rule says 0
    np.testing.assert_array_equal(at_zero, 0)


def test_only_what_is_checked_stands_apart():
    """A function without checks is one equation still, which is optimised as a whole."""
    f = ft.jit(lambda x: fnp.sin(fnp.cos(x)).sum() * 2)
    jaxpr = jax.make_jaxpr(checkify.checkify(f))(X)
    assert str(jaxpr).count("functrans[") == 1


def test_indices_are_not_looked_at_and_it_is_said():
    f = ft.jit(lambda x, i: x[i])
    with pytest.warns(UserWarning, match="no index that is out of range"):
        error, _ = checkify.checkify(f, errors=checkify.index_checks)(X, jnp.int32(7))
    assert error.get() is None


def test_operators_of_ours_are_seen_inside_of_ours():
    """checkify closes over our traced values; where JAX records, what is done to them is JAX's."""

    def error_of(jit):
        return jit(lambda x: checkify.checkify(lambda x: 1 / x, errors=checkify.all_checks)(x)[0])

    for x in (jnp.array([0.0, 1.0]), jnp.array([2.0, 1.0])):
        assert error_of(ft.jit)(x).get() == error_of(jax.jit)(x).get()
