"""Taylor mode: all orders of every primitive and of programs."""

import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import functrans as ft
import functrans.lax
import functrans.nn
import functrans.numpy as jnp
from functrans.experimental.jet import jet
from tests.matrix.primitive_rows import (
    EVERY_DERIVATIVE,
    Point,
    Row,
    by_primitive,
    compiled,
    direction,
    interpreted,
    point,
    precision,
)
from tests.matrix.taylor import FUNCTIONS, JAX, OURS, function, nested
from tests.support.closeness import assert_close
from tests.support.versions import QUICK
from tests.support.wide import each

ORDER = 3


def orders(f: Callable[..., Any], x: Sequence[Any], series: Sequence[Any], take: Any = jet) -> list[Any]:
    """Value and derivatives, order by order, of a function that returns one list of arrays."""
    out, terms = take(f, tuple(x), tuple(series))
    return [out, *[list(ts) for ts in zip(*terms, strict=True)]]


def curve(p: Point) -> list[list[Any]]:
    """The terms of a curve through the point."""
    rng = p.case.rng("jet")
    return [[(direction(rng, x) * 0.5).astype(x.dtype) for _ in range(ORDER)] for x in p.x]


def assert_orders_close(p: Point, found: list[Any], wanted: list[Any]) -> None:
    """Each order multiplies the rounding of the one before by the size of its terms."""
    for k in range(ORDER + 1):
        assert_close(found[k], wanted[k], max(p.tolerance(), 1e-9) * 3 * 10**k, f"order {k},")


def by_reference(p: Point, f: Callable[..., Any]) -> list[Any]:
    """Order by order, of a function of the point and of its curve."""
    args = (p.x, curve(p))
    leaves = interpreted(ft.make_ir(f)(*args), args)
    n = len(leaves) // (ORDER + 1)
    return [leaves[k * n : (k + 1) * n] for k in range(ORDER + 1)]


@pytest.mark.smoke
@by_primitive(EVERY_DERIVATIVE)
def test_every_primitive(rows: Sequence[Row]):
    """What repeated jvp gives, on the reference."""

    def check(row: Row) -> None:
        with precision(*row):
            p = point(*row)
            found = by_reference(p, lambda x, s: orders(p.ours, x, s))
            assert_orders_close(p, found, by_reference(p, lambda x, s: nested(p.ours, x, s, ft)))

    each(rows, check)


UNARY = {
    "exp": 0.3, "exp2": 0.3, "expm1": 0.3, "log": 0.7, "log1p": 0.7, "sqrt": 0.7, "rsqrt": 0.7,
    "cbrt": 0.7, "sin": 0.3, "cos": 0.3, "tan": 0.3, "asin": 0.3, "acos": 0.3, "atan": 0.3,
    "sinh": 0.3, "cosh": 0.3, "tanh": 0.3, "asinh": 0.3, "acosh": 1.7, "atanh": 0.3,
    "logistic": 0.3, "erf": 0.3, "erfc": 0.3, "square": 0.3, "erf_inv": 0.3, "digamma": 0.7,
    "one_minus_square": 0.3,
}  # fmt: skip


@pytest.mark.smoke
def test_recurrences_with_terms_that_are_none():
    """To order four every term counts at the orders behind it, and a None is a zero."""
    dense = [np.float64(c) for c in (1.0, 0.5, -0.3, 0.2)]
    sparse = [None, np.float64(0.5), None, np.float64(0.2)]

    def check(name: str) -> None:
        f, x = getattr(functrans.lax, name), np.float64(UNARY[name])
        for terms in (dense, sparse):
            filled = [np.float64(c or 0) for c in terms]
            made = ft.make_ir(lambda x, terms=terms: jet(f, (x,), (terms,)))(x)
            wanted = ft.make_ir(lambda x, *terms: nested(f, [x], [terms], ft))(x, *filled)
            assert_close(interpreted(made, [x]), interpreted(wanted, [x, *filled]), 1e-9)

    with jax.enable_x64(True):
        each(UNARY, check)


@pytest.mark.parametrize("exponent", [3, -2, 0, 1, 2.0, 2.5, -0.5, np.array(2), np.array(3.0)])
def test_powers(exponent: Any):
    with jax.enable_x64(True):
        x, terms = np.float64(0.7), [np.float64(c) for c in (1.0, 0.5, -0.3, 0.2)]
        y, ts = jet(lambda x: x**exponent, (x,), (terms,))
        wanted = jax.jit(lambda x: nested(lambda x: x**exponent, [x], [terms]))(x)
        assert_close([y, *ts], wanted, 1e-10)


@pytest.mark.parametrize("exponent", [3, 3.0, np.float32(3.0)])
def test_powers_have_derivatives_at_zero(exponent: Any):
    y, terms = jet(lambda x: jnp.power(x, exponent), (jnp.float32(0),), ((1.0, None, None, None),))
    assert_close([y, *terms], [np.float32(c) for c in (0, 0, 0, 6, 0)])


def scanned(m):
    def f(x):
        def body(carry, a):
            return (m.np.sin(carry[0]) * a + x, carry[1] + 1), carry[0] * a

        (last, _), ys = m.lax.scan(body, (m.np.ones(()), 0), m.np.arange(1.0, 4.0) * x)
        return m.np.sum(ys) + last

    return f


@function
def scanned_backwards_with_a_carry_that_starts_to_move_later(m):
    def f(x):
        def body(carry, _):
            return (carry[1], carry[2], m.np.exp(x)), carry[0]

        start = (m.np.zeros(()), m.np.ones(()), m.np.ones(()))
        last, ys = m.lax.scan(body, start, None, length=4, reverse=True)
        return m.np.sum(ys) + last[0]

    return f


@function
def chosen(m):
    def f(x):
        y = m.lax.cond(x > 0.2, lambda x: m.np.sin(x) * x, lambda x: m.np.ones_like(x), x)
        branches = [lambda y: y, lambda y: m.np.exp(y) ** 2, m.np.zeros_like]
        return m.lax.switch((2 * x).astype("int32"), branches, y)

    return f


@function
def custom_jvp_whose_rule_is_not_the_derivative(m):
    @m.ft.custom_jvp
    def g(x):
        return m.np.sin(x)

    @g.defjvp
    def rule(primals, tangents):
        return g(primals[0]), 2 * m.np.cos(primals[0]) * tangents[0] * g(primals[0])

    return lambda x: g(x * x)


@function
def checkpointed_beside_others_and_linearized(m):
    def row(r):
        return m.ft.checkpoint(lambda r: m.lax.psum(m.np.sin(r) * r, "i") * r)(r)

    def f(x):
        y, push = m.ft.linearize(m.np.sin, x)
        return m.np.sum(m.ft.vmap(row, axis_name="i")(x * m.np.arange(1.0, 3.0))) * push(y)

    return f


@function
def gradient_of_a_loop(m):
    return m.ft.grad(scanned(m))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str):
    """Jitted, mapped and alone; the gradient of the highest derivative."""
    make = FUNCTIONS[name]
    with jax.enable_x64(True):
        order = ORDER - (name == "gradient_of_a_loop")
        x, terms = np.float64(0.7), [np.float64(c) for c in (1.0, 0.5, -0.3)][:order]

        def ours(x: Any) -> list[Any]:
            y, ts = jet(make(OURS), (x,), (terms,))
            return [y, *ts]

        def theirs(x: Any) -> list[Any]:
            return nested(make(JAX), [x], [terms])

        def everything(library: Any, f: Callable[..., Any]) -> Callable[..., Any]:
            def run(x: Any) -> list[Any]:
                slope = library.grad(lambda x: f(x)[order])(x)
                return [f(x), library.vmap(f)(library.np.stack([x, x / 2])), slope]

            return run

        found, wanted = compiled(
            everything(types.SimpleNamespace(grad=ft.grad, vmap=ft.vmap, np=jnp), ours),
            everything(types.SimpleNamespace(grad=jax.grad, vmap=jax.vmap, np=jax.numpy), theirs),
            compiler_options=QUICK,
        )(x)
        assert_close(found, wanted, 1e-9, "jitted,")
        assert_close(ours(x), wanted[0], 1e-9, "alone,")


def count(f: Callable[..., Any], order: int, *rest: Any) -> int:
    """Equations of the jet of a function along a line."""

    def line(x: Any) -> Any:
        return jet(f, (x, *rest), ((1.0, *[None] * (order - 1)), *[[None] * order for _ in rest]))

    return len(ft.make_ir(line)(0.3).equations)


@pytest.mark.parametrize("name", ["tanh", "exp", "sin", "atan", "erf", "logistic", "sqrt"])
def test_recurrences_are_quadratic_in_the_order(name: str):
    f = getattr(functrans.lax, name)
    assert count(f, 16) < 6 * count(f, 8)


def test_terms_that_are_zero_cost_nothing():
    program = ft.make_ir(lambda x: jet(jnp.sin, (x,), ((None, 0, None),)))(1.0)
    assert [str(e.primitive) for e in program.equations] == ["sin"]
    assert count(lambda x, y: x * jnp.exp(y), 3, 2.0) == 3  # exp, the product, its first term
