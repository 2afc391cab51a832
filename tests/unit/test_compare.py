"""`compare`: planted faults are named, programs that are right are not blamed."""

import json
import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.mlir.dialects import stablehlo as hlo

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.backends import xla
from functrans.inspect.closeness import by_float64, judge, relative, ulps
from functrans.ir.program import PRIMITIVES, Equation
from functrans.primitives.control_flow.while_loop import While
from functrans.primitives.elementwise.families import mul
from tests.support.reporting import line_number
from tests.support.wrong_lowerings import OffByOne, WrongSin, planted

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


def double_first(f, x):
    return lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, f(c[1] * 2.0)), (0, x))


def with_own_rule(f, x):
    own = ft.custom_vjp(jnp.sin)
    own.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * f(x),))
    return ft.grad(lambda x: own(x).sum())(x)


def in_nested_loops(f, x):
    def row(c, xs):
        return c + lax.scan(lambda d, y: (d + f(y), None), 0.0, xs)[0], None

    return lax.scan(row, 0.0, x)


FAR = np.linspace(0.1, 3.0, 12, dtype="float32").reshape(3, 4)  # 1.5 < FAR[1, 2]


WHERE = {
    "grad": (lambda f, x: ft.grad(lambda x: jnp.sum(jnp.tanh(x) * f(x)))(x), FAR, []),
    "vmap of grad": (lambda f, x: ft.vmap(ft.grad(lambda x: jnp.sum(jnp.tanh(x) * f(x))))(x), FAR, []),
    "while": (double_first, np.float32(0.4), [2]),
    "cond": (lambda f, x: lax.cond(x[0, 0] < 1, f, jnp.cos, x), FAR, []),
    "custom_vjp": (with_own_rule, FAR, []),
    "nested": (in_nested_loops, FAR, [1, 2]),
    "reverse": (lambda f, x: lax.scan(lambda c, y: (c + f(y), c), 0.0, x, reverse=True), FAR[1], [3]),
    "vmap": (lambda f, x: ft.vmap(lambda r: lax.scan(lambda c, y: (c, f(y)), 0.0, r))(x), FAR, [0]),
    "checkpoint": (lambda f, x: ft.jvp(lambda x: ft.checkpoint(f)(jnp.exp(x)), (x,), (x,)), FAR, []),
    "jit": (lambda f, x: ft.jit(lambda x: ft.jit(f)(x) * 2)(x) + jnp.sin(x), FAR, []),
    "bfloat16": (lambda f, x: f(x.astype("bfloat16")).sum(), FAR, []),
    "random": (lambda f, x: f(3.0 + ft.random.normal(ft.random.key(0), (9,))) * x[0, 0], FAR, []),
    "empty": (lambda f, x: jnp.concatenate([f(x[:0]), f(x)]), FAR, []),
}


@pytest.mark.parametrize("name", WHERE)
def test_a_wrong_lowering_is_named_wherever_it_stands(wrong_sin, name):
    f, x, steps = WHERE[name]
    report = ft.compare(lambda x: f(wrong_sin, x), compiled=False)(x)
    assert report.first.primitive == "wrong_sin"
    assert list(report.first.steps) == steps
    assert ft.compare(lambda x: f(jnp.sin, x), compiled=False)(x).ok


@pytest.mark.parametrize("dtype", ["int32", "uint8", "complex64", "bfloat16"])
def test_a_wrong_lowering_is_named_at_every_dtype(dtype):
    with planted(OffByOne, "off_by_one", np.negative, hlo.negate) as wrong:
        x = jnp.arange(5).astype(dtype)
        report = ft.compare(lambda x: wrong(x * x) + x, compiled=False)(x)
    assert report.first.primitive == "off_by_one"


# --- programs that are right ----------------------------------------------------------------------


KEY = jax.random.key(0)
UNUSUAL = {
    "empty": (lambda x: (x.sum(), x @ x.T, jnp.sort(x), x.mean()), (X[:0],)),
    "key carried": (lambda k: lax.fori_loop(0, 3, lambda i, k: ft.random.split(k)[0], k), (KEY,)),
    "keys": (lambda ks: lax.map(ft.random.normal, ks), (jax.random.split(KEY, 4),)),
    "ints": (lambda i: (i // 4, i % 4, i >> 1, jnp.cumsum(i), i.argmax()), (np.arange(-6, 6),)),
    "wraps": (lambda i: i * np.uint8(77) + np.uint8(200), (np.arange(250, dtype="uint8"),)),
    "small dtypes": (lambda x: (x.astype("int4") * 2 + 7, x.astype("float8_e4m3fn")), (X,)),
    "complex": (lambda z: (z @ z.T.conj(), jnp.abs(z), jnp.angle(z)), (X * np.complex64(1 + 2j),)),
    "not finite": (lambda x: (jnp.log(x - 1), jnp.exp(x * 1000) - 1, jnp.sqrt(-x) / 0), (X,)),
    "callback": (lambda x: ft.pure_callback(np.sin, ft.ShapeDtypeStruct((2, 3), "float32"), x) * 2, (X,)),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_values_agree(name):
    f, args = UNUSUAL[name]
    report = ft.compare(f)(*args)
    assert report.ok, str(report)


def test_a_callback_gets_its_own_dtype_in_each_run():
    seen = []

    def note(x):
        seen.append(np.asarray(x).dtype.name)
        return np.sin(x)

    with jax.enable_x64(True):
        report = ft.compare(lambda x: ft.pure_callback(note, ft.ShapeDtypeStruct((2, 3), "float32"), x) * 2)(
            X
        )
    assert report.ok
    assert seen == ["float32"] * 3


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
    assert all(f"<{tag}" in page for tag in ("table", "svg", "pre", "style"))
    assert not re.search(r"<[^>]* (src|href)=", page)
    assert "wrong_sin" in page


# --- against another program ----------------------------------------------------------------------


def test_programs_of_different_shapes_are_compared_by_results():
    same = ft.compare(lambda x: jnp.tanh(x), against=lambda x: jnp.sinh(x) / jnp.cosh(x))(X)
    assert same.ok
    assert not same.aligned
    other = ft.compare(lambda x: jnp.tanh(x), against=lambda x: jnp.sinh(x) + jnp.cosh(x))(X)
    assert not other.ok
    assert "different structures" in other.verdict


def test_constants_that_differ_are_seen():
    one, two = jnp.arange(3.0), jnp.arange(3.0) + 1
    x = jnp.ones(3)
    report = ft.compare(lambda x: jnp.sin(x) * one, against=lambda x: jnp.sin(x) * two)(x)
    assert report.first.place == "equation 1 (mul)"
    report = ft.compare(lambda x: jnp.sin(x) * x, against=lambda x: jnp.sin(x) * two)(x)
    assert report.first.place == "equation 1 (mul)"  # one of them has no constant at all
    swapped = ft.compare(lambda x: x * one - two, against=lambda x: x * two - one)(x)
    assert swapped.first.place == "equation 0 (mul)"
    again = ft.compare(lambda x: x * one, against=lambda x: x * (jnp.arange(3.0) + 0))(x)
    assert again.ok

    def looped(c):
        return lambda x: lax.scan(lambda s, y: (s + y * c, y), jnp.zeros(3), x)

    assert ft.compare(looped(one), against=looped(two))(x).first.primitive == "scan"
