"""Loops whose steps compute what the step before computed: what is carried, what is left alone, and
values and derivatives."""

from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.ir.source import line_of
from functrans.ir.text import with_nested
from functrans.primitives.dependence import structure
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke

X = np.array([0.3, -1.2, 0.7], "float32")
V = np.array([0.1, 0.4, -0.5], "float32")


def leapfrog(force, x, v, *more):
    v = v + 0.05 * force(x, *more)
    x = x + 0.1 * v
    return x, v + 0.05 * force(x, *more)


def by_scan(x, v):
    def force(x):
        return jnp.sin(x) * x[0]

    (x, v), path = lax.scan(lambda s, _: (leapfrog(force, *s), s[0]), (x, v), None, length=5)
    return x + v + path[3]


def with_constants(x, v):
    def step(s, t):
        x, y = leapfrog(lambda x, k: jnp.sin(k * x) + x.sum(), *s, v * 2)
        return (x, y + t), y

    (x, y), path = lax.scan(step, (x, v), jnp.arange(5.0), reverse=True)
    return x + y + path[0]


def with_time(x, v):
    def step(i, s):
        x, v = s
        v = v + 0.05 * jnp.sin(x) * jnp.cos(i * 0.1)
        x = x + 0.1 * v
        return x, v + 0.05 * jnp.sin(x) * jnp.cos((i + 1) * 0.1)

    return sum(lax.fori_loop(0, 5, step, (x, v)))


def of_the_step_before(x, v):
    """The wave equation: f(now) is f(before) of the next step."""

    def step(_, s):
        before, now = s
        bend = jnp.tanh(jnp.sin(before)) + jnp.tanh(jnp.sin(now))
        return now, 2 * now - before + 0.1 * bend

    return sum(lax.fori_loop(0, 5, step, (x, v)))


def stepped(force):
    return lambda x, v: sum(lax.fori_loop(0, 5, lambda _, s: leapfrog(force, *s), (x, v)))


@ft.custom_jvp
def by_rule(x):
    return jnp.sin(x)


by_rule.defjvps(lambda dx, y, x: dx * jnp.cos(x))


def with_new_functions(x):
    """The programs of each call are others, with equal operations."""
    summed = lax.scan(lambda c, a: (jnp.sin(c) * a, None), x.sum(), x)[0]
    return lax.cond(summed > 0, lambda x: x * 0.5, lambda x: jnp.tanh(x), x)


def inner_loop(c, a):
    return jnp.sin(c) * a, None


def in_a_loop(x, v):
    return lax.scan(lambda c, _: (by_scan(c, v), None), x, None, length=3)[0]


def steps_unknown(x, v):
    n = 5 + (x[0] > 9).astype("int32")

    def step(s):
        return (s[0] + 1, *leapfrog(jnp.sin, *s[1:]))

    return sum(lax.while_loop(lambda s: s[0] < n, step, (0, x, v))[1:])


def two_forces(x, v):
    def step(_, s):
        x, v, a = s
        kick = 0.05 * (jnp.sin(x) + jnp.cos(x).sum())
        x, v = leapfrog(lambda x: jnp.sin(x) + jnp.cos(x).sum(), x, v)
        return x, v, a + kick

    return sum(lax.fori_loop(0, 5, step, (x, v, x)))


def unrolled(x, v):
    return sum(lax.scan(lambda s, _: (leapfrog(jnp.sin, *s), None), (x, v), None, length=6, unroll=2)[0])


# A function; how many of sin, tanh, exp and loops stand in the body of the loop.
SHORTER = {
    "by scan": (by_scan, 1),
    "with constants": (with_constants, 1),
    "with time": (with_time, 1),
    "of the step before": (of_the_step_before, 2),
    "called": (stepped(ft.jit(lambda x: jnp.sin(x) * x.sum())), 1),
    "by a rule": (stepped(by_rule), 1),
    "of a gradient": (stepped(ft.grad(lambda x: jnp.sum(jnp.sin(x) * x))), 1),
    "with a loop inside": (stepped(lambda x: lax.scan(inner_loop, x.sum(), x)[0]), 2),
    "with new functions": (stepped(with_new_functions), 5),  # of which two before the loop
    "in a loop": (in_a_loop, 3),  # of which one before the inner loop
    "steps unknown": (steps_unknown, 1),
    "two forces": (two_forces, 1),
    "unrolled": (unrolled, 1),
}

ALL = pytest.mark.parametrize("name", SHORTER)


def counted(program: Any) -> int:
    """The number of sines, tangents and inner loops in the bodies of loops."""
    inside = [p for p in with_nested(program) if p is not program]
    return sum([e.primitive.name in ("sin", "tanh", "scan") for p in inside for e in p.equations])


@ALL
def test_work_in_a_step(name):
    f, count = SHORTER[name]
    optimized = ft.passes.optimize(ft.make_ir(f)(X, V))
    assert counted(optimized) == count, optimized


@pytest.mark.long
@ALL
def test_values_and_derivatives(name):
    """By XLA after all passes, and by NumPy as it was recorded."""
    f, _ = SHORTER[name]

    def results(x, v):
        def loss(x, v):
            return jnp.sum(f(x, v) ** 2)

        found = [f(x, v), ft.jvp(f, (x, v), (v, x))]
        if f is steps_unknown:
            return [*found, ft.vmap(f, (None, 0))(x, jnp.stack([x, v]))]
        each = ft.vmap(ft.grad(loss, (0, 1)), (0, None))(jnp.stack([x, v]), v)
        return [*found, each, ft.grad(ft.checkpoint(loss), 1)(x, v), ft.hessian(loss)(x, v)]

    by_numpy = ft.interpret(ft.make_ir(results)(X, V), X, V)
    assert_close(ft.tree.leaves(ft.jit(results)(X, V)), by_numpy, 2e-5)


@pytest.mark.parametrize("number", [float("nan"), 0.0, -0.0, 2.5])
def test_programs_of_equal_equations_have_one_key(number):
    def key(y):
        return structure(ft.make_ir(lambda x: jnp.sin(x) + y)(X))

    assert key(number) == key(float(str(number)))
    assert key(number) != key(1.5)
    assert key(0.0) != key(-0.0)


def stays(step, xs=None, length=5):
    def f(x, v):
        return lax.scan(step, (x, v), xs, length=length)[0]

    return counted(ft.passes.optimize(ft.make_ir(f)(X, V)))


def test_left_alone():
    def reading(s, t):  # of what is read, the next step's is not known
        return leapfrog(lambda x: jnp.sin(x + t), *s), None

    def host(s, _):
        ft.debug.callback(lambda x: None, jnp.sin(s[0]))
        return leapfrog(lambda x: ft.pure_callback(np.sin, x, x), *s), None

    def recomputed(s, _):
        return leapfrog(ft.checkpoint(lambda x: jnp.sin(jnp.sin(x))), *s), None

    def cheap(s, _):  # three operations, which is less than to carry them
        x, v = leapfrog(lambda x: x * x * 0.1, *s)
        return (x, v), None

    assert stays(reading, jnp.arange(5.0)) == 2
    for step in (cheap, recomputed):
        made = ft.passes.optimize(ft.make_ir(lambda x, v, f=step: lax.scan(f, (x, v), None, length=5))(X, V))
        assert [e.params["carry"] for e in made.equations if e.primitive.name == "scan"] == [2]

    def once(s, _):
        return (leapfrog(jnp.sin, *s), None)

    assert stays(once, length=1) == 2
    assert stays(once) == 1
    assert stays(host) == 1  # of the callback


@pytest.mark.parametrize("of", ["old", "new", "constant", "inside", "in a branch"])
@pytest.mark.parametrize("how", ["value", "grad", "vmap of grad"])
def test_effects_happen_once_per_step(of, how):
    seen = []

    def note(x):
        ft.debug.callback(lambda x: seen.append(float(x)), x)

    def force(x):
        if of == "inside":
            note(x)
        return jnp.sin(x) * jnp.cos(x)

    def step(s, _):
        x, v = s
        y, v = leapfrog(force, x, v)
        if of == "in a branch":
            lax.cond(y > -9, lambda: note(y), lambda: None)
        elif of != "inside":
            note({"old": x, "new": y, "constant": 1.0}[of])
        return (y, v), None

    def f(x):
        return lax.scan(step, (x, x), None, length=3)[0][1]

    run = {"value": f, "grad": ft.grad(f), "vmap of grad": lambda x: ft.vmap(ft.grad(f))(x[None])}[how]
    jax.block_until_ready(ft.jit(run)(jnp.float32(0.5)))
    jax.effects_barrier()
    assert len(seen) == (6 if of == "inside" else 3), seen


def test_a_carry_that_changes_its_weak_type_is_left_alone():
    x, v = lax.fori_loop(0, 3, lambda _, s: leapfrog(jnp.sin, *s), (0.5, 0.1))
    a, b = jax.lax.fori_loop(0, 3, lambda _, s: leapfrog(jax.numpy.sin, *s), (0.5, 0.1))
    np.testing.assert_allclose([x, v], [a, b], 1e-6)
    assert x.weak_type == a.weak_type


def test_no_steps():
    """What is computed before the loop is not seen."""

    def f(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, *leapfrog(jnp.sin, *s[1:])), (0, x, x))

    i, x, v = ft.jit(f)(np.float32(np.inf), 0)  # sin(inf) is NaN
    assert (int(i), float(x), float(v)) == (0, np.inf, np.inf)


def test_lines_stay():
    """What is computed before the loop has the line that the step has."""
    program = ft.passes.optimize(ft.make_ir(lambda x, v: by_scan(x, v))(X, V))
    sines = [e for p in with_nested(program) for e in p.equations if e.primitive.name == "sin"]
    assert {line_of(e.source) for e in sines} == {by_scan.__code__.co_firstlineno + 2}
