"""The order of the passes: run once, on the outermost program, before it is lowered."""

from __future__ import annotations

from functrans.ir.program import Program
from functrans.passes.dead_code import dead_code
from functrans.passes.inline import inline

PASSES = (dead_code, inline)


def optimize(program: Program) -> Program:
    """Apply every pass."""
    for one in PASSES:
        program = one(program)
    return program
