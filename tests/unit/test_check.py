"""One malformed program per complaint of `check`."""

import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans.ir import Equation, Literal, Program, Var, check, parse
from functrans.ir.program import PRIMITIVES as P
from functrans.ir.types import ArrayType

pytestmark = pytest.mark.smoke

F3 = ArrayType((3,), np.dtype("float32"))
F4 = ArrayType((4,), np.dtype("float32"))
WEAK = ArrayType((3,), np.dtype("float32"), True)


def sin(x, y, **params):
    return Equation(P["sin"], (x,), (y,), params)


X, Y, Z, W = Var(F3), Var(F3), Var(F3), Var(F4)
WEAK_Y, CONSTANT = Var(WEAK), np.ones(3, np.float32)
FOUR = parse("program (x: f32[3]) { y: f32[4] = sin x; return y }")
INNER = parse("program inner (x: f32[3]) { return x }")
WITH_CONSTANT = Program((), (), (Z,), (Z,), (CONSTANT,))


def equation(name, inputs, outputs, **params):
    return Equation(P[name], inputs, outputs, params)


WRONG = [  # inputs, equations, outputs, constants and their values; what is wrong
    ((X,), [sin(Z, Y)], (Y,), "equation 0 of the program: operand 0 is b, which is not assigned yet"),
    ((X,), [sin(Z, Y), sin(X, Z)], (Y,), "operand 0 is b, which is not assigned yet"),
    ((X,), [sin(X, Y), sin(Y, Y)], (Y,), "equation 1 of the program: b is assigned twice"),
    ((X, X), [], (X,), "in the program: a is assigned twice"),
    ((X,), [], (X, Y), "output 1 is b, which is not assigned yet"),
    ((X,), [sin(X, W)], (W,), "the result has type f32[3], but its variable has f32[4]"),
    ((X,), [sin(X, WEAK_Y)], (WEAK_Y,), "the result has type f32[3], but its variable has ~f32[3]"),
    ((X, W), [equation("add", (X, W), (Y,))], (Y,), "cannot be applied: add(f32[3], f32[4]): operands must"),
    ((X,), [equation("sin", (X, X), (Y,))], (Y,), "sin cannot be applied: "),
    ((X,), [sin(X, Y, speed=2)], (Y,), "unexpected keyword argument 'speed'"),
    ((X,), [equation("sin", (X,), ())], (X,), "sin has 1 results, not 0"),
    ((X,), [sin(Literal(np.float32(1), F3), Y)], (Y,), "operand 0 is a literal of type float32, not"),
    ((), [sin(2.0, Y)], (Y,), "operand 0 is a float, not a Var or Literal"),
    ((), [], (), (Literal(1.0, F3),), (CONSTANT,), "a Var is assigned, not a Literal"),
    ((), [], (X,), (X,), (), "1 constants have 0 values"),
    ((), [equation("jit", (), (X,), program=WITH_CONSTANT)], (X,), "a nested program has constants"),
    ((X,), [equation("jit", (X,), (W,), program=FOUR)], (W,), "0 of the program: the result has type f32[3]"),
    ((W,), [equation("jit", (W,), (Y,), program=INNER)], (Y,), "the nested program inner takes (f32[3])"),
]


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row[-1])
def test_the_complaint(row):
    *parts, words = row
    with pytest.raises(errors.CheckError) as caught:
        check(Program(*parts))
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


@pytest.mark.parametrize(
    "tool", [ft.cost, ft.to_python, ft.compare, ft.find_nan, lambda p: ft.interpret(p, CONSTANT)]
)
def test_a_program_that_was_made_by_hand_in_the_wrong_order_is_refused(tool):
    """Not by a KeyError of the tool."""
    inner = Program((X,), [sin(Z, Y), sin(X, Z)], (Y,))
    for program in (inner, Program((W,), [equation("jit", (W,), (Y,), program=inner)], (Y,))):
        with pytest.raises(errors.CheckError, match=r"operand 0 is ., which is not assigned yet") as caught:
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
