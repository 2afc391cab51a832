"""Taylor mode: all orders of every primitive, of programs, under the other transformations.

The oracle is `jax.experimental.jet` for what it takes, and for all else nested `jax.jvp` of the
function along the curve.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest
from jax.experimental.jet import jet as jax_jet

import functrans as ft
import functrans.lax
import functrans.nn
import functrans.numpy as jnp
from functrans import errors
from functrans.experimental.jet import jet
from tests.cases import CASES
from tests.cases.case import Case
from tests.closeness import assert_close
from tests.test_primitives import compiled, derivative_dtypes, direction, point, precision

ORDER = 3


def orders(
    f: Callable[..., Any], x: Sequence[Any], series: Sequence[Any], take: Any = jet
) -> list[Any]:
    """Value and derivatives, order by order, of a function that returns one list of arrays."""
    out, terms = take(f, tuple(x), tuple(series))
    return [out, *[list(ts) for ts in zip(*terms, strict=True)]]


def nested(f: Callable[..., Any], x: Sequence[Any], series: Sequence[Any]) -> list[Any]:
    """The same by repeated `jax.jvp` along the curve."""

    def at(t: Any) -> Any:
        moved = []
        for y, terms in zip(x, series, strict=True):
            z = y
            for k, c in enumerate(terms, 1):
                z = z + (t**k / math.factorial(k)).astype(c.dtype) * c
            moved.append(z.astype(y.dtype))
        return f(*moved)

    def derivative(g: Callable[..., Any]) -> Callable[..., Any]:
        return lambda t: jax.jvp(g, (t,), (jax.numpy.ones_like(t),))[1]

    found, time = [], jax.numpy.zeros(())
    for _ in range(len(series[0]) + 1):
        found.append(at(time))
        at = derivative(at)
    return found


# --- every primitive ------------------------------------------------------------------------------


def rows() -> list[Any]:
    """All differentiable rows; the first of each primitive, at its finest real dtype, by default,
    the others in the long sweep."""
    seen, found = set(), []
    for case in CASES:
        for i, dtype in enumerate(derivative_dtypes(case)):
            first = i == 0 and case.primitive not in seen
            seen.add(case.primitive)
            marks = [] if first else [pytest.mark.heavy]
            found.append(pytest.param(case, dtype, id=f"{case}-{dtype}", marks=marks))
    return found


@pytest.mark.parametrize(("case", "dtype"), rows())
def test_every_primitive(case: Case, dtype: str):
    with precision(case, dtype):
        p = point(case, dtype)
        rng = case.rng("jet")
        series = [[(direction(rng, x) * 0.5).astype(x.dtype) for _ in range(ORDER)] for x in p.x]
        found, wanted = compiled(
            lambda x, s: orders(p.ours, x, s), lambda x, s: nested(p.jax, x, s)
        )(p.x, series)
        for k in range(ORDER + 1):
            # each order multiplies the rounding of the one before by the size of its terms
            assert_close(found[k], wanted[k], max(p.tolerance(), 1e-9) * 3 * 10**k, f"order {k},")


UNARY = {
    "exp": 0.3, "exp2": 0.3, "expm1": 0.3, "log": 0.7, "log1p": 0.7, "sqrt": 0.7, "rsqrt": 0.7,
    "cbrt": 0.7, "sin": 0.3, "cos": 0.3, "tan": 0.3, "asin": 0.3, "acos": 0.3, "atan": 0.3,
    "sinh": 0.3, "cosh": 0.3, "tanh": 0.3, "asinh": 0.3, "acosh": 1.7, "atanh": 0.3,
    "logistic": 0.3, "erf": 0.3, "erfc": 0.3, "square": 0.3, "erf_inv": 0.3, "digamma": 0.7,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_recurrences_with_terms_that_are_none(name: str):
    """To order five every term counts at the orders behind it, and a None is a zero."""
    with jax.enable_x64(True):
        x = np.float64(UNARY[name])
        dense = [np.float64(c) for c in (1.0, 0.5, -0.3, 0.2, -0.7)]
        sparse = [None, 0.5, None, 0.2, None]
        ours, theirs = getattr(functrans.lax, name), getattr(jax.lax, name)
        found = jax.jit(lambda x: [jet(ours, (x,), (ts,)) for ts in (dense, sparse)])(x)
        oracle = jax.jit(lambda x, *terms: nested(theirs, [x], [terms]))
        for (y, terms), given in zip(found, (dense, sparse), strict=True):
            assert_close([y, *terms], oracle(x, *[np.float64(c or 0) for c in given]), 1e-9)


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


def test_a_power_whose_exponent_moves():
    with jax.enable_x64(True):
        x, r = np.float64(0.7), np.float64(1.3)
        series = [[np.float64(c) for c in (1.0, 0.5, -0.3)], [np.float64(c) for c in (0.2, 1, 2)]]
        y, terms = jet(lambda x, r: x**r, (x, r), series)
        assert_close([y, *terms], nested(lambda x, r: x**r, [x, r], series), 1e-10)


# --- functions ------------------------------------------------------------------------------------

OURS = types.SimpleNamespace(ft=ft, np=jnp, lax=functrans.lax, nn=functrans.nn)
JAX = types.SimpleNamespace(ft=jax, np=jax.numpy, lax=jax.lax, nn=jax.nn)
FUNCTIONS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {}


def function(make: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Callable[[Any], Any]]:
    """Enter a maker of a scalar function into the table; it is given either library."""
    FUNCTIONS[make.__name__] = make
    return make


@function
def composition(m):
    return lambda x: m.np.tanh(m.np.sin(x) * m.np.exp(x) / (1 + x**2)) + m.np.log(x) * m.np.sqrt(x)


@function
def activations(m):
    return lambda x: m.nn.relu(x) * m.nn.silu(x) * m.nn.gelu(x) + m.nn.softplus(-x)


@function
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
def looped(m):
    def f(x):
        def body(state):
            return state[0] + 1, m.np.sin(state[1]) * x

        return m.lax.while_loop(lambda state: state[0] < 4, body, (0, x * 2.0))[1]

    return f


@function
def chosen(m):
    def f(x):
        y = m.lax.cond(x > 0.2, lambda x: m.np.sin(x) * x, lambda x: m.np.ones_like(x), x)
        branches = [lambda y: y, lambda y: m.np.exp(y) ** 2, m.np.zeros_like]
        return m.lax.switch((2 * x).astype("int32"), branches, y)

    return f


@function
def checkpointed(m):
    return m.ft.checkpoint(lambda x: m.np.sin(m.np.exp(x)) * x)


@function
def jitted(m):
    inner = m.ft.jit(lambda x, y: m.np.sin(x) * y)
    return m.ft.jit(lambda x: inner(x, 2.0) * inner(2.0, x) * inner(x, x))


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
def gradient(m):
    return m.ft.grad(lambda x: m.np.sin(x) * m.np.exp(x * x))


@function
def gradient_of_a_loop(m):
    return m.ft.grad(scanned(m))


@function
def second_derivative(m):
    return m.ft.hessian(lambda x: m.np.sin(x) * m.np.exp(x * x))


@function
def mapped(m):
    return lambda x: m.np.sum(m.ft.vmap(lambda y: m.np.sin(y * x))(m.np.arange(3.0)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str):
    """Jitted, mapped and alone; the gradient of the third derivative."""
    make = FUNCTIONS[name]
    with jax.enable_x64(True):
        x, terms = np.float64(0.7), [np.float64(c) for c in (1.0, 0.5, -0.3)]

        def ours(x: Any) -> list[Any]:
            y, ts = jet(make(OURS), (x,), (terms,))
            return [y, *ts]

        def theirs(x: Any) -> list[Any]:
            return nested(make(JAX), [x], [terms])

        backwards = name != "looped"  # which JAX cannot do

        def everything(library: Any, f: Callable[..., Any]) -> Callable[..., Any]:
            def run(x: Any) -> list[Any]:
                last = [library.grad(lambda x: f(x)[ORDER])(x)] if backwards else []
                return [f(x), library.vmap(f)(library.np.stack([x, x / 2])), *last]

            return run

        found, wanted = compiled(
            everything(types.SimpleNamespace(grad=ft.grad, vmap=ft.vmap, np=jnp), ours),
            everything(types.SimpleNamespace(grad=jax.grad, vmap=jax.vmap, np=jax.numpy), theirs),
        )(x)
        assert_close(found, wanted, 1e-9, "jitted,")
        assert_close(ours(x), wanted[0], 1e-9, "alone,")


def test_a_multilayer_perceptron_to_order_five():
    """Its results are JAX's jet's; its work is quadratic in the order."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        sizes = (3, 8, 8, 2)
        weights = [(rng.normal(size=(a, b)) / 2, rng.normal(size=b)) for a, b in pairwise(sizes)]
        x, terms = rng.normal(size=(4, 3)), [rng.normal(size=(4, 3)) for _ in range(5)]

        def network(m: Any) -> Callable[..., Any]:
            def f(x: Any) -> Any:
                for w, b in weights[:-1]:
                    x = m.tanh(m.dot(x, w) + b)
                return [m.dot(x, weights[-1][0]) + weights[-1][1]]

            return f

        found, wanted = compiled(
            lambda x, ts: orders(network(jnp), [x], [ts]),
            lambda x, ts: orders(network(jax.numpy), [x], [ts], jax_jet),
        )(x, terms)
        assert_close(found, wanted, 1e-10)
        assert_close(found, orders(network(jnp), [x], [terms]), 1e-12, "alone,")


def count(f: Callable[..., Any], order: int, *rest: Any) -> int:
    """Equations of the jet of a function along a line."""

    def line(x: Any) -> Any:
        return jet(f, (x, *rest), ((1.0, *[None] * (order - 1)), *[[None] * order for _ in rest]))

    return len(ft.make_ir(line)(0.3).equations)


@pytest.mark.parametrize("name", ["tanh", "exp", "sin", "atan", "erf", "logistic", "sqrt"])
def test_recurrences_are_quadratic_in_the_order(name: str):
    f = getattr(functrans.lax, name)
    assert count(f, 16) < 6 * count(f, 8)


@pytest.mark.parametrize("name", ["digamma", "erf_inv", "abs"])
def test_what_has_no_recurrence_is_polynomial_in_the_order(name: str):
    f = getattr(functrans.lax, name)
    assert count(f, 12) < 10 * count(f, 6)


def test_terms_that_are_zero_cost_nothing():
    program = ft.make_ir(lambda x: jet(jnp.sin, (x,), ((None, 0, None),)))(1.0)
    assert [str(e.primitive) for e in program.equations] == ["sin"]
    assert count(lambda x, y: x * jnp.exp(y), 3, 2.0) == 3  # exp, the product, its first term


# --- custom rules that are Python -----------------------------------------------------------------


@pytest.mark.parametrize("how", [lambda f: f, ft.jit])
def test_custom_vjp_is_obeyed(how: Any):
    """JAX has no forward mode through custom_vjp; the rule is twice the derivative."""

    @ft.custom_vjp
    def double(x):
        return jnp.sin(x)

    double.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * jnp.cos(x) * ct,))
    with jax.enable_x64(True):
        x, terms = np.float64(0.7), [np.float64(c) for c in (1.0, 0.5, -0.3)]
        y, ts = how(lambda x: jet(lambda x: double(x * x), (x,), (terms,)))(x)
        wanted = nested(lambda x: jax.numpy.sin(x * x), [x], [terms])
        assert_close([y, *ts], [wanted[0], *[2 * w for w in wanted[1:]]], 1e-10)


def test_functions_and_rules_see_values_where_nothing_is_jitted():
    @ft.custom_jvp
    def f(x):
        return x * x if x > 0 else -x

    @f.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        return f(x), (2 * x * dx if x > 0 else -dx)

    def g(x):
        return f(x) * x if float(x) > 0 else f(x)

    y, terms = jet(g, (2.0,), ((1.0, None, None),))
    assert [float(c) for c in (y, *terms)] == [8, 12, 12, 6]
    y, terms = jet(g, (-2.0,), ((1.0, None, None),))
    assert [float(c) for c in (y, *terms)] == [2, -1, 0, 0]


# --- the interface --------------------------------------------------------------------------------


def test_pytrees_in_and_out_compose():
    """What jet returns is what it takes."""
    x = {"a": np.float32(0.5), "b": (np.ones(3, np.float32), 2)}
    series = {"a": [1.0, 2.0], "b": ([np.arange(3, dtype=np.float32), None], None)}

    def f(x):
        return {"sum": x["a"] * jnp.sum(x["b"][0] ** x["b"][1]), "same": x["a"], "n": x["b"][1]}

    def g(y):
        return jnp.sin(y["sum"]) * y["same"]

    middle, terms = jet(f, (x,), (series,))
    assert jax.tree.structure(middle) == jax.tree.structure(dict.fromkeys(middle, 0))
    assert terms["n"][0].dtype == jax.dtypes.float0
    assert_close(terms["same"], [np.float32(1), np.float32(2)])
    out, (first, second) = jet(g, (middle,), (terms,))

    def flat(a, b):
        y = a * jax.numpy.sum(b**2)
        return jax.numpy.sin(y) * a

    given = [[np.float32(1), np.float32(2)], [np.arange(3, dtype=np.float32), np.zeros(3, "f4")]]
    wanted = nested(flat, [x["a"], x["b"][0]], given)
    assert_close([out, first, second], wanted, 2e-5)


def test_terms_are_of_the_type_of_their_results():
    def f(x):
        return x * x, x.astype("bfloat16"), jnp.argmax(x)

    out, terms = jet(f, (np.ones(3, np.float32),), ((1.0, 2),))
    for y, ts in zip(out, terms, strict=True):
        tangent = jax.dtypes.float0 if y.dtype == np.int32 else y.dtype
        assert [(t.shape, t.dtype) for t in ts] == [(y.shape, tangent)] * 2


@pytest.mark.parametrize("scaled", [True, False])
def test_both_scalings_are_those_of_jax(scaled: bool):
    with jax.enable_x64(True):
        x, terms = np.float64(0.3), [np.float64(c) for c in (1.0, 0.5, -0.3, 0.2)]
        ours = jet(jnp.sin, (x,), (terms,), factorial_scaled=scaled)
        assert_close(ours, jax_jet(jax.numpy.sin, (x,), (terms,), scaled), 1e-12)


def test_order_zero_and_functions_of_nothing_that_moves():
    assert jet(jnp.square, (3.0,), ((),)) == (9.0, [])
    y, terms = jet(lambda x: jnp.ones(2), (3.0,), ((1.0, 2.0),))
    assert_close([y, *terms], [np.ones(2, "f4"), np.zeros(2, "f4"), np.zeros(2, "f4")])


def test_jet_of_jet_is_the_mixed_derivative():
    """d^2/ds^2 d^2/dt^2 of sin(s t) at s = 0.3, t = 0.7."""
    with jax.enable_x64(True):

        def inner(s):
            return jet(lambda t: jnp.sin(s * t), (np.float64(0.7),), ((1.0, None),))[1][1]

        found = jet(inner, (np.float64(0.3),), ((1.0, None),))[1][1]

        def along(s, t):
            return jax.numpy.sin(s * t)

        wanted = jax.hessian(jax.hessian(along, 1), 0)(0.3, 0.7)
        assert_close(found, wanted, 1e-12)


def test_reverse_mode_through_the_series_of_a_while_loop():
    """Which JAX cannot do: against the central difference."""
    with jax.enable_x64(True):

        def third(x):
            return jet(looped(OURS), (x,), ((1.0, 0.5, -0.3),))[1][2]

        h = 1e-5
        slope = (third(0.7 + h) - third(0.7 - h)) / (2 * h)
        assert_close(ft.grad(third)(0.7), slope, 1e-8)
        assert_close(ft.jit(ft.grad(third))(0.7), slope, 1e-8)


def test_collectives():
    def f(m):
        return lambda x: m.lax.psum(m.np.sin(x), "i") * x

    with jax.enable_x64(True):
        x, terms = np.arange(3.0), [np.float64(c) for c in (1.0, 0.5, -0.3)]
        y, ts = ft.vmap(lambda x: jet(f(OURS), (x,), (terms,)), axis_name="i")(x)
        wanted = jax.vmap(lambda x: nested(f(JAX), [x], [terms]), axis_name="i")(x)
        assert_close([y, *ts], wanted, 1e-12)


def test_a_custom_vmap_rule_is_obeyed_behind_the_series():
    @ft.custom_batching.custom_vmap
    def f(x):
        return jnp.sin(x)

    f.def_vmap(lambda size, batched, x: (10 * jnp.sin(x), batched[0]))
    x = np.full(2, 0.7, np.float32)
    _, terms = ft.vmap(lambda x: jet(f, (x,), ((1.0, None),)))(x)
    assert_close(terms, [10 * np.cos(x), -10 * np.sin(x)])


def test_effects_happen_once(capsys):
    def f(x):
        ft.debug.print("saw {}", x * 2)
        return jnp.sin(x)

    for g in (f, ft.jit(f)):
        jet(g, (1.5,), ((1.0, None, None),))
        jax.effects_barrier()
        assert capsys.readouterr().out == "saw 3.0\n"


def test_a_value_that_outlives_its_jet():
    kept = []
    jet(lambda x: kept.append(x * 2), (1.0,), ((1.0,),))
    with pytest.raises(errors.LeakedTracer, match="had ended"):
        jnp.sin(kept[0])


# --- misuse ---------------------------------------------------------------------------------------

X = np.ones(3, np.float32)
MISUSE = {
    "the lengths differ": (
        lambda: jet(jnp.add, (X, X), ((X,), (X, X))),  # <-
        errors.InvalidArgument, ValueError, ("lengths 1, 2", "None for a term"),
    ),
    "no series at all": (
        lambda: jet(jnp.sin, (X,), (None,)),  # <-
        errors.InvalidArgument, ValueError, ("lengths None",),
    ),
    "fewer series than arguments": (
        lambda: jet(jnp.add, (X, X), ((X,),)),  # <-
        errors.InvalidArgument, ValueError, ("2 primals and 1 series",),
    ),
    "another structure": (
        lambda: jet(lambda d: d["a"], ({"a": X},), ({"b": (X,)},)),  # <-
        errors.InvalidArgument, ValueError, ("series[0]", "'a'", "'b'"),
    ),
    "terms that are no list": (
        lambda: jet(jnp.sin, (1.0,), (1.0,)),  # <-
        errors.NotAnArray, TypeError, ("float", "jet(f, (x,), ((dx,),))"),
    ),
    "an argument that is no tuple": (
        lambda: jet(jnp.sin, X, ((X,),)),  # <-
        errors.NotAnArray, TypeError, ("primals", "ndarray", "jet(f, (x,)"),
    ),
    "a result instead of a function": (
        lambda: jet(jnp.sin(1.0), (X,), ((X,),)),  # <-
        errors.NotAnArray, TypeError, ("jet takes a function",),
    ),
    "a term of another shape": (
        lambda: jet(jnp.sin, (X,), ((X, X[:2]),)),  # <-
        errors.ShapeMismatch, TypeError, ("term 2", "primals[0]", "f32[3]", "f32[2]"),
    ),
    "a term of another dtype": (
        lambda: jet(jnp.sin, (X,), ((X.astype(np.float16),),)),  # <-
        errors.TypeMismatch, TypeError, ("term 1", "f32[3]", "f16[3]"),
    ),
    "a term that is no array": (
        lambda: jet(jnp.sin, (1.0,), (("1",),)),  # <-
        errors.NotAnArray, TypeError, ("'1'",),
    ),
    "a term of an integer": (
        lambda: jet(jnp.square, (2,), ((1.0,),)),  # <-
        errors.NonDifferentiable, TypeError, ("i32[]", "astype(float)"),
    ),
    "an operation without a derivative": (
        lambda: jet(lambda x: functrans.lax.nextafter(x, x), (1.0,), ((1.0, None),)),  # <-
        errors.MissingRule, NotImplementedError, ("nextafter",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_names_the_line(name: str):
    run, error, also, words = MISUSE[name]
    with pytest.raises(error) as found:
        run()
    message = str(found.value)
    assert isinstance(found.value, also)
    for word in words:
        assert word in message
    assert f"{__file__}:{run.__code__.co_firstlineno}" in message
    assert "# <-" in inspect.getsourcelines(run)[0][0]
    assert_close(jet(jnp.square, (3.0,), ((1.0,),))[1], [np.float32(6)])
