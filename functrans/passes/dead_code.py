"""Remove equations whose results nobody uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.ir.program import Equation, Program, Var, prune


def dead_code(program: Program) -> Program:
    """The program without equations that its outputs do not need (those with effects stay) and
    without constants that nothing reads."""
    equations = prune(program.equations, program.outputs)
    used = _read(equations, program.outputs)
    kept = [(v, x) for v, x in zip(program.constants, program.values, strict=True) if v in used]
    return program.replace(
        equations=equations,
        constants=[v for v, _ in kept],
        values=[x for _, x in kept],
    )


def without_unused_inputs(program: Program) -> tuple[Program, list[int]]:
    """The program without inputs that nothing reads, and the positions of those that stay."""
    used = _read(program.equations, program.outputs)
    kept = [i for i, v in enumerate(program.inputs) if v in used]
    if len(kept) == len(program.inputs):
        return program, kept
    return program.replace(inputs=[program.inputs[i] for i in kept]), kept


def _read(equations: Sequence[Equation], outputs: Sequence[Any]) -> set[Var]:
    used = {v for e in equations for v in e.inputs if v.__class__ is Var}
    used.update([v for v in outputs if v.__class__ is Var])
    return used
