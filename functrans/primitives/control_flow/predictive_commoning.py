"""Predictive commoning: carry a value to the next step of a loop if that step computes it again.

    body: x, v -> ... a = f(x) ... x2 = ... b = f(x2) ... -> x2, v2

One step's `f(x)` is the `f(x2)` of the step before, as in leapfrog integration, where a step begins
and ends with the acceleration. The loop computes it once per step, and carries it:

    start: x, v -> f(x)
    body:  x, v, a -> ... x2 = ... b = f(x2) ... -> x2, v2, b

The results are the same bits. It is done before a loop is differentiated, so that its derivative
is smaller too (and zero where the initial carry is constant, also if f has an infinite slope there),
and by passes/loop_simplification.py. Effects stay in the steps.

Source: predictive commoning (O'Brien, 1990), an optimization of compilers for array elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Literal, Program, Var, prune, renamed, renamed_all
from functrans.primitives.base import own_cost
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.dependence import is_pure, operation_key, same_parameters
from functrans.records import NamedTuple

_WORTH = 4  # floating point operations saved per element that is carried instead


class Commoned(NamedTuple):
    """A loop that carries the values it would compute twice.

    start : (consts, carry) -> what the first step would compute
    body  : the step; the new part of the carry comes after the old one
    more  : the size of the new part
    """

    start: Program
    body: Program
    more: int

    def operands(self, xs: Sequence[Any], start: Sequence[Any], layout: LoopLayout) -> list[Any]:
        """Insert the new initial values, or something parallel to them, into the operands."""
        return [*xs[: layout.fixed], *start, *xs[layout.fixed :]]

    def results(self, ys: Sequence[Any], layout: LoopLayout) -> list[Any]:
        """Drop the new part of the carry from the results."""
        return [*ys[: layout.carry], *ys[layout.carry + self.more :]]


@memoized
def commoned(body: Program, layout: LoopLayout) -> Commoned | None:
    """Return the loop without what its steps compute twice; None if carrying it saves too little."""
    equations, outputs, alike = _distinct(body)
    after, again = _next_values(body.inputs, equations, outputs, alike, layout)
    if not again:
        return None
    read = {v for e in equations if e not in again for v in e.inputs}.union(outputs)
    known = [e for e in equations if is_pure(e) and after.keys() >= set(e.outputs)]
    carried = [
        v
        for e in equations
        if e in again
        for v in e.outputs
        if v in read and _flops(prune(known, [v])) >= _WORTH * v.type.size
    ]
    if not carried:
        return None
    names: dict[Any, Any] = {v: Var(v.type) for v in carried}
    ends = layout.results(renamed_all(outputs, names))
    outs = [*ends[0], *renamed_all([after[v] for v in carried], names), *ends[1]]
    kept = prune([renamed(e, names) for e in equations], outs)
    if _flops(equations) - _flops(kept) < _WORTH * sum([v.type.size for v in carried]):
        return None
    fixed, slices = body.inputs[: layout.fixed], body.inputs[layout.fixed :]
    start = Program(fixed, prune(known, carried), carried, name=body.name)
    made = body.replace(inputs=[*fixed, *names.values(), *slices], outputs=outs, equations=kept)
    return Commoned(start, made, len(carried))


Alike = dict[tuple[Any, ...], list[Equation]]


def _distinct(body: Program) -> tuple[list[Equation], list[Any], Alike]:
    """Return the distinct equations, the outputs, and the equations by primitive and operands."""
    equations: list[Equation] = []
    alike: Alike = {}
    known: dict[Any, Any] = {}
    for e in body.equations:
        e = renamed(e, known)
        equal = alike.setdefault(operation_key(e.primitive, e.inputs), [])
        twin = _twin(e, equal)
        if twin is None:
            equations.append(e)
            equal.append(e)
        else:
            known.update(zip(e.outputs, twin.outputs, strict=True))
    return equations, renamed_all(body.outputs, known), alike


def _next_values(
    inputs: Sequence[Var],
    equations: Sequence[Equation],
    outputs: Sequence[Any],
    alike: Alike,
    layout: LoopLayout,
) -> tuple[dict[Any, Any], set[Equation]]:
    """Return, for values made from consts and carry, the value of the same step that equals it in
    the next step, and the equations of those that change."""
    consts, carry, _ = layout.operands(inputs)
    after: dict[Any, Any] = {v: v for v in consts}
    after.update([(v, y) for v, y in zip(carry, outputs, strict=False) if y.type is v.type])
    again = set()
    for e in equations:
        if not all([v.__class__ is Literal or v in after for v in e.inputs]):
            continue
        operands = tuple(renamed_all(e.inputs, after))
        if operands != e.inputs:
            twin = _twin(e, alike.get(operation_key(e.primitive, operands), ()))
            if twin is not None:
                after.update(zip(e.outputs, twin.outputs, strict=True))
                again.add(e)
        elif is_pure(e):  # loop-invariant
            after.update([(v, v) for v in e.outputs])
    return after, again


def _twin(e: Equation, equal: Iterable[Equation]) -> Equation | None:
    """Return the equation that computes the same, among those with equal primitive and operands."""
    for other in equal:
        alike = all([v.type is w.type for v, w in zip(e.outputs, other.outputs, strict=False)])
        if alike and same_parameters(e, other):
            return other if is_pure(e) else None
    return None


def _flops(equations: Iterable[Equation]) -> int:
    return sum([own_cost(e).flops for e in equations])
