"""The passes: text before and after, what they must leave alone, and random programs before and
after each of them."""

from __future__ import annotations

import re
import time
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.lax as lax
import functrans.numpy as fnp
from functrans import errors
from functrans.backends import reference
from functrans.ir import Equation, Program, Var, check, equal, parse, show
from functrans.ir.text import with_nested
from functrans.ir.types import dtype_class
from functrans.passes import pipeline
from functrans.primitives.transcendental import sin
from tests.test_random_programs import (
    COMPOSABLE,
    EVERY,
    OURS,
    SETTINGS,
    Steps,
    composed,
    inputs,
    programs,
)

ALONE = {p.name: p.run for p in pipeline.TABLE}
EXACT = {p.name: p.exact for p in pipeline.TABLE if p.exact is not None}
TOGETHER = {
    "default": lambda p: ft.passes.optimize(p, ("default",)),
    "exact": lambda p: ft.passes.optimize(p, ("exact",)),
}


def rewritten(name: str, before: str, **options: Any) -> Program:
    program = parse(before)
    check(program)
    made = getattr(ft.passes, name)(program, **options)
    check(made)
    assert made.in_types == program.in_types
    assert made.out_types == program.out_types
    return made


def body(program: Program) -> list[str]:
    """The equations and the result of a program, without types of results."""
    lines = [re.sub(r"(\w+): [~\w]+\[[^]]*\]( =|,)", r"\1\2", x) for x in show(program).split("\n")]
    return [line.strip() for line in lines[1:-1]]


def becomes(name: str, before: str, after: str, **options: Any) -> None:
    """`before` and `after`: equations and result, separated by semicolons."""
    made = rewritten(name, f"{before.partition('{')[0]}{{ {before.partition('{')[2]} }}", **options)
    assert body(made) == [line.strip() for line in after.split(";")]


# --- simplify: before { equations }, after --------------------------------------------------------

X = "program (x: f32[3]) {"
XY = "program (x: f32[3], y: f32[3]) {"
N = "program (x: i32[3]) {"
M = "program (x: f32[2,3]) {"
S = "program (x: f32[]) {"
W = "program (p: bool[3], x: f32[3], y: f32[3]) {"

SIMPLIFIED = {
    "x + -0.0": (f"{X} a: f32[3] = add x -0.0:f32[3]; return a", "return a"),
    "-0.0 + x": (f"{X} a: f32[3] = add -0.0:f32[3] x; return a", "return a"),
    "x - 0.0": (f"{X} a: f32[3] = sub x 0.0:f32[3]; return a", "return a"),
    "-0.0 - x": (f"{X} a: f32[3] = sub -0.0:f32[3] x; return a", "b = neg a;return b"),
    "x * 1": (f"{X} a: f32[3] = mul x 1.0:f32[3]; return a", "return a"),
    "x * -1": (f"{X} a: f32[3] = mul x -1.0:f32[3]; return a", "b = neg a;return b"),
    "x / 1": (f"{X} a: f32[3] = div x 1.0:f32[3]; return a", "return a"),
    "x / 4": (f"{X} a: f32[3] = div x 4.0:f32[3]; return a", "b = mul a 0.25:f32[3];return b"),
    "x + 0, integers": (f"{N} a: i32[3] = add x 0:i32[3]; return a", "return a"),
    "x * 0, integers": (f"{N} a: i32[3] = mul x 0:i32[3]; return a", "return 0:i32[3]"),
    "x - x, integers": (f"{N} a: i32[3] = sub x x; return a", "return 0:i32[3]"),
    "x * 2 * 3, integers": (
        f"{N} a: i32[3] = mul x 2:i32[3]; b: i32[3] = mul a 3:i32[3]; return b",
        "b = mul a 6:i32[3];return b",
    ),
    "x * 2 * 4": (
        f"{X} a: f32[3] = mul x 2.0:f32[3]; b: f32[3] = mul a 4.0:f32[3]; return b",
        "b = mul a 8.0:f32[3];return b",
    ),
    "x + -y": (f"{XY} a: f32[3] = neg y; b: f32[3] = add x a; return b", "c = sub a b;return c"),
    "-x + y": (f"{XY} a: f32[3] = neg x; b: f32[3] = add a y; return b", "c = sub b a;return c"),
    "x - -y": (f"{XY} a: f32[3] = neg y; b: f32[3] = sub x a; return b", "c = add a b;return c"),
    "-x * -y": (
        f"{XY} a: f32[3] = neg x; b: f32[3] = neg y; c: f32[3] = mul a b; return c",
        "c = mul a b;return c",
    ),
    "-x * 3": (
        f"{X} a: f32[3] = neg x; b: f32[3] = mul a 3.0:f32[3]; return b",
        "b = mul a -3.0:f32[3];return b",
    ),
    "-(x * 3)": (
        f"{X} a: f32[3] = mul x 3.0:f32[3]; b: f32[3] = neg a; return b",
        "b = mul a -3.0:f32[3];return b",
    ),
    "-(-x)": (f"{X} a: f32[3] = neg x; b: f32[3] = neg a; return b", "return a"),
    "(-x) ** 2": (
        f"{X} a: f32[3] = neg x; b: f32[3] = integer_pow[y=2] a; return b",
        "b = integer_pow[y=2] a;return b",
    ),
    "|-x|": (f"{X} a: f32[3] = neg x; b: f32[3] = abs a; return b", "b = abs a;return b"),
    "x ** 1": (f"{X} a: f32[3] = integer_pow[y=1] x; return a", "return a"),
    "x ** 0": (f"{X} a: f32[3] = integer_pow[y=0] x; return a", "return 1.0:f32[3]"),
    "pow x 1": (f"{X} a: f32[3] = pow x 1.0:f32[3]; return a", "return a"),
    "pow x 2": (f"{X} a: f32[3] = pow x 2.0:f32[3]; return a", "b = integer_pow[y=2] a;return b"),
    "max x x": (f"{X} a: f32[3] = max x x; return a", "return a"),
    "select, known": (f"{XY} a: f32[3] = select_n True:bool[] x y; return a", "return b"),
    "select, equal cases": (f"{W} a: f32[3] = select_n p x x; return a", "return b"),
    "select, negated": (
        f"{W} a: bool[3] = not p; b: f32[3] = select_n a x y; return b",
        "d = select_n a c b;return d",
    ),
    "not not": ("program (p: bool[3]) { a: bool[3] = not p; b: bool[3] = not a; return b",
                "return a"),
    "p and True": ("program (p: bool[3]) { a: bool[3] = and p True:bool[3]; return a", "return a"),
    "p or True": ("program (p: bool[3]) { a: bool[3] = or p True:bool[3]; return a",
                  "return True:bool[3]"),
    "convert to itself": (
        f"{X} a: f32[3] = convert_element_type[dtype=f32, weak_type=False] x; return a", "return a"
    ),
    "convert there and back": (
        f"{N} a: f64[3] = convert_element_type[dtype=f64, weak_type=False] x; "
        "b: i32[3] = convert_element_type[dtype=i32, weak_type=False] a; return b",
        "return a",
    ),
    "transpose twice": (
        f"{M} a: f32[3,2] = transpose[permutation=(1, 0)] x; "
        "b: f32[2,3] = transpose[permutation=(1, 0)] a; return b",
        "return a",
    ),
    "reshape twice": (
        f"{M} a: f32[6] = reshape[shape=(6,)] x; b: f32[3,2] = reshape[shape=(3, 2)] a; return b",
        "b = reshape[shape=(3, 2)] a;return b",
    ),
    "reverse twice": (
        f"{M} a: f32[2,3] = rev[dimensions=(0, 1)] x; b: f32[2,3] = rev[dimensions=(1,)] a; "
        "return b",
        "b = rev[dimensions=(0,)] a;return b",
    ),
    "broadcast twice": (
        f"{S} a: f32[3] = broadcast_in_dim[shape=(3,), dimensions=()] x; "
        "b: f32[2,3] = broadcast_in_dim[shape=(2, 3), dimensions=(1,)] a; return b",
        "b = broadcast_in_dim[shape=(2, 3), dimensions=()] a;return b",
    ),
    "transpose of broadcast": (
        f"{X} a: f32[3,2] = broadcast_in_dim[shape=(3, 2), dimensions=(0,)] x; "
        "b: f32[2,3] = transpose[permutation=(1, 0)] a; return b",
        "b = broadcast_in_dim[shape=(2, 3), dimensions=(1,)] a;return b",
    ),
    "squeeze of broadcast": (
        f"{X} a: f32[3,1] = broadcast_in_dim[shape=(3, 1), dimensions=(0,)] x; "
        "b: f32[3] = squeeze[dimensions=(1,)] a; "
        "c: f32[3,2] = broadcast_in_dim[shape=(3, 2), dimensions=(0,)] b; return c",
        "b = broadcast_in_dim[shape=(3, 2), dimensions=(0,)] a;return b",
    ),
    "slice of slice": (
        f"{X} a: f32[2] = slice[start=(1,), limit=(3,), strides=(1,)] x; "
        "b: f32[1] = slice[start=(1,), limit=(2,), strides=(1,)] a; return b",
        "b = slice[start=(2,), limit=(3,), strides=(1,)] a;return b",
    ),
    "slice of concatenate": (
        f"{XY} a: f32[6] = concatenate[dimension=0] x y; "
        "b: f32[2] = slice[start=(3,), limit=(5,), strides=(1,)] a; return b",
        "c = slice[start=(0,), limit=(2,), strides=(1,)] b;return c",
    ),
    "slice of all": (
        f"{X} a: f32[3] = slice[start=(0,), limit=(3,), strides=(1,)] x; return a", "return a"
    ),
    "pad by nothing": (f"{X} a: f32[3] = pad[config=((0, 0, 0),)] x 0.0:f32[]; return a",
                       "return a"),
    "concatenate with nothing": (
        "program (x: f32[3], y: f32[0]) { a: f32[3] = concatenate[dimension=0] x y; return a",
        "return a",
    ),
    "arithmetic before broadcast": (
        "program (x: f32[], y: f32[]) { a: f32[3] = broadcast_in_dim[shape=(3,), dimensions=()] x; "
        "b: f32[3] = broadcast_in_dim[shape=(3,), dimensions=()] y; c: f32[3] = mul a b; return c",
        "c = mul a b;d = broadcast_in_dim[shape=(3,), dimensions=()] c;return d",
    ),
    "max over no axis": (f"{X} a: f32[3] = reduce_max[axes=()] x; return a", "return a"),
    "max of max": (
        f"{M} a: f32[3] = reduce_max[axes=(0,)] x; b: f32[] = reduce_max[axes=(0,)] a; return b",
        "b = reduce_max[axes=(0, 1)] a;return b",
    ),
    "max of broadcast": (
        f"{X} a: f32[2,3] = broadcast_in_dim[shape=(2, 3), dimensions=(1,)] x; "
        "b: f32[3] = reduce_max[axes=(0,)] a; return b",
        "return a",
    ),
    "sum of broadcast, integers": (
        f"{N} a: i32[2,3] = broadcast_in_dim[shape=(2, 3), dimensions=(1,)] x; "
        "b: i32[3] = reduce_sum[axes=(0,)] a; return b",
        "b = mul a 2:i32[3];return b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SIMPLIFIED)
def test_simplify(case):
    before, after = SIMPLIFIED[case]
    with jax.enable_x64(True):
        becomes("simplify", before, after, exact=True)
        becomes("simplify", before, after)


REORDERED = {
    "sum of broadcast": (
        f"{X} a: f32[2,3] = broadcast_in_dim[shape=(2, 3), dimensions=(1,)] x; "
        "b: f32[] = reduce_sum[axes=(0, 1)] a; return b",
        "b = reduce_sum[axes=(0,)] a;c = mul b 2.0:f32[];return c",
    ),
    "sum of copies alone is not -0.0": (
        f"{X} a: f32[2,3] = broadcast_in_dim[shape=(2, 3), dimensions=(1,)] x; "
        "b: f32[3] = reduce_sum[axes=(0,)] a; return b",
        "b = mul a 2.0:f32[3];c = add b 0.0:f32[3];return c",
    ),
    "sum of sum": (
        f"{M} a: f32[3] = reduce_sum[axes=(0,)] x; b: f32[] = reduce_sum[axes=(0,)] a; return b",
        "b = reduce_sum[axes=(0, 1)] a;return b",
    ),
    "factor of a sum": (
        f"{X} a: f32[3] = mul x 0.5:f32[3]; b: f32[] = reduce_sum[axes=(0,)] a; return b",
        "b = reduce_sum[axes=(0,)] a;c = mul b 0.5:f32[];return c",
    ),
    "factor of a contraction": (
        f'{XY} a: f32[3] = mul x 2.0:f32[3]; b: f32[] = dot_general["i,i->"] a y; return b',
        'c = dot_general["i,i->"] a b;d = mul c 2.0:f32[];return d',
    ),
    "contraction of a transpose": (
        f"{M} a: f32[3,2] = transpose[permutation=(1, 0)] x; "
        'b: f32[3,3] = dot_general["ij,jk->ik"] a x; return b',
        'b = dot_general["ji,jk->ik"] a a;return b',
    ),
}


@pytest.mark.parametrize("case", REORDERED)
def test_simplify_of_sums_keeps_the_order_if_it_is_asked_to(case):
    before, after = REORDERED[case]
    becomes("simplify", before, after)
    program = parse(before + " }")
    assert ft.passes.simplify(program, exact=True) is program


KEPT = {
    "x + 0.0": f"{X} a: f32[3] = add x 0.0:f32[3]; return a",
    "x - -0.0": f"{X} a: f32[3] = sub x -0.0:f32[3]; return a",
    "0.0 - x": f"{X} a: f32[3] = sub 0.0:f32[3] x; return a",
    "x * 0": f"{X} a: f32[3] = mul x 0.0:f32[3]; return a",
    "x - x": f"{X} a: f32[3] = sub x x; return a",
    "x / 3": f"{X} a: f32[3] = div x 3.0:f32[3]; return a",
    "x / 2 ** 127": f"{X} a: f32[3] = div x 1.7014118346046923e+38:f32[3]; return a",
    "x * 2 * 0.5": f"{X} a: f32[3] = mul x 2.0:f32[3]; b: f32[3] = mul a 0.5:f32[3]; return b",
    "x * 3 * 5": f"{X} a: f32[3] = mul x 3.0:f32[3]; b: f32[3] = mul a 5.0:f32[3]; return b",
    "-(x - y)": f"{XY} a: f32[3] = sub x y; b: f32[3] = neg a; return b",
    "-(x * 3), read twice": (f"{X} a: f32[3] = mul x 3.0:f32[3]; b: f32[3] = neg a; return a, b"),
    "sum over no axis": f"{X} a: f32[3] = reduce_sum[axes=()] x; return a",
    "a weak type would be lost": (
        f"{X} a: ~f32[3] = convert_element_type[dtype=f32, weak_type=True] x; return a"
    ),
    "a lossy conversion": (
        f"{X} a: i32[3] = convert_element_type[dtype=i32, weak_type=False] x; "
        "b: f32[3] = convert_element_type[dtype=f32, weak_type=False] a; return b"
    ),
    "floats saturate": (
        "program (x: u8[3]) { a: f32[3] = convert_element_type[dtype=f32, weak_type=False] x; "
        "b: i8[3] = convert_element_type[dtype=i8, weak_type=False] a; return b"
    ),
    "a sum of 300 copies in bfloat16": (
        "program (x: bf16[]) { a: bf16[301] = broadcast_in_dim[shape=(301,), dimensions=()] x; "
        "b: bf16[] = reduce_sum[axes=(0,)] a; return b"
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_simplify_leaves_alone(case):
    program = parse(KEPT[case] + " }")
    check(program)
    assert ft.passes.simplify(program) is program


FAST = {
    "x + 0.0": (KEPT["x + 0.0"], "return a"),
    "x * 0": (KEPT["x * 0"], "return 0.0:f32[3]"),
    "x - x": (KEPT["x - x"], "return 0.0:f32[3]"),
    "0.0 - x": (KEPT["0.0 - x"], "b = neg a;return b"),
    "-(x - y)": (KEPT["-(x - y)"], "c = sub b a;return c"),
    "x * 3 * 5": (KEPT["x * 3 * 5"], "b = mul a 15.0:f32[3];return b"),
    "x / 10": (
        f"{X} a: f32[3] = div x 10.0:f32[3]; return a", "b = mul a 0.1:f32[3];return b"
    ),
    "sum over no axis": (KEPT["sum over no axis"], "return a"),
}  # fmt: skip


def test_jit_does_fast_mathematics_by_name():
    program = ft.jit(lambda x: (x + 0.0) * 0.0, passes="fast_math").program(np.ones(3, np.float32))
    assert body(program) == ["return 0.0:f32[3]"]


@pytest.mark.parametrize("case", FAST)
def test_fast_mathematics_has_to_be_asked_for(case):
    becomes("simplify", *FAST[case], fast_math=True)


# --- fold -----------------------------------------------------------------------------------------

NONE = "program () {"
FOLDED = {
    "add": (f"{NONE} a: f32[3] = add 0.1:f32[3] 0.2:f32[3]; return a", "return 0.3:f32[3]"),
    "wrapping": (f"{NONE} a: i8[3] = add 100:i8[3] 100:i8[3]; return a", "return -56:i8[3]"),
    "a chain": (
        f"{NONE} a: f32[] = div 1.0:f32[] 4.0:f32[]; b: f32[] = neg a; "
        "c: f32[2] = broadcast_in_dim[shape=(2,), dimensions=()] b; return c",
        "return -0.25:f32[2]",
    ),
    "compare": (f"{NONE} a: bool[] = lt 1.0:f32[] 2.0:f32[]; return a", "return True:bool[]"),
    "saturating": (
        f"{NONE} a: u8[] = convert_element_type[dtype=u8, weak_type=False] 300.5:f32[]; return a",
        "return 255:u8[]",
    ),
    "sum": (
        f"{NONE} a: f32[] = reduce_sum[axes=(0,)] 3.0:f32[4]; return a", "return 12.0:f32[]"
    ),
    "sum of -0.0": (
        f"{NONE} a: f32[] = reduce_sum[axes=(0,)] -0.0:f32[4]; return a", "return 0.0:f32[]"
    ),
    "pad": (
        f"{NONE} a: f32[4] = pad[config=((1, 0, 0),)] 0.0:f32[3] 0.0:f32[]; return a",
        "return 0.0:f32[4]",
    ),
    "constant": (
        f"{NONE} a: f32[2] = constant[values=(1.5, 1.5), shape=(2,), dtype=f32]; return a",
        "return 1.5:f32[2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDED)
def test_fold(case):
    becomes("fold", *FOLDED[case])


@pytest.mark.parametrize(
    "text",
    [
        f"{NONE} a: f32[] = exp 1.0:f32[]; return a }}",
        f"{NONE} a: f32[] = mul 1e-30:f32[] 1e-10:f32[]; return a }}",
        f"{NONE} a: f32[] = max 0.0:f32[] -0.0:f32[]; return a }}",
        f"{NONE} a: i32[] = div 1:i32[] 0:i32[]; return a }}",
        f"{NONE} a: f32[] = reduce_sum[axes=(0,)] 0.1:f32[4]; return a }}",
        f"{NONE} a: f32[2] = pad[config=((1, 0, 0),)] 0.0:f32[1] -0.0:f32[]; return a }}",
        f"{NONE} a: f32[2] = constant[values=(0.0, -0.0), shape=(2,), dtype=f32]; return a }}",
        f"{X} a: f32[3] = add x 1.0:f32[3]; return a }}",
    ],
)
def test_what_fold_leaves_alone(text):
    program = parse(text)
    assert ft.passes.fold(program) is program


# --- common subexpressions ------------------------------------------------------------------------


def test_equal_equations_become_one():
    becomes(
        "common_subexpressions",
        f"{XY} a: f32[3] = sin x; b: f32[3] = sin x; c: f32[3] = mul a y; d: f32[3] = mul y b; "
        "e: f32[3] = sub c d; return e",
        "c = sin a;d = mul c b;e = sub d d;return e",
    )


@pytest.mark.parametrize(
    "text",
    [
        f"{X} a: f32[3] = add x 0.0:f32[3]; b: f32[3] = add x -0.0:f32[3]; return a, b }}",
        f"{XY} a: f32[3] = max x y; b: f32[3] = max y x; return a, b }}",
        f"{XY} a: f32[3] = sub x y; b: f32[3] = sub y x; return a, b }}",
        f"{X} a: f32[3] = integer_pow[y=2] x; b: f32[3] = integer_pow[y=3] x; return a, b }}",
        f"{X} a: f32[3] = optimization_barrier x; b: f32[3] = optimization_barrier x; "
        "return a, b }",
        "program () { a: f32[1] = constant[values=(0.0,), shape=(1,), dtype=f32]; "
        "b: f32[1] = constant[values=(-0.0,), shape=(1,), dtype=f32]; return a, b }",
        f"{X} a: f32[3] = convert_element_type[dtype=f32, weak_type=False] x; "
        "b: ~f32[3] = convert_element_type[dtype=f32, weak_type=True] x; return a, b }",
    ],
)
def test_what_is_not_the_same(text):
    program = parse(text)
    check(program)
    assert ft.passes.common_subexpressions(program) is program


def test_what_a_checkpoint_computes_again_stays():
    def loss(x):
        f = ft.checkpoint(lambda x: fnp.sin(fnp.sin(x)))
        return fnp.sum(f(f(x)))

    program = ft.make_ir(ft.grad(loss))(np.ones(3, np.float32))
    sines = [e for p in with_nested(program) for e in p.equations if e.primitive is sin]
    made = ft.passes.optimize(program, ("default",))
    assert len([e for p in with_nested(made) for e in p.equations if e.primitive is sin]) == len(
        sines
    )


# --- loops ----------------------------------------------------------------------------------------

LOOPS = {
    "what nobody reads": (
        "program (x: f32[], y: f32[], z: f32[4]) { "
        "a: f32[], b: f32[], c: f32[4], d: f32[4] = scan[length=4, consts=0, carry=2] x y z { "
        "program (e: f32[], f: f32[], g: f32[]) { "
        "h: f32[] = mul e g; i: f32[] = sin f; return h, i, h, i } }; return a, c }",
        """\
program (a: f32[], b: f32[], c: f32[4]) {
  d: f32[], e: f32[4] = scan[length=4, consts=0, carry=1] a c {
    program (f: f32[], g: f32[]) { h: f32[] = mul f g; return h, h }
  }
  return d, e
}""",
    ),
    "what no step changes": (
        "program (x: f32[], y: f32[]) { "
        "a: f32[], b: f32[] = scan[length=4, consts=0, carry=2] x y { "
        "program (c: f32[], d: f32[]) { e: f32[] = mul c d; return e, d } }; return a, b }",
        """\
program (a: f32[], b: f32[]) {
  c: f32[] = scan[length=4, consts=1, carry=1] b a {
    program (d: f32[], e: f32[]) { f: f32[] = mul e d; return f }
  }
  return c, b
}""",
    ),
    "what every step computes": (
        "program (x: f32[], y: f32[]) { a: f32[] = scan[length=4, consts=1, carry=1] y x { "
        "program (c: f32[], d: f32[]) { "
        "e: f32[] = sin c; f: f32[] = exp e; g: f32[] = mul d f; return g } }; return a }",
        """\
program (a: f32[], b: f32[]) {
  c: f32[] = sin b
  d: f32[] = exp c
  e: f32[] = scan[length=4, consts=1, carry=1] d a {
    program (f: f32[], g: f32[]) { h: f32[] = mul g f; return h }
  }
  return e
}""",
    ),
    "not what is moved alone": (
        "program (x: f32[], y: f32[3]) { a: f32[3] = scan[length=4, consts=1, carry=1] x y { "
        "program (c: f32[], d: f32[3]) { e: f32[3] = broadcast_in_dim[shape=(3,), dimensions=()] c;"
        " g: f32[3] = mul d e; return g } }; return a }",
        None,
    ),
    "nothing from a loop of no steps": (
        "program (x: f32[], y: f32[]) { a: f32[] = scan[length=0, consts=1, carry=1] y x { "
        "program (c: f32[], d: f32[]) { e: f32[] = sin c; g: f32[] = mul d e; return g } }; "
        "return a }",
        None,
    ),
    "literals": (
        "program (x: f32[]) { a: f32[] = scan[length=4, consts=1, carry=1] 2.0:f32[] x 3.0:f32[4] {"
        " program (c: f32[], d: f32[], e: f32[]) { "
        "f: f32[] = mul d c; g: f32[] = add f e; return g } }; return a }",
        """\
program (a: f32[]) {
  b: f32[] = scan[length=4, consts=0, carry=1] a {
    program (c: f32[]) {
      d: f32[] = mul c 2.0:f32[]
      e: f32[] = add d 3.0:f32[]
      return e
    }
  }
  return b
}""",
    ),
    "while": (
        "program (x: f32[], y: f32[]) { a: f32[], b: f32[], c: f32[] = "
        "while[cond_consts=0, body_consts=1] y x y x { "
        "cond: program (d: f32[], e: f32[], f: f32[]) { "
        "g: f32[] = sin e; h: bool[] = lt d g; return h }; "
        "body: program (i: f32[], j: f32[], k: f32[], l: f32[]) { m: f32[] = exp i; "
        "n: f32[] = add j m; o: f32[] = add l 1.0:f32[]; return n, k, o } }; return a, b }",
        """\
program (a: f32[], b: f32[]) {
  c: f32[] = exp b
  d: f32[] = sin b
  e: f32[] = while[cond_consts=1, body_consts=1] d c a {
    cond: program (f: f32[], g: f32[]) { h: bool[] = lt g f; return h }
    body: program (i: f32[], j: f32[]) { k: f32[] = add j i; return k }
  }
  return e, b
}""",
    ),
}


@pytest.mark.parametrize("case", LOOPS)
def test_loops(case):
    before, after = LOOPS[case]
    program = parse(before)
    check(program)
    made = ft.passes.loops(program)
    check(made)
    if after is None:
        assert made is program
    else:
        assert show(made) == after
        assert equal(parse(after), made)


def test_effects_keep_a_carry_and_their_order():
    seen: list[Any] = []

    def f(x):
        def step(c, _):
            ft.debug.callback(lambda v: seen.append(float(v)), c[1], ordered=True)
            return (c[0] + fnp.sin(x), c[1] + 1.0), None

        return lax.scan(step, (x, 0.0), None, length=3)[0][0]

    made = ft.jit(f, passes=("default",))(1.0)
    jax.effects_barrier()
    assert seen == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(made, 1 + 3 * np.sin(1.0), rtol=1e-6)


# --- calls ----------------------------------------------------------------------------------------


def test_calls_of_short_programs_and_single_calls_are_replaced():
    @ft.jit
    def short(x):
        return fnp.sin(x)

    @ft.jit
    def long(x):
        for _ in range(5):
            x = fnp.cos(fnp.sin(x))
        return x

    program = ft.make_ir(lambda x: short(short(x)) + long(x))(np.ones(3, np.float32))
    assert not [e for e in ft.passes.inline_calls(program).equations if e.primitive.holds_programs]
    program = ft.make_ir(lambda x: long(long(x)))(np.ones(3, np.float32))
    assert ft.passes.inline_calls(program) is program


def test_marks_and_rules_are_gone_when_nothing_is_differentiated_any_more():
    @ft.custom_jvp
    def f(x):
        return fnp.sin(x)

    f.defjvp(lambda p, t: (f(*p), t[0] * fnp.cos(p[0])))
    program = ft.make_ir(lambda x: lax.stop_gradient(f(x)))(1.0)
    made = ft.passes.optimize(program, ("resolve", "inline_calls"))
    check(made)
    assert body(made) == ["b = sin a", "return b"]


# --- nested programs ------------------------------------------------------------------------------


def nest(depth: int, inner: Program) -> Program:
    for _ in range(depth):
        v, y = Var(inner.in_types[0]), Var(inner.out_types[0])
        call = Equation(ft.ir.PRIMITIVES["jit"], (v,), (y,), {"program": inner})
        inner = Program([v], [call], [y])
    return inner


@pytest.mark.parametrize("name", ALONE)
def test_programs_nested_900_deep(name):
    program = nest(900, parse(f"{X} a: f32[3] = neg x; b: f32[3] = neg a; return b }}"))
    start = time.perf_counter()
    made = ALONE[name](program)
    assert time.perf_counter() - start < 5
    check(made)
    assert (made is program) == (name not in ("simplify", "inline_calls"))


def test_a_nested_program_is_rewritten_once():
    inner = parse(f"{X} a: f32[3] = neg x; b: f32[3] = neg a; return b }}")
    both = [nest(1, inner) for _ in range(2)]
    made = [ft.passes.simplify(p) for p in both]
    assert made[0].equations[0].params["program"] is made[1].equations[0].params["program"]
    assert not made[0].equations[0].params["program"].equations


@pytest.mark.parametrize("name", ALONE)
def test_long_programs_take_linear_time(name):
    def chain(n):
        v = Var(parse(f"{X} return x }}").in_types[0])
        first, equations = v, []
        for i in range(n):
            y = Var(v.type)
            two = ft.ir.PRIMITIVES["neg" if i % 3 else "sin"]
            equations.append(Equation(two, (v,), (y,), {}))
            v = y
        return Program([first], equations, [v])

    start = time.perf_counter()
    made = ALONE[name](chain(50_000))
    assert time.perf_counter() - start < 10
    assert len(made.equations) <= 50_000


# --- sources --------------------------------------------------------------------------------------


def test_rewritten_equations_keep_the_users_line_and_say_what_they_were():
    program = ft.make_ir(lambda x: -(x * 3.0))(np.ones(3, np.float32))
    made = ft.passes.simplify(program)
    (e,) = made.equations
    assert e.source is program.equations[1].source
    assert e.origin is not None
    assert (e.origin.how, e.origin.equation) == ("simplify of", program.equations[1])
    assert "simplify of neg" in show(made, sources=True)


# --- the pipeline ---------------------------------------------------------------------------------


def test_jit_takes_the_passes_that_it_is_to_run():
    def f(x):
        return fnp.negative(-x) * 1.0 + fnp.sin(x) - fnp.sin(x)

    x = np.ones(3, np.float32)
    counts = {
        passes: len(ft.jit(f, passes=passes).program(x).equations)
        for passes in ((), ("simplify",), ("simplify", "common_subexpressions"), ("default",))
    }
    assert list(counts.values()) == [7, 4, 3, 3]
    assert len(ft.jit(f, passes="simplify").program(x).equations) == 4
    text = ft.jit(f, passes=("simplify",)).lower(x).as_text()
    assert text.count("sine") == 2
    for passes in counts:
        np.testing.assert_allclose(ft.jit(f, passes=passes)(x), f(x))


def test_a_function_may_be_a_pass():
    def sines_to_zero(program: Program) -> Program:
        return parse("program (x: f32[3]) { return 0.0:f32[3] }")

    x = np.ones(3, np.float32)
    assert not np.any(np.asarray(ft.jit(fnp.sin, passes=("simplify", sines_to_zero))(x)))


@pytest.mark.parametrize("passes", [("simplfy",), ("default", 3), "dead code"])
def test_an_unknown_pass_is_an_error_that_lists_them(passes):
    with pytest.raises(errors.InvalidArgument, match=r"dead_code; .*exact") as info:
        ft.jit(fnp.sin, passes=passes)
    assert "test_passes.py" in str(info.value)


@pytest.mark.parametrize("name", [*ALONE, "optimize"])
@pytest.mark.parametrize("given", [fnp.sin, "program () { return }", None])
def test_a_pass_takes_a_program(name, given):
    with pytest.raises(errors.InvalidArgument, match=f"passes.{name} takes a Program, got") as e:
        getattr(ft.passes, name)(given)
    assert "test_passes.py" in str(e.value)


def test_exact_keeps_the_order_of_sums():
    def f(x):
        return fnp.sum(fnp.sum(fnp.broadcast_to(x, (4, 3)) * 0.5, axis=0))

    x = np.ones(3, np.float32)
    kept = [e.primitive.name for e in ft.jit(f, passes=("exact",)).program(x).equations]
    assert kept.count("reduce_sum") == 2


def test_donated_and_unused_arguments():
    f = ft.jit(lambda x, y, z: (x + y * 1.0, z * 0), donate_argnums=0, passes=("default",))
    x, y, z = fnp.ones(3), fnp.ones(3), fnp.ones(3, "int32")
    out, zero = f(x, y, z)
    assert x.is_deleted()
    np.testing.assert_array_equal(out, 2 * np.ones(3))
    np.testing.assert_array_equal(zero, np.zeros(3))


# --- explain --------------------------------------------------------------------------------------


def test_explain_tells_what_was_joined():
    def f(x):
        a = fnp.sin(x)
        b = fnp.sin(x)
        return fnp.negative(-a) + b

    report = ft.passes.explain(f, ("default",))(np.ones(1000, np.float32))
    steps = {s.name: s for s in report.steps}
    assert list(steps) == [p.name for p in pipeline.TABLE]
    cse = steps["common_subexpressions"]
    assert (cse.before.equations, cse.after.equations) == (3, 2)
    assert (cse.before.flops, cse.after.flops) == (21000, 11000)  # a sine counts as ten
    assert (cse.before.bytes, cse.after.bytes) == (28000, 20000)
    text = str(report)
    print(text)
    line = f.__code__.co_firstlineno
    assert f"sin: test_passes.py:{line + 1} (test_explain_tells_what_was_joined.<locals>.f)" in text
    assert f"and test_passes.py:{line + 2}" in text
    assert text.splitlines()[0].split() == ["pass", "equations", "FLOPs", "bytes"]
    assert text.splitlines()[-1].split()[0] == "together"
    assert "5 -> 2" in text.splitlines()[-1]


def test_explain_counts_the_steps_of_a_scan():
    def f(x):
        return lax.scan(lambda c, _: (c * fnp.exp(x), None), x, None, length=100)[0]

    report = ft.passes.explain(ft.jit(f), ("default",))(np.ones(10, np.float32))
    assert (report.steps[0].before.flops, report.steps[-1].after.flops) == (11000, 1100)


# --- random programs ------------------------------------------------------------------------------


def agree(after: Any, before: Any, what: str, tolerance: float, wanted: Any = None) -> None:
    """NaN, infinities and the signs of zeros alike; other numbers up to a tolerance, relative to
    the largest. `wanted`: the reference's results; a zero may have its sign, because XLA takes the
    sum of n constants -0.0 for n * -0.0."""
    assert len(after) == len(before)
    for x, y, z in zip(after, before, before if wanted is None else wanted, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype), what
        if dtype_class(x.dtype) == "float":
            x, y = (v.astype(np.promote_types(v.dtype, np.float32)) for v in (x, y))
        else:
            np.testing.assert_array_equal(x, y, what)
            continue
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y), what)
        ok = np.isfinite(y)
        largest = max(1.0, float(np.max(np.abs(y[ok]), initial=0.0)))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * largest, err_msg=what)
        zeros = (x == 0) & (y == 0)
        zeros &= np.signbit(x) != np.signbit(np.asarray(z).astype(x.dtype))
        np.testing.assert_array_equal(np.signbit(x)[zeros], np.signbit(y)[zeros], what)


def try_all(program: Program, xs: list[Any], tolerance: float, compiled: bool) -> None:
    """Each pass alone, and all together, against the program as it is."""
    wanted = reference.run(program, xs)
    for kind, group in (("alone", ALONE), ("exact", EXACT), ("all", TOGETHER)):
        for name, run in group.items():
            made = run(program)
            if made is program:
                continue
            check(made)
            assert made.children == list(
                dict.fromkeys([p for e in made.equations for p in e.programs])
            )
            assert made.in_types == program.in_types
            assert made.out_types == program.out_types
            agree(reference.run(made, xs), wanted, f"{kind} {name}\n{program}\n{made}", tolerance)
    if compiled:
        plain = ft.jit(lambda *ys: ft.evaluate(program, ys), passes=())(*xs)
        for group in ("default", "exact"):
            run = ft.jit(lambda *ys: ft.evaluate(program, ys), passes=(group,))
            agree(run(*xs), plain, f"XLA, {group}\n{program}", tolerance, wanted)


def try_steps(steps: Steps, names: list[str]) -> None:
    rng = np.random.default_rng(len(steps.steps))
    with jax.enable_x64(True):
        xs = [rng.normal(size=shape) for shape in steps.inputs]
        program = ft.make_ir(composed(OURS, steps, names))(xs)
        try_all(program, xs, 1e-9, compiled=True)


@pytest.mark.parametrize("last", COMPOSABLE)
def test_random_programs(last: str):
    @settings(max_examples=4, derandomize=True, database=None, **SETTINGS)
    @given(
        inputs.flatmap(lambda shapes: programs(shapes, 1, 7, EVERY)),
        st.lists(st.sampled_from(sorted(COMPOSABLE)), max_size=2),
    )
    def run(steps: Steps, names: list[str]) -> None:
        try_steps(steps, [*names, last])

    run()


@pytest.mark.heavy
@settings(max_examples=1000, **SETTINGS)
@given(
    inputs.flatmap(lambda shapes: programs(shapes, 1, 12, EVERY)),
    st.lists(st.sampled_from(sorted(COMPOSABLE)), max_size=3),
)
def test_many_random_programs(steps: Steps, names: list[str]):
    try_steps(steps, names)


# Algebra on special numbers: operations that rules speak of, literals that they look for.

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -3.25, 1e30]
LITERALS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 4.0, 0.5, 3.0, 0.1]
WHOLE = [0, 1, -1, 2, 3, 7]
P = ft.ir.PRIMITIVES


@st.composite
def algebra(draw: Any, dtype: str, length: int) -> Program:
    """A program of arithmetic, moves and conversions over one vector of special numbers."""
    whole = dtype.startswith(("int", "uint"))
    small = np.dtype(dtype)

    def trace(*given: Any) -> list[Any]:
        values = list(given)
        for _ in range(draw(st.integers(1, length))):
            values.append(one(values))
        return values[len(given) :][-3:]

    def literal(x: Any) -> Any:
        number = draw(st.sampled_from(WHOLE if whole else LITERALS))
        return fnp.full(x.shape, number, x.dtype)

    def one(values: list[Any]) -> Any:
        x = draw(st.sampled_from(values))
        same = [v for v in values if v.shape == x.shape]
        y = literal(x) if draw(st.booleans()) else draw(st.sampled_from(same))
        if draw(st.booleans()):
            x, y = y, x
        kind = draw(st.sampled_from(KINDS))
        if kind in ("add", "sub", "mul", "max", "min"):
            return P[kind](x, y)
        if kind == "div":
            return x if whole else P["div"](x, y)
        if kind == "neg":
            return P["neg"](x)
        if kind == "abs":
            return x if dtype.startswith("uint") else P["abs"](x)
        if kind == "power":
            return P["integer_pow"](x, y=draw(st.integers(0, 3)))
        if kind == "select":
            return P["select_n"](P["lt"](x, y), x, y)
        if kind == "convert":
            wide = draw(st.sampled_from(["float64", "int32", "uint8", "float32", "bfloat16"]))
            there = lax.convert_element_type(x, wide)
            return lax.convert_element_type(there, small)
        if kind == "broadcast":
            return fnp.broadcast_to(x, (2, *x.shape)) if x.ndim < 3 else x
        if kind == "transpose":
            return fnp.transpose(x, draw(st.permutations(range(x.ndim))))
        if kind == "slice":
            return x[::2] if x.ndim and x.shape[0] > 2 else x
        if kind == "sum":
            return fnp.sum(x, axis=draw(st.integers(0, x.ndim - 1))) if x.ndim > 1 else x
        return x.reshape(-1) if kind == "flatten" else fnp.max(x, axis=tuple(range(x.ndim - 1)))

    t = ft.ShapeDtypeStruct((len(SPECIAL),), small)
    return ft.make_ir(trace)(t, t)


KINDS = [
    "add", "add", "sub", "sub", "mul", "mul", "mul", "neg", "neg", "div", "abs", "power", "max",
    "select", "convert", "broadcast", "transpose", "slice", "sum", "flatten", "largest",
]  # fmt: skip


def try_algebra(program: Program, dtype: str, compiled: bool = False) -> None:
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.1}.get(dtype, 0)
    with np.errstate(all="ignore"):
        xs = [np.asarray(SPECIAL).astype(dtype), np.asarray(SPECIAL[::-1]).astype(dtype)]
        try_all(program, xs, tolerance, compiled)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_special_numbers(dtype):
    @settings(max_examples=60, derandomize=True, database=None, **SETTINGS)
    @given(st.data())
    def run(data: Any) -> None:
        with jax.enable_x64(True):
            try_algebra(data.draw(algebra(dtype, 8)), dtype)

    run()


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bfloat16"])
def test_many_special_numbers(dtype):
    @settings(max_examples=200, **SETTINGS)
    @given(st.data())
    def run(data: Any) -> None:
        with jax.enable_x64(True):
            try_algebra(data.draw(algebra(dtype, 15)), dtype, compiled=True)

    run()


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (1, 1), (3, 1)])
def test_zero_size_and_one_size_axes(shape):
    def f(x):
        y = fnp.broadcast_to(x[None], (2, *shape)).sum(0) * 2.0 * 4.0
        z = fnp.transpose(fnp.transpose(y)).reshape(-1)[::-1][::-1]
        w = fnp.concatenate([z, z[:0]])
        return fnp.sum(w), fnp.sum(fnp.broadcast_to(w, (0, *w.shape)), 0), lax.squeeze(y[None], [0])

    x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    try_all(ft.make_ir(f)(x), [x], 1e-6, compiled=True)


def test_a_rectifier_is_a_maximum():
    x = np.array([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan], np.float32)
    program = ft.make_ir(ft.nn.relu)(x)
    made = ft.passes.dead_code(ft.passes.simplify(program))
    assert [e.primitive.name for e in made.equations] == ["max"]
    np.testing.assert_array_equal(ft.interpret(made, x), ft.interpret(program, x))
    np.testing.assert_array_equal(ft.jit(ft.nn.relu)(x), jax.nn.relu(x))
    assert ft.passes.simplify(program, exact=True) is program
