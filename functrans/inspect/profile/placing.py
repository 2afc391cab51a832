"""Attribute the measured times of XLA operations to equations.

In: a program and the spans of some runs. Out: `Kernel`s, and their `Piece`s: the part of a kernel's
time attributed to an equation.
"""

from __future__ import annotations

import re
import tempfile
import time
import warnings
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import jax

from functrans import errors
from functrans.inspect.cost import equation_costs
from functrans.ir.program import Equation, Program, Var, with_programs
from functrans.ir.source import here
from functrans.ir.text import with_nested
from functrans.passes.rewrite import children_first, readers_of
from functrans.primitives.base import bytes_of, own_cost
from functrans.primitives.contractions.convolution import conv_general_dilated
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.records import NamedTuple

# --- what XLA compiled ----------------------------------------------------------------------------
#
# `numbered` writes the number of each equation into the location names of its operations, which XLA
# keeps. A `Compiled`, read from XLA's text, has operations with the numbers of the equations that
# they compute: for a fusion, those inside it.

_NUMBER = re.compile(r"functrans_equation_(\d+)/")
# These only name or hold values, and take no time.
FREE = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast"))
LOOPS_AND_BRANCHES = frozenset(("while", "conditional"))
PRODUCTS = (dot_general, conv_general_dilated)


def numbered(program: Program) -> tuple[Program, list[Equation]]:
    """Return the program with each equation's number in its scope name, and the equations in that
    order, nested ones included."""
    equations: list[Equation] = []
    new: dict[Program, Program] = {}
    for p in children_first(program):
        made = []
        for e, original in zip(with_programs(p, new).equations, p.equations, strict=True):
            code, offset, scope = e.source or (numbered.__code__, 0, "")  # without it there is no name
            scope += f"functrans_equation_{len(equations)}/"
            made.append(replace(e, source=(code, offset, scope)))
            equations.append(original)
        new[p] = p.replace(equations=made)
    return new[program], equations


class Operation(NamedTuple):
    """An XLA operation: its name and kind, the number of its equation, the computations that it
    runs or fuses, and the computation that contains it."""

    name: str
    kind: str
    number: int | None
    computations: tuple[str, ...]
    within: str


class Compiled:
    """A program as XLA runs it.

    name       : of the module
    operations : by name
    """

    def __init__(self, text: str):
        self.operations: dict[str, Operation] = {}
        self._within: dict[str, list[Operation]] = {}
        self._runs: dict[str, Operation] = {}  # computation -> the operation that runs it
        self.name: str = ""
        computation = ""
        for line in text.splitlines():
            if (m := _COMPUTATION.match(line)) is not None:
                computation = m[1]
            elif (m := _OPERATION.match(line)) is not None:
                self.operations[m[1]] = found = _operation(m[1], m[2], computation)
                self._within.setdefault(computation, []).append(found)
                self._runs |= dict.fromkeys(found.computations, found)
            elif (m := _MODULE.match(line)) is not None:
                self.name = m[1]

    def directly_in(self, operation: Operation) -> list[Operation]:
        """Return the operations of the computations that it runs or fuses."""
        return [x for c in operation.computations for x in self._within.get(c, ())]

    def inside(self, operation: Operation) -> Iterator[Operation]:
        """Return `directly_in` and everything nested in it."""
        todo, seen = [operation], {operation.name}
        while todo:
            for x in self.directly_in(todo.pop()):
                if x.name not in seen:
                    seen.add(x.name)
                    todo.append(x)
                    yield x

    def around(self, operation: Operation) -> Iterator[Operation]:
        """Return the loops, branches, calls and fusions that contain it, innermost first."""
        found = self._runs.get(operation.within)
        while found is not None:
            yield found
            found = self._runs.get(found.within)

    def numbers(self, operation: Operation, holder: bool) -> tuple[int, ...]:
        """Return the equations that it computes: for a holder, whose inside is measured separately,
        the loop or branch itself; for what XLA adds to a loop (copies), the loop."""
        found: list[int | None] = []
        if holder or operation.kind not in ("fusion", "call"):
            found.append(operation.number)
        if not holder:
            found += [x.number for x in self.inside(operation) if x.kind not in FREE]
        known = [n for n in dict.fromkeys(found) if n is not None]
        outer = (x.number for x in (operation, *self.around(operation)) if x.number is not None)
        return tuple(known or [n for n in [next(outer, None)] if n is not None])


_MODULE = re.compile(r"HloModule ([\w.\-]+)")
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_OPERATION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_KIND = re.compile(r"\s([a-z][\w\-]*)\(")
_NAME = re.compile(r'op_name="([^"]*)"')
_RUNS = re.compile(
    r" (?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
    r"| (?:branch_computations|called_computations)=\{([^}]*)\}"
)


def _operation(name: str, text: str, within: str) -> Operation:
    kind, named = _KIND.search(text), _NAME.search(text)
    numbers = _NUMBER.findall(named[1]) if named else []
    runs = [x.strip(" %") for m in _RUNS.finditer(text) for x in (m[1] or m[2]).split(",")]
    number = int(numbers[-1]) if numbers else None  # the innermost, if XLA inlined a call
    return Operation(name, kind[1] if kind else "", number, tuple(runs), within)


# --- what JAX's profiler saw of some runs: how long each operation was at work --------------------
#
# In: a function to call some times. Out: for each run, per operation, its nanoseconds and how often
# it ran. On the CPU an operation's event lies on the thread that starts it, and another one,
# `end: NAME`, tells when its work on other threads was done; on a GPU it lies on a stream.

RUN = "functrans.profile run"  # the name of a run in the profile
MOST = 200_000  # operations; each takes about ten microseconds to record and read


class Span(NamedTuple):
    """An operation at work: its run, start and end (in nanoseconds), and name."""

    run: int
    start: float
    stop: float
    name: str


def clock(run: Callable[[], Any], times: int) -> float:
    """Return the median milliseconds of a run."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(1e3 * (time.perf_counter() - start))
    return median(taken)


def recorded(run: Callable[[], Any], times: int, module: str) -> tuple[list[Span], float]:
    """Return the operations of an XLA module in a number of runs, and the median milliseconds of one."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            jax.profiler.start_trace(folder, profiler_options=options)
        except RuntimeError as error:
            raise errors.NotMeasured(
                f"profile cannot start JAX's profiler ({error}), {here()}\n"
                "Only one profile can be recorded at a time: stop the other one first "
                "(jax.profiler.stop_trace())."
            ) from None
        taken = []
        try:
            for _ in range(times):
                with jax.profiler.TraceAnnotation(RUN):
                    taken.append(clock(run, 1))
        finally:
            jax.profiler.stop_trace()
        with warnings.catch_warnings():  # about the definition of its types
            warnings.simplefilter("ignore", DeprecationWarning)
            files = sorted(Path(folder).rglob("*.xplane.pb"))
            planes = [p for f in files for p in jax.profiler.ProfileData.from_file(str(f)).planes]
            return spans(planes, module), median(taken)


def spans(planes: Iterable[Any], module: str) -> list[Span]:
    """Return a module's operations in a profile: those on devices or, if there are none, on the host."""
    planes = list(planes)
    lines = [(p.name.startswith("/device:"), line.events) for p in planes for line in _lines(p)]
    every = [(device, e) for device, events in lines for e in events]
    starts = sorted([e.start_ns for _, e in every if e.name == RUN])
    ends: dict[Any, float] = {}
    begun: dict[bool, list[tuple[Any, dict[str, Any]]]] = {True: [], False: []}
    for device, e in every:
        stats = dict(e.stats)
        if e.name.startswith("end: "):
            ends[stats.get("_c")] = e.start_ns
        elif "hlo_op" in stats and stats.get("hlo_module", module) == module:
            begun[device].append((e, stats))
    found = []
    for e, stats in begun[True] or begun[False]:
        run = bisect_right(starts, e.start_ns) - 1
        stop = max(e.start_ns + e.duration_ns, ends.get(stats.get("_p"), 0.0))
        if run >= 0:
            found.append(Span(run, e.start_ns, stop, stats["hlo_op"]))
    return found


def _lines(plane: Any) -> Sequence[Any]:
    """Return the lines of a plane; on a GPU only the streams, not the lines derived for viewers."""
    lines = list(plane.lines)
    return [line for line in lines if line.name.startswith("Stream")] or lines


def at_work(found: Iterable[Span], holders: Iterable[str]) -> dict[str, float]:
    """Return per operation the nanoseconds of wall-clock time in which it was at work. Operations
    that run at the same time share it equally, so the total is the time in which any ran; a holder
    (a loop) counts only while nothing that it holds runs."""
    holders = set(holders)
    moments = []
    for i, s in enumerate(found):
        moments += [(s.start, 0, i, s.name), (s.stop, 1, i, s.name)]
    total: dict[str, float] = {}
    working: dict[int, str] = {}
    holding: dict[int, str] = {}
    before = 0.0
    for moment, ends, i, name in sorted(moments):
        running = working.values() or list(holding.values())[-1:]
        for x in running if moment > before else ():
            total[x] = total.get(x, 0.0) + (moment - before) / len(running)
        before = moment
        group = holding if name in holders else working
        if ends:
            del group[i]
        else:
            group[i] = name
    return total


# --- from operations of XLA to equations ----------------------------------------------------------


class Kernel(NamedTuple):
    """An XLA operation that was measured: its name and kind, the equations that it computes,
    milliseconds at work and number of calls (medians of the runs). `hides`: it is a whole loop (the
    first equation) as one kernel, whose equations the profiler cannot distinguish."""

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
    """The share of a kernel's time attributed to an equation; None for what XLA added."""

    kernel: Kernel
    equation: Equation | None
    milliseconds: float


def kernels(compiled: Compiled, spans: Sequence[Span], equations: Sequence[Equation]) -> list[Kernel]:
    """Return the observed operations, longest first."""
    operations = compiled.operations
    seen = {s.name for s in spans}
    holders = {o.name for n in seen & operations.keys() for o in compiled.around(operations[n])}
    holders |= {n for n, o in operations.items() if o.kind in LOOPS_AND_BRANCHES}
    by_run: defaultdict[int, list[Span]] = defaultdict(list)
    for s in spans:
        by_run[s.run].append(s)
    times = [at_work(run, holders) for run in by_run.values()]
    counts = [Counter([s.name for s in run]) for run in by_run.values()]
    found = []
    for name in seen:
        took = median([t.get(name, 0.0) for t in times]) / 1e6
        calls = median([c[name] for c in counts])
        operation = operations.get(name)
        if operation is None:  # not in the text: a copy between devices
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


def pieces(found: Iterable[Kernel], costs: dict[Equation, Work], flops_per_byte: float) -> list[Piece]:
    """Divide the time of each kernel among its equations by their FLOPs, equally if they have none.
    The time of a kernel that hides a loop is the loop's.

    In a kernel with a product, whose FLOPs take a device far less time than others, a byte counts as
    many FLOPs as the device takes for a product in that time."""

    def weight(e: Equation, beside_product: bool) -> float:
        work = costs.get(e, Work(0, 0))
        return max(work.flops, flops_per_byte * work.bytes) if beside_product else work.flops

    made = []
    for k in found:
        if len(k.equations) < 2 or k.hides:
            made.append(Piece(k, k.equations[0] if k.equations else None, k.milliseconds))
            continue
        has_product = any([e.primitive in PRODUCTS for e in k.equations])
        weights = [weight(e, has_product) for e in k.equations]
        whole = sum(weights)
        for e, part in zip(k.equations, weights, strict=True):
            share = part / whole if whole else 1 / len(weights)
            if share:
                made.append(Piece(k, e, share * k.milliseconds))
    return made


# --- what equations cost where they ran -----------------------------------------------------------


def costs_of(program: Program, compiled: Compiled, found: Sequence[Kernel]) -> dict[Equation, Work]:
    """Return the FLOPs and bytes of the equations in one run: estimates, with the counted steps of
    a `while`, without bytes of values that stay inside a kernel."""
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
    """Return how often the equations inside `while` loops ran per run of the outermost loop; 0 if
    unknown, inside one kernel."""
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
    """Return the fraction of an equation's bytes that it moves from or to memory, not within its kernels."""
    within: defaultdict[Equation | None, set[str]] = defaultdict(set)  # the kernels of an equation
    for k in found:
        for e in k.equations:
            within[e].add(k.name)
    parts: dict[Equation, float] = {}
    for p in with_nested(program):
        makers = {v: e for e in p.equations for v in e.outputs}
        results = set(p.outputs)
        readers = readers_of(p)
        for e in p.equations:
            mine, size = within[e], own_cost(e).bytes
            if not mine or not size:
                continue
            stays = [v for v in e.inputs if v.__class__ is not Var or mine <= within[makers.get(v)]]
            read = [v for v in e.outputs if v not in results and v in readers]
            stays += [v for v in read if all(within[r] and within[r] <= mine for r in readers[v])]
            parts[e] = max(0.0, 1 - bytes_of(*[v.type for v in stays]) / size)
    return parts
