"""`compare`: planted faults are named, programs that are right are not blamed."""

from __future__ import annotations

import inspect
import json
from html.parser import HTMLParser
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.extend.mlir.dialects import stablehlo as hlo

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.backends import xla
from functrans.inspect.closeness import by_float64, judge, relative, ulps
from functrans.ir.program import PRIMITIVES, Equation, Literal, Program, Var
from functrans.primitives.control_flow.while_loop import While
from functrans.primitives.elementwise.families import mul
from tests.matrix.test_random_programs import EVERY, OURS, inputs, programs
from tests.support.wrong_lowerings import WrongSin, planted

pytestmark = pytest.mark.smoke

X = np.linspace(0.3, 2.0, 6, dtype="float32").reshape(2, 3)


# --- faults ---------------------------------------------------------------------------------------


@pytest.fixture
def wrong_sin():
    # the derivative is one more line of ours
    with planted(WrongSin, "wrong_sin", np.sin, hlo.sine, lambda x, y: wrong_cos_of(x)) as primitive:
        yield primitive


def wrong_cos_of(x):
    return mul(x, 2.0)


@pytest.fixture
def wrong_while():
    class Wrong(While):
        name = "wrong_while"

        def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
            types = ctx.out_types
            outs = super().lower(ctx, *operands, **params)
            return [ctx.op("stablehlo.add", [y, y], type=t) for y, t in zip(outs, types, strict=True)]

    yield Wrong()
    del PRIMITIVES["wrong_while"]


def line_number(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_a_wrong_lowering_is_named(wrong_sin):
    def f(x):
        y = jnp.exp(-x)
        z = wrong_sin(x)
        return jnp.sum(y * z)

    report = ft.compare(f)(X)
    assert not report.ok
    assert report.first.primitive == "wrong_sin"
    assert f"{__file__}:{line_number(f, 'wrong_sin(x)')} " in report.first.line
    assert report.first.ulps > report.first.limit
    assert "XLA and the reference diverge at" in str(report)
    assert ft.compare(f)(X[:1] / 2).ok  # where the fault does not show


def test_a_wrong_lowering_in_a_loop_is_named_with_its_step(wrong_sin):
    def f(xs):
        def step(carry, x):
            return carry + wrong_sin(x), carry

        return lax.scan(step, 0.0, xs)

    report = ft.compare(f)(np.array([0.1, 0.2, 0.3, 1.9, 0.4], "float32"))
    assert report.first.primitive == "wrong_sin"
    assert list(report.first.steps) == [3]


@pytest.mark.parametrize("wrap", [ft.grad, lambda f: ft.vmap(ft.grad(f))], ids=["grad", "vmap"])
def test_a_wrong_lowering_under_transformations_is_named(wrong_sin, wrap):
    def f(x):
        return jnp.sum(jnp.tanh(x) * wrong_sin(x))

    report = ft.compare(wrap(f))(X)
    assert report.first.primitive == "wrong_sin"
    assert f"{__file__}:{line_number(f, 'wrong_sin(x)')} " in report.first.line


def test_a_wrong_lowering_of_a_loop_itself_is_named(wrong_while):
    def staged(x):
        program = ft.make_ir(
            lambda x: lax.while_loop(lambda v: v[0] < 9.0, lambda v: (v[0] * 2.0, v[1]), (x, x))
        )(x)
        edited = [
            Equation(wrong_while, e.inputs, e.outputs, e.params) if e.primitive.name == "while" else e
            for e in program.equations
        ]
        return program.replace(equations=edited)

    report = ft.compare(staged(1.0))(1.0)
    assert not report.ok
    assert report.first.primitive == "wrong_while"
    assert "compiled as a whole" in report.first.note


# --- programs that are right ----------------------------------------------------------------------


def test_many_operations_agree():
    def f(x, key):
        a = x @ x.T
        b = jnp.linalg.cholesky(a + 3.0 * jnp.eye(2))
        c = jnp.cumsum(jnp.sort(x, axis=1), axis=1) ** 3
        d = jnp.sum(x - jnp.mean(x)) + jnp.sum(jnp.sin(1e4 * x))  # cancels, and is ill-conditioned
        e = lax.cond(x[0, 0] > 0, jnp.exp, jnp.log, x)
        g = lax.while_loop(lambda v: v < 50.0, lambda v: v * 3.0, x[1, 1])
        h = (x.astype("bfloat16") * 3 + 1).astype("float16").sum()
        return a, b, c, d, e, g, h, ft.random.normal(key, (3,)), jnp.argmax(x), x.astype("int32")

    report = ft.compare(f)(X, jax.random.key(0))
    assert report.ok, str(report)
    assert report.parted is None
    assert report.count > 25
    assert len(report.results) == 10


def test_where_the_error_grows():
    def f(x):
        y = x * 1e4
        z = y - jnp.round(y)
        return jnp.sum(jnp.exp(z) + jnp.exp(-z))

    report = ft.compare(f)(np.linspace(0.1, 3.0, 50, dtype="float32"))
    assert report.ok
    assert report.amplified.finding.primitive == "sub"
    assert f"{__file__}:{line_number(f, 'jnp.round')} " in report.amplified.finding.line
    assert 20 < report.amplified.factor < 1e4
    # A sum that cancels and vanishes in a larger one is not where digits are lost.
    g = ft.compare(lambda x: jnp.sum(x - jnp.mean(x)) * 1e-3 + jnp.sum(x * x), compiled=False)
    assert g(X).amplified is None


def test_runs_that_take_different_ways():
    def f(x):
        y = x * np.float32(1 / 3) * 3.0
        return lax.cond(y > x, lambda x: x * 2.0, lambda x: x * 5.0, x)

    for x in np.linspace(1.0, 2.0, 40, dtype="float32"):
        report = ft.compare(f, compiled=False, passes=())(x)
        if report.parted is not None:
            assert "cond" in report.parted
            assert report.first is None
            return
    pytest.fail("in float32 and in float64 the comparison came out the same each time")


def test_jitted_functions_with_static_arguments():
    f = ft.jit(lambda x, n: x**n, static_argnums=1, passes=("exact",))
    report = ft.compare(f)(X, 3)
    assert report.ok
    assert report.count == 1


def test_a_second_call_compiles_nothing():
    run = ft.compare(lambda x: jnp.sin(x) * 2.0)
    first = run(X)
    with jax.log_compiles(False):
        before = xla.executable(first.program)._cache_size()
        assert run(X + 1).program is first.program
    assert xla.executable(first.program)._cache_size() == before == 1


# --- what is measured -----------------------------------------------------------------------------


@np.errstate(all="ignore")
def test_units_in_the_last_place():
    x = np.array([1.0, 2.0, 1e-3, -5.0], "float32")
    assert ulps(x, x).max() == 0
    np.testing.assert_array_equal(ulps(np.nextafter(x, np.float32(9)), x), 1)
    off = np.array([np.nan, np.inf, 1e-40, 0.0], "float32")
    assert list(ulps(off, np.array([np.nan, np.inf, 0.0, -0.0], "float32"))) == [0, 0, 0, 0]
    assert np.isinf(ulps(off, np.array([1.0, -np.inf, np.nan, 0.0], "float32"))[:3]).all()
    assert list(ulps(np.array([1, 2]), np.array([1, 3]))) == [0, np.inf]
    assert relative(np.array([1.0, 1.5]), np.array([1.0, 2.0])) == 0.25


def equation(name, *values, **params):
    program = ft.make_ir(lambda *xs: PRIMITIVES[name](*xs, **params))(*values)
    return program.equations[0]


def test_the_condition_of_an_operation_counts_and_its_fault_does_not():
    x = np.linspace(-1, 1, 1001, dtype="float32")
    total = equation("reduce_sum", x, axes=(0,))
    off = np.float32(np.abs(x).sum() * 1e-7)  # some rounding errors of the operands
    assert judge(total, [x], [off]).right
    assert not judge(total, [x], [off * 1e4]).right
    sin = equation("sin", x)
    assert judge(sin, [x], [np.sin(x)]).ulps == 0
    y = np.sin(x)
    y[400] *= 1.0001
    assert not judge(sin, [x], [y]).right
    big = np.float32(100) + x
    steep = equation("sin", big)
    assert judge(steep, [big], [np.sin(big.astype("float64") + 1e-5)]).right
    assert not judge(steep, [big], [np.sin(big.astype("float64") + 1e-2)]).right


def test_products_whose_terms_cancel():
    """Sums in another order differ by more than ULPs of a result near 0, and are right."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40, 40)).astype("float32")
    x, y = np.hstack([x, x]), np.vstack([y, -y * np.float32(1 + 1e-6)])
    (product,) = ft.make_ir(lambda x, y: x @ y)(x, y).equations
    found = x[:, ::-1] @ y[::-1]
    exact = x.astype("float64") @ y.astype("float64")
    assert ulps(found, exact.astype("float32"), exact).max() > 1000
    assert judge(product, [x, y], [found]).right
    assert not judge(product, [x, y], [found + 1e-3]).right
    assert not judge(product, [x, y], [found[:, :7]]).right


def test_the_reference_in_float64_keeps_what_speaks_of_bits():
    x = np.array([1.5, -2.0], "float32")
    (bits,) = by_float64(equation("bitcast_convert_type", x, dtype=np.dtype("int32")), [x])
    np.testing.assert_array_equal(bits, x.view("int32"))
    (wide,) = by_float64(equation("exp", x), [x])
    assert wide.dtype == np.float64
    (cast,) = by_float64(equation("convert_element_type", x, dtype=np.dtype("float16"), weak_type=False), [x])
    assert cast.dtype == np.float64


# --- reports --------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Notes tags that were opened and what they fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [v or "" for k, v in attrs if k in ("src", "href")]


def test_saved_reports(tmp_path, wrong_sin):
    report = ft.compare(lambda x: jnp.sum(wrong_sin(x) * jnp.exp(x)), compiled=False)(X)
    report.save(tmp_path / "x.json")
    report.save(tmp_path / "x.html")
    data = json.loads((tmp_path / "x.json").read_text())
    assert data["ok"] is False
    assert data["first"]["primitive"] == "wrong_sin"
    assert len(data["accumulated error"]) == report.count
    ft.ir.parse(data["program"])
    page = (tmp_path / "x.html").read_text()
    reader = Reader()
    reader.feed(page)
    assert {"table", "svg", "pre", "style"} <= set(reader.tags)
    assert reader.fetched == []
    assert "wrong_sin" in page
    with pytest.raises(ft.errors.InvalidArgument, match=r"file, got 'x\.txt'"):
        report.save(tmp_path / "x.txt")


# --- against another program ----------------------------------------------------------------------


def test_programs_of_different_shapes_are_compared_by_results():
    same = ft.compare(lambda x: jnp.tanh(x), against=lambda x: jnp.sinh(x) / jnp.cosh(x))(X)
    assert same.ok
    assert not same.aligned
    other = ft.compare(lambda x: jnp.tanh(x), against=lambda x: jnp.sinh(x) + jnp.cosh(x))(X)
    assert not other.ok
    assert "different structures" in other.verdict


LIKE = {
    "sin": ("cos", "tanh"),
    "cos": ("sin", "exp"),
    "tanh": ("sin", "neg"),
    "exp": ("cos", "tanh"),
    "neg": ("sin",),
    "logistic": ("tanh",),
    "square": ("neg", "tanh"),
    "expm1": ("exp",),
    "add": ("sub", "mul"),
    "sub": ("add",),
    "mul": ("add", "sub"),
    "max": ("min",),
    "reduce_sum": ("reduce_max",),
    "cumsum": ("cumprod",),
    "cumprod": ("cumsum",),
    "sqrt": ("square",),
    "rsqrt": ("sqrt",),
    "log1p": ("expm1",),
    "gt": ("lt",),
}


def mutations(program: Program) -> list[tuple[int, Equation]]:
    """Every way to change one equation: another operation, operand or literal."""
    found = []
    known = list(program.inputs)
    for i, e in enumerate(program.equations):
        for name in LIKE.get(e.primitive.name, ()):
            found.append((i, Equation(PRIMITIVES[name], e.inputs, e.outputs, e.params, e.source)))
        for k, v in enumerate(e.inputs):
            others: list[Any] = [w for w in known if w is not v and w.type.same(v.type)]
            if v.__class__ is Literal and v.type.dtype.kind == "f":
                others = [Literal(v.value * 1.01 + 0.125, v.type)]
            for w in others:
                changed = (*e.inputs[:k], w, *e.inputs[k + 1 :])
                found.append((i, Equation(e.primitive, changed, e.outputs, e.params, e.source)))
        known += e.outputs
    return found


@st.composite
def mutants(draw: Any) -> tuple[Program, Program, int, list[Any]]:
    """A random program, the same with one equation changed, its number, and arguments."""
    shapes = draw(inputs)
    steps = draw(programs(shapes, 3, 8, EVERY))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    xs = [rng.uniform(-1.5, 1.5, size=s) for s in shapes]
    program = ft.make_ir(lambda *xs: steps(OURS, xs))(*xs)
    ways = mutations(program)
    if not ways:
        return program, program, -1, xs
    i, equation = draw(st.sampled_from(ways))
    edited = list(program.equations)
    edited[i] = equation
    return program, program.replace(equations=edited), i, xs


def found_of(trials: int, seed: int | None) -> tuple[int, int]:
    """Of how many mutations that change a result the equation is named."""
    changed, named = [], []

    @settings(
        max_examples=trials * 4,
        deadline=None,
        database=None,
        derandomize=seed is None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutants())
    def trial(case: tuple) -> None:
        program, mutant, i, xs = case
        if i < 0 or len(changed) >= trials:
            return
        before, after = ft.interpret(program, *xs), ft.interpret(mutant, *xs)
        if max([relative(y, x) for y, x in zip(after, before, strict=True)]) < 1e-9:
            return
        changed.append(i)
        report = ft.compare(mutant, against=program, compiled=False)(*xs)
        if report.first is not None and report.first.place.startswith(f"equation {i} "):
            named.append(i)

    with jax.enable_x64(True):
        trial()
    return len(named), len(changed)


@pytest.mark.long
def test_random_mutations_are_named():
    named, changed = found_of(12, None)
    assert changed == 12
    assert named >= 11


@pytest.mark.heavy
def test_two_hundred_random_mutations_are_named():
    named, changed = found_of(200, 1)
    assert changed == 200
    assert named >= 190, f"{named} of {changed}"


def test_a_mutation_inside_a_loop_is_named_with_its_step():
    def make(operation):
        def f(xs):
            def step(c, x):
                return c * 0.5 + operation(x), c

            return lax.scan(step, 0.0, xs)

        return ft.make_ir(f)(np.ones(4, "float32"))

    xs = np.array([0.0, 0.0, 0.3, 0.4], "float32")
    report = ft.compare(make(jnp.sin), against=make(jnp.tanh), compiled=False)(xs)
    assert report.first.primitive == "sin"
    assert list(report.first.steps) == [2]


def test_variables_are_named_as_the_program_prints_them():
    program = ft.make_ir(lambda xs: lax.scan(lambda c, x: (c + jnp.sin(x), c * x), 0.0, xs))(X[0])
    report = ft.compare(program, compiled=False)(X[0])
    for finding in report.worst:
        assert finding.equation in str(program)
    assert isinstance(program.inputs[0], Var)
