"""`find_nan`: planted NaNs and infinities are found, with the user's line, wherever they are."""

import json

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from tests.support.reporting import line_number

pytestmark = pytest.mark.smoke


def assert_at(finding, function, text):
    assert f"{__file__}:{line_number(function, text)} " in finding.line


def forward(x):
    y = jnp.log(x)
    return jnp.sum(y + 1.0)


def backward(x):
    root = jnp.sqrt(x)
    return jnp.sum(2.0 * root)


def looped(xs):
    def step(carry, x):
        y = carry * x
        return y * 0.0, y

    return jnp.sum(lax.scan(step, 0.0, xs)[1])


X = np.array([1.0, 0.0, 4.0], "float32")
SEVENTH = np.ones(9, "float32")
SEVENTH[6] = np.inf


@pytest.mark.parametrize("jit", [lambda f: f, ft.jit], ids=["plain", "jit"])
def test_what_is_infinite_at_zero(jit):
    """A logarithm, and the derivative of a root."""
    report = ft.find_nan(jit(forward))(X)
    assert (report.first.kind, report.first.primitive) == ("infinity", "log")
    assert_at(report.first, forward, "jnp.log")
    assert "0." in report.first.inputs[0]
    assert (report.first.forward, report.results) == ("", [0])
    (found,) = ft.find_nan(jit(ft.grad(backward)))(X).findings
    assert found.kind == "infinity"
    assert_at(found, backward, "jnp.sqrt")
    assert found.forward.startswith("sqrt at ")
    assert "jnp.sqrt(x)" in found.forward


@pytest.mark.parametrize("wrap", [lambda f: f, ft.jit, ft.grad], ids=["plain", "jit", "grad"])
def test_zero_times_infinity_in_the_seventh_step(wrap):
    report = ft.find_nan(wrap(looped))(SEVENTH)
    assert (report.first.kind, report.first.primitive) == ("NaN", "mul")
    assert list(report.first.steps) == [6]
    assert_at(report.first, looped, "carry * x")
    assert list(report.inputs) == [0]


def test_steps_of_a_while_loop_inside_a_branch():
    def f(x, limit=1e10):
        def loop(x):
            return lax.while_loop(lambda v: v < limit, lambda v: v * v, x)

        return lax.cond(x > 0, loop, lambda x: x, x)

    report = ft.find_nan(f)(jnp.float32(10))
    assert report.first is None
    assert report.results == []
    report = ft.find_nan(lambda x: f(x, 1e30))(jnp.float32(1e25))
    assert (report.first.kind, report.first.primitive) == ("infinity", "mul")
    assert list(report.first.steps) == [0]
    assert "body, step 0" in report.first.place
    assert "branches.1" in report.first.place


def test_what_is_given_is_not_made_but_by_a_callback():
    masked = ft.find_nan(lambda x: jnp.max(jnp.where(x > 0, x, -jnp.inf)))(X)
    assert masked.first is None
    assert masked.results == []
    given = ft.find_nan(lambda x: x * 2.0)(jnp.array([jnp.nan, 1.0]))
    assert given.first is None
    assert list(given.inputs) == [0]
    assert given.results == [0]
    called = ft.find_nan(lambda x: ft.pure_callback(lambda a: a * np.float32("nan"), x, x) + 1)(X)
    assert (called.first.kind, called.first.primitive) == ("NaN", "pure_callback")


def test_each_equation_once_and_in_order():
    def f(xs):
        return lax.scan(lambda c, x: (jnp.log(x) + c, jnp.sqrt(x - 1.0)), 0.0, xs)

    report = ft.find_nan(f)(jnp.zeros(5))
    assert [f.primitive for f in report.findings] == ["log", "sqrt"]
    assert "then\n  NaN by" in str(report)


def test_a_program_and_a_saved_report(tmp_path):
    program = ft.make_ir(ft.grad(backward))(X)
    report = ft.find_nan(program)(X)
    assert report.first.kind == "infinity"
    report.save(tmp_path / "nan.json")
    report.save(tmp_path / "nan.html")
    assert json.loads((tmp_path / "nan.json").read_text())["findings"][0]["kind"] == "infinity"
    assert "jnp.sqrt(x)" in (tmp_path / "nan.html").read_text()


@ft.custom_vjp
def doubled(x):
    return 2 * x


def doubled_bwd(x, g):
    return (g / x,)  # of zero


doubled.defvjp(lambda x: (2 * x, x), doubled_bwd)


@ft.custom_jvp
def tripled(x):
    return 3 * x


@tripled.defjvp
def tripled_jvp(primals, tangents):
    return tripled(*primals), tangents[0] / primals[0]


@pytest.mark.parametrize("rule", [doubled_bwd, tripled_jvp])
@pytest.mark.parametrize("form", ["grad of vmap", "scan"])
def test_equations_of_a_rule_know_the_call_that_they_are_the_derivative_of(rule, form):
    f = doubled if rule is doubled_bwd else tripled

    def scanned(x):
        return lax.scan(lambda c, a: (c + f(a), None), 0.0, x)[0]

    def mapped(x):
        return jnp.sum(ft.vmap(f)(x))

    user = scanned if form == "scan" else ft.jit(mapped)
    g = ft.grad(user)
    found = ft.find_nan(g)(np.array([1.0, 0.0], np.float32)).first
    assert found.primitive == "div"
    assert f"({rule.__qualname__})" in found.line
    assert found.forward.startswith(f"custom_{'vjp' if f is doubled else 'jvp'}_call at {__file__}")
    assert f"({(scanned if form == 'scan' else mapped).__qualname__}" in found.forward
