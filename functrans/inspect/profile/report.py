"""`profile`: the milliseconds per user line, measured with JAX's profiler.

In: a function and its arguments. Out: a `ProfileReport`. The program is compiled with the numbers
of its equations in XLA's names, run repeatedly under the profiler, and the measured times are
attributed to equations (`placing`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from functrans import errors
from functrans.api.jit import How, jit_options
from functrans.api.static_arguments import Staged
from functrans.backends.xla import executable, with_names
from functrans.caching import cached
from functrans.inspect.page import ROWS, Row, Saved, Table, columns, page, table
from functrans.inspect.profile import placing
from functrans.inspect.profile.placing import Kernel, Piece, Work, pieces
from functrans.inspect.staged import located, tool
from functrans.ir.program import Equation, Program, hoist_constants
from functrans.ir.source import brief, describe, here, line_text, location
from functrans.ir.text import names_of, show_equation, with_nested
from functrans.ir.tracebacks import boundary
from functrans.passes import kernels
from functrans.passes.explanation import short
from functrans.passes.pipeline import DEFAULT, Choice
from functrans.primitives.base import bytes_of
from functrans.records import NamedTuple
from functrans.typing import PyTree

if sys.platform != "win32":
    import resource

# --- what a machine can do at most, measured: FLOPs and bytes per second --------------------------

_SECONDS = 0.15  # seconds of calls, of which the fastest counts


class Machine(NamedTuple):
    """platform; FLOP/s of a large product of float32 matrices; bytes per second read and written by
    a sum of large arrays, which do not fit into caches."""

    platform: str
    flops: float
    bytes: float


@cached("speeds of devices", 64, lasting=True)
def machine(device: Any) -> Machine:
    """Measure, once per process, what a device of `jax.devices()` can do; under a second."""
    small = device.platform == "cpu"
    n, size = (1024, 2**24) if small else (4096, 2**27)
    with jax.default_device(device):
        product = _seconds(jax.jit(jnp.dot), jnp.ones((n, n), jnp.float32))
        add = jax.jit(lambda y, x: y + x, donate_argnums=0)  # in place: new memory is slow at first
        added = _seconds(add, jnp.ones(size, jnp.float32))
    return Machine(device.platform, 2 * n**3 / product, 12 * size / added)


def _seconds(f: Any, x: Any) -> float:
    """Return the fastest time of some calls with the last result and x, after a first call."""
    y = jax.block_until_ready(f(x + 0, x))
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < _SECONDS:
        start = time.perf_counter()
        y = jax.block_until_ready(f(y, x))
        taken.append(time.perf_counter() - start)
    return min(taken)


# --- the report -----------------------------------------------------------------------------------

NOT_PLACED = "(not placed)"
_HEAD = ("ms", "share", "calls", "FLOP/s", "bytes/s", "of peak")


class Measured(NamedTuple):
    """The time of a line, an operation or an equation in one run.

    name         : the line, the operation's name or the equation's text; "(not placed)" for what
                   XLA added (copies) without a known origin
    milliseconds : at work; share : of the total
    calls        : the number of calls of its kernels
    flops, bytes : floating point operations of its equations, and bytes that they read from and
                   write to memory; 0 if unknown
    of_peak      : the larger fraction of the machine's peak, of FLOP/s or of bytes per second;
                   of FLOP/s alone if bytes came faster than from memory, so from caches
    inside       : for a loop as one kernel, its lines
    """

    name: str
    milliseconds: float
    share: float
    calls: float
    flops: float
    bytes: float
    of_peak: float
    inside: tuple[str, ...] = ()

    @property
    def flops_per_second(self) -> float:
        """The floating point operations per second reached."""
        return 1e3 * self.flops / self.milliseconds if self.milliseconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """The bytes read and written per second."""
        return 1e3 * self.bytes / self.milliseconds if self.milliseconds else 0.0


@dataclass(eq=False, repr=False)
class ProfileReport(Saved):
    """Where a program spends its time; printable.

    milliseconds : wall-clock time of one run, without the profiler
    profiled     : wall-clock time of one run, under the profiler
    busy         : milliseconds in which an operation was at work; the sum of each table below
    repeats      : the number of recorded runs; all numbers are medians
    lines, operations, equations : a `Measured` each, longest first
    kernels      : a `Kernel` for each XLA operation of the program
    machine      : the peak of the machine: platform, flops, bytes
    new_pages    : memory pages that the system hands to the process in a run, on a CPU
    program      : the program that was run, after the passes
    times        : milliseconds by equation of the program; for a loop its own, or the total if it
                   is one kernel
    """

    _saved = "milliseconds profiled busy repeats new_pages machine lines operations equations"
    program: Program
    kernels: Sequence[Kernel]
    _costs: dict[Equation, Work]
    milliseconds: float
    profiled: float
    repeats: int
    machine: Machine
    new_pages: int

    def __post_init__(self) -> None:
        self.busy = sum([k.milliseconds for k in self.kernels])
        self._pieces = pieces(self.kernels, self._costs, self.machine.flops / self.machine.bytes)
        self.times: dict[Equation, float] = {}
        for p in self._pieces:
            if p.equation is not None:
                before = self.times.get(p.equation, 0.0)
                self.times[p.equation] = before + p.milliseconds
        names = names_of(self.program)
        self.lines: list[Measured] = self._grouped(
            lambda e: f"one kernel (loop at {location(e.source)})", lambda e: line_text(e.source)
        )
        self.operations: list[Measured] = self._grouped(
            lambda e: f"{e.primitive.name} (one kernel)", lambda e: e.primitive.name
        )
        self.equations: list[Measured] = self._grouped(
            lambda e: f"one kernel: {show_equation(e, names)}", lambda e: show_equation(e, names)
        )

    def _grouped(self, hidden: Callable[[Equation], str], plain: Callable[[Equation], str]) -> list[Measured]:
        """Group pieces by name: `hidden` names a loop that is one kernel, `plain` the others."""
        groups: dict[str, list[Piece]] = {}
        for p in self._pieces:
            e = p.equation
            name = NOT_PLACED if e is None else (hidden if p.kernel.hides else plain)(e)
            groups.setdefault(name, []).append(p)
        rows = [self._measured(name, group) for name, group in groups.items()]
        return sorted(rows, key=lambda r: (-r.milliseconds, r.name))

    def _measured(self, name: str, group: Sequence[Piece]) -> Measured:
        took = sum([p.milliseconds for p in group])
        calls = sum({p.kernel: p.kernel.calls for p in group}.values())
        hidden = dict.fromkeys([e for p in group if p.kernel.hides for e in p.kernel.equations])
        plain = dict.fromkeys([p.equation for p in group if not p.kernel.hides and p.equation])
        flops = sum([self._costs[e].flops for e in (*hidden, *plain) if e in self._costs])
        moved = sum([self._costs[e].bytes for e in plain if e in self._costs])
        loops = [e for e in hidden if e.programs]
        moved += sum([bytes_of(*[v.type for v in (*e.inputs, *e.outputs)]) for e in loops[:1]])
        inside = tuple(dict.fromkeys([line_text(e.source) for e in hidden]))
        share = took / self.busy if self.busy else 0.0
        made = Measured(name, took, share, calls, flops, moved, 0.0, inside)
        computed = made.flops_per_second / self.machine.flops
        read = made.bytes_per_second / self.machine.bytes
        return made._replace(of_peak=max(computed, read) if read <= 1 else computed)

    # --- shown

    def __str__(self) -> str:
        parts = [self._summary(), columns(*self._table("line", self.lines))]
        parts.append(columns(*self._table("operation", self.operations)))
        parts += self._notes()
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        kernels = [
            k._asdict() | {"equations": [line_text(e.source) for e in k.equations]} for k in self.kernels
        ]
        return super().as_dict() | {"kernels": kernels}

    def as_html(self) -> str:
        names = names_of(self.program)
        kernels: list[Row] = []
        for k in self.kernels[: 10 * ROWS]:
            equations = "; ".join([show_equation(e, names) for e in k.equations])
            kernels.append((k.milliseconds, f"{k.calls:g}", k.name, k.kind, equations))
        return page(
            "profile",
            f"<p>{self._summary()}</p>",
            table("Lines", *self._table("line", self.lines)),
            *[f"<p>{note}</p>" for note in self._notes()],
            table("Operations", *self._table("operation", self.operations)),
            table("Equations", *self._table("equation", self.equations, 10 * ROWS)),
            table("As XLA ran it", ("ms", "calls", "name", "kind", "equations"), kernels),
        )

    def _summary(self) -> str:
        m = self.machine
        return (
            f"{self.milliseconds:.3g} ms per run on {m.platform}, {self.profiled:.3g} ms under the "
            f"profiler (medians of {self.repeats}), of which {self.busy:.3g} ms in "
            f"{len(self.kernels)} XLA operations. This machine reaches {short(int(m.flops))}"
            f"FLOP/s (float32) and {short(int(m.bytes))}B/s."
        )

    def _notes(self) -> list[str]:
        notes = [_HIDES] if any(row.inside for row in self.lines) else []
        if self.new_pages >= _MANY_PAGES:
            notes.append(_PAGES.format(self.new_pages))
        return notes

    def _table(self, what: str, rows: Sequence[Measured], most: int = ROWS) -> Table:
        shown: list[Row] = []
        for r in rows[:most]:
            computed = int(r.flops_per_second) if r.flops else ""
            moved = int(r.bytes_per_second) if r.bytes else ""
            share, of_peak = f"{100 * r.share:.1f} %", f"{100 * r.of_peak:.1f} %" if r.of_peak else ""
            shown.append((r.milliseconds, share, f"{r.calls:g}", computed, moved, of_peak, r.name))
            if what == "line":
                shown += [("", "", "", "", "", "", f"    {line}") for line in r.inside]
        return (*_HEAD, what), shown


_MANY_PAGES = 1000
_PAGES = (
    "In each run the system hands {:,} new pages of memory to the process, and takes them back, "
    "which takes time. On Linux ft.keep_memory(), called before the first computation, keeps them."
)
_HIDES = (
    "One kernel: XLA runs this loop as one piece of machine code, which the profiler cannot see "
    "into. The lines inside are listed below it, without times of their own."
)


# --- measuring ------------------------------------------------------------------------------------

# The profiler does not name the operations of a CUDA graph; of fewer XLA makes none.
_WITHOUT_GRAPHS = {"xla_gpu_graph_min_graph_size": 1_000_000}
_LONG = 10_000  # most milliseconds of all runs together, if there are several


@boundary
def profile(
    fun: Callable[..., PyTree] | Program, *, passes: Choice | None = None, repeats: int = 10
) -> Callable[..., ProfileReport]:
    """Make a function that runs `fun` under JAX's profiler and reports the time per line.

    Arguments:
      fun: function of pytrees of arrays, which may be jitted, a gradient, ...; or a Program.
      passes: as in `ft.jit`; by default those of `fun` if it is jitted, else all.
      repeats: the number of recorded runs, after a first one; the report shows medians. Fewer runs
        are recorded if the program takes seconds or has very many small operations.

    Returns:
      A function of arrays, scalars and pytrees that returns a `ProfileReport`: print it, `save` it
      as `.html` or `.json`, pass it to `ft.explore(f, path, profile=report)`; or read `lines`,
      `operations`, `equations`, `kernels`, `milliseconds`, `busy`.

      Times are wall-clock times in which an XLA operation is at work; operations that run at the
      same time share it, so the shares of a table add up to 1. The time of an operation fused from
      several equations is divided among them by their FLOPs, with a product also by their bytes, and
      equally if they have none. The work of a loop itself (counting, slicing, starting its
      operations) is in its own line, as are copies that XLA adds in it; others are "(not placed)". A
      loop that XLA compiles to one kernel is one row, with its lines below it, because the profiler
      cannot see inside.

      FLOPs are those of `ft.cost`, with the actual steps of a `while`; bytes are those of `ft.cost`
      without values that stay inside a fused operation. The peak of the machine is measured in the
      first call, with a product of large matrices and a sum of large arrays; data in caches may be
      read faster. The profiler itself takes about half a microsecond per recorded operation:
      compare `milliseconds` and `profiled`.

      On a GPU the program is compiled without CUDA graphs, in which the profiler does not
      distinguish operations, so each takes some microseconds more to start than under `ft.jit`.

      It runs on the devices of the arguments, which are never donated; the device and compiler
      options of `ft.jit` are ignored, except `cpu="plain"`.

    Raises:
      TypeMismatch: `fun` is a Program that takes other values.
      NotAnArray: `fun` is not a function, or an argument is a type only.
      InvalidArgument: a name in `passes` is not a pass; `repeats` is not a positive integer; the
        program has side effects, which would be repeated.
      NotMeasured: the profiler recorded no operation, or another profile is being recorded.

    Source: `jax.profiler.trace`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> report = ft.profile(lambda x: jnp.sin(x @ x), repeats=2)(jnp.ones((64, 64)))
      >>> sorted(row.name for row in report.operations)
      ['dot_general', 'sin']
      >>> round(sum(row.share for row in report.lines), 6)
      1.0
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise errors.InvalidArgument(
            f"profile: repeats={brief(repeats)} must be a positive integer, {here()}\nThe default is 10."
        )
    return tool("profile", fun, passes, DEFAULT, lambda made: _profiled(made, repeats, jit_options(fun)))


@jax.disable_jit(False)
def _profiled(made: Staged, repeats: int, how: How | None) -> ProfileReport:
    _check_repeatable(made.program, repeats)
    program = located(made.program, None)
    marked, equations = placing.numbered(program)
    closed, constants = hoist_constants(marked)
    if how is not None and how.plain:
        closed = kernels.plain(closed)
    operands = [*constants, *made.leaves]
    function: Any = executable(closed)  # of jax.jit, which donates nothing
    options = _WITHOUT_GRAPHS if jax.default_backend() == "gpu" else None
    with with_names():
        runs = function.lower(*operands).compile(options)
    run = partial(runs, *operands)
    results = jax.block_until_ready(run())
    device = next((d for x in results for d in x.devices()), jax.devices()[0])
    repeats = min(repeats, max(1, int(_LONG / placing.clock(run, 1))))
    before = _pages_handed()
    plainly = placing.clock(run, repeats)
    pages = (_pages_handed() - before) // repeats if device.platform == "cpu" else 0
    compiled = placing.Compiled(runs.as_text())
    spans, under, times = _seen(run, repeats, compiled, device)
    found = placing.kernels(compiled, spans, equations)
    costs = placing.costs_of(program, compiled, found)
    return ProfileReport(program, found, costs, plainly, under, times, machine(device), pages)


def _seen(
    run: Callable[[], Any], repeats: int, compiled: placing.Compiled, device: Any
) -> tuple[list[placing.Span], float, int]:
    """Return the operations of some runs, the profiled milliseconds of one, and their number."""
    spans, under = placing.recorded(run, 1, compiled.name)
    if not spans and any(o.kind not in placing.FREE for o in compiled.operations.values()):
        raise errors.NotMeasured(
            f"JAX's profiler recorded no operation on {device.device_kind} ({device.platform}), "
            f"{here()}\n"
            "On a GPU, its tracing library (CUPTI) must be installed and permitted. Otherwise "
            "profile on the CPU (JAX_PLATFORMS=cpu), or estimate the cost without running the "
            "program: ft.cost."
        )
    if len(spans) > placing.MOST:
        return spans, under, 1
    times = min(repeats, max(1, placing.MOST // max(len(spans), 1)))
    return *placing.recorded(run, times, compiled.name), times


def _pages_handed() -> int:
    """Return the number of memory pages that the system has handed to this process."""
    return 0 if sys.platform == "win32" else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _check_repeatable(program: Program, repeats: int) -> None:
    for e in [e for p in with_nested(program) for e in p.equations]:
        calls = e.primitive.calls(e.params)
        if calls is None or not calls.effects:
            continue
        raise errors.InvalidArgument(
            f"profile runs the program more than {repeats} times, and would repeat its side "
            f"effect: {e.primitive.called(e.params)}, at\n"
            f"    {describe(e.source)}\n"
            "Remove it from the profiled function. An ft.pure_callback may stay."
        )
