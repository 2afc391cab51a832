"""Keep short programs below the operations from which XLA:CPU has another thread run them.

XLA counts the elementwise operations of a program, those of a loop once, and none of functions such as `exp`
or in a library. From 1,000 on another thread runs it, whose start takes longer than many such programs.
What this file chooses is computed in loops instead, as far as that keeps a program below: products of few
rows, sums of arrays, random numbers.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any, NamedTuple

from functrans.caching import memo
from functrans.ir.program import Equation, Program
from functrans.ir.text import with_nested
from functrans.passes.kernel_expansions import FORMS, TERMS, are_few_words, is_by_lines, summed_axes, words
from functrans.passes.row_sums import RowSum, row_sums
from functrans.primitives.base import own_cost
from functrans.primitives.calls.jit import jit, outlined
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.random.bits import Random
from functrans.primitives.shape.moving import Structural

LOOPS = (scan, while_loop)
SHORT = 1000  # operations from which another thread runs a program
_LONG = 2**19  # more take longer than another thread's start, whoever runs them
_TERMS = 32  # sums of fewer products are not made loops of their own
_MOST = 2048  # steps for each element of a product
_WORDS = 256  # hashing more one by one takes longer than another thread's start
_STEPS = 512  # of a loop; in more, hashing word by word takes longer than another thread's start
_COLUMNS = 128 * 128  # larger operands are not read column by column


class InSteps(NamedTuple):
    """What is computed in loops.

    products: equations that are summed step by step, those of gradients over all steps of a loop
    sums    : sums of whole arrays that are taken by rows
    hashes  : whether random numbers of few words are hashed word by word
    in_loops: whether products in loops are sums, and few random numbers there are hashed so
    """

    products: frozenset[Equation] = frozenset()
    sums: tuple[RowSum, ...] = ()
    hashes: bool = False
    in_loops: bool = False


def in_steps_of(program: Program, read: Counter[Any]) -> InSteps:
    """Return what to compute in loops; nothing if XLA would still count too many operations. `read`: how
    often each value is read in the program."""
    products = [e for e in program.equations if e.primitive is dot_general and _is_long(e)]
    sums, hashes, in_loops = row_sums(program, read), memo(program, _hashed), memo(program, _less_in_loops)
    less = in_loops + hashes + sum([cost(e) - 2 * e.outputs[0].type.size for e in products])
    less += sum([int((1 - s.share) * sum(map(counted_of, [*s.operations, s.equation]))) for s in sums])
    if counted(program) - less >= SHORT:
        return InSteps()
    return InSteps(frozenset(products), tuple(sums), hashes > 0, in_loops > 0)


# --- operations as XLA counts them ----------------------------------------------------------------


def is_short(program: Program) -> bool:
    """Return whether another thread would run the program, which takes longer than the program."""
    return SHORT <= counted(program) < _LONG


def counted(program: Program) -> int:
    """Return the operations that XLA counts, up to `_LONG`."""
    return memo(program, _all_counted)


def _all_counted(program: Program) -> int:
    total = 0
    for e in program.equations:
        total += counted_of(e)
        if total >= _LONG:
            break
    return total


def counted_of(e: Equation) -> int:
    """Return the operations that XLA counts in an equation."""
    primitive = e.primitive
    if e.programs:
        return sum(map(counted, e.programs))
    if isinstance(primitive, Random):
        return cost(e)
    free = is_in_library(e) or isinstance(primitive, Structural) or (getattr(primitive, "flops", 1) > 1)
    return 0 if free else cost(e)


def is_in_library(e: Equation) -> bool:
    """Return whether an operation is a call of a library if it is not expanded."""
    return e.primitive in FORMS and not e.primitive.in_kernel and e.primitive is not dot_general


def cost(e: Equation) -> int:
    """Return the operations of an equation without nested programs."""
    return own_cost(e).flops


# --- products -------------------------------------------------------------------------------------


def _is_long(e: Equation) -> bool:
    """Return whether a product is a sum over many steps that could be taken step by step: not of
    numbers in very many steps, and without reading a large operand column by column."""
    summed = summed_axes(e)
    terms = prod([n for _, n in summed])
    if not FORMS[dot_general].takes(e) or terms < _TERMS or terms > _MOST * e.outputs[0].type.size:
        return False
    axis, _ = max(summed, key=lambda found: found[1])
    names = (e.params["lhs"], e.params["rhs"])
    by_column = [v.type.size for v, of in zip(e.inputs, names, strict=True) if of[1:] and of[-1] == axis]
    return max(by_column, default=0) <= _COLUMNS


# --- random numbers -------------------------------------------------------------------------------


def hashed_of(e: Equation) -> int:
    """Return the operations of hashes that XLA does not count if they are computed word by word, in an
    equation and the programs that it calls."""
    if e.primitive in (jit, outlined):
        return memo(e.params["program"], _hashed)
    return _by_words(e) if 1 < words(e) <= _WORDS else 0


def _by_words(e: Equation) -> int:
    return cost(e) * (words(e) - 1) // words(e)


def _hashed(program: Program) -> int:
    return 0 if program.marks.settled else sum(map(hashed_of, program.equations))


# --- loops ----------------------------------------------------------------------------------------


def _less_in_loops(program: Program) -> int:
    """Return how many operations XLA does not count if, in loops, products are sums that XLA's own code would
    compute, and few random numbers are hashed word by word."""
    loops = [p for e in program.equations if e.primitive in LOOPS for p in e.programs]
    found = [e for loop in loops for p in with_nested(loop) for e in p.equations]
    less = sum([cost(e) - TERMS * e.outputs[0].type.size for e in found if is_by_lines(e)])
    return less + (sum([_by_words(e) for e in found if are_few_words(e)]) if has_few_steps(program) else 0)


def has_few_steps(program: Program) -> bool:
    """Return whether another thread's start takes longer than its loops would gain by hashing as vectors."""
    steps = [e.params.get("length", 0) for e in program.equations if e.primitive in LOOPS]
    return max(steps, default=0) <= _STEPS
