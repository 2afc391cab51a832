"""Compares a program, written once and compiled by both libraries, in one line of a table."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np

from benchmarks.timing import Side, quartiles, turns

TURN = 0.005  # seconds of calls in one measurement


@dataclass
class Line:
    """One line of a table: times in ms; `ratio`, `low`, `high` and `fastest` are ours / JAX's."""

    name: str
    ours: float = math.nan
    peer: float = math.nan
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    fastest: float = math.nan  # ratio of the fastest measurements, which a busy machine disturbs least
    difference: float = math.nan
    failure: str | None = None

    def check(self, difference: float, limit: float) -> None:
        """Record how far the answers are apart: above `limit` it is a failure."""
        self.difference = difference
        if not difference <= limit:
            self.failure = f"WRONG: differs by {difference:.1e} of the largest number"

    def time(self, jits: Sequence[Callable[..., Any]], args: tuple[Any, ...], repeats: int) -> Any:
        """Time calls in turn, ours first, JAX's second; return the milliseconds of any others."""
        times = turns([side(jit, args) for jit in jits], repeats)
        self.low, self.ratio, self.high = quartiles([a / b for a, b in zip(times[0], times[1], strict=True)])
        self.fastest = min(times[0]) / min(times[1])
        self.ours, self.peer, *others = (statistics.median(t) * 1e3 for t in times)
        return others


def side(jitted: Callable[..., Any], args: tuple[Any, ...]) -> Side:
    """Return a compiled function as a side to be timed, with as many calls as fill a turn."""

    def run() -> Any:
        return jax.block_until_ready(jitted(*args))

    def seconds() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return run, max(1, round(TURN / min(seconds() for _ in range(4)))), None


def difference(ours: Any, peer: Any) -> float:
    """Return the largest difference, relative to each array's largest number; NaN if there is a NaN."""
    a, b = jax.tree.leaves(ours), jax.tree.leaves(peer)
    if jax.tree.structure(ours) != jax.tree.structure(peer):
        return math.inf
    if [(x.shape, x.dtype) for x in a] != [(x.shape, x.dtype) for x in b]:
        return math.inf
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(a, b, strict=True) if x.size]
    off = [float(np.max(np.abs(x - y)) / max(np.max(np.abs(y)), 1e-30)) for x, y in pairs]
    return math.nan if any(math.isnan(d) for d in off) else max(off)


LineT = TypeVar("LineT", bound="Line")


def printed(header: str, lines: Iterable[LineT], shown: Callable[[LineT], str]) -> list[LineT]:
    """Print each line of a table when it is measured; JAX's cache on disk is off."""
    jax.config.update("jax_enable_compilation_cache", False)
    print(header, flush=True)
    made = []
    for line in lines:
        made.append(line)
        print(shown(line), flush=True)
    return made


def means(lines: Sequence[Line]) -> str:
    """Return the last line of a table: geometric means."""
    ratios, fastest = (
        geometric_mean([getattr(line, name) for line in lines]) for name in ("ratio", "fastest")
    )
    return f"geometric mean of {len(lines)} ratios: {ratios:.3f}; of the fastest: {fastest:.3f}"


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
