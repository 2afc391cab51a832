"""Times two functions in turn in one process, and compares them by ratios: absolute times on a
shared machine mean little."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

import functrans as ft

# What runs, how many calls make one measurement, and what runs untimed before it.
Side = tuple[Callable[[], Any], int, Callable[[], Any] | None]
GARBAGE = 8  # pairs between garbage collections: a collection takes longer than a short step


@dataclass
class Row:
    """One line of the table: `ratio` is ours / JAX's, smaller is better."""

    name: str
    ours: float
    peer: float
    ratio: float
    low: float
    high: float
    goal: float | None
    unit: str = "ms"

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.ratio <= self.goal


def pair(
    name: str,
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    *,
    goal: float | None = None,
    repeats: int = 15,
    calls: int | tuple[int, int] = 1,
    before: Callable[[], Any] | tuple[Callable[[], Any], Callable[[], Any]] | None = None,
) -> Row:
    """Time both sides in turn, `repeats` times each, after one call of each; the ratio is taken pair
    by pair. A measurement is `calls` calls; give two numbers where one side takes much longer.
    `before` runs untimed before every measurement; give two functions where the sides differ."""
    if before is None:
        jax.block_until_ready((ours(), peer()))
    first = before if isinstance(before, tuple) else (before, before)
    count = (calls, calls) if isinstance(calls, int) else calls
    times = turns(((ours, count[0], first[0]), (peer, count[1], first[1])), repeats)
    low, ratio, high = quartiles([a / b for a, b in zip(*times, strict=True)])
    a, b = (statistics.median(side) * 1e3 for side in times)
    return Row(name, a, b, ratio, low, high, goal)


def turns(sides: Sequence[Side], repeats: int) -> list[list[float]]:
    """Return `repeats` times of a call of each side, in seconds. The order of the sides alternates."""
    times: list[list[float]] = [[] for _ in sides]
    gc.collect()
    gc.disable()
    try:
        for i in range(repeats):
            for k in range(len(sides))[:: 1 if i % 2 == 0 else -1]:
                times[k].append(_time(*sides[k]))
            if i % GARBAGE == 0:
                gc.collect()
    finally:
        gc.enable()
    return times


def quartiles(ratios: list[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    ordered = sorted(ratios)
    quarter = len(ordered) // 4
    return ordered[quarter], statistics.median(ordered), ordered[-1 - quarter]


def counted(name: str, ours: float, peer: float, *, unit: str, goal: float | None = None) -> Row:
    """Return a row of two numbers that do not vary: bytes, or numbers of equations."""
    ratio = ours / max(peer, 1e-9)
    return Row(name, ours, peer, ratio, ratio, ratio, goal, unit)


def clear() -> None:
    """Empty the caches of both libraries."""
    ft.clear_caches()
    jax.clear_caches()


def _time(run: Callable[[], Any], calls: int, before: Callable[[], Any] | None) -> float:
    if before is not None:
        before()
    start = time.perf_counter()
    for _ in range(calls):
        out = run()
    _wait(out)
    return (time.perf_counter() - start) / calls


def _wait(out: Any) -> None:
    with contextlib.suppress(TypeError, AttributeError):  # programs and the like are not arrays
        jax.block_until_ready(out)


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| measurement | functrans, ms | JAX, ms | ratio (quartiles) | goal |",
        "|---|---:|---:|---:|---:|",
    ]
    for r in rows:
        goal = "" if r.goal is None else f"<= {r.goal:.3g} {'met' if r.met else 'missed'}"
        unit = "" if r.unit == "ms" else f" {r.unit}"
        spread = f" ({r.low:.3f}-{r.high:.3f})" if r.unit == "ms" else ""
        lines.append(
            f"| {r.name} | {r.ours:.4g}{unit} | {r.peer:.4g}{unit} | {r.ratio:.3f}{spread} | {goal} |"
        )
    return "\n".join(lines)
