"""Sums that loops carry, and sums over what they write: which way they are better taken, what is
left alone, and values."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.backends import reference
from functrans.ir import Program, check, parse
from functrans.passes.loop_sums import accumulated

pytestmark = pytest.mark.smoke

WRITTEN = importlib.import_module("functrans.passes.loop_sums")


def loop(step: str, carry: str = "k: f32[24,16]", more: str = "", y: str = "") -> str:
    """A scan over x and d that carries a matrix."""
    return f"""program (x: f32[5,4,24], d: f32[5,4,16], w: f32[16,16], s: f32[24,16]) {{
  m: f32[24,16], h: f32[4,16]{y} = scan[length=5, consts=1, carry=2] w s 0.0:f32[4,16] x d {{
    program (c: f32[16,16], {carry}, h: f32[4,16], x: f32[4,24], d: f32[4,16]) {{
      a: f32[4,16] = dot_general["ij,jk->ik"] h c
      e: f32[4,16] = add a d
      {step}
      return g, e{more}
    }}
  }}
  return m, h{y.partition(":")[0]}
}}"""


ADDS = """f: f32[24,16] = dot_general["ij,ik->jk"] x e
      g: f32[24,16] = add k f"""
MOVES = """b: f32[16,24] = dot_general["ij,ik->kj"] x e
      f: f32[24,16] = transpose[permutation=(1, 0)] b
      g: f32[24,16] = add f k"""
TWO = """f: f32[24,16] = dot_general["ij,ik->jk"] x e
      b: f32[24,16] = dot_general["ij,ik->jk"] x d
      n: f32[24,16] = add k f
      g: f32[24,16] = add n b"""

LEAVES = {"added": loop(ADDS), "moved": loop(MOVES), "two terms": loop(TWO)}
STAYS = {
    "read otherwise": loop(ADDS, more=", k", y=", z: f32[5,24,16]"),
    "the sum is written": loop(ADDS, more=", g", y=", z: f32[5,24,16]"),
    "no contraction": loop("f: f32[24,16] = sin k\n      g: f32[24,16] = add k f"),
    "multiplied": loop(ADDS.replace("add k f", "mul k f")),
    "an operand is fixed": loop(
        """q: f32[4,16] = slice[start=(0, 0), limit=(4, 16), strides=(1, 1)] c
      f: f32[24,16] = dot_general["ij,ik->jk"] x q
      g: f32[24,16] = add k f"""
    ),
}


def values(program: Program) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=t.shape) / 4, t.dtype) for t in program.in_types]


def same(made: Program, program: Program) -> None:
    check(made)
    assert made.in_types == program.in_types
    assert made.out_types == program.out_types
    args = values(program)
    pairs = zip(reference.run(made, args), reference.run(program, args), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def scan_of(program: Program) -> Any:
    return next(e for e in program.equations if e.primitive.name == "scan")


@pytest.mark.parametrize("case", LEAVES)
def test_contraction_leaves_the_loop(case):
    program = parse(LEAVES[case])
    made = accumulated(program)
    same(made, program)
    assert scan_of(made).params["carry"] == 1
    behind = [e for e in made.equations if e.primitive.name == "dot_general"]
    assert len(behind) == (2 if case == "two terms" else 1)
    assert all([e.inputs[0].type.shape == (5, 4, 24) for e in behind])


@pytest.mark.parametrize("case", STAYS)
def test_what_stays_in_the_loop(case):
    program = parse(STAYS[case])
    check(program)
    assert accumulated(program) is program


def test_backwards_and_from_zero():
    """The start is left out if it is zero."""
    text = LEAVES["added"].replace(" w s ", " w 0.0:f32[24,16] ").replace("carry=2", "carry=2, reverse=True")
    program = parse(text)
    made = accumulated(program)
    same(made, program)
    assert "add" not in [e.primitive.name for e in made.equations]


def stacked(read: str, result: str) -> str:
    return f"""program (x: f32[6,4,3]) {{
  y: f32[6,4,3] = scan[length=6, consts=0, carry=0] x {{
    program (x: f32[4,3]) {{ y: f32[4,3] = sin x; return y }}
  }}
  {read}
  return {result}
}}"""


SUMS = {
    "steps": stacked("a: f32[4,3] = reduce_sum[axes=(0,)] y", "a"),
    "steps and rows": stacked("a: f32[3] = reduce_sum[axes=(0, 1)] y", "a"),
    "all": stacked("a: f32[] = reduce_sum[axes=(0, 1, 2)] y", "a"),
    "joined rows": stacked(
        "b: f32[24,3] = reshape[shape=(24, 3)] y\n  a: f32[3] = reduce_sum[axes=(0,)] b", "a"
    ),
    "two sums": stacked(
        "a: f32[4,3] = reduce_sum[axes=(0,)] y\n  b: f32[] = reduce_sum[axes=(0, 1, 2)] y", "a, b"
    ),
}
OTHERS = {
    "not over the steps": stacked("a: f32[6,3] = reduce_sum[axes=(1,)] y", "a"),
    "needed": stacked("a: f32[4,3] = reduce_sum[axes=(0,)] y", "a, y"),
    "joined otherwise": stacked(
        "b: f32[12,6] = reshape[shape=(12, 6)] y\n  a: f32[6] = reduce_sum[axes=(0,)] b", "a"
    ),
    "read otherwise": stacked("a: f32[4,3] = reduce_sum[axes=(0,)] y\n  b: f32[6,4,3] = sin y", "a, b"),
    "integers": stacked("a: f32[4,3] = reduce_sum[axes=(0,)] y", "a")
    .replace("f32", "i32")
    .replace("sin", "neg"),
}


@pytest.mark.parametrize("case", SUMS)
def test_sum_is_carried(case, monkeypatch):
    program = parse(SUMS[case])
    assert ft.passes.written_sums(program) is program  # of small values
    monkeypatch.setattr(WRITTEN, "LARGE", 1)
    made = ft.passes.written_sums(program)
    same(made, program)
    assert [e.primitive.name for e in made.equations] == ["scan"]
    assert scan_of(made).params["carry"] == len(program.outputs)


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_written_still(case, monkeypatch):
    monkeypatch.setattr(WRITTEN, "LARGE", 1)
    program = parse(OTHERS[case])
    check(program)
    assert ft.passes.written_sums(program) is program


def test_small_floats_are_summed_in_float32(monkeypatch):
    """520 ones: bfloat16 alone would stop at 256."""
    monkeypatch.setattr(WRITTEN, "LARGE", 1)

    def f(b, x):
        return jnp.sum(jax.lax.map(jnp.sin, x + b).astype(jnp.float32))

    b, x = np.zeros(3, jnp.bfloat16), np.zeros((520, 3), jnp.bfloat16)
    made = ft.jit(ft.grad(f))
    slope = made(b, x)
    assert slope.dtype == b.dtype
    np.testing.assert_array_equal(slope.astype(np.float32), 520)
    assert "f32[3]" in str(made.program(b, x))


def test_gradients_of_parts_of_a_batch():
    """Per-example gradients of `lax.map` are summed in the loop: temporaries are one part's."""

    def total(x, d):
        return jax.lax.map(lambda v: jnp.outer(*v), (x, d), batch_size=8).sum(0)

    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.normal(size=(32, 64)), "float32") for _ in range(2)]
    f = ft.jit(ft.interop.from_jax(total))
    np.testing.assert_allclose(f(*args), args[0].T @ args[1], rtol=1e-4, atol=1e-4)
    assert f.lower(*args).compile().memory_analysis().temp_size_in_bytes < 8 * 64 * 64 * 4
