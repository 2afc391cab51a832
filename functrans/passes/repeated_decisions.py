"""Have loops that make the same decisions compute the same numbers on a CPU.

A gradient may run the steps of a `while` loop once more, from states that were kept: that of a `while` loop,
or of a solver of differential equations. If a step that was accepted is rejected this time, it is the
gradient of other steps. Both loops compute the same, but LLVM sees a step as a whole, and rounds
`x * y + z` once if nothing else reads the product: in the second loop the derivative does. So products in
such loops are rounded by themselves, and either all of them are kernels or none.

In: a program that is ready to be lowered. Out: the program with the steps of such loops marked as
`uncontracted`, and, for those that cannot all be kernels, as `dispatched`; the same object if there are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Program, with_programs
from functrans.ir.text import with_nested
from functrans.ir.types import is_inexact
from functrans.passes.kernels import obstacle
from functrans.passes.rewrite import all_equations, children_first
from functrans.passes.threads import LOOPS
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.elementwise.arithmetic import integer_pow
from functrans.primitives.elementwise.families import Comparison, add, mul, square, sub

Path = tuple[Equation, ...]  # loops, each in the one before

_PRODUCTS, _SUMS = (mul, square, integer_pow), (add, sub)


@memoized
def rounded_alike(program: Program) -> Program:
    """Return the program with such loops marked."""
    if sum([e.primitive is while_loop for e in all_equations(program)]) < 2:
        return program
    decisions = _Decisions()
    decisions.visit(program, False, ())
    groups = [group for paths in decisions.paths.values() for group in _alike(paths) if len(group) > 1]
    inside = {p for group in groups for e in group for step in e.programs for p in with_nested(step)}
    apart = [group for group in groups if any([obstacle(e, program) for e in group])]
    dispatched = {p for group in apart for e in group for p in e.programs}
    new: dict[Program, Program] = {}
    for p in children_first(program) if inside else ():
        new[p] = with_programs(p, new)
        if p in inside:
            new[p] = new[p].replace(equations=new[p].equations)
            new[p].mark(uncontracted=True, dispatched=p in dispatched)
    return new.get(program, program)


def _alike(paths: set[Path]) -> Iterable[set[Equation]]:
    """Return the loops that correspond to each other, in loops that decide at one place: the innermost ones,
    those around them, and so on, but not those around all of them. None for a loop and those in it alone."""
    longest = [path for path in paths if not any([path == other[: len(path)] != other for other in paths])]
    if len(longest) == 1:
        return ()
    common = next(n for n in count() if len({path[: n + 1] for path in longest}) > 1)
    groups: dict[Any, set[Equation]] = defaultdict(set)
    for path in paths:
        for level, loop in enumerate(reversed(path[common:])):
            groups[level, loop.primitive].add(loop)
    return groups.values() if any([kind is while_loop for _, kind in groups]) else ()


class _Decisions:
    """For each comparison, by its place in the user's code, the loops around it. Of numbers that depend on a
    sum with a product, which LLVM may round once or twice."""

    def __init__(self) -> None:
        self.paths: dict[Any, set[Path]] = defaultdict(set)
        self._visited: set[tuple[Program, bool, Path]] = set()

    def visit(self, program: Program, is_rounded: bool, path: Path) -> None:
        """Note the comparisons in a program. `is_rounded`: whether its inputs are such numbers; `path`: the
        loops around it."""
        if (program, is_rounded, path) in self._visited:
            return
        self._visited.add((program, is_rounded, path))
        rounded, products = set(program.inputs if is_rounded else ()), set[Any]()
        for e in program.equations:
            p, depends = e.primitive, not rounded.isdisjoint(e.inputs)
            if depends and isinstance(p, Comparison) and e.source and is_inexact(e.inputs[0].type.dtype):
                self.paths[p, e.source[:2]].add(path)
            for inside in e.programs:  # what a step computes is read by the next one
                self.visit(inside, depends or p in LOOPS, (*path, e) if p in LOOPS else path)
            if p in _PRODUCTS:
                products.update(e.outputs)
            is_sum = p in _SUMS and not products.isdisjoint(e.inputs)
            if depends or is_sum or p in LOOPS or p is dot_general:
                rounded.update(e.outputs)
