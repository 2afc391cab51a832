"""Compute the many small operands of a kernel in the kernel.

    slice x;  slice x;  slice x;  ...  one_kernel ...   ->   one_kernel[slices, ...] x

A loop over a state of many numbers reads each from an array before its first step, and its backward loop
reads as many cotangents. XLA starts each such operation separately, and gives half of them to another thread
if there are more than eight, which takes longer than all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Program
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.shape.moving import Structural

_MANY = 4  # operations; fewer are left where they are
_SMALL = 64  # elements of an operand


def operands_of(
    loop: Equation, program: Program, read: Counter[Any], fits: Callable[[Equation], bool]
) -> list[Equation]:
    """Return the equations that compute small operands of a loop, in their order, if there are many: moves of
    elements, and operations by element that nothing else reads.

    Arguments:
      program, read: the program with the loop, and how often it reads each value.
      fits: whether an equation may be part of a kernel.
    """
    makers = _makers(program)
    found: dict[int, Equation] = {}
    waiting, inside = [*loop.inputs], Counter(loop.inputs)
    while waiting:
        place, e = makers.get(waiting.pop(), (-1, loop))
        if e is loop or place in found or not _is_small(e) or not fits(e):
            continue
        is_read_here = all([inside[v] == read[v] for v in e.outputs])
        if is_read_here or isinstance(e.primitive, Structural):
            found[place] = e
        if is_read_here:
            waiting += e.inputs
            inside.update(e.inputs)
    return [found[place] for place in sorted(found)] if len(found) >= _MANY else []


@memoized
def _makers(program: Program) -> dict[Any, tuple[int, Equation]]:
    """Return the equation that computes each value, and its place."""
    return {v: (i, e) for i, e in enumerate(program.equations) for v in e.outputs}


def _is_small(e: Equation) -> bool:
    known = isinstance(e.primitive, (Elementwise, Structural))
    return known and max([v.type.size for v in e.outputs]) <= _SMALL
