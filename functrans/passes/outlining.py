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


def with_alone(program: Program, chosen: Callable[[Equation], list[Equation]]) -> Program:
    """Return the program with the equations that are chosen for another, which is the last of them, in a
    function of their own."""

    def alone(e: Equation) -> Equation:
        equations = chosen(e)
        if not equations:
            return e
        inside = program_of(equations, e.outputs, e.primitive.name)
        return Equation(outlined, inside.inputs, e.outputs, {"program": inside}, e.source, e.origin)

    equations = [*map(alone, program.equations)]
    if equations == program.equations:
        return program
    return program.replace(equations=prune(equations, program.outputs))
