"""How much memory a program needs at once, run in its order.

In: a Program. Out: a `Schedule`. Of the values of a program some never stand in memory: XLA fuses
an operation that computes element by element, or only moves elements, into the operations that read
it. Here such a value is virtual if a single equation reads it, and that is not one for which
operands must stand in memory (a contraction, a convolution, a nested program, a scatter, ...).
What a virtual value is made of lives until it is read. Every other value lives from the equation
that makes it to the last that reads it; one that is computed element by element takes over the
memory of an operand of its size that dies there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from functrans.caching import memo
from functrans.ir.program import Equation, Program, Var
from functrans.passes.explain import measured
from functrans.primitives.base import Cost, bytes_of
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.reductions.folds import Reduction

MOST = 10  # values are named


class Schedule(NamedTuple):
    """peak: bytes beside the inputs at the worst moment; at: the equation there; live: the values
    that stand in memory then, largest first; moved: bytes that all equations read and write; used:
    bytes beside the inputs while each equation runs."""

    peak: int
    at: int
    live: Sequence[Var]
    moved: int
    used: Sequence[int]


def schedule(program: Program) -> Schedule:
    """Run a program's equations in their order, in thought; made once per program."""
    return memo(program, _schedule)


def _schedule(program: Program) -> Schedule:
    roots = _roots(program)
    last = _last_reads(program, roots)
    live: dict[Var, int] = {}
    peak, at, moved, now = 0, -1, 0, 0
    worst: Sequence[Var] = ()
    used = []
    for i, eqn in enumerate(program.equations):
        made = [v for v in eqn.outputs if v not in roots]
        read = dict.fromkeys([r for v in eqn.inputs for r in _of(v, roots)])
        dying = [v for v in read if last[v] == i and v in live]
        inside, passed = _inside(eqn)
        if inside or made:
            moved += passed or bytes_of(*[v.type for v in (*read, *made)])
        live.update({v: bytes_of(v.type) for v in made})
        now += bytes_of(*[v.type for v in made])
        here = now + inside - _taken_over(eqn, made, dying)
        used.append(here)
        if here > peak:
            peak, at = here, i
            worst = sorted(live, key=live.__getitem__, reverse=True)[:MOST]
        for v in (*dying, *[v for v in made if v not in last]):
            now -= live.pop(v)
    return Schedule(peak, at, worst, moved, used)


def used_around(eqn: Equation, used: int, inner: Program) -> int:
    """Bytes in use beside the inputs and the own values of a program that an equation holds, which
    uses so many in all."""
    return used - _inside(eqn)[0] - _shared(inner, bytes_of(*[v.type for v in eqn.outputs]))


def _inside(eqn: Equation) -> tuple[int, int]:
    """What the programs that an equation holds need beside its operands and results, and the bytes
    that they read and write in all the steps that they are run."""
    programs = eqn.programs
    if not programs:
        return 0, 0
    results = bytes_of(*[v.type for v in eqn.outputs])
    plans = [schedule(p) for p in programs]
    peak = max([
        plan.peak - _shared(p, results) for plan, p in zip(plans, programs, strict=True)
    ])  # fmt: skip
    once = max([measured(p).bytes for p in programs])
    turns = own_cost(eqn).bytes / once if once else 1.0
    return peak, int(turns * max([plan.moved for plan in plans]))


def _shared(inner: Program, results: int) -> int:
    """Bytes of the results that a program makes itself, which are in its peak, among those of the
    equation that holds it. It may also give back what it was given, or one value twice."""
    made = {v for e in inner.equations for v in e.outputs}
    return min(bytes_of(*[v.type for v in made.intersection(inner.outputs)]), results)


def _roots(program: Program) -> dict[Var, tuple[Var, ...]]:
    """The virtual values, and what stands in memory that each is made of."""
    reads = Counter([v for e in program.equations for v in {*e.inputs} if isinstance(v, Var)])
    reads.update([v for v in program.outputs if isinstance(v, Var)] * 2)  # these do not vanish
    reader = {v: e for e in program.equations for v in e.inputs if isinstance(v, Var)}
    roots: dict[Var, tuple[Var, ...]] = {}
    for e in program.equations:
        if not _is_fused(e):
            continue
        (v,) = e.outputs
        if reads[v] == 1 and _fuses_operands(reader[v]):
            roots[v] = tuple(dict.fromkeys([r for x in e.inputs for r in _of(x, roots)]))
    return roots


def _of(v: Any, roots: dict[Var, tuple[Var, ...]]) -> Iterable[Var]:
    """What must stand in memory so that a value can be read."""
    if not isinstance(v, Var):
        return ()
    return roots.get(v, (v,))


def _is_fused(e: Equation) -> bool:
    """Does it compute element by element, or only move elements?"""
    p = e.primitive
    if p.multiple_results or p.holds_programs or p.has_effects(e.params):
        return False
    if isinstance(p, Elementwise):
        return True
    return own_cost(e).flops == 0


def _fuses_operands(e: Equation) -> bool:
    return _is_fused(e) or isinstance(e.primitive, Reduction)


def _last_reads(program: Program, roots: dict[Var, tuple[Var, ...]]) -> dict[Var, int]:
    """The number of the last equation that reads what stands in memory; results live on."""
    last: dict[Var, int] = {}
    for i, e in enumerate(program.equations):
        if len(e.outputs) == 1 and e.outputs[0] in roots:
            continue  # read when that is read
        for v in e.inputs:
            last.update(dict.fromkeys(_of(v, roots), i))
    for v in program.outputs:
        last.update(dict.fromkeys(_of(v, roots), len(program.equations)))
    return last


def _taken_over(eqn: Equation, made: Sequence[Var], dying: Sequence[Var]) -> int:
    """Bytes of a result that is written where an operand stood that nobody reads any more."""
    if not made or not _is_fused(eqn):
        return 0
    size = bytes_of(made[0].type)
    return size if any(bytes_of(v.type) == size for v in dying) else 0


def own_cost(eqn: Equation) -> Cost:
    """What an equation costs by its operation's estimate."""
    types = [v.type for v in eqn.inputs], [v.type for v in eqn.outputs]
    return eqn.primitive.cost(*types, **eqn.params)
