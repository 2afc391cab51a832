"""Algebraic simplification: replace an equation by an equal value.

`simplify` preserves NaN, infinities and negative zeros, unless fast mathematics is on: x * 0 is 0
and x - x is 0 for integers only, x + 0.0 is not x for -0.0 (but x - 0.0 and x + -0.0 are, and x +
0.0 if x is never negative, see data_movement.py). `exact` also preserves every rounding: no sum is
reordered.

A rule stands here if it makes a compiled program cheaper, or lets another pass do so. XLA has its own
simplifier: equal conversions, logic with constants and products with two numbers, for example, are
left to it. The arithmetic rules are in this file, those for shapes and sums in data_movement.py and
reduction_rules.py. A rule takes the rewriter `w` and an equation, see rewrite.py.
"""

from __future__ import annotations

import math
from typing import Any

from functrans.ir.program import Equation, Literal, Program
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.data_movement import RULES as LAYOUT
from functrans.passes.data_movement import never_negative
from functrans.passes.reduction_rules import RULES as SUMS
from functrans.passes.reduction_rules import chosen_multiple
from functrans.passes.rewrite import Rewriter, everywhere, is_power_of_two, program_pass, smallest_normal
from functrans.primitives.base import is_zero
from functrans.primitives.elementwise.arithmetic import integer_pow, max_, pow_
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.families import add, div, le, mul, neg, one_minus_square, square, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import rsqrt, sqrt
from functrans.primitives.shape.joining import pad
from functrans.trace import literal


@program_pass
def simplify(program: Program, exact: bool = False, fast_math: bool = False) -> Program:
    """Simplify a program algebraically.

    Arguments:
      program: any Program; nested ones are simplified too.
      exact: change no rounding: sums and products keep the user's order.
      fast_math: assume that there are no NaN, no infinities and no negative zeros.

    Returns:
      A Program with the same inputs and outputs; the same object if nothing changed.

    Example:
      >>> import functrans as ft
      >>> program = ft.make_ir(lambda x: x * 1.0 + 0.0)(2.0)
      >>> print(ft.passes.simplify(program))
      program (a: ~f32[]) {
        b: ~f32[] = add a 0.0:~f32[]
        return b
      }
      >>> print(ft.passes.simplify(program, fast_math=True))
      program (a: ~f32[]) {
        return a
      }
    """
    return everywhere(
        lambda p: Rewriter(p, RULES, "simplify", exact, fast_math).run(),
        program,
        ("simplify", exact, fast_math),
    )


def _is_int(t: ArrayType) -> bool:
    return dtype_class(t.dtype) in ("int", "uint")


def _is_real(t: ArrayType) -> bool:
    return dtype_class(t.dtype) in ("int", "uint", "float")


def _is_negative_zero(value: Any) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def _with_literal(e: Equation) -> tuple[Any, Any]:
    """Return the operands of a commutative operation, a literal second."""
    x, y = e.inputs
    return (y, x) if x.__class__ is Literal else (x, y)


def _negative(w: Rewriter, v: Any) -> Any:
    """Return x if v is -x, or None."""
    e = w.made(v, neg)
    return None if e is None else e.inputs[0]


# --- sums and products ----------------------------------------------------------------------------


def _add(w: Rewriter, e: Equation) -> Any:
    x, y = _with_literal(e)
    if y.__class__ is Literal:
        if y.value != 0 or not _is_real(y.type):
            return None
        whole = _is_int(y.type) or _is_negative_zero(y.value) or w.fast_math
        return x if whole or never_negative(w.made_by, x) else None
    positive = _negative(w, y)
    if positive is not None:
        return w.make(sub, x, positive)
    positive = _negative(w, x)
    return _sum_of_pads(w, x, y) if positive is None else w.make(sub, y, positive)


def _sum_of_pads(w: Rewriter, x: Any, y: Any) -> Any:
    """Rewrite (z + pad a) + pad b as z + (pad a + pad b) if a and b lie in different places: the same
    numbers, and LLVM vectorizes it. Gradients of shifted arrays are such sums."""
    last = _padded_by_zero(w, y)
    if last is None or (before := w.made(x, add)) is None or not w.read_once(x):
        return None
    for z, other in (before.inputs, before.inputs[::-1]):
        first = _padded_by_zero(w, other)
        if first is not None and _are_apart(first, last):
            return w.make(add, z, w.make(add, other, y))
    return None


def _padded_by_zero(w: Rewriter, v: Any) -> Equation | None:
    e = w.made(v, pad)
    if e is None or not is_zero(e.inputs[1]) or not _is_real(v.type):
        return None
    return None if _is_negative_zero(e.inputs[1].value) else e


def _are_apart(a: Equation, b: Equation) -> bool:
    """Return whether the operands of two pads lie in different places of the results."""
    sizes = zip(a.params["config"], b.params["config"], a.outputs[0].type.shape, strict=True)
    return any([low + above >= n or below + high >= n for (low, high, _), (below, above, _), n in sizes])


def _sub(w: Rewriter, e: Equation) -> Any:
    x, y = e.inputs
    whole = _is_int(y.type) or w.fast_math
    if y.__class__ is Literal and y.value == 0 and _is_real(y.type):
        return x if whole or not _is_negative_zero(y.value) else None
    if x.__class__ is Literal and x.value == 0 and _is_real(x.type):
        return w.make(neg, y) if whole or _is_negative_zero(x.value) else None
    if x is y and whole:
        return literal(0, e.outputs[0].type)
    positive = _negative(w, y)
    return None if positive is None else w.make(add, x, positive)


def _mul(w: Rewriter, e: Equation) -> Any:
    x, y = _with_literal(e)
    if y.__class__ is Literal:
        return _scaled(w, e, x, y) if _is_real(y.type) else None
    a = _negative(w, x)
    b = None if a is None else _negative(w, y)
    return None if b is None else w.make(mul, a, b)


def _scaled(w: Rewriter, e: Equation, x: Any, y: Any) -> Any:
    """Simplify x times a number."""
    if y.value == 1:
        return x
    if y.value == -1:
        return w.make(neg, x)
    if y.value == 0 and (_is_int(y.type) or w.fast_math):
        return literal(0, e.outputs[0].type)
    positive = _negative(w, x)
    return None if positive is None else w.make(mul, positive, literal(-y.value, y.type))


def _div(w: Rewriter, e: Equation) -> Any:
    x, y = e.inputs
    if y.__class__ is not Literal or not _is_real(y.type):
        return None
    by: Any = y.value
    if by == 1:
        return x
    if by == -1:
        return w.make(neg, x)
    if _is_int(y.type) or by == 0 or not math.isfinite(by):
        return None
    if not (is_power_of_two(by) or w.fast_math):
        return None
    inverse: Any = literal(1 / by, y.type)
    exact = min(abs(inverse.value), abs(by)) >= smallest_normal(y.type.dtype) and math.isfinite(inverse.value)
    return w.make_typed(mul, (x, inverse), {}, e.outputs[0].type) if exact else None


def _neg(w: Rewriter, e: Equation) -> Any:
    (x,) = e.inputs
    positive = _negative(w, x)
    if positive is not None:
        return positive
    product = w.made(x, mul)
    if product is not None:
        z, factor = _with_literal(product)
        if factor.__class__ is Literal and _is_real(factor.type) and w.read_once(x):
            return w.make(mul, z, literal(-factor.value, factor.type))
    if _is_int(x.type) or w.fast_math:  # -(x - x) is -0.0
        difference = w.made(x, sub)
        if difference is not None and w.read_once(x):
            return w.make(sub, difference.inputs[1], difference.inputs[0])
    return None


def _even(w: Rewriter, e: Equation) -> Any:
    """Rewrite f(-x) as f(x) for an even function."""
    positive = _negative(w, e.inputs[0])
    return None if positive is None else w.make(e.primitive, positive)


def _integer_pow(w: Rewriter, e: Equation) -> Any:
    (x,), y = e.inputs, e.params["y"]
    if y == 1:
        return x
    if y == 0:
        return literal(1, e.outputs[0].type)
    positive = _negative(w, x) if y % 2 == 0 else None
    return None if positive is None else w.make(integer_pow, positive, y=y)


def _pow(w: Rewriter, e: Equation) -> Any:
    x, y = e.inputs
    if y.__class__ is not Literal or dtype_class(x.type.dtype) != "float":
        return None
    if y.value == 1:
        return x
    if y.value == 2:
        return w.make(integer_pow, x, y=2)
    return None if w.exact else _short_power(w, x, y.value)


def _short_power(w: Rewriter, x: Any, y: Any) -> Any:
    """Rewrite x ** y as a product of x or 1 / x with itself and its square root, for small multiples
    of 1/2, as in laws of gravity and their derivatives. XLA:CPU takes up to six times as long for a
    power. Within 4 units in the last place; the same for zeros, infinities and NaN, so x must not be
    negative if there is a square root."""
    if y not in _SHORT or x.type.dtype.name not in ("float32", "float64"):
        return None
    if y % 1 and not never_negative(w.made_by, x):
        return None
    if y == -0.5:
        return w.make(rsqrt, x)
    base = x if y > 0 else w.make(div, Literal(1.0, x.type), x)
    power = w.make(sqrt, base) if y % 1 else base
    for _ in range(int(abs(y)) - (y % 1 == 0)):
        power = w.make(mul, power, base)
    return power


_SHORT = frozenset([-3, -2.5, -2, -1.5, -0.5, 0.5, 1.5, 2.5, 4])


# --- selections -----------------------------------------------------------------------------------


def _same(x: Any, y: Any) -> bool:
    if x.__class__ is Literal and y.__class__ is Literal:
        return repr(x.value) == repr(y.value)
    return x is y


def _select_n(w: Rewriter, e: Equation) -> Any:
    which, *cases = e.inputs
    if which.__class__ is Literal:
        chosen: Any = which.value
        return cases[min(max(int(chosen), 0), len(cases) - 1)]
    if all([_same(x, cases[0]) for x in cases]):
        return cases[0]
    if len(cases) == 2 and not w.exact and _is_rectified(w, which, *cases):
        return w.make(max_, *cases)
    return None if w.exact else chosen_multiple(w, e)


def _is_rectified(w: Rewriter, which: Any, x: Any, zero: Any) -> bool:
    """Return whether a selection is 0 for x <= 0, else x (NaN included): the maximum, which XLA:CPU
    computes faster. The sign of a zero may differ."""
    if zero.__class__ is not Literal or zero.value != 0 or dtype_class(zero.type.dtype) != "float":
        return False
    test = w.made(which, le)
    return test is not None and test.inputs[0] is x and _same(test.inputs[1], zero)


RULES: dict[Any, Any] = {
    add: _add,
    sub: _sub,
    mul: _mul,
    div: _div,
    neg: _neg,
    square: _even,
    one_minus_square: _even,
    abs_: _even,
    integer_pow: _integer_pow,
    pow_: _pow,
    select_n: _select_n,
    **LAYOUT,
    **SUMS,
}
