"""Several steps of a loop in each turn of the compiled loop, on a GPU.

    scan[program, length] *operands   ->   length/4 turns of four steps each

A GPU starts every operation of a step anew, which takes longer than a small operation. Of four steps
XLA makes hardly more operations than of one: it fuses them, and they read and write four rows at once.
The operations and their order stay the same. Compiling takes 1.2 times as long with two steps and
twice as long with four, so only short bodies have four.

Runs when a program is lowered for a GPU, after all other passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from functrans.caching import memo
from functrans.ir.program import Equation, Program
from functrans.ir.text import with_nested
from functrans.passes.kernels import is_kept
from functrans.primitives.calls.jit import jit
from functrans.primitives.contractions.convolution import conv_general_dilated
from functrans.primitives.control_flow.scan import scan

# The steps of a turn, and for how many equations in a step at most.
STEPS = ((4, 64), (2, 512))
TURNS = 8  # fewer are not worth it
# Elements that an operation may read or write. Above, it takes longer than its start, and the rows of
# several steps take memory.
ELEMENTS = 2**20


def steps_of_a_turn(program: Program, length: int) -> int:
    """Return how many steps of a loop with this body one turn runs."""
    n = memo(program, _equations)
    return next((k for k, most in STEPS if 0 < n <= most and length >= TURNS * k), 1)


def unrolled(program: Program) -> Iterator[tuple[Equation, int]]:
    """Yield each loop of a program of which one turn runs several steps, and how many."""
    for p in with_nested(program):
        for e in p.equations:
            if e.primitive is scan and e.params.get("unroll", 1) == 1:
                n = steps_of_a_turn(e.params["program"], e.params["length"])
                if n > 1:
                    yield e, n


def _equations(program: Program) -> int:
    """Return the number of equations of a body; 0 if each turn is to run one step of it."""
    equations = [e for p in with_nested(program) for e in p.equations]
    return 0 if is_kept(program) or not all(map(_is_small, equations)) else len(equations)


def _is_small(e: Equation) -> bool:
    if e.primitive is conv_general_dilated:  # XLA times many algorithms for each of them
        return False
    if e.primitive.has_effects(e.params) or (e.primitive.holds_programs and e.primitive is not jit):
        return False
    return all([v.type.size <= ELEMENTS for v in (*e.inputs, *e.outputs)])
