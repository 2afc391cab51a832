"""The pass `simplify`: equations before and after, and what it must leave alone."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans.ir import check, parse
from tests.unit.rewriting import XY, X, becomes, body

pytestmark = pytest.mark.smoke

N = "program (x: i32[3]) {"
M = "program (x: f32[2,3]) {"
S = "program (x: f32[]) {"
W = "program (p: bool[3], x: f32[3], y: f32[3]) {"


def padded(x_ends: str, y_ends: str, kind: str = "f32", zero: str = "0.0") -> str:
    """z + pad x + pad y, x and y of sizes 1 and 2."""
    return (
        f"program (x: {kind}[1], y: {kind}[2], z: {kind}[3]) {{"
        f" a: {kind}[3] = pad[config=({x_ends},)] x {zero}:{kind}[]; b: {kind}[3] = add z a;"
        f" c: {kind}[3] = pad[config=({y_ends},)] y {zero}:{kind}[]; d: {kind}[3] = add b c; return d"
    )


BEFORE, BEHIND, OVER = "(0, 2, 0)", "(1, 0, 0)", "(0, 1, 0)"
PAIRED = "d = pad[config={}] a 0.0:f32[];e = pad[config={}] b 0.0:f32[];f = add d e;g = add c f;return g"

SIMPLIFIED = {
    "z + pad x + pad y": (padded(BEFORE, BEHIND), PAIRED.format(f"({BEFORE},)", f"({BEHIND},)")),
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
    "not not": ("program (p: bool[3]) { a: bool[3] = not p; b: bool[3] = not a; return b", "return a"),
    "p and True": ("program (p: bool[3]) { a: bool[3] = and p True:bool[3]; return a", "return a"),
    "p or True": ("program (p: bool[3]) { a: bool[3] = or p True:bool[3]; return a", "return True:bool[3]"),
    "convert to itself": (
        f"{X} a: f32[3] = convert_element_type[dtype=f32, weak_type=False] x; return a",
        "return a",
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
        f"{M} a: f32[2,3] = rev[dimensions=(0, 1)] x; b: f32[2,3] = rev[dimensions=(1,)] a; return b",
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
    "slice of all": (f"{X} a: f32[3] = slice[start=(0,), limit=(3,), strides=(1,)] x; return a", "return a"),
    "pad by nothing": (f"{X} a: f32[3] = pad[config=((0, 0, 0),)] x 0.0:f32[]; return a", "return a"),
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
}


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


POWERS = {  # of |x|, unless the sign does not matter
    -3.0: "c = div 1.0:f32[3] b;d = mul c c;e = mul d c;return e",
    -2.5: "c = div 1.0:f32[3] b;d = sqrt c;e = mul d c;f = mul e c;return f",
    -2.0: "c = div 1.0:f32[3] b;d = mul c c;return d",
    -1.5: "c = div 1.0:f32[3] b;d = sqrt c;e = mul d c;return e",
    -0.5: "c = rsqrt b;return c",
    0.5: "c = sqrt b;return c",
    1.5: "c = sqrt b;d = mul c b;return d",
    2.5: "c = sqrt b;d = mul c b;e = mul d b;return e",
    4.0: "c = mul b b;d = mul c b;e = mul d b;return e",
}


@pytest.mark.parametrize("y", POWERS)
def test_short_powers_of_what_is_not_negative(y):
    before = f"{X} a: f32[3] = abs x; b: f32[3] = pow a {y}:f32[3]; return b"
    becomes("simplify", before, f"b = abs a;{POWERS[y]}")
    program = parse(before + " }")
    assert ft.passes.simplify(program, exact=True) is program


@pytest.mark.parametrize("y", POWERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_of_short_powers(y, dtype):
    with jax.enable_x64(True), np.errstate(all="ignore"):
        info = np.finfo(dtype)
        sizes = np.random.default_rng(0).uniform(np.log10(info.tiny), np.log10(info.max), 2000)
        ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, info.max]
        x = np.concatenate([10**sizes, -(10.0 ** sizes[:99]), ends]).astype(dtype)
        one = np.ones((), dtype)

        def squares(x):
            return jnp.sum(jnp.stack([x, x / 2]) ** 2, 0)

        for of in (lambda x: x, jnp.abs, lambda x: x + one, squares):
            base = np.asarray(of(x))
            found = np.asarray(ft.jit(lambda x, of=of: of(x) ** y)(x))
            exact = np.power(base.astype(np.longdouble), np.longdouble(y)).astype(dtype)
            normal = np.isfinite(exact) & (abs(exact) >= info.tiny)
            np.testing.assert_allclose(found[normal], exact[normal], rtol=4 * info.eps)
            large = np.isinf(exact) | np.isnan(exact)
            np.testing.assert_array_equal(found[large], exact[large])
            assert (abs(found[~normal & ~large]) <= info.tiny).all()


KEPT = {
    "x ** 1.5": f"{X} a: f32[3] = pow x 1.5:f32[3]; return a",
    "x ** 0.5": f"{X} a: f32[3] = pow x 0.5:f32[3]; return a",
    "x ** -1.5": f"{X} a: f32[3] = pow x -1.5:f32[3]; return a",
    "(x + 1) ** -1.5": (f"{X} a: f32[3] = add x 1.0:f32[3]; b: f32[3] = pow a -1.5:f32[3]; return b"),
    "|x| ** 1.4": f"{X} a: f32[3] = abs x; b: f32[3] = pow a 1.4:f32[3]; return b",
    "|x| ** -1.5, bfloat16": (
        "program (x: bf16[3]) { a: bf16[3] = abs x; b: bf16[3] = pow a -1.5:bf16[3]; return b"
    ),
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
    "pads that meet": padded(BEFORE, OVER),
    "pads by -0": padded(BEFORE, BEHIND, zero="-0.0"),
    "complex pads": padded(BEFORE, BEHIND, "c64", "0.0"),
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
    "x / 10": (f"{X} a: f32[3] = div x 10.0:f32[3]; return a", "b = mul a 0.1:f32[3];return b"),
    "sum over no axis": (KEPT["sum over no axis"], "return a"),
}


def test_jit_does_fast_mathematics_by_name():
    program = ft.jit(lambda x: (x + 0.0) * 0.0, passes="fast_math").program(np.ones(3, np.float32))
    assert body(program) == ["return 0.0:f32[3]"]


@pytest.mark.parametrize("case", FAST)
def test_fast_mathematics_has_to_be_asked_for(case):
    becomes("simplify", *FAST[case], fast_math=True)


def test_factors_stay_where_numbers_are_in_range():
    halves = np.full((4, 64), 64, np.float16), np.full((64, 3), 64, np.float16)
    f = ft.jit(lambda q, k: (q * np.float16(0.125)) @ k)
    np.testing.assert_array_equal(f(*halves), np.full((4, 3), 32768, np.float16))
    large = np.full((8, 64), 1e20, np.float32), np.full((64, 4), 1e20, np.float32)
    f = ft.jit(lambda q, k: (q * np.float32(2.0**-40)) @ k)
    np.testing.assert_allclose(f(*large), np.full((8, 4), 64e40 * 2.0**-40), rtol=1e-5)


@pytest.mark.parametrize("kind", [np.int8, np.int32])
def test_what_is_not_finite_times_a_mask_of_integers(kind):
    x, mask = np.array([np.inf, 1, np.nan], np.float32), np.array([False, True, False])
    f = ft.jit(lambda x, mask: x * mask.astype(kind).astype(np.float32))
    np.testing.assert_array_equal(f(x, mask), np.array([np.nan, 1, np.nan], np.float32))
