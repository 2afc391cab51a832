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
        lambda lib, n: lib.jit(lambda x: lib.lax.scan(lambda c, _: (c - 1, n.log(c)), x, None, length=3)),
        FLOAT,
        (X * X, X * X + 5),
    ),
    "division": (lambda lib, n: lib.jit(lambda x: 1 / (x - 2)), DIV, (X, X + 1)),
    "all": (lambda lib, n: lib.jit(lambda x: n.sqrt(x) / 2), USER | FLOAT | DIV, (X, X * X)),
}


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
    """A function without checks is one equation still, which is optimized as a whole."""
    f = ft.jit(lambda x: fnp.sin(fnp.cos(x)).sum() * 2)
    jaxpr = jax.make_jaxpr(checkify.checkify(f))(X)
    assert str(jaxpr).count("functrans[") == 1


def ruled(lib, f):
    """f with a rule of its own for derivatives."""
    g = lib.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (f(*primals), tangents[0][0]))
    return g


TWO_OF = jnp.array([0, 1])
# name -> function of (library, numpy) -> function of an array and an index
INDEXED = {
    "x[i]": lambda lib, n: lambda x, i: x[i],
    "x[indices]": lambda lib, n: lambda x, i: x[TWO_OF + i],
    "x[i, j]": lambda lib, n: lambda x, i: n.outer(x, x)[0 * i, i],
    "a row": lambda lib, n: lambda x, i: n.outer(x, x)[i],
    "dynamic_slice": lambda lib, n: lambda x, i: lib.lax.dynamic_slice(x, (i,), (2,)),
    "dynamic_update_slice": (lambda lib, n: lambda x, i: lib.lax.dynamic_update_slice(x, x[:2], (i,))),
    "set": lambda lib, n: lambda x, i: x.at[i].set(1.0),
    "add": lambda lib, n: lambda x, i: x.at[TWO_OF + i].add(1.0),
    "multiply": lambda lib, n: lambda x, i: x.at[i].multiply(2.0),
    "min": lambda lib, n: lambda x, i: n.outer(x, x).at[i].min(x),
    "dropped": lambda lib, n: lambda x, i: x.at[i].set(2.0, mode="drop"),
    "clipped": lambda lib, n: lambda x, i: x.at[i].get(mode="clip"),
    "along an axis": lambda lib, n: lambda x, i: n.take_along_axis(x, i[None], 0),
    "grad": lambda lib, n: lambda x, i: lib.grad(lambda x: x[i] ** 2)(x),
    "vmap": lambda lib, n: lambda x, i: lib.vmap(lambda j: x[j])(TWO_OF + i),
    "scan": (lambda lib, n: lambda x, i: lib.lax.scan(lambda c, y: (c + x[i], x[i]), 0.0, x)),
    "while": (
        lambda lib, n: lambda x, i: lib.lax.while_loop(lambda c: c < 3.0, lambda c: c + 1 + 0 * x[i], 0.0)
    ),
    "cond": lambda lib, n: lambda x, i: lib.lax.cond(x[0] > 0, lambda: x[i], lambda: x[0]),
    "jit": lambda lib, n: lambda x, i: lib.jit(lambda x: x[i])(x) + lib.jit(lambda x: x[i])(x),
    "custom_jvp": lambda lib, n: lambda x, i: ruled(lib, lambda x: x[i])(x),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("kinds", [checkify.index_checks, checkify.all_checks], ids=["", "all"])
def test_indices_that_are_found_are_those_that_jax_finds(name, kinds):
    """Of index errors alone in functions that JAX compiles, of all kinds also one by one."""
    make, found = INDEXED[name], []
    around = jax.jit if kinds == checkify.index_checks else lambda f: f
    ours, mixed, theirs = (
        outer(checkify.checkify(jit(make(lib, n)), errors=kinds))
        for outer, jit, lib, n in (
            (around, ft.jit, ft, fnp),
            (around, ft.jit, jax, jnp),
            (jax.jit, jax.jit, jax, jnp),
        )
    )
    for i in (1, 7, -9):
        wanted, like = theirs(X, jnp.int32(i))
        should = (wanted.get() or "").split(". ")[0]
        for checked in (ours, mixed):
            error, out = checked(X, jnp.int32(i))
            jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), out, like)
            assert (error.get() or "").split(". ")[0] == should
        found.append(bool(should))
    assert found == [False, True, True]


@pytest.mark.parametrize(
    ("f", "shape", "axis"),
    [
        (lambda i: ft.vmap(lambda y, j: y.at[j].set(0.0))(TWO, TWO_OF + i), "(2, 3)", 1),
        (lambda i: ft.checkpoint(lambda x, i: fnp.sin(x[i]))(X, i), "(3,)", 0),
    ],
    ids=["vmap of set", "checkpoint"],
)
def test_indices_where_checkify_fails_in_jax(f, shape, axis):
    checked = checkify.checkify(ft.jit(f), errors=checkify.index_checks)
    assert checked(jnp.int32(1))[0].get() is None
    said = f"array of shape {shape}: index 7 is out of bounds for axis {axis} with size 3"
    assert said in checked(jnp.int32(7))[0].get()


def test_what_has_a_rule_is_checked_inside_and_keeps_its_rule():
    seventh = ruled(ft, lambda x: x[(x[0] * 0).astype(int) + 7] * x.sum())
    held = checkify.checkify(ft.jit(seventh), errors=checkify.index_checks)
    slope, error = jax.grad(lambda x: held(x)[::-1], has_aux=True)(X)
    np.testing.assert_array_equal(slope, [1, 0, 0])
    assert "index 7" in error.get()

    def f(x):
        checkify.check(x[0] > 0, "negative")
        return x.sum()

    checked = checkify.checkify(ft.jit(ruled(ft, f)))
    assert checked(X)[0].get() is None
    assert checked(-X)[0].get().startswith("negative")


def test_operators_of_ours_are_seen_inside_of_ours():
    """checkify closes over our traced values; where JAX records, what is done to them is JAX's."""

    def error_of(jit):
        return jit(lambda x: checkify.checkify(lambda x: 1 / x, errors=checkify.all_checks)(x)[0])

    for x in (jnp.array([0.0, 1.0]), jnp.array([2.0, 1.0])):
        assert error_of(ft.jit)(x).get() == error_of(jax.jit)(x).get()
