"""`jax.experimental.checkify` of functions that functrans has traced, beside JAX's own."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import functrans as ft
import functrans.numpy as fnp
from tests.support.tables import TABLES, functions, rows

X = jnp.array([0.5, -1.0, 2.0])
BIG = X * 100
TWO = jnp.stack([X, BIG])


def small(n):
    def f(x):
        checkify.check((x < 10).all(), "too large: {}", x)
        return (x * n.sin(x)).sum()

    return f


KINDS = {
    "user": checkify.user_checks,
    "float": checkify.float_checks,
    "div": checkify.div_checks,
    "all": checkify.user_checks | checkify.float_checks | checkify.div_checks,
}


@pytest.mark.parametrize("row", rows(TABLES / "checkify.txt", "checks"), ids=lambda row: row.fields[0])
def test_what_is_found_is_what_jax_finds(row):
    """By our functions, and by JAX's in a function of ours."""
    make = row.function("lib, n", globals())
    of_jax = SimpleNamespace(**{**vars(jax), "jit": ft.jit})
    worlds = [(ft, fnp), (of_jax, jnp), (jax, jnp)]
    every = [checkify.checkify(make(*world), errors=KINDS[row.fields[1]]) for world in worlds]
    checked = jax.jit(lambda x: [f(x) for f in every])
    for x, wrong in zip(row.fields[2:4], (False, True), strict=True):
        *ours, (wanted, like) = checked(eval(x))
        for error, out in ours:
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), out, like)
            said, should = [(e.get() or "").split("\n")[0] for e in (error, wanted)]
            assert said == should
            assert bool(said) == wrong


def test_derivatives_of_checked_functions_of_ours():
    def value(f):
        return lambda x: checkify.checkify(f)(x)[1]

    wanted = jax.grad(value(jax.jit(small(jnp))))(X)
    for grad in (jax.grad, ft.grad):
        np.testing.assert_allclose(grad(value(ft.jit(small(fnp))))(X), wanted, rtol=1e-5)
    held = checkify.checkify(ft.jit(lambda x: ft.nn.relu(x).sum()), errors=checkify.float_checks)
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


@pytest.mark.parametrize(
    "kinds",
    [pytest.param(checkify.index_checks, marks=pytest.mark.sweep), checkify.all_checks],
    ids=["", "all"],
)
def test_indices_that_are_found_are_those_that_jax_finds(kinds):
    """Of our functions and of JAX's in functions of ours; some also where nothing is compiled around."""

    def every(jit, lib, n):
        table = functions(TABLES / "checkify.txt", "indices", "lib, n, x, i", globals())
        return {
            name: checkify.checkify(jit(functools.partial(f, lib, n)), errors=kinds)
            for name, f in table.items()
        }

    worlds = [every(ft.jit, ft, fnp), every(ft.jit, jax, jnp), every(jax.jit, jax, jnp)]
    checked = jax.jit(lambda x, i: [{name: f(x, i) for name, f in world.items()} for world in worlds])
    for i, wrong in ((1, False), (7, True), (-9, True)):
        *ours, theirs = checked(X, jnp.int32(i))
        ours.append({name: worlds[0][name](X, jnp.int32(i)) for name in ("x[i]", "add", "scan")})
        for name, (wanted, like) in theirs.items():
            should = (wanted.get() or "").split(". ")[0]
            assert bool(should) == wrong
            for error, out in [world[name] for world in ours if name in world]:
                jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), out, like)
                assert (error.get() or "").split(". ")[0] == should, name


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
