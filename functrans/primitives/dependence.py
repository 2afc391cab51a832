"""Dependence analysis: which parts of a program depend on some inputs or are needed for some
outputs.

In: programs and equations. Out: sets of variables, smaller programs. Higher-order primitives
implement `reached` and `part` with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

from functrans.caching import memo
from functrans.ir.program import Equation, Program, Var, prune


def depending(equations: Sequence[Equation], moving: Iterable[Var]) -> set[Var]:
    """Return the variables that depend on the `moving` ones, including these."""
    found = set(moving)
    for e in equations:
        touched = [v in found for v in e.inputs]
        if any(touched):
            reached = e.primitive.reached(e.params, touched)
            found.update(e.outputs if all(reached) else compress(e.outputs, reached))
    return found


def apart(
    equations: Sequence[Equation], moving: Iterable[Var]
) -> tuple[list[Equation], list[Equation], set[Var]]:
    """Return the equations that do not depend on the moving variables, those that do, and the
    variables that do. An equation with results of both kinds is split into two."""
    found = depending(equations, moving)
    still, moved = [], []
    for e in equations:
        if found.isdisjoint(e.inputs):
            still.append(e)
        elif found.issuperset(e.outputs):
            moved.append(e)
        else:
            own = [v in found for v in e.outputs]
            still.append(e.primitive.part(e, [not m for m in own]))
            moved.append(e.primitive.part(e, own))
    return still, moved, found


def reached_outputs(program: Program, moving: Sequence[bool]) -> list[bool]:
    """Return which outputs depend on the moving inputs."""
    return memo(program, _reached, tuple(moving))


def _reached(program: Program, moving: tuple[bool, ...]) -> list[bool]:
    found = depending(program.equations, compress(program.inputs, moving))
    return [y in found for y in program.outputs]


def reading(program: Program, wanted: Sequence[bool]) -> list[bool]:
    """Return which inputs the wanted outputs depend on."""
    outputs = [y for y, w in zip(program.outputs, wanted, strict=True) if w]
    read: set[Any] = {v for e in prune(program.equations, outputs) for v in e.inputs}
    read.update(outputs)
    return [v in read for v in program.inputs]


def restricted(program: Program, inputs: Sequence[bool], outputs: Sequence[bool]) -> Program:
    """Return the program with only some inputs and outputs."""
    return memo(program, _restricted, tuple(inputs), tuple(outputs))


def _restricted(program: Program, inputs: tuple[bool, ...], outputs: tuple[bool, ...]) -> Program:
    kept = list(compress(program.outputs, outputs))
    return program.replace(
        inputs=compress(program.inputs, inputs), equations=prune(program.equations, kept), outputs=kept
    )


def silent(program: Program) -> Program:
    """Return the program for running it again, without equations that only have effects: those that
    its results need, also in nested programs. A callback whose value is needed stays."""
    return memo(program, _silent)


def _silent(program: Program) -> Program:
    shows = any(e.primitive.has_effects(e.params) for e in program.equations)
    return _without_effects(program) if shows else program


def _without_effects(program: Program) -> Program:
    needed = {v for v in program.outputs if v.__class__ is Var}
    kept = []
    for e in reversed(program.equations):
        if needed.isdisjoint(e.outputs):
            continue
        needed.update([v for v in e.inputs if v.__class__ is Var])
        if e.primitive.holds_programs and e.primitive.has_effects(e.params):
            params = {name: _silenced(value) for name, value in e.params.items()}
            e = Equation(e.primitive, e.inputs, e.outputs, params, e.source, e.origin)
        kept.append(e)
    kept.reverse()
    return program.replace(equations=kept)


def _silenced(value: Any) -> Any:
    if value.__class__ is tuple:
        return tuple([_silenced(v) for v in value])
    return silent(value) if value.__class__ is Program else value


def smaller(equation: Equation, inputs: Sequence[bool], outputs: Iterable[Var], **changed: Any) -> Equation:
    """Return the equation with a subset of its operands, new results and changed parameters."""
    return Equation(
        equation.primitive,
        tuple(compress(equation.inputs, inputs)),
        tuple(outputs),
        {**equation.params, **changed},
        equation.source,
        equation.origin,
    )
