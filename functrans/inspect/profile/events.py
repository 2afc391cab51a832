"""What JAX's profiler saw of some runs: how long each of XLA's operations was at work.

In: a function to call some times. Out: for each run, per operation, its nanoseconds and how often
it ran. On the CPU an operation's event lies on the thread that starts it, and another one,
`end: NAME`, tells when its work on other threads was done; on a GPU it lies on a stream.
"""

from __future__ import annotations

import tempfile
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from functrans import errors
from functrans.ir.source import describe, user_source

RUN = "functrans.profile run"  # what a run is called in the profile
MOST = 200_000  # operations that are looked at; each takes some ten microseconds to record and read


class Span(NamedTuple):
    """An operation at work: in which run, from and to (in nanoseconds), and its name."""

    run: int
    start: float
    stop: float
    name: str


def recorded(run: Callable[[], Any], times: int, module: str) -> list[Span]:
    """The operations of a module of XLA's in so many runs."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            jax.profiler.start_trace(folder, profiler_options=options)
        except RuntimeError as error:
            raise errors.NotMeasured(
                f"profile cannot start JAX's profiler ({error}), at\n"
                f"    {describe(user_source())}\n"
                "Only one profile can be recorded at a time: stop the other one first "
                "(jax.profiler.stop_trace())."
            ) from None
        try:
            for _ in range(times):
                with jax.profiler.TraceAnnotation(RUN):
                    jax.block_until_ready(run())
        finally:
            jax.profiler.stop_trace()
        with warnings.catch_warnings():  # about how its types were made
            warnings.simplefilter("ignore", DeprecationWarning)
            files = sorted(Path(folder).rglob("*.xplane.pb"))
            planes = [p for f in files for p in jax.profiler.ProfileData.from_file(str(f)).planes]
            return spans(planes, module)


def spans(planes: Iterable[Any], module: str) -> list[Span]:
    """The operations of a module in the planes of a profile: those of the devices that have any,
    else those of the host."""
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
    """Its lines; of a GPU the streams, not what is made of them for viewers."""
    lines = list(plane.lines)
    return [line for line in lines if line.name.startswith("Stream")] or lines


def at_work(found: Iterable[Span], holders: Iterable[str]) -> dict[str, float]:
    """Per operation the nanoseconds of the clock that it was at work. At each moment those that
    run share alike, so that all add up to the time in which any did; a holder (a loop) counts
    while nothing of what it holds does."""
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
