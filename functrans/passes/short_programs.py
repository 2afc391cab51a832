"""Which programs are short: those that the calling thread runs in less time than another thread's start.

XLA:CPU has another thread run each program in which it counts 1,000 elementwise operations, those of a loop
once. Its start takes 20 to 60 us in a virtual machine. The calling thread runs these programs instead
(`Lowering.run_in_the_calling_thread`), unless their arguments are still being computed.
"""

from __future__ import annotations

from functrans.caching import memo
from functrans.ir.program import Equation, Program
from functrans.passes.kernel_expansions import FORMS
from functrans.primitives.base import own_cost
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.shape.moving import Structural

LOOPS = (scan, while_loop)
_FEW = 1000  # operations from which XLA has another thread run a program
_STEPS = 64  # assumed steps of a loop of unknown length
_ANEW = 10  # times a factorization counts that is written out in a kernel: XLA computes parts of it anew

# Nanoseconds: what takes longer is worth another thread. A program without loops may be the step of a
# training loop, where Python prepares the next step meanwhile; what a simulator computes is read.
_SHORT, _SHORT_LOOP = 30_000, 200_000

# How many operations a core does in a nanosecond, about, and how many bytes it moves; the nanoseconds that
# each equation takes besides.
_ELEMENTWISE, _PRODUCTS, _LIBRARY, _BYTES = 16.0, 40.0, 1 / 8, 20
_EACH, _EACH_IN_LOOP = 50.0, 0.5


def is_short(program: Program) -> bool:
    """Return whether the calling thread is to run a program that XLA would have another run."""
    return memo(program, _is_short)


def _is_short(program: Program) -> bool:
    total = straight = 0.0
    for e in program.equations:
        time = _time(e)
        total += time
        straight += 0 if _has_loops(e) else time
        if straight > _SHORT or total > _SHORT_LOOP:
            return False
    return counted(program) >= _FEW


def _has_loops(e: Equation) -> bool:
    return e.primitive in LOOPS or any([_has_loops(inner) for p in e.programs for inner in p.equations])


def _time(e: Equation, in_loop: bool = False) -> float:
    """Return the estimated nanoseconds of an equation."""
    if e.programs:
        loops = e.primitive in LOOPS
        once = sum([_time(inner, in_loop or loops) for p in e.programs for inner in p.equations])
        return once * (e.params.get("length", _STEPS) if loops else 1)
    rate, cost = _ELEMENTWISE, own_cost(e)
    if e.primitive is dot_general:
        rate = _PRODUCTS
    elif not in_loop and _is_in_library(e):
        rate = _LIBRARY
    if in_loop:
        return _EACH_IN_LOOP + cost.flops / rate
    return _EACH + (cost.flops / rate or cost.bytes / _BYTES)


def counted(program: Program) -> int:
    """Return about how many operations XLA counts in a program: those of a loop once."""
    return memo(program, _counted)


def _counted(program: Program) -> int:
    return sum([_counted_once(e) for e in program.equations if not isinstance(e.primitive, Structural)])


def _counted_once(e: Equation) -> int:
    if e.programs:
        return sum(map(counted, e.programs))
    return own_cost(e).flops * (_ANEW if _is_in_library(e) else 1)


def _is_in_library(e: Equation) -> bool:
    return e.primitive in FORMS and not e.primitive.in_kernel and e.primitive is not dot_general
