"""Bwd rules in which one operation computes both with residuals and with the cotangent.

Forward mode transposes the rule, so what the cotangent does not reach must be told apart inside
calls, loops, branches and barriers.
"""

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax

pytestmark = pytest.mark.smoke


def called(x, ct):
    s, c = ft.jit(lambda x, ct: (jnp.sin(x), ct * jnp.cos(x)))(x, ct)
    return jnp.sin(s) * c + ct * s


def checkpointed(x, ct):
    return ft.vjp(ft.checkpoint(lambda x: jnp.sin(jnp.sin(x)) * x), x)[1](ct)[0]


def scanned(x, ct):
    def step(carry, _):
        s, c = carry
        return (jnp.sin(s), c * s), (s, c * x)

    (s, c), (ss, cs) = lax.scan(step, (x, ct), None, length=3)
    return jnp.sin(s) * c + jnp.cos(ss[-1]) * c + cs.sum(0)


def branched(x, ct):
    k, z = lax.cond(x[0] > 0, lambda x, c: (jnp.cos(x), c * x), lambda x, c: (x, c), x, ct)
    return jnp.exp(k) * z


def looped(x, ct):
    def step(state):
        i, s, c = state
        return i + 1, jnp.sin(s), c * s

    _, s, c = lax.while_loop(lambda state: state[0] < 3, step, (0, x, ct))
    return jnp.cos(s) * c + ct


def looped_in_loops(x, ct):
    """Of the inner loop, `still` needs a part: the outer loop does not read all of its operands."""

    def inner(still, c):
        _, still, c = lax.while_loop(
            lambda state: state[0] < 2, lambda s: (s[0] + 1, jnp.sin(s[1]), s[2] * s[1]), (0, still, c)
        )
        return still, c

    s, c = lax.scan(lambda carry, _: (inner(*carry), None), (x, ct), None, length=2)[0]
    _, s, c = lax.while_loop(lambda state: state[0] < 2, lambda s: (s[0] + 1, *inner(*s[1:])), (0, s, c))
    return jnp.cos(s) * c


def behind_a_barrier(x, ct):
    s, c = lax.optimization_barrier((x, ct))
    return jnp.exp(s) * c


@pytest.mark.parametrize(
    "rule", [called, checkpointed, scanned, branched, looped, looped_in_loops, behind_a_barrier]
)
def test_forward_mode_is_the_transpose_of_the_rule(rule):
    f = ft.custom_vjp(lambda x: jnp.sin(x) * x)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (rule(x, ct),))
    rng = np.random.default_rng(0)
    x, dx, ct = rng.uniform(0.3, 0.8, (3, 4))
    with jax.enable_x64(True):

        def total(x):
            return jnp.sum(f(x))

        @ft.jit
        def made(x, dx, ct):
            both = [(ft.jvp(g, (x,), (dx,))[1], ft.vjp(g, x)[1](ct)[0]) for g in (f, ft.jit(f))]
            twice = ft.jacfwd(ft.grad(ft.checkpoint(total)))(x), ft.jacfwd(ft.jacfwd(total))(x)
            return both, rule(x, ct), twice

        both, wanted, twice = made(x, dx, ct)
        for forward, back in both:
            np.testing.assert_allclose(back, wanted, rtol=1e-14)
            np.testing.assert_allclose(ct @ forward, back @ dx, rtol=1e-14)
        np.testing.assert_allclose(*twice, atol=1e-14)


def test_what_is_not_linear_in_the_cotangent_is_still_told():
    f = ft.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ft.jit(lambda x, c: x * c * c)(x, ct),))
    with pytest.raises(ft.errors.NotLinear, match="not linear in the cotangent"):
        ft.jvp(f, (1.0,), (1.0,))
