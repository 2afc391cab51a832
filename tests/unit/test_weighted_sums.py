"""Weighted sums over leading axes as products of a vector and a matrix: text before and after, what
is left alone, and values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.ir import check, parse

pytestmark = pytest.mark.smoke

HEAD = "program (x: f32[3,2,4], c: f32[3], d: f32[3,2]) {"
OVER_ONE = f"""{HEAD}
  a: f32[3,2,4] = broadcast_in_dim[shape=(3, 2, 4), dimensions=(0,)] c
  b: f32[3,2,4] = mul a x
  e: f32[2,4] = reduce_sum[axes=(0,)] b
  return e
}}"""

BECOMES = {
    "over one axis": (OVER_ONE, '["ijk,i->jk", precision=("HIGHEST", "HIGHEST")] x c'),
    "over two axes": (
        OVER_ONE.replace("(0,)] c", "(0, 1)] d")
        .replace("axes=(0,)", "axes=(0, 1)")
        .replace("e: f32[2,4]", "e: f32[4]"),
        '["ijk,ij->k", precision=("HIGHEST", "HIGHEST")] x d',
    ),
    "of a contraction": (
        OVER_ONE.replace("a: f32", 'f: f32[3,2,4] = dot_general["ij,ijk->ijk"] d x\n  a: f32', 1).replace(
            "mul a x", "mul f a"
        ),
        '["ijk,i->jk", precision=("HIGHEST", "HIGHEST")] f c',
    ),
}

LEFT = {
    "the product is needed": OVER_ONE.replace("return e", "return e, b"),
    "a last axis": OVER_ONE.replace("axes=(0,)", "axes=(2,)").replace("f32[2,4]", "f32[3,2]"),
    "all axes": OVER_ONE.replace("axes=(0,)", "axes=(0, 1, 2)").replace("f32[2,4]", "f32[]"),
    "weights of another axis": OVER_ONE.replace("(0,)] c", "(0, 1)] d"),
    "what is fused": OVER_ONE.replace("mul a x", "mul a f").replace(
        "a: f32", "f: f32[3,2,4] = sin x\n  a: f32", 1
    ),
    "integers": OVER_ONE.replace("f32", "i32"),
    "narrow floats": OVER_ONE.replace("f32", "bf16"),
}


@pytest.mark.parametrize("case", BECOMES)
def test_weighted_sums(case):
    before, after = BECOMES[case]
    program = parse(before)
    check(program)
    made = ft.passes.weighted_sums(program)
    check(made)
    e = made.equations[-1]
    assert e.primitive.name == "dot_general"
    expected = (
        before[: before.index("a: f32")] + f"e: {e.outputs[0].type} = dot_general{after}\n  return e\n}}"
    )
    assert str(made) == str(parse(expected))
    args = [np.random.default_rng(0).normal(size=t.shape).astype("f4") for t in program.in_types]
    np.testing.assert_allclose(ft.interpret(made, *args), ft.interpret(program, *args), rtol=1e-5)


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_alone(case):
    program = parse(LEFT[case])
    check(program)
    assert ft.passes.weighted_sums(program) is program


def test_jit_does_it_behind_contract_and_not_where_roundings_must_stay():
    def clipped(w, x, y, np_=ft.numpy, grad=ft.grad, vmap=ft.vmap):
        def loss(w, x, y):
            return np_.mean((np_.tanh(x @ w) - y) ** 2)

        g = vmap(grad(loss), (None, 0, 0))(w, x, y)
        norms = np_.sqrt(np_.sum(g**2, axis=(1, 2)))
        return np_.sum(g * np_.minimum(1.0, 0.1 / norms)[:, None, None], axis=0)

    rng = np.random.default_rng(1)
    w, x, y = (jnp.asarray(rng.normal(size=s), "float32") for s in ((32, 3), (16, 8, 32), (16, 8, 3)))
    made, exact = (ft.jit(clipped, passes=p).program(w, x, y) for p in ("default", "exact"))
    assert "HIGHEST" in str(made)
    assert "HIGHEST" not in str(exact)
    expected = jax.jit(lambda *a: clipped(*a, np_=jnp, grad=jax.grad, vmap=jax.vmap))(w, x, y)
    np.testing.assert_allclose(ft.jit(clipped)(w, x, y), expected, rtol=2e-5, atol=1e-6)


SCALED = """program (c: f32[3], x: f32[3,1,4], g: f32[3,5]) {
  a: f32[3,4] = reshape[shape=(3, 4)] x
  b: f32[3,4] = reduce_sum[axes=(1,)] x
  r: f32[3,4] = broadcast_in_dim[shape=(3, 4), dimensions=(0,)] c
  s: f32[3,4] = mul a r
  w: f32[4,5] = dot_general["ij,ik->jk"] s g
  e: f32[4] = dot_general["i,ij->j"] c b
  return w, e
}"""
OTHER_WEIGHTS = SCALED.replace("(c: f32[3],", "(c: f32[3], d: f32[3],").replace(
    '"i,ij->j"] c', '"i,ij->j"] d'
)
# two sums of the same rows, by two views, before these are scaled
TWICE = """program (c: f32[3], x: f32[3,1,4], g: f32[3,5]) {
  a: f32[3,4] = reshape[shape=(3, 4)] x
  b: f32[3,4] = reduce_sum[axes=(1,)] x
  d: f32[4] = dot_general["i,ij->j"] c b
  e: f32[4] = dot_general["i,ij->j"] c a
  r: f32[3,4] = broadcast_in_dim[shape=(3, 4), dimensions=(0,)] c
  s: f32[3,4] = mul a r
  w: f32[4,5] = dot_general["ij,ik->jk"] s g
  return w, d, e
}"""
OTHER_ROWS = SCALED.replace("x: f32", "y: f32[3,2,4], x: f32").replace("axes=(1,)] x", "axes=(1,)] y")


@pytest.mark.parametrize("sum_first", [False, True])
def test_a_weighted_sum_of_rows_that_are_scaled_anyway(sum_first):
    program = parse(SCALED)
    if sum_first:
        *first, s, w, e = program.equations
        program = program.replace(equations=[*first, e, s, w])
    made = ft.passes.weighted_sums(program)
    check(made)
    at = {eqn.outputs[0]: eqn for eqn in made.equations}
    scaled, summed = at[made.outputs[0]].inputs[0], at[made.outputs[1]]
    assert summed.inputs[1] is scaled
    assert summed.inputs[0].value == 1
    rng = np.random.default_rng(0)
    args = [rng.normal(size=t.shape).astype("f4") for t in program.in_types]
    for got, want in zip(ft.interpret(made, *args), ft.interpret(program, *args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("text", [OTHER_WEIGHTS, OTHER_ROWS])
def test_weighted_sums_of_other_rows_stay(text):
    program = parse(text)
    assert ft.passes.weighted_sums(program) is program


def test_rows_that_two_sums_read_are_scaled_once():
    program = parse(TWICE)
    made = ft.passes.weighted_sums(program)
    check(made)
    assert len(made.equations) == len(program.equations)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=t.shape).astype("f4") for t in program.in_types]
    for got, want in zip(ft.interpret(made, *args), ft.interpret(program, *args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
