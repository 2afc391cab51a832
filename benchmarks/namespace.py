"""`python -m benchmarks.namespace [--only GROUP] [--repeats N]`: native functions against JAX's.

Two measurements for each call in `namespace_calls.txt`, ours and JAX's in turn in one process:

- trace: `ft.make_ir(f)(*arrays)` against `jax.make_jaxpr(f)(*arrays)`. f is a new function of the
  arrays each time, so neither side finds it in a cache. The libraries' own caches stay filled: types
  and signatures seen before, and the programs of those functions of jax.numpy that are jitted
  inside. This is what the first `jit` of a new function costs in a running process.
- un-jitted: the same expression without jit on small arrays, with everything compiled before.

A third measurement is for the imported functions: `from_jax(f)` traced again at a signature that it
has seen, against `jax.make_jaxpr(f)`.

A ratio below 1 means functrans takes less time. It is a ratio of least times, because other
processes can only add to a time. Calls that a side cannot trace, because the shape of the result
depends on values, have no trace figure.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.extend
import jax.scipy.special
import jax.scipy.stats
import numpy as np

import functrans as ft

ENOUGH = 2e-3  # seconds that one measurement lasts at least
WORST = 10

_rng = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape).astype(np.float32)


def _integers(low: int, high: int, *shape: int) -> np.ndarray:
    return _rng.integers(low, high, size=shape).astype(np.int32)


_X, _M = _normal(3, 4), _normal(4, 4)
ARRAYS: dict[str, Any] = {
    name: jax.numpy.asarray(value)
    for name, value in {
        "x": _X,
        "y": _normal(3, 4),
        "p": np.abs(_normal(3, 4)) + 0.5,
        "u": np.tanh(_normal(3, 4)),
        "v": _normal(4),
        "v6": _normal(6),
        "up": np.sort(_normal(6)),
        "col": _normal(3, 1),
        "s": np.float32(0.7),
        "q": _normal(2, 3, 4),
        "w": _normal(4, 5),
        "m": _M,
        "pd": _M @ _M.T + np.eye(4, dtype=np.float32),
        "a3": _normal(5, 3),
        "b3": _normal(5, 3),
        "nans": np.where(_X > 1, np.nan, _X),
        "inf": np.array([1, np.inf, -np.inf, np.nan, -0.0], np.float32),
        "i": _integers(-5, 6, 3, 4),
        "j": _integers(1, 6, 3, 4),
        "iv": _integers(0, 5, 7),
        "n8": _integers(0, 6, 3, 4).astype(np.uint8),
        "n32": _integers(0, 6, 3, 4).astype(np.uint32),
        "b": _X > 0,
        "b2": _X < 0.5,
        "h": _normal(3, 4).astype(np.float16),
        "z": (_normal(3, 4) + 1j * _normal(3, 4)).astype(np.complex64),
        "qkv": _normal(1, 5, 2, 4),
        "img": _normal(1, 2, 6, 6),
        "ker": _normal(3, 2, 3, 3),
    }.items()
}
OURS = {"jnp": ft.numpy, "lax": ft.lax, "nn": ft.nn}
JAX = {"jnp": jax.numpy, "lax": jax.lax, "nn": jax.nn}
IMPORTED = [
    (jax.scipy.special.spence, "p"),
    (jax.scipy.special.exp1, "p"),
    (jax.scipy.special.bernoulli, None),
    (jax.scipy.stats.gamma.logpdf, "p p"),
    (jax.scipy.stats.beta.cdf, "p p p"),
    (jax.scipy.stats.t.logpdf, "x p"),
    (jax.nn.softmax, "x"),
    (jax.numpy.quantile, "x s"),
    (jax.numpy.linalg.pinv, "m"),
    (jax.scipy.linalg.expm, "m"),
]


@dataclass
class Figure:
    """Seconds of one call."""

    row: str
    ours: float
    peer: float

    @property
    def ratio(self) -> float:
        return self.ours / self.peer


def calls() -> dict[str, list[str]]:
    """Return the expressions of each group."""
    table: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("namespace_calls.txt").read_text().splitlines():
        if line.startswith("["):
            rows = table[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            rows.append(line)
    return table


def arrays_of(row: str) -> list[str]:
    """Return the names of the arrays that an expression reads."""
    words = compile(row, row, "eval").co_names
    return [name for name in ARRAYS if name in words]


def maker(row: str, library: dict[str, Any]) -> Callable[[], Callable[..., Any]]:
    """Return a function that makes the expression into a new function of its arrays at each call."""
    return eval(f"lambda: lambda {', '.join(arrays_of(row))}: {row}", dict(library))


def least(ours: Callable[[], Any], peer: Callable[[], Any], repeats: int) -> tuple[float, float] | None:
    """Return the least times of one call of each, taken in turn; None where one of them fails."""
    try:
        counts = [_enough(ours), _enough(peer)]
    except Exception:
        return None
    best = [float("inf")] * 2
    gc.disable()
    try:
        for repeat in range(repeats):
            for side in (0, 1) if repeat % 2 else (1, 0):
                best[side] = min(best[side], _time((ours, peer)[side], counts[side]))
    finally:
        gc.enable()
    return best[0], best[1]


def _time(run: Callable[[], Any], n: int) -> float:
    start = time.perf_counter()
    for _ in range(n):
        out = run()
    if not isinstance(out, jax.extend.core.ClosedJaxpr):
        jax.block_until_ready(out)
    return (time.perf_counter() - start) / n


def _enough(run: Callable[[], Any]) -> int:
    for _ in range(2):  # compiles
        run()
    return max(1, min(200, int(ENOUGH / _time(run, 1))))


def traces(row: str, repeats: int) -> Figure | None:
    """Measure the time to trace an expression."""
    ours, peer = maker(row, OURS), maker(row, JAX)
    args = [ARRAYS[name] for name in arrays_of(row)]
    found = least(lambda: ft.make_ir(ours())(*args), lambda: jax.make_jaxpr(peer())(*args), repeats)
    return found and Figure(row, *found)


def runs(row: str, repeats: int) -> Figure | None:
    """Measure the time to evaluate it un-jitted."""
    ours, peer = maker(row, OURS)(), maker(row, JAX)()
    args = [ARRAYS[name] for name in arrays_of(row)]
    found = least(lambda: ours(*args), lambda: peer(*args), repeats)
    return found and Figure(row, *found)


def imported(repeats: int) -> Iterator[Figure]:
    """Measure the time of a second trace of each imported function."""
    for f, names in IMPORTED:
        args = [ARRAYS[name] for name in names.split()] if names else [3]
        ours = ft.interop.from_jax(f)
        found = least(
            lambda ours=ours, args=args: ft.make_ir(lambda *xs: ours(*xs))(*args),
            lambda f=f, args=args: jax.make_jaxpr(lambda *xs: f(*xs))(*args),
            repeats,
        )
        if found:
            yield Figure(f"{f.__module__.removeprefix('jax._src.')}.{f.__name__}", *found)


def line(name: str, figures: list[Figure], goal: float) -> str:
    """Return one line of the table."""
    ratios = sorted(f.ratio for f in figures)
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    met = "met" if middle <= goal else "missed"
    return f"| {name} | {len(ratios)} | {middle:.3f} | {low:.3f}-{high:.3f} | <= {goal:g} {met} |"


def worst(name: str, figures: list[Figure]) -> str:
    """Return a table of the rows with the largest ratios."""
    rows = [f"\n{name}, the {WORST} worst:\n", "| call | ours, µs | JAX, µs | ratio |"]
    rows.append("|---|---:|---:|---:|")
    for f in sorted(figures, key=lambda f: -f.ratio)[:WORST]:
        shown = f.row.replace("|", "\\|")
        rows.append(f"| `{shown}` | {f.ours * 1e6:.1f} | {f.peer * 1e6:.1f} | {f.ratio:.2f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="the groups whose name begins so")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines, all_traces, all_runs = [], [], []
    for group, rows in calls().items():
        if not group.startswith(options.only):
            continue
        traced = [f for row in rows if (f := traces(row, options.repeats))]
        ran = [f for row in rows if (f := runs(row, options.repeats))]
        lines += [line(f"trace, {group}", traced, 0.25), line(f"un-jitted, {group}", ran, 1.2)]
        print("\n".join(lines[-2:]), flush=True)
        all_traces += traced
        all_runs += ran
    lines = [line("trace, all", all_traces, 0.25), line("un-jitted, all", all_runs, 1.2), *lines]
    if not options.only:
        lines.append(line("second trace, imported", list(imported(options.repeats)), 0.25))
    print(f"\njax {jax.__version__}\n\n| measurement | calls | median ratio | quartiles | goal |")
    print("|---|---:|---:|---:|---|\n" + "\n".join(lines))
    print(worst("Trace", all_traces))
    print(worst("Un-jitted", all_runs))


if __name__ == "__main__":
    main()
