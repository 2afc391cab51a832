"""Remove equations whose results nobody uses."""

from __future__ import annotations

from functrans.ir.program import Program, Var, prune


def dead_code(program: Program) -> Program:
    """The program without equations that its outputs do not need (those with effects stay) and
    without constants that nothing reads."""
    equations = prune(program.equations, program.outputs)
    used = {v for e in equations for v in e.inputs if v.__class__ is Var}
    used.update([v for v in program.outputs if v.__class__ is Var])
    kept = [
        (v, x) for v, x in zip(program.constants, program.values, strict=True) if v in used
    ]
    return program.replace(
        equations=equations,
        constants=[v for v, _ in kept],
        values=[x for _, x in kept],
    )
