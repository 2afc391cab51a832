"""Put the equations of very deep calls in place of the calls.

XLA walks nested calls recursively and overflows its stack at a depth of a few hundred. A program
nested deeper than `DEEPEST` has each call that is the only one of its program replaced by that
program's equations. Shallow programs are left alone: one function called many times is compiled
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from functrans.ir.program import Equation, Literal, Program, Var
from functrans.passes.rewrite import children_first
from functrans.primitives.call import jit

DEEPEST = 64


def inline(program: Program, deepest: int = DEEPEST) -> Program:
    """The program with its only-called-once nested programs spliced in, if it is nested deeper than
    `deepest`; else the same object."""
    order = children_first(program, _called)
    depth: dict[Program, int] = {}
    for p in order:
        depth[p] = 1 + max([depth[q] for q in _called(p)], default=0)
    if depth[program] <= deepest:
        return program
    calls = Counter(q for p in order for q in _called(p))
    flat: dict[Program, Program] = {}
    for p in order:
        flat[p] = _splice(p, lambda q: (flat[q], calls[q] == 1))
    return flat[program]


def _called(program: Program) -> list[Program]:
    return [e.params["program"] for e in program.equations if e.primitive is jit]


def _splice(program: Program, inner: Callable[[Program], tuple[Program, bool]]) -> Program:
    """The program with its calls redirected, or replaced by the equations of what they call."""
    equations: list[Equation] = []
    known: dict[Var, Any] = {}  # results of spliced calls, by what they are now

    def now(v: Any) -> Any:
        return known.get(v, v) if v.__class__ is Var else v

    for e in program.equations:
        inputs = tuple([now(v) for v in e.inputs])
        if e.primitive is not jit:
            equations.append(Equation(e.primitive, inputs, e.outputs, e.params, e.source, e.origin))
            continue
        called, only_here = inner(e.params["program"])
        if not only_here:
            params = {**e.params, "program": called}
            equations.append(Equation(jit, inputs, e.outputs, params, e.source, e.origin))
            continue
        names: dict[Var, Any] = dict(zip(called.inputs, inputs, strict=True))
        for n in called.equations:
            values = tuple([names.get(v, v) if v.__class__ is Var else v for v in n.inputs])
            equations.append(Equation(n.primitive, values, n.outputs, n.params, n.source, n.origin))
        for v, y in zip(e.outputs, called.outputs, strict=True):
            known[v] = y if y.__class__ is Literal else names.get(y, y)  # type: ignore[arg-type]
    return program.replace(equations=equations, outputs=[now(v) for v in program.outputs])
