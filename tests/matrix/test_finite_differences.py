"""Every derivative by finite differences in float64: control flow, solvers, custom rules, checkpoint.

`TABLE` holds functions of a vector of four, which return pytrees. Of each, along one direction,

    jvp             against the central difference of the function
    vjp             against jvp, by their dot products
    jvp of vjp      against the central difference of the gradient
    un-jitted       against jitted

The difference is Richardson's, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, with an error of
h^4 f'''''/30 + 1.5 eps |f| / h; for h = 1e-3 and fifth derivatives up to 1e3 that is 3e-11.
"""

from __future__ import annotations

import pytest

import functrans as ft
import functrans.numpy as jnp
from tests.matrix.difference_table import TABLE, check, product

# Compile for long, and stand beside a row that is much the same.
SWEPT = {"while_loop, max_steps", "fori_loop, traced bounds, max_steps"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.sweep] * (n in SWEPT)) for n in TABLE])
def test_derivatives(name):
    check(*TABLE[name])


# --- a wrong rule is seen -------------------------------------------------------------------------


def wrong_jvp(x):
    f = ft.custom_jvp(jnp.sin)
    f.defjvps(lambda dx, out, x: jnp.cos(x) * dx * (1 + 1e-6))
    return f(x)


def wrong_vjp(x):
    """Its jvp is the transpose of its wrong rule, and so wrong too."""
    f = ft.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct * (1 + 1e-6),))
    return f(x)


def wrong_second_order(x):
    slope = ft.custom_jvp(jnp.cos)
    slope.defjvps(lambda dx, out, x: -jnp.sin(x) * dx * (1 + 1e-6))
    f = ft.custom_jvp(jnp.sin)
    f.defjvps(lambda dx, out, x: slope(x) * dx)
    return f(x)


@pytest.mark.parametrize(
    ("f", "what"), [(wrong_jvp, "jvp"), (wrong_vjp, "jvp"), (wrong_second_order, "jvp of vjp")]
)
def test_a_wrong_rule_is_seen(f, what):
    with pytest.raises(AssertionError, match=f"{what}\n"):
        check(f)


def test_a_transpose_that_disagrees_is_seen(monkeypatch):
    mul = ft.ir.program.PRIMITIVES["mul"]
    right = type(mul).transpose
    wrong = lambda self, ct, *args, **how: [  # noqa: E731
        c if c is None else mul(c, 1 + 1e-9) for c in right(self, ct, *args, **how)
    ]
    ft.clear_caches()
    with monkeypatch.context() as changed:
        changed.setattr(type(mul), "transpose", wrong)
        with pytest.raises(AssertionError, match="vjp\n"):
            check(product)
    ft.clear_caches()
    check(product)
