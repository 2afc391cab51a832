"""Functions of their own: XLA fuses no operation into one that is in another function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from functrans.ir.program import Equation, Program, program_of, prune
from functrans.primitives.calls.jit import outlined
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.elementwise.selection import clamp, select_n
from functrans.primitives.shape.moving import Structural


def is_by_element(e: Equation) -> bool:
    """Return whether each element is computed from one of each operand."""
    return isinstance(e.primitive, (Elementwise, Structural)) or e.primitive in (select_n, clamp)


def fused_into(last: Equation, makers: dict[Any, Equation], times: Counter[Any]) -> list[Equation]:
    """Return the equations that compute what only the last one reads, and that one, in order."""
    found, waiting = [last], [last]
    while waiting:
        e = waiting.pop()
        for v in dict.fromkeys(e.inputs):
            if v in makers and times[v] == e.inputs.count(v):
                found.append(makers[v])
                waiting.append(makers[v])
    return found[::-1]


def alone(equations: list[Equation]) -> Equation:
    """Return a call of a function that computes the results of the last equation."""
    last = equations[-1]
    inside = program_of(equations, last.outputs, last.primitive.name)
    return Equation(outlined, inside.inputs, last.outputs, {"program": inside}, last.source, last.origin)


def with_alone(program: Program, chosen: Callable[[Equation], list[Equation]]) -> Program:
    """Return the program with the equations that are chosen for another, which is the last of them, in a
    function of their own."""
    equations = [alone(found) if (found := chosen(e)) else e for e in program.equations]
    if equations == program.equations:
        return program
    return program.replace(equations=prune(equations, program.outputs))
