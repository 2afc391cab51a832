"""The results of `profile` as text, as an HTML page, as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from functrans.caching import cached
from functrans.inspect.page import ROWS, Row, Saved, Table, columns, page, table
from functrans.inspect.profile.placing import Kernel, Piece, Work, pieces
from functrans.ir.program import Equation, Program
from functrans.ir.source import line_text, location
from functrans.ir.text import names_of, show_equation
from functrans.passes.explanation import short
from functrans.primitives.base import bytes_of

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
