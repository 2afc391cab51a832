"""Loops over many lanes, block by block, on XLA:CPU.

    scan x: f32[8192]   ->   for each block of 256 lanes: scan x: f32[256]

A loop under `vmap` steps many systems that do not depend on each other, its lanes. XLA:CPU runs each
operation of a step for all lanes before the next one, and what it writes leaves the first cache. Here
a block of lanes runs through all steps before the next block starts, and the whole is one kernel.

Loops over the same lanes, with what is between them, run together: a gradient's loop back follows the loop
forth of the same block, so that what the one keeps for the other is that of a block, not of all lanes. Sums
over the lanes are added block by block, so their last bits differ.

Stacks of all steps are read and written in place. The last block overlaps the one before if the number of
lanes is not a multiple of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from functrans.ir.program import Equation, Program, Var, program_of, prune
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.passes.lane_loops import lanes_of
from functrans.passes.lane_rules import Block, NotByLane, Uneven
from functrans.passes.rewrite import uses
from functrans.primitives.calls.jit import jit, one_kernel
from functrans.primitives.control_flow.cond import INDEX
from functrans.primitives.control_flow.scan import scanned
from functrans.primitives.elementwise.arithmetic import min_
from functrans.primitives.elementwise.families import mul
from functrans.primitives.random.bits import impl_of, random_wrap, word_type
from functrans.primitives.shape.joining import iota
from functrans.trace import literal, stage

FEWEST = 32  # lanes: with fewer, a step's numbers fit a few registers
SIZES = (256, 128, 64, 32)  # of blocks: what a step computes fits the first cache
_ANEW = 1.5  # times the work of all lanes: each block computes anew what is the same for all

Problem = Callable[[Equation], Any]
Outside = Sequence[Equation]  # those of the program around the loops


class Lanes(NamedTuple):
    """Loops over the same lanes.

    loops : the loops
    inside: these and the operations between them
    part  : the program of these, whose results are those that others read
    blocks: the same block by block
    """

    loops: Sequence[Equation]
    inside: Sequence[Equation]
    part: Program
    blocks: Program

    def replaced(self, equations: Sequence[Equation], by: Equation) -> list[Equation]:
        """Return the equations with the loops, and what is between them, replaced by one."""
        behind, inside = _behind(equations, self.inside), set(self.inside)
        others = [e for e in equations if e not in inside]
        return [*[e for e in others if e not in behind], by, *[e for e in others if e in behind]]


def lanes(program: Program, why_not: Problem) -> list[Lanes]:
    """Return the loops of a program that run block by block.

    Arguments:
      program: a program; those nested in it are not considered.
      why_not: returns what prevents an operation from being part of a kernel, or None.
    """
    if any([e.primitive.has_effects(e.params) for e in program.equations]):
        return []  # effects keep their order
    together: dict[int, list[Equation]] = {}
    for e in program.equations:
        if (n := lanes_of(e)) >= FEWEST:
            together.setdefault(n, []).append(e)
    found: list[Lanes] = []
    for n, loops in together.items():
        # Those found before count as one operation each: none is part of others, nor are there circles.
        here = set(program.equations)
        for more in _groups(program, n, [e for e in loops if e in here], why_not):
            found.append(more)
            outputs = [v for v in more.part.outputs if v.__class__ is Var]
            call = Equation(one_kernel, more.part.inputs, tuple(outputs), {"program": more.part})
            program = program.replace(equations=more.replaced(program.equations, call))
    return found


def _groups(program: Program, n: int, loops: list[Equation], why_not: Problem) -> Iterator[Lanes]:
    """Yield all loops over n lanes together, or else those that run block by block alone."""
    if len(loops) > 1 and (found := _together(program, n, loops, why_not)) is not None:
        yield found
        return
    for e in loops:  # one of few lanes may stay as it is
        if n > SIZES[0] and (found := _together(program, n, [e], why_not)) is not None:
            yield found


def _together(program: Program, n: int, loops: Sequence[Equation], why_not: Problem) -> Lanes | None:
    equations = program.equations
    before = {*loops, *prune(equations, [v for e in loops for v in e.inputs])}
    behind = _behind(equations, loops)
    inside = [e for e in equations if e in before and e in behind]
    if any([e.primitive is one_kernel for e in inside]):
        return None
    chosen = set(inside)
    read = uses(program.replace(equations=[e for e in equations if e not in chosen]))
    outputs = [v for e in inside for v in e.outputs if read[v]]
    part = program_of(inside, outputs, "lanes")
    blocks = _by_blocks(part, n, equations, why_not) if outputs else None
    return None if blocks is None else Lanes(loops, inside, part, blocks)


def _behind(equations: Sequence[Equation], start: Iterable[Equation]) -> set[Equation]:
    """Return these equations and those that depend on them."""
    found, values = set(start), set[Any]()
    for e in equations:
        if e in found or not values.isdisjoint(e.inputs):
            found.add(e)
            values.update(e.outputs)
    return found


def _by_blocks(program: Program, n: int, outside: Outside, why_not: Problem) -> Program | None:
    """Return the program in blocks of the largest size of which a step is small enough for a kernel; None
    if its operations mix lanes, or cannot be in a kernel."""
    for size in dict.fromkeys([_size_for(n, most) for most in SIZES]):
        try:
            made = stage(partial(_blocks, program, n, size, outside), program.in_types, "lanes")
        except Uneven:
            continue
        except NotByLane:
            return None
        obstacle = next((x for x in map(why_not, made.equations) if x is not None), None)
        if obstacle is None and _work(made) > _ANEW * _work(program):
            continue
        if obstacle is None:
            return made
        if not obstacle.problem.startswith("works on"):  # many elements
            return None
    return None


def _work(program: Program) -> float:
    return jit.cost(program.in_types, program.out_types, program=program).flops


def _size_for(n: int, most: int) -> int:
    """Return the size of blocks of n lanes: if possible one that divides n, so that none overlap."""
    return next((size for size in range(most, most // 2, -1) if n % size == 0), min(n, most))


def _zeros(t: ArrayType) -> Any:
    zeros = literal(0, word_type(t))
    return random_wrap(zeros, impl=impl_of(t.dtype)) if is_key_dtype(t.dtype) else zeros


def _blocks(program: Program, n: int, size: int, outside: Outside, *operands: Any) -> list[Any]:
    """Run the program for each block of lanes."""
    blocks = -(-n // size)
    starts = [_zeros(t) for t in program.out_types]
    if blocks == 1:
        return Block(n, size, literal(0, INDEX), outside).whole(program, operands, starts)

    def block(*values: Any) -> list[Any]:
        return Block(n, size, values[-1], outside).whole(program, operands, values[:-1])

    first = min_(mul(iota(dtype=INDEX.dtype, shape=(blocks,), dimension=0), size), n - size)
    return scanned(block, starts, [first], blocks, "block")
