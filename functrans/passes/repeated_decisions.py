"""Leave to XLA the `while` loops in which a gradient decides anew what another one decided.

A gradient may run the steps of a loop once more, from states that were kept: that of a `while` loop, or of a
solver of differential equations. If a step that was accepted is rejected this time, it is the gradient of
other steps. Both loops compute the same, but in a kernel LLVM sees a step as a whole, and rounds `x * y + z`
once if nothing else reads the product: in the second loop the derivative does. XLA's own code, as JAX runs
it, is one function for each fusion, and these are alike.

In: a program that is ready to be lowered. Out: the program with such loops marked as those of `cpu="plain"`
are; the same object if there are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Program, with_programs
from functrans.ir.types import is_inexact
from functrans.passes.kernels import plain
from functrans.passes.rewrite import all_equations, children_first
from functrans.passes.threads import LOOPS
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.elementwise.arithmetic import integer_pow
from functrans.primitives.elementwise.families import Comparison, Elementwise, add, mul, square, sub

Path = tuple[Equation, ...]  # loops, each in the one before

_PRODUCTS, _SUMS = (mul, square, integer_pow), (add, sub)
_MANY = 16  # loops beside each other that decide at one place: they are not compared


@memoized
def left_to_xla(program: Program) -> Program:
    """Return the program with such loops left to XLA."""
    equations = all_equations(program)
    if sum([e.primitive is while_loop for e in equations]) < 2:
        return program
    decided = _Decisions()
    decided.visit(program, False, ())
    groups = {frozenset(loops) for loops in decided.loops.values()}
    of_gradient = any(map(_is_derived, equations))
    left = {p for loops in groups for e in _repeated(loops, of_gradient) for p in e.programs}
    new: dict[Program, Program] = {}
    for p in children_first(program) if left else ():
        new[p] = plain(p) if p in left else with_programs(p, new)
    return new.get(program, program)


def _repeated(loops: frozenset[Equation], of_gradient: bool) -> Iterable[Equation]:
    """Return the loops of which another one computes what they do, or the other way round, except for a
    quarter at most, as what keeps the states. An implicit derivative, by the same function, computes other
    things. Loops of the very same operations are two calls, but in a gradient they may be a repetition.
    (Whether it is one cannot be told of what JAX traced.)"""
    if len(loops) > _MANY:
        return loops if of_gradient else ()
    found: set[Equation] = set()
    for (one, mine), (other, its) in combinations([(e, _computed(e)) for e in loops], 2):
        if 4 * len(mine & its) > 3 * min(len(mine), len(its)) and (of_gradient or mine != its):
            found.update((one, other))
    return found


def _computed(loop: Equation) -> set[Any]:
    """Return the operations on floats in the step of a loop, by their places in the user's code."""
    found = [e for e in all_equations(loop.params["body"]) if isinstance(e.primitive, Elementwise)]
    return {(e.primitive, e.source[:2]) for e in found if e.source and is_inexact(e.outputs[0].type.dtype)}


def _is_derived(e: Equation) -> bool:
    while e.origin is not None:
        if e.origin.how == "transpose of":
            return True
        e = e.origin.equation
    return False


class _Decisions:
    """For each comparison, by its place in the user's code, the `while` loops around it that are beside each
    other. Of numbers that depend on a sum with a product, which a kernel may round once or twice."""

    def __init__(self) -> None:
        self.loops: dict[Any, set[Equation]] = defaultdict(set)
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
                for depth, loop in enumerate(path):
                    if loop.primitive is while_loop:
                        self.loops[p, e.source[:2], path[:depth]].add(loop)
            for inside in e.programs:  # what a step computes is read by the next one
                self.visit(inside, depends or p in LOOPS, (*path, e) if p in LOOPS else path)
            if p in _PRODUCTS:
                products.update(e.outputs)
            is_sum = p in _SUMS and not products.isdisjoint(e.inputs)
            if depends or is_sum or p in LOOPS or p is dot_general:
                rounded.update(e.outputs)
