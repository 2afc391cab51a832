"""What was measured of XLA's operations, led back to equations.

In: a `Compiled`, the spans of some runs, the equations by their numbers. Out: `Kernel`s, and their
`Piece`s: how much of a kernel's time an equation is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from functrans.inspect.cost import equation_costs
from functrans.inspect.profile.compiled import LOOPS_AND_BRANCHES, Compiled
from functrans.inspect.profile.events import Span, at_work
from functrans.inspect.schedule import own_cost
from functrans.ir.program import Equation, Program, Var
from functrans.ir.text import with_nested
from functrans.primitives.base import bytes_of
from functrans.primitives.control_flow.while_loop import while_loop


class Kernel(NamedTuple):
    """An operation of XLA's that was measured: its name and kind, the equations that it computes,
    milliseconds at work and how often it ran (medians of the runs). `hides`: it is a whole loop as
    one kernel, whose equations the profiler does not tell apart; the first of them is the loop."""

    name: str
    kind: str
    equations: tuple[Equation, ...]
    milliseconds: float
    calls: float
    hides: bool = False


class Work(NamedTuple):
    """What an equation does in one run: floating point operations, bytes read and written."""

    flops: float
    bytes: float


class Piece(NamedTuple):
    """The share of a kernel's time that an equation is given; of one that XLA added, None."""

    kernel: Kernel
    equation: Equation | None
    milliseconds: float


def kernels(
    compiled: Compiled, spans: Sequence[Span], equations: Sequence[Equation]
) -> list[Kernel]:
    """The operations that were seen, the longest first."""
    operations = compiled.operations
    seen = {s.name for s in spans}
    holders = {o.name for n in seen & operations.keys() for o in compiled.around(operations[n])}
    holders |= {n for n, o in operations.items() if o.kind in LOOPS_AND_BRANCHES}
    by_run: dict[int, list[Span]] = {}
    for s in spans:
        by_run.setdefault(s.run, []).append(s)
    times = [at_work(run, holders) for run in by_run.values()]
    counts = [Counter([s.name for s in run]) for run in by_run.values()]
    found = []
    for name in seen:
        took = median([t.get(name, 0.0) for t in times]) / 1e6
        calls = median([c[name] for c in counts])
        operation = operations.get(name)
        if operation is None:  # which the text does not have: a copy between devices
            found.append(Kernel(name, "", (), took, calls))
            continue
        numbers = compiled.numbers(operation, name in holders)
        hides = operation.kind == "call" and name not in holders
        if hides:
            within = [x for x in compiled.inside(operation) if x.kind == "while"]
            loops = [x.number for x in (*within, operation) if x.number is not None]
            numbers = tuple(dict.fromkeys([*loops[:1], *numbers]))
        made = tuple([equations[n] for n in numbers])
        found.append(Kernel(name, operation.kind, made, took, calls, hides and bool(made)))
    return sorted(found, key=lambda k: (-k.milliseconds, k.name))


def pieces(found: Iterable[Kernel], costs: dict[Equation, Work]) -> list[Piece]:
    """The time of each kernel, shared among its equations by their FLOPs; alike if they have none.
    That of a kernel that hides a loop is the loop's."""
    made = []
    for k in found:
        if len(k.equations) < 2 or k.hides:
            made.append(Piece(k, k.equations[0] if k.equations else None, k.milliseconds))
            continue
        weights = [costs[e].flops if e in costs else 0 for e in k.equations]
        whole = sum(weights)
        for e, weight in zip(k.equations, weights, strict=True):
            share = weight / whole if whole else 1 / len(weights)
            if share:
                made.append(Piece(k, e, share * k.milliseconds))
    return made


# --- what equations cost where they ran -----------------------------------------------------------


def costs_of(program: Program, compiled: Compiled, found: Sequence[Kernel]) -> dict[Equation, Work]:
    """FLOPs and bytes of the equations in one run: by their estimates, the steps of a `while` as
    they were counted, without the bytes of values that stay inside of a kernel."""
    costs: dict[Equation, Work] = {}
    for e, cost in equation_costs(program):
        before = costs.get(e, Work(0, 0))
        costs[e] = Work(before.flops + cost.flops, before.bytes + cost.bytes)
    steps = _steps(program, compiled, found)
    outside = _outside(program, found)
    return {
        e: Work(c.flops * steps.get(e, 1), c.bytes * steps.get(e, 1) * outside.get(e, 1))
        for e, c in costs.items()
    }


def _steps(program: Program, compiled: Compiled, found: Sequence[Kernel]) -> dict[Equation, float]:
    """How often the equations inside of `while` loops ran for each time that the outermost did; 0
    where nobody knows, inside of one kernel."""
    ran = {k.name: k.calls for k in found}
    steps: dict[Equation, float] = {}
    for k in found:
        loops = [e for e in k.equations if e.primitive is while_loop]
        if not loops or not (k.hides or k.kind == "while"):
            continue
        body = [ran.get(x.name, 0) for x in compiled.directly_in(compiled.operations[k.name])]
        turns = 0.0 if k.hides else max(body, default=0) / k.calls
        for p in [p for e in loops for p in e.programs]:
            for e in [e for q in with_nested(p) for e in q.equations]:
                steps[e] = steps.get(e, 1) * turns
    return steps


def _outside(program: Program, found: Sequence[Kernel]) -> dict[Equation, float]:
    """The part of an equation's bytes that it reads from memory and writes there: not what is made
    or read in all of the kernels that it is in itself."""
    within: dict[Equation | None, set[str]] = {}
    for k in found:
        for e in k.equations:
            within.setdefault(e, set()).add(k.name)
    parts: dict[Equation, float] = {}
    for p in with_nested(program):
        makers = {v: e for e in p.equations for v in e.outputs}
        results = set(p.outputs)
        readers: dict[Var, list[Equation]] = {}
        for e in p.equations:
            for v in e.inputs:
                readers.setdefault(v, []).append(e)
        for e in p.equations:
            mine, size = within.get(e), own_cost(e).bytes
            if not mine or not size:
                continue
            stays = [
                v for v in e.inputs if v.__class__ is not Var or mine <= _of(makers.get(v), within)
            ]
            stays += [
                v for v in e.outputs
                if v not in results and v in readers
                and all(_of(r, within) and _of(r, within) <= mine for r in readers[v])
            ]  # fmt: skip
            parts[e] = max(0.0, 1 - bytes_of(*[v.type for v in stays]) / size)
    return parts


def _of(e: Equation | None, within: dict[Equation | None, set[str]]) -> set[str]:
    return within.get(e, set())
