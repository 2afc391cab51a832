"""One malformed program per complaint of `check`."""

from __future__ import annotations

import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans.ir import Equation, Literal, Program, Var, check, parse, show
from functrans.ir.program import PRIMITIVES as P
from functrans.ir.types import ArrayType

pytestmark = pytest.mark.smoke

F3 = ArrayType((3,), np.dtype("float32"))
F4 = ArrayType((4,), np.dtype("float32"))
WEAK = ArrayType((3,), np.dtype("float32"), True)


def sin(x, y, **params):
    return Equation(P["sin"], (x,), (y,), params)


def unassigned():
    x, y, z = Var(F3), Var(F3), Var(F3)
    return Program((x,), (sin(z, y),), (y,))


def used_too_early():
    x, y, z = Var(F3), Var(F3), Var(F3)
    return Program((x,), (sin(z, y), sin(x, z)), (y,))


def assigned_twice():
    x, y = Var(F3), Var(F3)
    return Program((x,), (sin(x, y), sin(y, y)), (y,))


def input_twice():
    x = Var(F3)
    return Program((x, x), (), (x,))


def unknown_output():
    x = Var(F3)
    return Program((x,), (), (x, Var(F3)))


def wrong_shape():
    x, y = Var(F3), Var(F4)
    return Program((x,), (sin(x, y),), (y,))


def wrong_weakness():
    x, y = Var(F3), Var(WEAK)
    return Program((x,), (sin(x, y),), (y,))


def wrong_operands():
    x, w, y = Var(F3), Var(F4), Var(F3)
    return Program((x, w), (Equation(P["add"], (x, w), (y,), {}),), (y,))


def wrong_number_of_operands():
    x, y = Var(F3), Var(F3)
    return Program((x,), (Equation(P["sin"], (x, x), (y,), {}),), (y,))


def unknown_parameter():
    x, y = Var(F3), Var(F3)
    return Program((x,), (sin(x, y, speed=2),), (y,))


def missing_result():
    x = Var(F3)
    return Program((x,), (Equation(P["sin"], (x,), (), {}),), (x,))


def not_a_number():
    x, y = Var(F3), Var(F3)
    return Program((x,), (sin(Literal(np.float32(1), F3), y),), (y,))  # type: ignore[arg-type]


def not_an_atom():
    y = Var(F3)
    return Program((), (sin(2.0, y),), (y,))


def not_a_variable():
    return Program((), (), (), (Literal(1.0, F3),), (np.ones(3, np.float32),))


def constant_without_value():
    x = Var(F3)
    return Program((), (), (x,), (x,), ())


def nested_constants():
    x, c = Var(F3), Var(F3)
    inner = Program((), (), (c,), (c,), (np.ones(3, np.float32),))
    return Program((), (Equation(P["jit"], (), (x,), {"program": inner}),), (x,))


def nested_types():
    inner = parse("program (x: f32[3]) { y: f32[4] = sin x; return y }")
    x, y = Var(F3), Var(F4)
    return Program((x,), (Equation(P["jit"], (x,), (y,), {"program": inner}),), (y,))


def wrong_operands_of_a_nested_program():
    inner = parse("program inner (x: f32[3]) { return x }")
    x, y = Var(F4), Var(F3)
    return Program((x,), (Equation(P["jit"], (x,), (y,), {"program": inner}),), (y,))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (unassigned, "equation 0 of the program: operand 0 is b, which is not assigned yet"),
        (used_too_early, "operand 0 is b, which is not assigned yet"),
        (assigned_twice, "equation 1 of the program: b is assigned twice"),
        (input_twice, "in the program: a is assigned twice"),
        (unknown_output, "output 1 is b, which is not assigned yet"),
        (wrong_shape, "the result has type f32[3], but its variable has f32[4]"),
        (wrong_weakness, "the result has type f32[3], but its variable has ~f32[3]"),
        (wrong_operands, "add cannot be applied: add(f32[3], f32[4]): operands must have equal"),
        (wrong_number_of_operands, "sin cannot be applied: "),
        (unknown_parameter, "unexpected keyword argument 'speed'"),
        (missing_result, "sin has 1 results, not 0"),
        (not_a_number, "operand 0 is a literal of type float32, not a Python number"),
        (not_an_atom, "operand 0 is a float, not a Var or Literal"),
        (not_a_variable, "a Var is assigned, not a Literal"),
        (constant_without_value, "1 constants have 0 values"),
        (nested_constants, "a nested program has constants"),
        (nested_types, "equation 0 of the program: the result has type f32[3], but its variable"),
        (wrong_operands_of_a_nested_program, "the nested program inner takes (f32[3])"),
    ],
)
def test_the_complaint(make, words):
    with pytest.raises(errors.CheckError) as caught:
        check(make())
    assert words in str(caught.value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "tool",
    [
        ft.compare,
        ft.find_nan,
        ft.cost,
        ft.profile,
        ft.debug.step,
        ft.to_python,
        ft.passes.simplify,
        lambda p: ft.interpret(p, 1.0),
        lambda p: ft.evaluate(p, [1.0]),
    ],
)
def test_a_program_that_was_written_is_checked_before_it_is_used(tool):
    program = ft.ir.parse("program (x: ~f32[]) { y: f32[4] = sin x; return y }")
    for _ in range(2):  # not the first time only
        with pytest.raises(errors.CheckError, match=r"the result has type ~f32\[\]") as caught:
            tool(program)
        assert "test_check.py" in str(caught.value)


def test_the_complaint_shows_the_neighbours_and_the_line():
    def f(x):
        for _ in range(8):
            x = P["sin"](x)
        return P["cos"](P["exp"](x))

    program = ft.make_ir(f)(np.ones(3, np.float32))
    wrong = program.equations[4]
    program.equations[4] = Equation(
        P["add"], (*wrong.inputs, Literal(1.0, F4)), wrong.outputs, {}, wrong.source
    )
    with pytest.raises(errors.CheckError) as caught:
        check(program)
    message = str(caught.value)
    assert "in equation 4 of the program f: add cannot be applied" in message
    assert (
        """
      d: f32[3] = sin c
      e: f32[3] = sin d
    > f: f32[3] = add e 1.0:f32[4]
      g: f32[3] = sin f
      h: f32[3] = sin g
made at
    """
        in message
    )
    assert "test_check.py:" in message
    assert 'x = P["sin"](x)' in message


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        lambda f: ft.grad(f),
        lambda f: ft.hessian(f),
        lambda f: lambda x: ft.jvp(f, (x,), (x,)),
        lambda f: lambda x: ft.vmap(ft.grad(f), axis_size=2, in_axes=None)(x),
        lambda f: ft.jit(ft.vmap(ft.grad(ft.jit(f)), axis_size=2, in_axes=None)),
        lambda f: ft.grad(lambda x: P["reduce_sum"](ft.jit(ft.grad(f))(x), axes=(0,))),
    ],
)
@pytest.mark.parametrize("x", [np.ones(3, np.float32), (np.float32(1), np.ones(2, np.float32))])
def test_what_transformations_make_is_well_formed(transform, x):
    def f(x):
        total = 0.5
        for y in x if isinstance(x, tuple) else (x,):
            axes = tuple(range(len(y.shape)))
            total = P["mul"](P["reduce_sum"](P["sin"](P["mul"](y, y)), axes=axes), total)
        return total

    if isinstance(x, tuple):  # these programs take one pytree
        program = ft.make_ir(ft.grad(f))(x)
    else:
        program = ft.make_ir(transform(f))(x)
    assert check(program) is program
    assert show(program)


def test_weak_inputs_stay_well_formed():
    def f(x, y):
        return P["mul"](P["sin"](x), P["exp"](y))

    for args in ((1.0, 2.0), (np.float32(1), 2.0), (1.0, np.float32(2))):
        check(ft.make_ir(f)(*args))
        check(ft.make_ir(ft.grad(f, (0, 1)))(*args))
        check(ft.make_ir(ft.jit(ft.grad(ft.grad(f))))(*args))
