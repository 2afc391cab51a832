"""Temporary memory of compiled programs is at most JAX's; what a scan keeps of its steps; what is
met once leaves nothing.

XLA's memory analysis is asked, nothing is timed: the same program always gives the same bytes.
"""

import gc

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from benchmarks.growth import COMPILED, PLAIN, cases
from benchmarks.memory import PROGRAMS, temporary_bytes
from benchmarks.models import JAX, OURS
from functrans import lax
from functrans.ir.program import Program
from functrans.passes import fusion_boundaries
from tests.support.matrices import alternately

W = np.random.default_rng(0).normal(size=(3, 3)).astype("float32")
X = np.random.default_rng(1).normal(size=3).astype("float32")


@pytest.mark.parametrize(
    "name",
    [
        "LSTM, SGD step",
        "layers, weights scanned",
        "LSTM, checkpointed cell, SGD step",
        "layers, scanned, dots_saveable",
        "scan of checkpointed scans",
    ],
)
def test_temporary_memory_is_at_most_jax_s(name):
    assert temporary_bytes(OURS, PROGRAMS[name]) <= temporary_bytes(JAX, PROGRAMS[name])


def stacked(step, *consts):
    """The types that the scan of a gradient stacks for the way back."""

    def loss(x, *consts):
        return lax.scan(lambda x, _: (step(x, *consts), None), x, None, length=5)[0].sum()

    program = ft.make_ir(ft.grad(loss, range(1 + len(consts))))(X, *consts)
    ft.ir.check(program)
    forward = next(e for e in program.equations if e.primitive.name == "scan")
    theirs = jax.grad(
        lambda x, *consts: jax.lax.fori_loop(0, 5, lambda _, x: JAX_OF[step](x, *consts), x).sum(),
        range(1 + len(consts)),
    )
    for a, b in zip(ft.interpret(program, X, *consts), jax.jit(theirs)(X, *consts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    return sorted([str(v.type) for v in forward.outputs[1:]])


def of_what_is_kept(np_):
    """y and x are kept for the products, so y's derivative (1 + y)(1 - y) is found again."""
    return lambda x, w: np_.tanh(x @ w) @ w


def of_smaller(np_):
    """The number s is kept and not the vector that it is spread over."""
    return lambda x: x * np_.sin((x**2).sum())


def of_as_many(np_):
    """sin(cos(x)): two derivatives, neither of which is cheaply made of other values."""
    return lambda x: np_.sin(np_.cos(x))


def of_constants(np_):
    """cos(w) and its derivative are computed once; of a step x and the derivative at y are kept."""
    return lambda x, w: np_.sin(x @ np_.cos(w))


MADE = {make: make(jnp) for make in (of_what_is_kept, of_smaller, of_as_many, of_constants)}
JAX_OF = {mine: make(jax.numpy) for make, mine in MADE.items()}


def test_what_is_cheap_is_computed_again():
    assert stacked(MADE[of_what_is_kept], W) == ["f32[5,3]"] * 2
    assert stacked(MADE[of_smaller]) == ["f32[5,3]", "f32[5]", "f32[5]"]
    assert stacked(MADE[of_as_many]) == ["f32[5,3]"] * 2


def test_what_does_not_change_is_not_stacked():
    assert stacked(MADE[of_constants], W) == ["f32[5,3]"] * 2


def sum_of(f):
    return lambda *args: f(*args).sum()


def either(f):
    return lambda *args: lax.cond(args[0].sum() > -1e9, f, lambda x, *_: x * 1.0, *args)


@pytest.mark.parametrize("wrap", [ft.jit, either])
def test_a_call_and_a_branch_keep_what_is_not_cheap(wrap):
    for make, consts, want in (
        (of_what_is_kept, (W,), ["f32[3]"]),
        (of_smaller, (), ["f32[]"] * 2),
        (of_as_many, (), ["f32[3]"] * 2),
        (of_constants, (W,), ["f32[3,3]"] * 2 + ["f32[3]"]),
    ):
        argnums = range(1 + len(consts))
        grad = ft.grad(sum_of(wrap(MADE[make])), argnums)
        program = ft.make_ir(grad)(X, *consts)
        ft.ir.check(program)
        forward = next(e for e in program.equations if e.primitive.name in ("jit", "cond"))
        assert [str(v.type) for v in forward.outputs[1:]] == want
        theirs = jax.grad(sum_of(make(jax.numpy)), argnums)
        for a, b in zip(ft.interpret(program, X, *consts), jax.jit(theirs)(X, *consts), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def normed(np_):
    """The loss of two layers whose rows are normed, of (scales, weights, x)."""

    def layer(params, x):
        scale, w = params
        x = x - np_.mean(x, -1, keepdims=True)
        x = x / np_.sqrt(np_.mean(x**2, -1, keepdims=True) + 1e-5)
        return np_.tanh((x * scale) @ w)

    return lambda params, x: np_.sum(layer(params, layer(params, x)) ** 2)


def steps_of_normed(rows):
    """The text of our gradient, and the temporary bytes of ours and JAX's."""
    params = np.ones(64, np.float32), np.eye(64, dtype=np.float32)
    x = np.random.default_rng(0).normal(size=(rows, 64)).astype(np.float32)
    step = ft.jit(ft.grad(normed(jnp)))
    theirs = jax.jit(jax.grad(normed(jax.numpy)))
    for a, b in zip(step(params, x), theirs(params, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
    lowered = step.lower(params, x)
    memory = [f.compile().memory_analysis() for f in (lowered, theirs.lower(params, x))]
    return lowered.as_text(), [m.temp_size_in_bytes for m in memory]


def test_large_repeated_arrays_do_not_wait_for_the_way_back(monkeypatch):
    text, _ = steps_of_normed(64)
    assert "optimization_barrier" not in text
    text, (ours, theirs) = steps_of_normed(8192)
    assert text.count("optimization_barrier") >= 2
    monkeypatch.setattr(fusion_boundaries, "apart", lambda program: program)
    _, (before, _) = steps_of_normed(8192)
    assert ours <= theirs
    assert ours < before


ONCE = cases("functrans")
# so many steps in the default run: a step of the first kind takes fractions of a millisecond
STEPS = {PLAIN: 20, COMPILED: 8}


def programs() -> int:
    gc.collect()
    return sum([x.__class__ is Program for x in gc.get_objects()])


ALWAYS = {"lambda jit", "lambda scan", "closure grad", "number grad", "number operation"}
NAMES = [
    name if name in ALWAYS else pytest.param(name, marks=pytest.mark.sweep)
    for name, case in ONCE.items()
    if case.steps in STEPS
]


@pytest.mark.parametrize("name", alternately(NAMES))
def test_what_is_met_once_leaves_no_program(name):
    steps = STEPS[ONCE[name].steps]
    for i in range(3):
        ONCE[name].step(i)
    before = programs()
    for i in range(3, steps):
        ONCE[name].step(i)
    assert programs() <= before + 3
