"""The other passes: text before and after, and the pipeline."""

import itertools
import time

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.lax as lax
import functrans.numpy as fnp
from functrans.ir import Equation, Program, Var, check, parse, show
from functrans.ir.text import with_nested
from functrans.passes import pipeline
from functrans.primitives.calls.jit import jit
from functrans.primitives.elementwise.transcendental import sin
from tests.support.closeness import assert_close
from tests.unit.rewriting import ALONE, X

pytestmark = pytest.mark.smoke


def test_arrays_without_elements_are_known():
    """Given, computed, carried: no loop keeps one, and sums of nothing are 0."""

    def f(x, nothing, none):
        def step(carry, y):
            x, nothing = carry
            x = x + nothing @ fnp.ones((0, 3)) + fnp.sum(nothing) + fnp.sum(fnp.concatenate([y, x]))
            return (x, fnp.exp(nothing)), (nothing, y)

        return lax.scan(step, (x, nothing), none)

    args = (np.ones(3, "float32"), np.zeros(0, "float32"), np.zeros((4, 0), "float32"))
    program = ft.passes.optimize(ft.make_ir(f)(*args))
    (loop,) = [e for e in program.equations if e.primitive.name == "scan"]
    assert [v.type.shape for v in (*loop.inputs, *loop.outputs)] == [(3,), (3,)]
    assert_close(ft.jit(f)(*args), ft.jit(f, passes=())(*args))


@pytest.mark.parametrize("change", ["set", "add", "multiply"])
def test_a_window_as_large_as_the_array_replaces_it(change):
    x, y = jax.numpy.arange(6.0).reshape(2, 3), np.ones((2, 3), "float32")
    f = ft.interop.from_jax(lambda x, y: getattr(x.at[:, :], change)(y))
    assert [e.primitive.name for e in ft.make_ir(f)(x, y).equations][-1].startswith("scatter")
    assert len(ft.jit(f).program(x, y).equations) == (change != "set")
    assert_close(ft.jit(f)(x, y), getattr(x.at[:, :], change)(y))


def test_what_a_checkpoint_computes_again_stays():
    def loss(x):
        f = ft.checkpoint(lambda x: fnp.sin(fnp.sin(x)))
        return fnp.sum(f(f(x)))

    program = ft.make_ir(ft.grad(loss))(np.ones(3, np.float32))
    sines = [e for p in with_nested(program) for e in p.equations if e.primitive is sin]
    made = ft.passes.optimize(program, ("default",))
    assert len([e for p in with_nested(made) for e in p.equations if e.primitive is sin]) == len(sines)


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


def test_programs_that_share_equations_are_each_put_in_place_of_their_call():
    """Such as a function of JAX's that is called twice: each call has results of its own."""
    one = ft.make_ir(lambda x, y: fnp.sin(x) * fnp.cos(x))(1.0, 1.0)
    other = one.replace(inputs=one.inputs[::-1])
    program = ft.make_ir(lambda x, y: (jit(x, y, program=one)[0], jit(x, y, program=other)[0]))(1.0, 2.0)
    made = ft.passes.inline_calls(program)
    check(made)
    assert not [e for e in made.equations if e.primitive.holds_programs]
    wanted = np.sin([1.0, 2.0]) * np.cos([1.0, 2.0])
    np.testing.assert_allclose(ft.interpret(made, 1.0, 2.0), wanted, rtol=1e-6)


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


@pytest.mark.long
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
    made = ALONE[name](chain(8_000))
    assert time.perf_counter() - start < 4
    assert len(made.equations) <= 8_000


def test_rewritten_equations_keep_the_users_line_and_say_what_they_were():
    program = ft.make_ir(lambda x: -(x * 3.0))(np.ones(3, np.float32))
    made = ft.passes.simplify(program)
    (e,) = made.equations
    assert e.source is program.equations[1].source
    assert e.origin is not None
    assert (e.origin.how, e.origin.equation) == ("simplify of", program.equations[1])
    assert "simplify of neg" in show(made, sources=True)


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


@pytest.mark.parametrize("order", [*itertools.permutations(["default", "exact", "fast_math"])])
def test_functions_that_share_a_program_share_no_options(order):
    """A body is rewritten for each set of options, whoever came first."""
    inner = ft.jit(lambda x: x * 0.0 + fnp.sum(fnp.sum(x[None] * 0.5, 0)))

    def loops(x):
        return lax.scan(lambda c, _: (inner(c), c), x, None, length=2)[0] + inner(x)

    program = ft.make_ir(loops)(np.ones(3, np.float32))

    def shown(which, program):
        return ft.ir.show(pipeline.optimize(program, which))

    fresh = {w: shown(w, ft.ir.parse(ft.ir.show(program), program.values)) for w in order}
    assert len({*fresh.values()}) == 3
    assert {which: shown(which, program) for which in order} == fresh


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
    line = f.__code__.co_firstlineno
    assert f"sin: test_passes.py:{line + 1} (test_explain_tells_what_was_joined.<locals>.f)" in text
    assert f"and test_passes.py:{line + 2}" in text
    assert text.splitlines()[0].split() == ["pass", "equations", "FLOPs", "bytes"]
    assert text.splitlines()[-1].split()[0] == "together"
    assert "5 -> 2" in text.splitlines()[-1]
