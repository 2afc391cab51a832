"""Sums of products that share an operand: what becomes of gradients, and the values of random programs.
Programs before and after: rewrites.txt."""

import random

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.passes.rewrite import all_equations


def network(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return (x @ w + b)[0]


def residuals(grad, vmap):
    """Those of Burgers' equation, of a network of time and place."""

    def loss(params, points):
        def residual(point):
            t, x = point

            def u(t, x):
                return network(params, jnp.stack([t, x]))

            du_dx = grad(u, 1)
            return grad(u, 0)(t, x) + u(t, x) * du_dx(t, x) - 0.01 * grad(du_dx, 1)(t, x)

        return jnp.mean(vmap(residual)(points) ** 2)

    return loss


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype("f") for shape in shapes]


def contractions(program):
    return sum([e.primitive.name in ("dot_general", "conv_general_dilated") for e in all_equations(program)])


def without(f):
    names = [p.name for p in ft.passes.chosen("default") if p.name != "factor"]
    return ft.jit(f, passes=names)


@pytest.mark.rest
def test_the_evaluations_of_a_network_share_one_backward_pass():
    *flat, points = arrays((2, 8), (8,), (8, 8), (8,), (8, 1), (1,), (16, 2))
    params = [*zip(flat[::2], flat[1::2], strict=True)]
    f = ft.grad(residuals(ft.grad, ft.vmap))
    factored, plain = ft.jit(f), without(f)
    counts = [contractions(f.program(params, points)) for f in (factored, plain)]
    assert counts[0] < 0.7 * counts[1], counts
    want = jax.grad(residuals(jax.grad, jax.vmap))(params, points)
    for made in factored(params, points), plain(params, points):
        for x, y in zip(jax.tree.leaves(made), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_many_points_are_factored_as_few():
    """A product of few operations for each element is worth a large sum if that is factored in its turn."""
    *flat, few = arrays((2, 16), (16,), (16, 16), (16,), (16, 16), (16,), (16, 1), (1,), (16, 2))
    params = [*zip(flat[::2], flat[1::2], strict=True)]
    f = ft.jit(ft.grad(residuals(ft.grad, ft.vmap)))
    counts = {contractions(f.program(params, x)) for x in (few, np.zeros((5_000, 2), "f"))}
    assert len(counts) == 1


def test_losses_of_one_convolution_share_its_gradient():
    x, w = arrays((2, 3, 8, 8), (4, 3, 3, 3))

    def loss(w):
        def images():
            return lax.conv_general_dilated(x, w, (1, 1), "SAME")

        return jnp.sum(jnp.tanh(images())) + jnp.sum(images() ** 4)

    f = ft.grad(lambda w: ft.jit(loss)(w) + jnp.sum(jnp.sin(lax.conv_general_dilated(x, w, (1, 1), "SAME"))))
    assert contractions(ft.jit(f).program(w)) == 2
    np.testing.assert_allclose(ft.jit(f)(w), without(f)(w), rtol=1e-4, atol=1e-4)


def test_bodies_of_loops_are_factored():
    x, w = arrays((9, 9), (9, 9))

    def f(x, w):
        return lax.scan(lambda c, _: (jnp.tanh(c @ jnp.sin(w + c) + c @ jnp.cos(w - c)), None), x, None, 3)[0]

    assert contractions(ft.jit(f).program(x, w)) == 1
    np.testing.assert_allclose(ft.jit(f)(x, w), without(f)(x, w), rtol=1e-5)


def test_weak_terms_stay_what_they_are():
    def f(x):
        a, b = jnp.sin(1.0) * jnp.cos(x[0, 0]), x[0, 0] * 2
        return x @ x * 1.0 + x @ jnp.sin(x) + (a + 1.0) + (b + a)

    (x,) = arrays((9, 9))
    ft.ir.check(ft.jit(f).program(x))
    np.testing.assert_allclose(ft.jit(f)(x), without(f)(x), rtol=1e-4)


def in_random_order(seed):
    """A sum of random products, of which some share operands, and of what is linear in them."""
    rng = random.Random(seed)

    def f(x, y, z):
        values = [x, y, z]
        for _ in range(rng.randint(8, 30)):
            a, b = rng.choice(values), rng.choice(values)
            makers = [
                a @ b,
                a.T @ b,
                a + b,
                b + a,
                a - b,
                a * b,
                -a,
                jnp.tanh(a),
                jnp.where(b > 0, a, 0.0),
                a / 3,
            ]
            values.append(rng.choice(makers) * 0.5)
        return values[-1] + sum([values[-2 * i] @ x for i in range(1, 4)])

    return f if seed % 2 else ft.grad(lambda *args: jnp.sum(f(*args) ** 2), (0, 1, 2))


@pytest.mark.parametrize("seeds", [range(k, k + 10) for k in (0, 10, 20)], ids=str)
def test_values_of_random_sums(seeds):
    with jax.enable_x64(True):
        args = [a.astype(float) for a in arrays((4, 4), (4, 4), (4, 4))]
        smaller = 0
        for seed in seeds:
            program = ft.passes.common_subexpressions(ft.make_ir(in_random_order(seed))(*args))
            made = ft.passes.factor(program)
            ft.ir.check(made)
            assert contractions(made) <= contractions(program)
            smaller += contractions(made) < contractions(program)
            for x, y in zip(ft.evaluate(made, args), ft.evaluate(program, args), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.max(np.abs(y)))
        assert smaller
