"""`python -m benchmarks options [--rows WORD] [--repeats N]`: what XLA hands to YNNPACK on a CPU.

The training steps of `training`, compiled by functrans under each set of fusions that the option may
name, against JAX's step as it is; then what the programs contain, by which a set may be chosen. No
set is the best for all programs, and a wrong one may take three times as long.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import jax

import functrans as ft
from benchmarks.compared import difference
from benchmarks.models import JAX, OURS
from benchmarks.simulators import Function
from benchmarks.training import ROUNDING, Program, programs
from functrans.ir.program import Equation
from functrans.ir.text import with_nested
from functrans.primitives.contractions.convolution import is_group

SECONDS = 12.0  # of measurements of a program; each side is called at least `repeats` times
OPTION = "xla_cpu_experimental_ynn_fusion_type"
SETS: dict[str, tuple[str, ...] | None] = {
    "default": None,
    "nothing": (),
    "REDUCE": ("REDUCE",),
    "single DOT + REDUCE": ("INDIVIDUAL_DOT", "REDUCE"),  # the default without convolutions
    "DOT + REDUCE": ("DOT", "REDUCE"),
    "ELTWISE": ("ELTWISE",),
    "all three": ("DOT", "REDUCE", "ELTWISE"),
}


@dataclass(frozen=True)
class Line:
    """A program under each set and in JAX: milliseconds of a call, and how far the results are at
    most from those of the default, which may be a `failure`; `holds`: what its optimized program
    contains."""

    name: str
    median: dict[str, float]
    fastest: dict[str, float]
    threads: dict[str, float]  # the median of the CPU time of all threads together
    difference: float
    holds: dict[str, float]
    failure: str | None


def under(chosen: tuple[str, ...] | None) -> dict[str, Any]:
    """Return the options of a compilation that hands these kinds of fusions to YNNPACK. For None they
    are empty: JAX's default, and functrans does not choose either."""
    if chosen is None:
        return {}
    return {OPTION: ",".join(f"LIBRARY_FUSION_TYPE_{kind}" for kind in chosen)}


def measured(program: Program, repeats: int) -> Line:
    """Measure the row of a program, all its sides in turn."""
    args = program.arrays()
    step = program.make(OURS)
    jits = {name: ft.jit(step, compiler_options=under(chosen)) for name, chosen in SETS.items()}
    jits["JAX"] = jax.jit(program.make(JAX))
    results = [program.result(jit(*args)) for jit in jits.values()]
    clock, threads = (dict(zip(jits, t, strict=True)) for t in timed(jits.values(), args, repeats))
    off = max(difference(result, results[0]) for result in results[1:])
    return Line(
        program.name,
        {name: statistics.median(t) for name, t in clock.items()},
        {name: min(t) for name, t in clock.items()},
        {name: statistics.median(t) for name, t in threads.items()},
        off,
        held(jits["default"].program(*args)),
        None if off <= ROUNDING else f"WRONG: differs by {off:.1e} of the largest number",
    )


def timed(
    jits: Collection[Function], args: tuple[Any, ...], repeats: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Time single calls in turn, in milliseconds: by the clock, and the CPU time of all threads."""
    clock: list[list[float]] = [[] for _ in jits]
    threads: list[list[float]] = [[] for _ in jits]
    sides = list(zip(jits, clock, threads, strict=True))
    gc.collect()
    end = time.perf_counter() + SECONDS
    while len(clock[0]) < repeats or time.perf_counter() < end:
        for jitted, by_clock, of_threads in sides:
            start, work = time.perf_counter(), time.process_time()
            jax.block_until_ready(jitted(*args))
            by_clock.append((time.perf_counter() - start) * 1e3)
            of_threads.append((time.process_time() - work) * 1e3)
        sides.reverse()
    return clock, threads


def flops_of(e: Equation) -> int:
    """Return the floating point operations of an equation by its primitive's estimate."""
    types = ([v.type for v in values] for values in (e.inputs, e.outputs))
    return e.primitive.cost(*types, **e.params).flops


def held(program: Any) -> dict[str, float]:
    """Return what a rule could choose by: how many equations of which kind, and the FLOPs of products."""
    equations = [e for p in with_nested(program) for e in p.equations]
    kinds = [e.primitive.name for e in equations]
    convolutions = [e for e in equations if e.primitive.name == "conv_general_dilated"]
    products = [e for e in equations if e.primitive.name == "dot_general"]
    flops = [flops_of(e) for e in products]
    return {
        "equations": len(equations),
        "loops": kinds.count("scan") + kinds.count("while"),
        "reductions": sum(kind.startswith("reduce_") for kind in kinds),
        "convolutions": len(convolutions),
        "of groups": sum(map(_batched, convolutions)),
        "products": len(products),
        "batched": sum(map(_batched, products)),
        "median MFLOP": statistics.median(flops or [0]) / 1e6,
        "largest MFLOP": max(flops, default=0) / 1e6,
    }


def _batched(e: Equation) -> bool:
    """Return whether there is a batch axis: in both operands and the result, without a window."""
    params = {"spatial": (), **e.params}
    return any(is_group(params, name) for name in params["lhs"])


def markdown(head: list[str], rows: list[list[str]]) -> str:
    ruled = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in ruled)


def run(rows: str = "", repeats: int = 15) -> list[Line]:
    """Measure the rows whose name contains `rows`, and print both tables."""
    jax.config.update("jax_enable_compilation_cache", False)
    lines = []
    for program in programs(rows):
        lines.append(measured(program, repeats))
        print(f"{program.name}, ms: {lines[-1].median}", flush=True)
    times = [
        [
            line.name,
            *[
                f"{line.median[side]:.3g} ({line.fastest[side]:.3g}; {line.threads[side]:.3g})"
                for side in line.median
            ],
            f"{line.difference:.0e}" + (f" **{line.failure}**" if line.failure else ""),
        ]
        for line in lines
    ]
    print(f"\nmilliseconds, median (fastest; of all threads); JAX {jax.__version__}\n")
    print(markdown(["training step", *SETS, "JAX", "difference"], times))
    holds = [[line.name, *[f"{n:.4g}" for n in line.holds.values()]] for line in lines]
    print(f"\n{markdown(['program', *(lines[0].holds if lines else ())], holds)}")
    return lines
