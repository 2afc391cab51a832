"""`parse(show(p), p.values)` is p, for every program; and the text itself, for a few."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.numpy as jnp
from functrans import errors
from functrans.ir import Equation, Literal, Program, Var, check, equal, parse, show
from functrans.ir.program import PRIMITIVES as P
from functrans.ir.text import names_of, with_nested
from functrans.ir.types import ArrayType, dtype_named
from functrans.trace import literal

pytestmark = pytest.mark.smoke

F3 = ArrayType((3,), np.dtype("float32"))


def dot(x, y):
    return P["dot_general"](x, y, lhs=(0, 1), rhs=(1,), out=(0,))


def total(x):
    return P["reduce_sum"](x, axes=tuple(range(len(x.shape))))


def loss(w, x):
    return total(P["sin"](dot(w, x)))


W, X = np.ones((4, 3), np.float32), np.ones(3, np.float32)


def round_trip(program: Program, text: str | None = None) -> Program:
    again = parse(text or show(program), program.values)
    assert equal(again, program)
    assert equal(program, again)
    assert show(again) == show(program)
    return again


# --- the text -------------------------------------------------------------------------------------


def test_names_for_tools_are_those_in_the_text():
    """Also of programs that share variables, as those of a loop and of its gradient do."""

    def f(x):
        return ft.lax.scan(lambda c, _: (jnp.sin(c) * c, None), x, None, length=3)[0].sum()

    program = ft.passes.optimize(ft.make_ir(ft.grad(f))(X))
    text, names = show(program), names_of(program)
    for e in (e for p in with_nested(program) for e in p.equations):
        assert f"{names.typed(e.outputs[0])}" in text


def test_nested_programs_are_written_once():
    layer = ft.jit(lambda x: P["mul"](P["exp"](P["sin"](x)), x))
    short = ft.jit(lambda x: P["exp"](x))

    def f(x):
        return short(layer(layer(x)))

    assert show(ft.make_ir(f)(X)) == (
        """\
program f (a: f32[3]) {
  b: f32[3] = jit a {
    program $1 (c: f32[3]) {
      d: f32[3] = sin c
      e: f32[3] = exp d
      f: f32[3] = mul e c
      return f
    }
  }
  g: f32[3] = jit b { $1 }
  h: f32[3] = jit g {
    program (i: f32[3]) { j: f32[3] = exp i; return j }
  }
  return h
}"""
    )
    again = round_trip(ft.make_ir(f)(X))
    assert again.equations[0].params["program"] is again.equations[1].params["program"]


def test_constants_small_and_large():
    small, large = np.array([1.5, np.nan, -0.0], np.float32), np.ones(9, np.float32)
    program = ft.make_ir(lambda x: (P["add"](x, small), P["sin"](large)))(X)
    assert show(program) == (
        """\
program (a: f32[3]) with (b: f32[3] = [1.5, nan, -0.0], c: f32[9] = @1) {
  d: f32[3] = add a b
  e: f32[9] = sin c
  return d, e
}"""
    )
    round_trip(program)
    assert [*parse("program () with (a: ~f32[] = 2.5) { return a }").values] == [2.5]
    with pytest.raises(errors.ParseError, match=r"line 1, column 69: @1 .*program\.values"):
        parse(show(program))
    with pytest.raises(errors.ParseError, match=r"must be f32\[9\], got float32\[3\]"):
        parse(show(program), [small, small])


def test_sources_and_origins_are_comments():
    text = show(ft.make_ir(ft.grad(loss))(W, X), sources=True)
    assert "# test_text.py:" in text
    assert "(loss), transpose of jvp of " in text
    round_trip(ft.make_ir(ft.grad(loss))(W, X), text)


def test_long_headers_are_broken():
    program = ft.make_ir(lambda *xs: xs[7])(*[W] * 30)
    lines = show(program).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "program ("
    round_trip(program)


# --- there and back -------------------------------------------------------------------------------

layer = ft.jit(lambda w, x: P["sin"](dot(w, x)))


def deep(w, x):
    return total(P["mul"](layer(w, x), layer(w, x)))


WIDTHS = {"i": (4, 8, 16, 32, 64), "u": (4, 8, 16, 32, 64), "f": (16, 32, 64), "c": (64, 128)}
DTYPES = ["bool", "bf16", *(f"{kind}{n}" for kind, widths in WIDTHS.items() for n in widths)]


def numbers(name: str):
    """Python numbers that a literal of a dtype can be made of."""
    kind = name.strip("0123456789")
    if kind == "bool":
        return st.booleans()
    if kind in ("i", "u"):
        bits = int(name[1:])
        low = -(2 ** (bits - 1)) if kind == "i" else 0
        return st.integers(low, low + 2**bits - 1)
    return st.complex_numbers() if kind == "c" else st.floats()


@given(st.data(), st.sampled_from(DTYPES), st.booleans())
@settings(deadline=None, max_examples=300)
def test_every_literal_comes_back(data, name, weak):
    type = ArrayType((2, 3), dtype_named(name), weak)
    with np.errstate(all="ignore"):
        one = literal(data.draw(numbers(name)), type)
    program = Program((), (), (one,))
    back = round_trip(program).outputs[0]
    assert back.type is one.type
    assert repr(back.value) == repr(one.value)
    assert back.value.__class__ is one.value.__class__


@given(st.data(), st.sampled_from([d for d in DTYPES if d not in ("i4", "u4")]))
@settings(deadline=None, max_examples=100)
def test_every_small_constant_comes_back(data, name):
    shape = data.draw(st.sampled_from([(), (3,), (2, 4), (0, 2), (1, 1, 2)]))
    count = int(np.prod(shape))
    with np.errstate(all="ignore"):
        values = data.draw(st.lists(numbers(name), min_size=count, max_size=count))
        array = np.array(values, dtype_named(name)).reshape(shape)
    v = Var(ArrayType(shape, array.dtype))
    program = Program((), (), (v,), (v,), (array,))
    assert equal(parse(show(program)), program)


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(),
            st.complex_numbers(),
            st.sampled_from([dtype_named(d) for d in DTYPES]),
            st.just(F3),
            st.just(ArrayType((), dtype_named("key<fry>"))),
        ),
        lambda inner: st.lists(inner, max_size=3).map(tuple),
        max_leaves=10,
    )
)
@settings(deadline=None, max_examples=25)
def test_every_parameter_comes_back(value):
    x, y = Var(F3), Var(F3)
    program = Program((x,), (Equation(P["sin"], (x,), (y,), {"anything": value}),), (y,))
    round_trip(program)


def test_parameters_that_hold_several_programs():
    def inner(k):
        return parse(f"program (x: f32[3]) {{ y: f32[3] = mul x {k}:f32[3]; return y }}")

    x, y = Var(F3), Var(F3)
    params = {"branches": (inner(1.0), inner(2.0)), "body": inner(3.0)}
    program = Program((x,), (Equation(P["jit"], (x,), (y,), params),), (y,))
    text = show(program)
    assert "    branches.1: program (e: f32[3]) { f: f32[3] = mul e 2.0:f32[3]; return f }" in text
    assert "    body: program" in text
    round_trip(program)


def test_a_key_constant_and_a_python_object():
    key = jax.random.key(3)
    v = Var(ArrayType((), key.dtype))
    program = Program((), (), (v,), (v,), (key,))
    assert show(program).startswith("program () with (a: key<fry>[] = @0) {")
    round_trip(program)

    x, y = Var(F3), Var(F3)
    for how in (round_trip, [round_trip]):  # a list is not hashable, so it is not known again
        program = Program((x,), (Equation(P["sin"], (x,), (y,), {"how": how}),), (y,))
        if how is round_trip:
            assert round_trip(program).equations[0].params["how"] is round_trip
        else:
            with pytest.raises(errors.ParseError, match="a Python object, which text cannot"):
                parse(show(program))


def test_names_go_on_after_z_and_leave_out_numbers():
    x = Var(F3)
    equations = []
    for _ in range(10_000):
        y = Var(F3)
        equations.append(Equation(P["sin"], (x,), (y,), {}))
        x = y
    program = Program((equations[0].inputs[0],), equations, (x,))
    text = show(program)
    assert "\n  aa: f32[3] = sin z\n" in text
    assert " inf: " not in text
    assert " nan: " not in text


def test_a_deep_nest():
    nest = parse("program (x: f32[3]) { y: f32[3] = sin x; return y }")
    for _ in range(600):  # deeper than recursion could go
        x, y = Var(F3), Var(F3)
        nest = Program((x,), (Equation(P["jit"], (x,), (y,), {"program": nest}),), (y,))
    check(round_trip(nest))


# --- what is not a program ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "expected `program`, got the end of the text"),
        ("program (x: f32[3]) {\n  y: f32[3] = sinn x\n}", 2, 15, "an operation (did you mean sin"),
        ("program (x: f32[3]) {\n  y: f32[3] = sin z\n}", 2, 19, "an assigned variable"),
        ("program (x: f32[3]) {\n  x: f32[3] = sin x\n}", 2, 3, "is assigned twice"),
        ("program (x: f32[3], x: f32[]) {\n}", 1, 21, "is assigned twice"),
        ("program (x: f33[3]) {\n}", 1, 13, "a dtype such as f32"),
        ("program (x: f32) {\n}", 1, 13, "a type such as f32[3]"),
        ("program (x) {\n}", 1, 11, "expected `:`"),
        ("program (x: f32[3]) {\n  y: f32[3] = sin x 2.0\n  return y\n}", 2, 24, "expected `:`"),
        ("program () {\n  return 2.5:i32[]\n}", 2, 10, "a number of dtype int32"),
        ("program () {\n  return 300:u8[]\n}", 2, 10, "a number of dtype uint8"),
        ("program () {\n  return 1:bool[]\n}", 2, 10, "a number of dtype bool"),
        ("program (x: f32[3]) {\n  y: f32[3] = sin[a=] x\n}", 2, 21, "a value: a number"),
        ("program (x: f32[3]) {\n  y: f32[3] = sin[a=1, a=1] x\n}", 2, 25, "only once"),
        ("program (x: f32[3]) {\n  y: f32[3] = sin['a'] x\n}", 2, 19, "by name"),
        ("program (x: f32[3]) {\n  y: f32[3] = jit x { $1 }\n}", 2, 23, "an earlier program"),
        ("program () with (x: f32[3] = [1.0, 2.0]) {\n}", 1, 30, "f32[3] has 3 elements, got 2"),
        ("program () {\n  return\n}\nmore", 4, 1, "the end of the text"),
        ("program () {", 1, 13, "an operation"),
        ("program () { ! }", 1, 14, "a name, a number"),
        ("program (x: f32[]) { y: f32[] = jit x { body.1: program () { return } } }", 1, 46, "0"),
        ("program (x: f32[]) { y: f32[] = sin x {} 3; return y }", 1, 42, "the end of the line"),
    ],
)
def test_the_error_says_where_and_what(text, line, column, words):
    with pytest.raises(errors.ParseError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"line {line}, column {column}: ")
    assert words in message
    assert isinstance(caught.value, ValueError)


def test_nothing_is_evaluated():
    for value in ("__import__('os')", "open", "[1]", "{}", "1 + 1", "print(1)"):
        with pytest.raises(errors.ParseError):
            parse(f"program (x: f32[3]) {{ y: f32[3] = sin[a={value}] x; return y }}")


# --- equality -------------------------------------------------------------------------------------


def test_numbers_that_differ():
    def one(text):
        return parse(f"program () {{ return {text} }}")

    assert equal(one("nan:f32[]"), one("nan:f32[]"))
    assert not equal(one("0.0:f32[]"), one("-0.0:f32[]"))
    assert not equal(one("1.0-0.0j:c64[]"), one("1.0+0.0j:c64[]"))
    assert repr(round_trip(one("1.0-0.0j:c64[]")).outputs[0].value) == repr(complex(1, -0.0))
    assert equal(one("0.1:f32[]"), Program((), (), (Literal(0.1, ArrayType((), "float32")),)))
    for x, same in ((np.float32([np.nan, 0]), True), (np.float32([np.nan, -0.0]), False)):
        v, w = Var(ArrayType((2,), "float32")), Var(ArrayType((2,), "float32"))
        p = Program((), (), (v,), (v,), (np.float32([np.nan, 0]),))
        assert equal(p, Program((), (), (w,), (w,), (x,))) == same


def test_a_parameter_left_out_equals_its_default():
    text = 'program (x: f32[3]) {{ y: f32[] = dot_general["i,i->"{}] x x; return y }}'
    assert equal(parse(text.format("")), parse(text.format(", precision=None")))
    assert not equal(parse(text.format("")), parse(text.format(", preferred=f64")))


def test_an_integer_parameter_equals_no_float():
    def power(y):
        x, out = Var(ArrayType((), "float32")), Var(ArrayType((), "float32"))
        return Program((x,), (Equation(P["integer_pow"], (x,), (out,), {"y": y}),), (out,))

    assert equal(power(2), power(np.int64(2)))
    assert not equal(power(2), power(2.0))
    assert not equal(power(2.0), power(2))
