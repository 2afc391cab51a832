"""Move contractions that a loop only accumulates out of the loop, as one contraction over all
steps.

In: a `scan` that carries a sum, as the backward pass of a recurrent network carries the gradient of
its weights. Out: the scan writes the factors of the terms, unless it reads them from arrays, and
the sum over the steps and the other axes is taken at once after it.

    carry' = carry + dot_general["bi,bj->ij"] x d     in each step, x read from X, d computed
    ->   carry + dot_general["tbi,tbj->ij"] X D       D: the d of all steps, written

A step then neither reads nor writes the sum, the contraction is as large as possible, and that of a
per-example gradient may never be materialized (passes/contractions.py). The written values must be
smaller than the sums that are removed, and at most SHARE of the arrays that the loop reads, or
small compared with the sums: loops that recompute, or process a batch in chunks, do so to save memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from functrans.ir.program import Equation, Literal, Origin, Program, Var, copied, prune
from functrans.passes.rewrite import Replaced, replacing, uses
from functrans.primitives.base import bytes_of, is_zero
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.elementwise.families import add, neg
from functrans.primitives.shape.joining import split
from functrans.primitives.shape.moving import reshape, slice_, squeeze, transpose
from functrans.trace import out_types

HOW = "accumulated of"
SHARE = 0.75  # a step may additionally write this share of the bytes that it reads
_MOVES = frozenset([transpose, reshape, squeeze, slice_, split, neg])  # sums commute with these


def accumulated(program: Program) -> Program:
    """Move the contractions that scans accumulate after them; nested programs are unchanged."""

    def without(e: Equation, known: dict[Var, Any]) -> Replaced:
        sums = _leaving(e)
        if not sums:
            return None
        return _without(e, sums, known), [root for s in sums for root in s.roots]

    return replacing(program, scan, without)


class Sum(NamedTuple):
    """A carry that is only added to.

    place : its index among the carries
    terms : the values added in a step
    roots : the contractions that compute these, up to moves
    moves : the equations in between
    """

    place: int
    terms: list[Var]
    roots: list[Equation]
    moves: list[Equation]

    @property
    def operands(self) -> list[Var]:
        return [v for e in self.roots for v in e.inputs]


def _leaving(e: Equation) -> list[Sum]:
    """Return the sums that should be computed after a scan."""
    layout, body = LoopLayout.of(e.params), e.params["program"]
    read = uses(body)
    made_by = {v: b for b in body.equations for v in b.outputs}
    consts, carry, slices = layout.operands(body.inputs)
    found = [_sum(i, v, body.outputs[i], made_by, read) for i, v in enumerate(carry)]
    sums = [s for s in found if s is not None]
    fixed = _fixed(body, consts)
    sums = [s for s in sums if fixed.isdisjoint(s.operands)]
    there = {*slices, *layout.results(body.outputs)[1]}
    return _worth(sums, there, carry, slices, e.params["length"]) if sums else []


def _worth(
    sums: list[Sum], there: set[Any], carry: Sequence[Var], slices: Sequence[Var], length: int
) -> list[Sum]:
    """Return the sums that write little. `there`: values of which the scan has arrays anyway."""
    budget = SHARE * sum([bytes_of(v.type) for v in slices])
    groups: dict[frozenset[Any], list[Sum]] = {}
    for s in sums:
        groups.setdefault(frozenset(s.operands) - there, []).append(s)
    kept: list[Sum] = []
    for more, group in sorted(groups.items(), key=lambda g: len(g[0])):
        gone = sum([bytes_of(carry[s.place].type) for s in group])
        written = sum([bytes_of(v.type) for v in more - there])
        if written > gone or (written > budget and length * written > gone):
            continue
        if written <= budget:
            budget -= written
        there = there | more
        kept += group
    return sorted(kept, key=lambda s: s.place)


def _fixed(body: Program, consts: Sequence[Var]) -> set[Any]:
    """Return the loop-invariant values."""
    found: set[Any] = set(consts)
    for b in body.equations:
        if found.issuperset([v for v in b.inputs if v.__class__ is Var]):
            found.update(b.outputs)
    return found


def _sum(place: int, v: Var, result: Any, made_by: dict[Var, Equation], read: Counter[Any]) -> Sum | None:
    """Return the carry v as a sum, if it only accumulates contractions and has no other use."""
    terms: list[Var] = []
    at = result
    while at is not v:
        e = made_by.get(at)
        if e is None or e.primitive is not add or read[at] != 1:
            return None
        rest = [x for x in e.inputs if _leads_to(x, v, made_by)]
        if len(rest) != 1:
            return None
        terms += [x for x in e.inputs if x is not rest[0]]
        at = rest[0]
    if not terms or read[v] != 1:
        return None
    roots: dict[Equation, None] = {}
    moves: dict[Equation, None] = {}
    for x in terms:
        e = made_by.get(x)
        while e is not None and e.primitive in _MOVES:
            moves[e] = None
            e = made_by.get(e.inputs[0])
        if e is None or e.primitive is not dot_general:
            return None
        if any([x.__class__ is Literal for x in e.inputs]):
            return None
        roots[e] = None
    return Sum(place, terms, list(roots), list(moves))


def _leads_to(x: Any, v: Var, made_by: dict[Var, Equation]) -> bool:
    """Return whether x is the carry v, or a sum with it. Sums are followed along their first such
    operand."""
    todo = [x]
    while todo:
        x = todo.pop()
        if x is v:
            return True
        e = made_by.get(x)
        if e is not None and e.primitive is add:
            todo += e.inputs
    return False


# --- the scan without them, and the equations after it -------------------------------------------


def _without(e: Equation, sums: list[Sum], known: dict[Var, Any]) -> Iterable[Equation]:
    """Return the equations that replace a scan; add the new values of its sums to `known`."""
    layout, body = LoopLayout.of(e.params), e.params["program"]
    gone = {s.place for s in sums}
    stays = [i for i in range(layout.carry) if i not in gone]
    consts, carry, slices = layout.operands(body.inputs)
    fixed, starts, stacks = layout.operands(e.inputs)
    after, written = layout.results(body.outputs)
    ends, stacked = layout.results(e.outputs)
    arrays = dict(zip(slices, stacks, strict=True))
    for v, x in zip(written, stacked, strict=True):
        arrays.setdefault(v, x)
    operands = dict.fromkeys([v for s in sums for v in s.operands])
    more = [v for v in operands if v not in arrays]
    length = e.params["length"]
    new = [Var(v.type.update(shape=(length, *v.type.shape))) for v in more]
    arrays.update(zip(more, new, strict=True))
    results = [*[after[i] for i in stays], *written, *more]
    inner = Program(
        [*consts, *[carry[i] for i in stays], *slices],
        prune(body.equations, results),
        results,
        name=body.name,
    )
    inputs = (*fixed, *[starts[i] for i in stays], *stacks)
    outs = (*[ends[i] for i in stays], *stacked, *new)
    params = {**e.params, "program": inner, "carry": len(stays)}
    yield Equation(scan, inputs, outs, params, e.source, Origin(HOW, e))
    yield from _behind(e, sums, arrays, known)


def _behind(
    e: Equation, sums: list[Sum], arrays: dict[Any, Any], known: dict[Var, Any]
) -> Iterable[Equation]:
    """Return the sums over all steps."""
    body, starts = e.params["program"], LoopLayout.of(e.params).operands(e.inputs)[1]
    names: dict[Any, Any] = {}
    for root in dict.fromkeys([root for s in sums for root in s.roots]):
        total = Var(root.outputs[0].type)
        names[root.outputs[0]] = total
        yield Equation(
            dot_general,
            tuple([arrays[v] for v in root.inputs]),
            (total,),
            _over_steps(root),
            root.source,
            Origin(HOW, root),
        )
    moves = {b for s in sums for b in s.moves}
    yield from copied([b for b in body.equations if b in moves], names)
    for s in sums:
        start, *rest = starts[s.place], *[names[v] for v in s.terms]
        total = rest.pop(0) if is_zero(start) else start
        for x in rest:
            (t,) = out_types(add, (total.type, x.type), {})
            made = Var(t)
            yield Equation(add, (total, x), (made,), {}, e.source, Origin(HOW, e))
            total = made
        known[e.outputs[s.place]] = total


def _over_steps(root: Equation) -> dict[str, Any]:
    """Return the parameters of a contraction whose operands have the steps as a new first axis."""
    lhs, rhs = root.params["lhs"], root.params["rhs"]
    step = 1 + max((*lhs, *rhs), default=-1)
    return {**root.params, "lhs": (step, *lhs), "rhs": (step, *rhs)}
