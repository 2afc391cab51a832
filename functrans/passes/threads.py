"""Which threads XLA:CPU runs a program with: the one that calls, or several for each operation of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import jax

from functrans.caching import memoized
from functrans.ir.program import Equation, Program
from functrans.passes import machines
from functrans.passes.kernel_expansions import FORMS
from functrans.passes.rewrite import all_equations
from functrans.primitives.base import bytes_of, own_cost
from functrans.primitives.calls.jit import jit, outlined
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.cond import cond
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.shape.moving import Structural

LOOPS = (scan, while_loop)

# --- short programs: those that the calling thread runs in less time than another thread's start --
#
# XLA:CPU has another thread run each program in which it counts 1,000 elementwise operations, those of a
# loop once. Its start takes 20 to 60 us in a virtual machine. The calling thread runs these programs
# instead (`Lowering.run_in_the_calling_thread`), unless their arguments are still being computed.

_CALLS = (jit, outlined, cond)
# XLA has another thread run 1,000 operations, and counts what it fuses into several readers for each.
_FEW = 500
_OF_A_FUNCTION = 10  # flops of `exp` and others that XLA does not count; `erf_inv` and `lgamma` it writes out
_STEPS = 64  # assumed steps of a loop of unknown length

# Nanoseconds: what takes longer is worth another thread. A program without loops may be the step of a
# training loop, where Python prepares the next step meanwhile; what a simulator computes is read, and so are
# few numbers.
_SHORT, _SHORT_LOOP = 40_000, 200_000
_FEW_NUMBERS = 1024  # bytes of the largest array of a program of few numbers

# How many operations a core does in a nanosecond, about, and how many bytes it moves; the nanoseconds that
# each equation takes besides.
_ELEMENTWISE, _PRODUCTS, _LIBRARY, _BYTES = 16.0, 40.0, 1 / 8, 20
_EACH, _EACH_IN_LOOP, _EACH_IN_LIBRARY = 50.0, 0.5, 1000.0
_MOVED = 4096  # bytes: smaller arrays are not moved in a loop, but read where they are


@memoized
def is_short(program: Program) -> bool:
    """Return whether the calling thread is to run a program that XLA would have another run."""
    straight, in_loops = _times(program, False)
    straight += bytes_of(*program.in_types, *program.out_types) / _BYTES
    if straight + in_loops > _SHORT_LOOP:
        return False
    equations = all_equations(program)
    sizes = [bytes_of(v.type) for e in equations for v in (*e.inputs, *e.outputs)]
    if straight > _SHORT and max(sizes, default=0) > _FEW_NUMBERS:
        return False
    return counted(program) >= _FEW or any(map(_is_in_library, equations))  # which a kernel may expand


@memoized
def _times(program: Program, in_loop: bool) -> tuple[float, float]:
    """Return the estimated nanoseconds of a program outside and inside of its loops."""
    straight = in_loops = 0.0
    for e in program.equations:
        if e.primitive in LOOPS:
            once = sum([sum(_times(p, True)) for p in e.programs])
            in_loops += once * e.params.get("length", _STEPS)
        elif e.primitive in _CALLS:
            for p in e.programs:
                one, other = _times(p, in_loop)
                straight, in_loops = straight + one, in_loops + other
        else:
            straight += _time(e, in_loop)
        if straight + in_loops > _SHORT_LOOP:
            return inf, inf
    return straight, in_loops


def _time(e: Equation, in_loop: bool) -> float:
    """Return the estimated nanoseconds of an equation without loops and calls."""
    primitive = e.primitive
    if e.programs or not primitive.counted:
        return inf
    cost, rate = own_cost(e), _ELEMENTWISE
    if primitive is dot_general:
        rate = _PRODUCTS
    elif not (primitive.in_kernel or (in_loop and primitive in FORMS and FORMS[primitive].takes(e))):
        return _EACH_IN_LIBRARY + cost.flops / _LIBRARY
    if cost.flops:
        moved = 0
    elif in_loop:
        moved = bytes_of(*[v.type for v in e.outputs])
        moved = moved if moved > _MOVED else 0
    else:
        moved = cost.bytes
    return (_EACH_IN_LOOP if in_loop else _EACH) + cost.flops / rate + moved / _BYTES


@memoized
def counted(program: Program) -> int:
    """Return the operations that XLA counts in a program: those of a loop once, none of functions such as
    `exp` or in a library."""
    return sum([_counted_once(e) for e in program.equations if not isinstance(e.primitive, Structural)])


def _counted_once(e: Equation) -> int:
    if e.programs:
        return sum(map(counted, e.programs))
    is_free = _is_in_library(e) or e.primitive.flops == _OF_A_FUNCTION
    return 0 if is_free else own_cost(e).flops


def _is_in_library(e: Equation) -> bool:
    return e.primitive in FORMS and not e.primitive.in_kernel and e.primitive is not dot_general


# --- loops with large steps, whose operations XLA:CPU should share among the cores -----------------
#
# Since JAX 0.12 XLA makes one kernel, which has one thread, of nearly every loop without products of
# matrices. For small steps that is what kernels.py does; a step that is large takes as many times longer
# as there are cores. Such a loop is lowered with a test in it that no kernel can contain
# (`kernel_calls.with_threads`), so that each operation is dispatched again, and shared.

_XLA_MAKES_KERNELS = jax.__version_info__ >= (0, 12)
# Numbers that one operation works on: two threads gain from twice as many on (0.5 to 0.7 of the time for
# 2^20), and lose if it is half of that.
_LARGE = 2**18


def are_shared(step: Sequence[Program]) -> bool:
    """Return whether an operation in a step of a loop is worth several threads."""
    if not _XLA_MAKES_KERNELS or machines.CORES < 2 or any([p.marks.settled for p in step]):
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
