"""Find loops with large steps, whose operations XLA:CPU should share among the cores.

Since JAX 0.12 XLA makes one kernel, which has one thread, of nearly every loop without products of
matrices. For small steps that is what kernels.py does; a step that is large takes as many times longer as
there are cores. Such a loop is lowered with a test in it that no kernel can contain
(`kernel_calls.with_threads`), so that each operation is dispatched again, and shared.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from functrans.caching import memo
from functrans.ir.program import Equation, Program
from functrans.passes import machines
from functrans.passes.kernels import LOOPS, is_kept
from functrans.primitives.base import own_cost
from functrans.primitives.elementwise.families import Elementwise

_XLA_MAKES_KERNELS = jax.__version_info__ >= (0, 12)
_LARGE = 500_000  # operations of an elementwise computation in a step


def are_shared(step: Sequence[Program]) -> bool:
    """Return whether the operations in a step of a loop are worth several threads."""
    if not _XLA_MAKES_KERNELS or machines.CORES < 2 or any(map(is_kept, step)):
        return False
    return sum([memo(p, _work) for p in step]) >= _LARGE


def _work(program: Program) -> int:
    """Return the elementwise operations of a program, without those of loops in it."""
    return sum(map(_work_of, program.equations))


def _work_of(e: Equation) -> int:
    if e.primitive in LOOPS:
        return 0
    if e.programs:
        return sum([memo(p, _work) for p in e.programs])
    return int(own_cost(e).flops) if isinstance(e.primitive, Elementwise) else 0
