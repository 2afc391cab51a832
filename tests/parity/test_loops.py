"""Loops: reverse mode, keys, effects, what is kept and freed, and misuse."""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import lax
from tests.parity.test_control_flow import W, X

pytestmark = pytest.mark.smoke


def test_memory_of_reverse_mode_does_not_grow_with_the_steps():
    x = jax_numpy.ones(1000)

    def f(x, n):
        return lax.fori_loop(0, n, lambda i, v: ft_numpy.sin(v) * x, x).sum()

    compiled = ft.jit(ft.grad(f)).lower(x, 10_000).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 200 * x.nbytes


def test_linear_transpose_of_a_loop_with_a_counter():
    def f(x):
        def step(carry, r):
            i, s = carry
            return (i + 1, s + r * i), s * 2

        (_, s), ys = lax.scan(step, (jax_numpy.float32(0), 0.0), x)
        return s, ys

    (got,) = ft.linear_transpose(f, jax_numpy.ones(4))((1.0, jax_numpy.arange(4.0)))
    rows = np.stack([np.concatenate([[f(e)[0]], f(e)[1]]) for e in np.eye(4, dtype="float32")])
    np.testing.assert_allclose(got, rows @ np.array([1.0, 0, 1, 2, 3]), rtol=1e-6)


def test_linear_transpose_of_while_loop():
    def f(x):
        def body(c):
            i, x, y = c
            return i + 1, W @ x, y + x * i

        return lax.while_loop(lambda c: c[0] < 5, body, (0, x, ft_numpy.zeros(3)))[1:]

    (got,) = ft.linear_transpose(f, X[0])((X[1], X[2]))
    (want,) = ft.vjp(f, X[0])[1]((X[1], X[2]))
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(
        ft.jit(ft.vmap(lambda y, z: ft.linear_transpose(f, X[0])((y, z))[0]))(X, X[::-1])[1], want, rtol=1e-5
    )


def _transformed_keys(ft, random, lax):
    """Keys carried, chosen and recomputed where something is differentiated."""

    def f(a, key, p):
        def step(carry, x):
            key, sub = random.split(carry[0])
            return (key, ft.numpy.sin(carry[1] + random.normal(sub)) * x), key

        again = ft.checkpoint(step)
        (key, b), kept = lax.scan(again, (key, a), ft.numpy.arange(1, 4.0))
        chosen = lax.cond(p, lambda: ft.checkpoint(lambda b, k: b * random.normal(k))(b, kept[1]), lambda: b)
        _, (key, c) = lax.fori_loop(0, 3, lambda i, c: (i, step(c[1], 2.0)[0]), (0, (key, chosen)))
        return c, key

    return f


@pytest.mark.long
def test_keys_where_something_is_differentiated():
    ours = _transformed_keys(ft, ft.random, lax)
    theirs = _transformed_keys(jax, jax.random, jax.lax)
    key, p = jax.random.key(3), jax_numpy.array([True, False])

    def gradients(ft, f):
        g = ft.grad(lambda a, key, p: f(a, key, p)[0])
        pushed = lambda a, key: ft.jvp(lambda a: f(a, key, True)[0], (a,), (1.0,))  # noqa: E731
        return ft.jit(lambda a, key, p: (ft.vmap(g, (None, None, 0))(a, key, p), pushed(a, key)))(2.0, key, p)

    want = gradients(jax, theirs)
    for a, b in zip(jax.tree.leaves(gradients(ft, ours)), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    g = ft.grad(lambda a: ours(a, key, True)[0])
    (got,) = ft.interpret(ft.make_ir(g)(2.0), 2.0)
    np.testing.assert_allclose(got, want[0][0], rtol=1e-4)


def test_no_steps_with_keys_by_the_interpreter():
    program = ft.make_ir(lambda k: lax.scan(lambda c, x: (c, x), k, ft.random.split(k, 3)[:0]))(
        ft.random.key(0)
    )
    assert ft.interpret(program, ft.random.key(0))[1].shape == (0,)


def test_branches_not_taken_give_no_infinite_derivatives():
    x = jax_numpy.array([-1.0, 0.0, 2.0])

    def f(ft, lax, w, x):
        return ft.vmap(lambda x: lax.cond(x > 0, lambda: ft.numpy.log(x) * w, lambda: x * 0))(x)

    for ours, theirs in zip(
        ft.grad(lambda w, x: f(ft, lax, w, x).sum(), (0, 1))(2.0, x),
        jax.grad(lambda w, x: f(jax, jax.lax, w, x).sum(), (0, 1))(2.0, x),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("kept", [lambda f: f, jax.checkpoint, ft.checkpoint])
def test_what_no_derivative_reads_gives_no_infinite_derivatives(kept):
    def f(b):
        grid = jax_numpy.outer(jax_numpy.array([1.0, jax_numpy.inf]), b)

        def rounded(x):
            return x**2 + (grid > x).sum() + grid.astype(int).max()

        def step(c, x):
            grid * 2.0
            return c * x + kept(rounded)(x), kept(rounded)(c)

        c, ys = jax.lax.scan(step, kept(rounded)(b[0]), b)
        return c + ys.sum()

    b = jax_numpy.array([0.5, -1.5])
    want = jax.grad(f)(b)
    np.testing.assert_allclose(ft.grad(f)(b), want, rtol=1e-6)
    np.testing.assert_allclose(ft.jit(ft.grad(f))(b), want, rtol=1e-6)


def test_steps_of_other_examples_give_no_infinite_derivatives():
    x = jax_numpy.array([0.5, 2.0, 5.0])

    def f(k, x):
        return lax.while_loop(lambda x: x > 1, lambda x: ft_numpy.sqrt(x - k), x)

    def written_out(k, x):
        while x > 1:
            x = jax_numpy.sqrt(x - k)
        return x

    for g in (ft.grad, lambda *args: ft.jit(ft.grad(*args))):
        got = g(lambda k, x: ft.vmap(f, (None, 0))(k, x).sum(), (0, 1))(0.7, x)
        want = [jax.grad(written_out, (0, 1))(0.7, row) for row in x]
        np.testing.assert_allclose(got[0], sum(k for k, _ in want), rtol=1e-5)
        np.testing.assert_allclose(got[1], [row for _, row in want], rtol=1e-5)


@pytest.mark.parametrize("m", [jax, ft])
def test_the_results_of_a_mapped_loop_are_weak_where_those_of_its_body_are(m):
    def f(n):
        swapped = m.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[2], c[1]), (0, n, 3))
        return *swapped, m.lax.fori_loop(0, n, lambda i, c: 1.5, np.float32(2))

    for run in (lambda n: f(n[1]), m.vmap(f), ft.jit(m.vmap(f))):
        assert [y.weak_type for y in run(np.arange(3))] == [True, True, False, True]
