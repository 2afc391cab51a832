"""Peak memory and memory traffic of a program that runs in program order, with fusion.

In: a Program. Out: a `Schedule`. Some values are never materialized in memory: XLA fuses an
elementwise operation, or one that only moves elements, into its users. Here such a value is virtual
if it has a single user, and that user does not need its operands in memory (as a contraction, a
convolution, a nested program or a scatter does).
The operands of a virtual value stay live until it is read. Every other value is live from the
equation that defines it to its last use; the result of an elementwise operation reuses the buffer
of an operand of the same size that dies there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from functrans.caching import memo
from functrans.ir.program import Equation, Program, Var
from functrans.passes.explanation import measured
from functrans.primitives.base import Cost, bytes_of
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.reductions.folds import Reduction

MOST = 10  # limit on the listed live values


class Schedule(NamedTuple):
    """Memory use of a program.

    peak  : peak bytes, without the inputs
    at    : index of the equation at the peak
    live  : the values in memory at the peak, largest first
    moved : bytes read and written by all equations
    used  : bytes in use while each equation runs, without the inputs
    """

    peak: int
    at: int
    live: Sequence[Var]
    moved: int
    used: Sequence[int]


def schedule(program: Program) -> Schedule:
    """Simulate the memory use of a program's equations in order; cached per program."""
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
    """Return the bytes in use outside of a nested program, given the bytes `used` while the
    equation that holds it runs."""
    return used - _inside(eqn)[0] - _shared(inner, bytes_of(*[v.type for v in eqn.outputs]))


def _inside(eqn: Equation) -> tuple[int, int]:
    """Return the peak bytes of the programs that an equation holds, without its operands and
    results, and the bytes that they read and write over all steps."""
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
    """Return the bytes of a nested program's results that are counted both in its peak and as
    results of the enclosing equation. Outputs that are inputs, or duplicates, count once."""
    made = {v for e in inner.equations for v in e.outputs}
    return min(bytes_of(*[v.type for v in made.intersection(inner.outputs)]), results)


def _roots(program: Program) -> dict[Var, tuple[Var, ...]]:
    """Map each virtual value to the values in memory that it is computed from."""
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
    """Return the values that must be in memory to read a value."""
    if not isinstance(v, Var):
        return ()
    return roots.get(v, (v,))


def _is_fused(e: Equation) -> bool:
    """Return whether an operation is elementwise, or only moves elements."""
    p = e.primitive
    if p.multiple_results or p.holds_programs or p.has_effects(e.params):
        return False
    if isinstance(p, Elementwise):
        return True
    return own_cost(e).flops == 0


def _fuses_operands(e: Equation) -> bool:
    return _is_fused(e) or isinstance(e.primitive, Reduction)


def _last_reads(program: Program, roots: dict[Var, tuple[Var, ...]]) -> dict[Var, int]:
    """Return the index of the last equation that reads each value in memory; results stay live."""
    last: dict[Var, int] = {}
    for i, e in enumerate(program.equations):
        if len(e.outputs) == 1 and e.outputs[0] in roots:
            continue  # a virtual value: its operands are read by its user
        for v in e.inputs:
            last.update(dict.fromkeys(_of(v, roots), i))
    for v in program.outputs:
        last.update(dict.fromkeys(_of(v, roots), len(program.equations)))
    return last


def _taken_over(eqn: Equation, made: Sequence[Var], dying: Sequence[Var]) -> int:
    """Return the bytes of a result that reuses the buffer of an operand that dies here."""
    if not made or not _is_fused(eqn):
        return 0
    size = bytes_of(made[0].type)
    return size if any(bytes_of(v.type) == size for v in dying) else 0


def own_cost(eqn: Equation) -> Cost:
    """Return the cost of an equation, as its primitive estimates it."""
    types = [v.type for v in eqn.inputs], [v.type for v in eqn.outputs]
    return eqn.primitive.cost(*types, **eqn.params)
