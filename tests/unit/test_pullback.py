"""What vjp returns is a pytree of residuals; fwd_and_bwd is vjp in two compiled functions."""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import lax

pytestmark = pytest.mark.smoke

MINE, JAX = (ft, ft_numpy), (jax, jax_numpy)
X = np.arange(3.0, dtype=np.float32)
W = np.ones((4, 4), np.float32) * 0.3


def compare(of):
    got, want = of(*MINE), of(*JAX)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_through_jit():
    def of(m, n):
        out, pullback = m.jit(lambda x: m.vjp(lambda y: n.sin(y) * y, x))(X)
        return pullback(out), m.jit(pullback)(out), m.jit(lambda p, ct: p(ct))(pullback, out)

    compare(of)


def test_through_vmap_and_scan():
    def of(m, n):
        outs, pullbacks = m.vmap(lambda x: m.vjp(n.sin, x))(X)
        y, kept = m.lax.scan(lambda c, _: m.vjp(n.sin, c), np.float32(1), None, length=3)
        back = m.lax.scan(lambda ct, p: (p(ct)[0], None), np.float32(1), kept, reverse=True)[0]
        return m.vmap(lambda p, ct: p(ct))(pullbacks, outs), y, back

    compare(of)


def test_as_the_residual_of_a_custom_rule():
    def of(m, n):
        f = m.custom_vjp(lambda x: n.sin(x))
        f.defvjp(lambda x: m.vjp(n.sin, x), lambda pullback, ct: pullback(ct))
        return m.grad(f)(1.0), m.jit(m.grad(f))(1.0), m.grad(m.grad(f))(1.0)

    compare(of)


@pytest.mark.parametrize(
    ("argnums", "has_aux", "jitted"),
    [(0, True, False), (1, False, True), (-1, True, True), ((0, 1), False, False), ([1], True, True)],
)
def test_fwd_and_bwd(argnums, has_aux, jitted):
    def of(m, n):
        def f(x, w):
            out = {"y": n.tanh(x["a"] @ w)}
            return (out, {"sum": x["a"].sum()}) if has_aux else out

        fwd, bwd = m.fwd_and_bwd(f, argnums, has_aux, jitted)
        out, residuals, *aux = fwd({"a": W}, W)
        return out, bwd(residuals, out), aux

    compare(of)


def test_each_is_traced_once():
    traced = []

    def f(x):
        traced.append(x)
        return ft_numpy.sin(x)

    fwd, bwd = ft.fwd_and_bwd(f, 0)
    for k in range(3):
        out, residuals = fwd(X * k)
        np.testing.assert_allclose(bwd(residuals, out), np.cos(X * k) * out, rtol=1e-6)
    assert len(traced) == ft.explain_cache(fwd).count == ft.explain_cache(bwd).count == 1


def both(x, y):
    return 2 * x, 3 * y


def still(x, y):
    return 2 * x + lax.stop_gradient(y)


# Functions of x and y of which only x has an influence on the derivative.
UNREAD = {
    "a call": lambda x, y: ft.jit(still)(x, y),
    "a checkpoint": ft.checkpoint(still),
    "branches": lambda x, y: lax.cond(x < 1, still, lambda x, y: still(x, y) * 1, x, y),
    "a loop": lambda x, y: lax.scan(lambda c, _: (still(c, y), None), x, None, length=1)[0],
    "a result of a call": lambda x, y: ft.jit(both)(x, y)[0],
    "a result of a checkpoint": lambda x, y: ft.checkpoint(both)(x, y)[0],
    "a result of branches": lambda x, y: lax.cond(x < 1, both, lambda x, y: (x, y), x, y)[0],
    "what a loop writes": lambda x, y: lax.scan(lambda c, _: both(c, y), x, None, length=1)[0],
    "what a loop reads": lambda x, y: lax.scan(both, x, y[None])[0],
    "what a loop carries": lambda x, y: lax.scan(lambda c, _: (both(*c), None), (x, y), None, length=1)[0][0],
    "what a loop exchanges": lambda x, y: lax.fori_loop(
        0, 3, lambda i, c: (c[0] * 1, c[2] * 2, c[1]), (2 * x, y, y)
    )[0],
}


@pytest.mark.parametrize("way", UNREAD)
def test_what_a_derivative_does_not_read_has_no_cotangent(way):
    """Else that cotangent, 0, times the infinite slope of the root at 0 would be NaN."""
    g = ft.grad(lambda x: UNREAD[way](x, ft_numpy.sqrt(x)))
    for h in (g, ft.jit(g), ft.jit(ft.vmap(g, axis_size=1, in_axes=None))):
        np.testing.assert_array_equal(h(0.0), 2.0)
