"""Sums over the steps of a loop: move them into a loop that writes their terms (`written_sums`), or
contractions that a loop accumulates out of it (`accumulated`, for `contract`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.caching import memo
from functrans.ir.program import Equation, Literal, Origin, Program, Var, copied, prune
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.loop_simplification import Loop
from functrans.passes.rewrite import Replaced, appended, nested_pass, readers_of, replacing, uses
from functrans.primitives.base import bytes_of, is_zero
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.dependence import depending
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, neg
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.joining import split
from functrans.primitives.shape.moving import reshape, slice_, squeeze, transpose
from functrans.records import NamedTuple
from functrans.trace import literal

# --- sums of what a loop writes -------------------------------------------------------------------
#
# In: a `scan` that stacks large values, and a `reduce_sum` over the steps that is their only user,
# optionally after a reshape that merges steps with rows of a step. Out: the scan carries the sum.
#
#     y = scan(...)  each step writes g[b, i];  reduce_sum over t and b of y[t, b, i]
#     ->   a scan that carries  c[i] + reduce_sum over b of g[b, i]
#
# So per-example gradients that `lax.map` computes in batches, each clipped, are never all in memory
# at once, and within a step `contract` sees their sum.

LARGE = 1 << 18  # bytes written; below this nothing is gained
Readers = dict[Any, list[Equation]]


class SumOfWritten(NamedTuple):
    """A sum of a written result of a scan: which result, and the axes of a step's slice."""

    written: int
    axes: tuple[int, ...]
    equation: Equation


@nested_pass
def written_sums(program: Program) -> Program:
    """Move sums over the written results of loops into the loops.

    Arguments:
      program: any Program; nested ones are rewritten too.

    Returns:
      A Program with the same inputs and outputs; the same object if nothing changed. Sums are taken
      step by step.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x: ft.lax.map(jnp.sin, x).sum(0))(jnp.ones((128, 512)))
      >>> print(ft.passes.optimize(program, ("inline_calls", "written_sums", "dead_code")))
      program (a: f32[128,512]) {
        b: f32[512] = scan[length=128, consts=0, carry=1] 0.0:f32[512] a {
          program sin (c: f32[512], d: f32[512]) {
            e: f32[512] = sin d
            f: f32[512] = add c e
            return f
          }
        }
        return b
      }
    """
    if not any([e.primitive is scan for e in program.equations]):
        return program
    readers = readers_of(program)
    outputs = set(program.outputs)

    def with_sums(e: Equation, known: dict[Var, Any]) -> Replaced | None:
        sums = _sums(e, readers, outputs)
        return Replaced(_with_sums(e, sums, known), [s.equation for s in sums]) if sums else None

    return replacing(program, (scan,), with_sums)


def _sums(e: Equation, readers: Readers, outputs: set[Any]) -> list[SumOfWritten]:
    """Return the sums that a scan should carry."""
    made: list[SumOfWritten] = []
    m = e.params["carry"]
    for i, v in enumerate(e.outputs[m:]):
        if v in outputs or bytes_of(v.type) < LARGE or dtype_class(v.type.dtype) != "float":
            continue
        found = _of(i, v, readers, outputs)
        smaller = sum([bytes_of(s.equation.outputs[0].type) for s in found]) < bytes_of(v.type)
        made += found if smaller else []
    return made


def _of(i: int, v: Var, readers: Readers, outputs: set[Any]) -> list[SumOfWritten]:
    """Return the sums over the steps of a written value; none if it has another use."""
    found = []
    for e in readers[v]:
        if e.primitive is reduce_sum:
            inside, sums = 1, [e]
        elif e.primitive is reshape and _joins_rows(e) and e.outputs[0] not in outputs:
            inside, sums = 0, readers[e.outputs[0]]
        else:
            return []
        for s in sums:
            if s.primitive is not reduce_sum or 0 not in s.params["axes"]:
                return []
            axes = tuple([a - inside for a in s.params["axes"] if a >= inside])
            found.append(SumOfWritten(i, axes, s))
    return found


def _joins_rows(e: Equation) -> bool:
    """Return whether the reshape merges the first two axes."""
    before, after = e.inputs[0].type.shape, e.outputs[0].type.shape
    return len(before) > 1 and after == (before[0] * before[1], *before[2:])


def _with_sums(e: Equation, sums: list[SumOfWritten], known: dict[Var, Any]) -> list[Equation]:
    """Return the scan that carries the sums, followed by their conversions to small floats, which are
    summed in float32; add the sums to `known`."""
    loop, equations = Loop.of(e), list(e.params["program"].equations)
    narrowed: list[Equation] = []
    for s in sums:
        v, t = loop.written[s.written][0], s.equation.outputs[0].type
        wide = t.update(dtype=np.dtype(np.float32)) if t.dtype.itemsize < 4 else t
        origin = Origin("written_sums of", s.equation)
        if s.axes:
            v = appended(equations, origin, reduce_sum, v, axes=s.axes)
        if wide is not t:
            v = appended(equations, origin, convert_element_type, v, **_float_like(wide))
        before, final = Var(wide), Var(wide)
        total = appended(equations, origin, add, before, v)
        loop.carry.append((before, literal(0, wide), total, final))
        if wide is not t:
            final = appended(narrowed, origin, convert_element_type, final, **_float_like(t))
        known[s.equation.outputs[0]] = final
    gone = {s.written for s in sums}
    loop.written = [w for i, w in enumerate(loop.written) if i not in gone]
    outputs = loop.outputs
    return [loop.scan(e, "written_sums of", prune(equations, outputs), outputs), *narrowed]


def _float_like(t: ArrayType) -> dict[str, Any]:
    return {"dtype": t.dtype, "weak_type": t.weak_type}


# --- contractions that a loop accumulates ---------------------------------------------------------
#
# In: a `scan` that carries a sum, as the backward pass of a recurrent network carries the gradient of
# its weights. Out: the scan writes the factors of the terms, unless it reads them from arrays, and
# the sum over the steps and the other axes is taken at once after it.
#
#     carry' = carry + dot_general["bi,bj->ij"] x d     in each step, x read from X, d computed
#     ->   carry + dot_general["tbi,tbj->ij"] X D       D: the d of all steps, written
#
# A step then neither reads nor writes the sum, the contraction is as large as possible, and that of a
# per-example gradient may never be materialized (passes/contractions.py). The written values must be
# smaller than the sums that are removed, and at most SHARE of the arrays that the loop reads, or
# small compared with the sums: loops that recompute, or process a batch in chunks, do so to save
# memory.

HOW = "accumulated of"
SHARE = 0.75  # a step may additionally write this share of the bytes that it reads
_MOVES = frozenset([transpose, reshape, squeeze, slice_, split, neg])  # sums commute with these


def accumulated(program: Program) -> Program:
    """Move the contractions that scans accumulate after them; nested programs are unchanged."""

    def without(e: Equation, known: dict[Var, Any]) -> Replaced | None:
        sums = _leaving(e)
        roots = [root for s in sums for root in s.roots]
        return Replaced(_without(e, sums, known), roots) if sums else None

    return replacing(program, (scan,), without)


class Accumulator(NamedTuple):
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


def _leaving(e: Equation) -> list[Accumulator]:
    """Return the sums that should be computed after a scan."""
    layout, body = LoopLayout.of(e.params), e.params["program"]
    _, carry, slices = layout.operands(body.inputs)
    found = [_sum(i, v, body) for i, v in enumerate(carry)]
    moving = depending(body.equations, (*carry, *slices))
    sums = [s for s in found if s is not None and moving.issuperset(s.operands)]
    there = {*slices, *layout.results(body.outputs)[1]}
    return _worth(sums, there, carry, slices, e.params["length"]) if sums else []


def _worth(
    sums: list[Accumulator], there: set[Any], carry: Sequence[Var], slices: Sequence[Var], length: int
) -> list[Accumulator]:
    """Return the sums that write little. `there`: values of which the scan has arrays anyway."""
    budget = SHARE * sum([bytes_of(v.type) for v in slices])
    groups: dict[frozenset[Any], list[Accumulator]] = {}
    for s in sums:
        groups.setdefault(frozenset(s.operands) - there, []).append(s)
    kept: list[Accumulator] = []
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


def _sum(place: int, v: Var, body: Program) -> Accumulator | None:
    """Return the carry v as a sum, if it only accumulates contractions and has no other use."""
    read, readers = memo(body, uses), memo(body, readers_of)
    terms: list[Var] = []
    at = v
    while at is not body.outputs[place]:
        e = readers[at][0] if read[at] == 1 and at in readers else None
        if e is None or e.primitive is not add:
            return None
        terms.insert(0, e.inputs[1] if e.inputs[0] is at else e.inputs[0])
        (at,) = e.outputs
    if not terms or read[at] != 1:
        return None
    made_by = {v: b for b in body.equations for v in b.outputs}
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
    return Accumulator(place, terms, list(roots), list(moves))


# --- the scan without them, and the equations after it -------------------------------------------


def _without(e: Equation, sums: list[Accumulator], known: dict[Var, Any]) -> list[Equation]:
    """Return the equations that replace a scan; add the new values of its sums to `known`."""
    loop = Loop.of(e)
    starts = [x for _, x, *_ in loop.carry]
    gone = {s.place for s in sums}
    loop.carry = [c for i, c in enumerate(loop.carry) if i not in gone]
    arrays: dict[Any, Any] = dict(loop.written) | dict(loop.arrays)
    for v in dict.fromkeys([v for s in sums for v in s.operands]):
        if v not in arrays:
            arrays[v] = Var(v.type.update(shape=(e.params["length"], *v.type.shape)))
            loop.written.append((v, arrays[v]))
    outputs = loop.outputs
    scan_ = loop.scan(e, HOW, prune(e.params["program"].equations, outputs), outputs)
    return [scan_, *_behind(e, sums, starts, arrays, known)]


def _behind(
    e: Equation, sums: list[Accumulator], starts: Sequence[Any], arrays: dict[Any, Any], known: dict[Var, Any]
) -> list[Equation]:
    """Return the sums over all steps. `starts`: of the carries; `arrays`: of the values of all steps."""
    names: dict[Any, Any] = {}
    made: list[Equation] = []
    for root in dict.fromkeys([root for s in sums for root in s.roots]):
        factors, origin = [arrays[v] for v in root.inputs], Origin(HOW, root)
        names[root.outputs[0]] = appended(made, origin, dot_general, *factors, **_over_steps(root))
    moves = {b for s in sums for b in s.moves}
    made += copied([b for b in e.params["program"].equations if b in moves], names)
    for s in sums:
        start, *rest = starts[s.place], *[names[v] for v in s.terms]
        total = rest.pop(0) if is_zero(start) else start
        for x in rest:
            total = appended(made, Origin(HOW, e), add, total, x)
        known[e.outputs[s.place]] = total
    return made


def _over_steps(root: Equation) -> dict[str, Any]:
    """Return the parameters of a contraction whose operands have the steps as a new first axis."""
    lhs, rhs = root.params["lhs"], root.params["rhs"]
    step = 1 + max((*lhs, *rhs), default=-1)
    return {**root.params, "lhs": (step, *lhs), "rhs": (step, *rhs)}
