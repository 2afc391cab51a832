"""Find loops with large steps, whose operations XLA:CPU should share among the cores.

Since JAX 0.12 XLA makes one kernel, which has one thread, of nearly every loop without products of
matrices. For small steps that is what kernels.py does; a step that is large takes as many times longer as
there are cores. Such a loop is lowered with a test in it that no kernel can contain
(`kernel_calls.with_threads`), so that each operation is dispatched again, and shared.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from functrans.caching import memoized
from functrans.ir.program import Equation, Program
from functrans.passes import machines
from functrans.passes.kernels import LOOPS, is_kept
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.families import Elementwise

_XLA_MAKES_KERNELS = jax.__version_info__ >= (0, 12)
# Numbers that one operation works on: two threads gain from twice as many on (0.5 to 0.7 of the time for
# 2^20), and lose if it is half of that.
_LARGE = 2**18


def are_shared(step: Sequence[Program]) -> bool:
    """Return whether an operation in a step of a loop is worth several threads."""
    if not _XLA_MAKES_KERNELS or machines.CORES < 2 or any(map(is_kept, step)):
        return False
    return max([_largest(p) for p in step]) >= max(_LARGE, 4 * _LARGE // machines.CORES)


@memoized
def _largest(program: Program) -> int:
    """Return on how many numbers the largest operation of a program works, apart from loops in it."""
    return max(map(_numbers, program.equations), default=0)


def _numbers(e: Equation) -> int:
    if e.primitive in LOOPS:
        return 0
    if e.programs:
        return max([_largest(p) for p in e.programs])
    if e.primitive is dot_general:  # one with a vector: XLA makes no kernel of others
        return max([v.type.size for v in e.inputs])
    return e.outputs[0].type.size if isinstance(e.primitive, Elementwise) else 0
