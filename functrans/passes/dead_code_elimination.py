"""Dead-code elimination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.ir.program import Equation, Program, Var, prune
from functrans.passes.rewrite import everywhere, program_pass


@program_pass
def dead_code(program: Program) -> Program:
    """Remove equations that the outputs do not need, except those with effects, and unused
    constants."""
    return everywhere(_alive, program, "dead_code")


def _alive(program: Program) -> Program:
    if program.marks.pruned and not program.constants:
        return program
    equations = prune(program.equations, program.outputs)
    constants, values = program.constants, program.values
    if constants:
        used = _read(equations, program.outputs)
        kept = [(v, x) for v, x in zip(constants, values, strict=True) if v in used]
        constants, values = tuple([v for v, _ in kept]), tuple([x for _, x in kept])
    if len(equations) == len(program.equations) and len(constants) == len(program.constants):
        return program
    return program.replace(equations=equations, constants=constants, values=values)


def without_unused_inputs(program: Program) -> tuple[Program, list[int]]:
    """Return the program without unused inputs, and the positions of the remaining inputs."""
    used = _read(program.equations, program.outputs)
    kept = [i for i, v in enumerate(program.inputs) if v in used]
    if len(kept) == len(program.inputs):
        return program, kept
    return program.replace(inputs=[program.inputs[i] for i in kept]), kept


def _read(equations: Sequence[Equation], outputs: Sequence[Any]) -> set[Var]:
    used = {v for e in equations for v in e.inputs if v.__class__ is Var}
    used.update([v for v in outputs if v.__class__ is Var])
    return used
