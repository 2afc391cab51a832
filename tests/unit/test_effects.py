"""Effects under transformations: what `debug.print` and `debug.callback` show, against JAX."""

import itertools

import numpy as np
import pytest

import functrans as ft
from tests.support.matrices import spread
from tests.support.observing import NUMBER, TRANSFORMATIONS, both, example, transformed

pytestmark = pytest.mark.smoke


def printing(L, np, log):
    def f(x):
        L.debug.print("x = {}, {y:.2f}", x, y=x * 2)
        y = np.sin(x)
        L.debug.print("sin = {0} {0}", y)
        return y * x

    return f


def calling(L, np, log):
    def f(x):
        L.debug.callback(log, x, np.cos(x))
        L.debug.callback(lambda *, a, name: log(a[0], a[1]), a=(x, 2.0), name="static")
        return x * 3

    return f


def an_ordered_nested_jit(L, np, log):
    @L.jit
    def inner(x):
        L.debug.print("in {}", x, ordered=True)
        L.debug.callback(log, x, ordered=True)
        return np.sin(x)

    def f(x):
        L.debug.print("before {}", x, ordered=True)
        y = inner(x) * inner(x + 1)
        L.debug.print(ordered=True)("after {y}", y=x)
        return y

    return f


COMPOSITIONS = {
    " of ".join(names) or "alone": names
    for n in range(3)
    for names in itertools.product(TRANSFORMATIONS, repeat=n)
}
FUNCTIONS = (printing, calling, an_ordered_nested_jit)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "composition"), spread(FUNCTIONS, list(COMPOSITIONS), every=8, always=["alone"])
)
def test_debug_under_transformations(function, composition):
    names = COMPOSITIONS[composition]
    x = example(names)
    in_order = function is an_ordered_nested_jit or "jit" not in names
    _, printed, logged = both(transformed(function, names), x, in_order=in_order)
    assert printed or logged


def a_custom_jvp(L, np_, log):
    @L.custom_jvp
    def f(x):
        L.debug.print("f {}", x)
        return L.pure_callback(np.sin, NUMBER, x, vmap_method="sequential")

    @f.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        L.debug.print("rule {}", x)
        L.debug.print("tangent {}", dx)
        return f(x), dx * L.pure_callback(np.cos, NUMBER, x, vmap_method="sequential")

    return f


def a_custom_vjp(L, np_, log):
    @L.custom_vjp
    def f(x):
        L.debug.print("f {}", x)
        return L.pure_callback(np.sin, NUMBER, x, vmap_method="sequential")

    def fwd(x):
        L.debug.print("fwd {}", x)
        return f(x), x

    def bwd(x, ct):
        L.debug.print("bwd {} {}", x, ct)
        return (ct * L.pure_callback(np.cos, NUMBER, x, vmap_method="sequential"),)

    f.defvjp(fwd, bwd)
    return f


RULES = [
    (a_custom_jvp, ("jvp",)),
    (a_custom_jvp, ("linearize",)),
    *[
        (f, names)
        for f in (a_custom_jvp, a_custom_vjp)
        for names in ((), ("vmap",), ("vjp",), ("jit", "grad"), ("grad", "jit"), ("vmap", "grad"))
    ],
]


@pytest.mark.every(2)
@pytest.mark.parametrize(("function", "names"), RULES)
def test_effects_in_custom_rules(function, names):
    _, printed, _ = both(transformed(function, names), example(names), in_order=False)
    assert printed


def test_transposition_has_no_values_to_show():
    seen: list[float] = []

    def linear(t):
        ft.debug.callback(lambda t: seen.append(float(t)), t)
        return t * 2.0

    for f in (linear, ft.jit(linear)):
        assert float(ft.linear_transpose(f, 1.0)(5.0)[0]) == 10.0
    assert seen == []
