"""Rules that make gradients of examples, as libraries clip them, products and sums again.

Zeros that are added to squares, parts of what was joined, choices between multiples, sums of outer
products."""

from __future__ import annotations

import numpy as np
import pytest

import functrans as ft
from functrans.backends import reference
from functrans.ir import check, parse
from tests.unit.rewriting import becomes, rewritten

pytestmark = pytest.mark.smoke

X = "program (x: f32[3], y: f32[3]) {"

NEVER = {
    "square": "a: f32[3] = square x",
    "product with itself": "a: f32[3] = mul x x",
    "even power": "a: f32[3] = integer_pow[y=4] x",
    "magnitude": "a: f32[3] = abs x",
    "sum": "b: f32[3,1] = reshape[shape=(3, 1)] y; a: f32[3] = reduce_sum[axes=(1,)] b",
    "sum with one": "b: f32[3] = square x; a: f32[3] = add y b",
    "moved": "b: f32[3] = square x; a: f32[3] = rev[dimensions=(0,)] b",
    "chosen": "b: f32[3] = square x; d: f32[3] = abs y; e: bool[3] = lt x y;a: f32[3] = select_n e b d",
}
PERHAPS = {
    "operand": "a: f32[3] = neg x",
    "product": "a: f32[3] = mul x y",
    "odd power": "a: f32[3] = integer_pow[y=3] x",
    "one case": "b: f32[3] = square x; e: bool[3] = lt x y; a: f32[3] = select_n e b y",
    "sum of two": "a: f32[3] = add x y",
    "root": "b: f32[3] = square x; a: f32[3] = sin b",
}


def with_zero(lines: str, zero: str = "0.0") -> str:
    return f"{X} {lines}; c: f32[3] = add a {zero}:f32[3]; return c }}"


@pytest.mark.parametrize("case", NEVER)
@pytest.mark.parametrize("exact", [False, True])
def test_zero_is_added_to_what_is_never_negative_zero(case, exact):
    made = rewritten("simplify", with_zero(NEVER[case]), exact=exact)
    adds = [e for e in made.equations if e.primitive.name == "add" and e.inputs[1].type.shape]
    assert not [e for e in adds if "Literal" in type(e.inputs[1]).__name__]


@pytest.mark.parametrize("case", PERHAPS)
def test_zero_is_added_to_what_may_be_negative_zero(case):
    made = rewritten("simplify", with_zero(PERHAPS[case]))
    assert made.equations[-1].primitive.name == "add"
    assert "Literal" in type(made.equations[-1].inputs[1]).__name__


def test_signs_of_zero():
    """-0.0 squared, in a sum, and alone."""
    zeros = np.array([0.0, -0.0, -0.0], "float32")
    for lines in (*NEVER.values(), *PERHAPS.values()):
        program = parse(with_zero(lines))
        made = ft.passes.simplify(program)
        pairs = [reference.run(p, [zeros, zeros[::-1]])[0] for p in (made, program)]
        np.testing.assert_array_equal(*map(np.signbit, pairs))


def test_a_zero_of_many_moves():
    """What remains of `square(x.imag)` for real x."""
    becomes(
        "fold",
        "program (x: f32[2,3]) { a: f32[3] = square 0.0:f32[3];"
        "b: f32[1,3] = broadcast_in_dim[shape=(1, 3), dimensions=(1,)] a;"
        "c: f32[3] = reshape[shape=(3,)] b;"
        "d: f32[2,3] = broadcast_in_dim[shape=(2, 3), dimensions=(1,)] c;"
        "e: f64[2,3] = convert_element_type[dtype=f64, weak_type=False] d;"
        "f: f32[2,3] = convert_element_type[dtype=f32, weak_type=False] e;"
        "g: f32[3,2] = transpose[permutation=(1, 0)] f;"
        "h: f32[2,3] = transpose[permutation=(1, 0)] g; i: f32[2,3] = add x h; return i",
        "b = add a 0.0:f32[2,3]; return b",
    )


# --- parts ----------------------------------------------------------------------------------------


def test_parts_of_what_was_joined():
    becomes(
        "simplify",
        "program (x: f32[3], y: f32[2], z: f32[2]) {"
        "a: f32[7] = concatenate[dimension=0] x y z; b: f32[7] = mul a 0.5:f32[7];"
        "c: f32[3], d: f32[4] = split[sizes=(3, 4), axis=0] b; return c",
        "d = mul a 0.5:f32[3]; return d",
    )


def test_parts_of_what_was_not_joined_stay():
    text = "program (x: f32[7]) { c: f32[3], d: f32[4] = split[sizes=(3, 4), axis=0] x; return c }"
    program = parse(text)
    assert ft.passes.simplify(program) is program


def test_a_part_of_an_example_s_gradient_is_that_of_a_part():
    becomes(
        "simplify",
        "program (x: f32[2,8], u: f32[2,3], v: f32[2,5]) {"
        "d: f32[2,8] = concatenate[dimension=1] u v;"
        'a: f32[2,8,8] = dot_general["ij,ik->ijk"] d x;'
        "b: f32[2,8,8] = transpose[permutation=(0, 2, 1)] a;"
        "e: f32[2,8,3], f: f32[2,8,5] = split[sizes=(3, 5), axis=2] b; return e, f",
        'd = dot_general["ij,ik->ijk"] b a; e = transpose[permutation=(0, 2, 1)] d;'
        'f = dot_general["ij,ik->ijk"] c a; g = transpose[permutation=(0, 2, 1)] f; return e, g',
    )


def test_a_part_of_one_product_stays():
    """The products of joined weights are one, for a batch as a whole."""
    program = parse(
        "program (x: f32[2,8], d: f32[2,8]) {"
        'a: f32[8,8] = dot_general["ij,ik->jk"] d x;'
        "e: f32[3,8], f: f32[5,8] = split[sizes=(3, 5), axis=0] a; return e, f }"
    )
    assert ft.passes.simplify(program) is program


# --- choices --------------------------------------------------------------------------------------

CHOICE = """program (x: f32[2,8], d: f32[2,8], n: f32[2], c: bool[2]) {{
  g: f32[2,8,8] = dot_general["ij,ik->ijk"] d x
  w: bool[2,8,8] = broadcast_in_dim[shape=(2, 8, 8), dimensions=({axis},)] c
  r: f32[2,8,8] = broadcast_in_dim[shape=(2, 8, 8), dimensions=(0,)] n
  s: f32[2,8,8] = div g r
  t: f32[2,8,8] = mul s 0.5:f32[2,8,8]
  e: f32[2,8,8] = select_n w {cases}
  return e
}}"""


@pytest.mark.parametrize("cases", ["t g", "g t", "s t", "t s"])
def test_a_choice_between_multiples_is_a_multiple(cases):
    program = parse(CHOICE.format(axis=0, cases=cases))
    made = ft.passes.simplify(program)
    check(made)
    selects = [e for e in made.equations if e.primitive.name == "select_n"]
    assert selects
    assert all([e.outputs[0].type.shape == (2,) for e in selects])
    rng = np.random.default_rng(0)
    x, d = rng.normal(size=(2, 2, 8)).astype("float32")
    for n in ([3.0, 0.0], [np.nan, 2.0], [np.inf, 0.0]):
        for c in ([True, False], [False, True]):
            args = [x, d, np.array(n, "float32"), np.array(c)]
            with np.errstate(all="ignore"):
                a, b = (reference.run(p, args)[0] for p in (made, program))
            np.testing.assert_array_equal(a, b)  # not a bit differs


@pytest.mark.parametrize(
    "text",
    [
        CHOICE.format(axis=1, cases="t g").replace("c: bool[2]", "c: bool[8]"),
        CHOICE.format(axis=0, cases="t r"),
        CHOICE.format(axis=0, cases="t g").replace("f32", "c64").replace("0.5:", "0.5+1.0j:"),
    ],
)
def test_other_choices_stay(text):
    made = rewritten("simplify", text)
    selects = [e for e in made.equations if e.primitive.name == "select_n"]
    assert [e.outputs[0].type.shape for e in selects] == [(2, 8, 8)]


def test_choices_stay_where_roundings_must():
    program = parse(CHOICE.format(axis=0, cases="t g"))
    assert ft.passes.simplify(program, exact=True) is program


# --- sums of outer products -----------------------------------------------------------------------

OUTER = """program (x: f32[64,40], y: f32[64,40]) {
  a: f32[64,40,40] = broadcast_in_dim[shape=(64, 40, 40), dimensions=(0, 1)] x
  b: f32[64,40,40] = broadcast_in_dim[shape=(64, 40, 40), dimensions=(0, 2)] y
  c: f32[64,40,40] = mul a b
  d: f32[40,40] = reduce_sum[axes=(0,)] c
  return d
}"""


def test_sum_of_outer_products():
    becomes(
        "weighted_sums",
        OUTER.rstrip("}"),
        'c = dot_general["ij,ik->jk", precision=("HIGHEST", "HIGHEST")] a b; return c',
    )


@pytest.mark.parametrize(
    "text",
    [
        OUTER.replace("return d", "return d, c"),
        OUTER.replace("64", "4"),
        OUTER.replace("f32", "i32"),
        OUTER.replace("axes=(0,)", "axes=(2,)").replace("d: f32[40,40]", "d: f32[64,40]"),
    ],
    ids=["needed", "small", "integers", "an axis of one"],
)
def test_other_sums_of_products_stay(text):
    program = parse(text)
    check(program)
    assert ft.passes.weighted_sums(program) is program
