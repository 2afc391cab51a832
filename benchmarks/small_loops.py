"""`python -m benchmarks loops|ensembles [--rows WORD] [--repeats N] [--x64]`: small loops on the CPU.

Simulators, filters and small networks, each written once and compiled by both libraries. Measured
are the time, compilation and memory of loops of many tiny operations, and whether the answers agree.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import functrans as ft
from benchmarks import recurrences, simulators
from benchmarks.compared import Line, difference, means, printed
from benchmarks.models import JAX, OURS, Library, rnn_loss, rnn_params
from benchmarks.recurrences import regression, track
from benchmarks.simulators import arm, bump, cable, cluster, near, normal, policy_params
from benchmarks.timing import clear

Make = Callable[[Library], Callable[..., Any]]
COMPILATIONS = 2  # of each side; the faster one counts

# The further sides: loops are not made kernels; the thread that calls runs the program.
plain, blocking = (partial(ft.jit, cpu=how) for how in ("plain", "blocking"))


@dataclass(frozen=True)
class Program:
    """What is compiled, and its arguments: NumPy arrays, which take the float width that is switched
    on. `amplifies`: how many roundings an answer may be off, relative to its largest number."""

    name: str
    make: Make
    args: tuple[Any, ...]
    x64: bool = False
    amplifies: float = 1000.0


@dataclass
class LoopLine(Line):
    """A line with two further sides, and with the cost of compilation."""

    plain: float = math.nan
    blocking: float = math.nan
    compilation: float = math.nan
    temporaries: tuple[int, int] = (0, 0)


# --- the programs ---------------------------------------------------------------------------------


def transformed(make: Make, name: str, **options: Any) -> Make:
    """Apply the library's transformation of that name to what `make` returns."""
    return lambda lib: getattr(lib.ft, name)(make(lib), **options)


def mapped(make: Make, args: tuple[Any, ...]) -> Make:
    """Map over the rows of the first argument."""
    return transformed(make, "vmap", in_axes=(0, *[None] * (len(args) - 1)))


def both(name: str, make: Make, *args: Any, rows: bool = False, **options: Any) -> Iterator[Program]:
    """Yield the value, and its gradient with respect to the first argument; `rows`: for each row of it."""
    for about, made in (("value", make), ("gradient", transformed(make, "grad"))):
        yield Program(f"{name}, {about}", mapped(made, args) if rows else made, args, **options)


def differential_equations() -> Iterator[Program]:
    rates, start = np.array([1.1, 0.4, 0.4, 0.1]), np.array([1.0, 2.0, 20.0])
    observed = simulators.observed_animals()
    for name, make, args in (
        ("Lotka-Volterra{}, 1000 steps", simulators.lotka_volterra, (rates, observed)),
        ("Lorenz{}, 300 steps", simulators.lorenz, (start,)),
    ):
        yield from both(name.format(""), make, *args)
        yield from both(name.format(" x 64"), make, near(args[0], 64), *args[1:], rows=True)
    for n, steps in ((3, 500), (30, 100)):
        make = partial(simulators.bodies, steps=steps)
        yield from both(f"{n} bodies, {steps} steps", make, *cluster(n))
    for n, steps in ((1, 1000), (20, 1000), (200, 200)):
        name = f"Hodgkin-Huxley, {n} compartment{'s' * (n > 1)}, {steps} steps"
        yield from both(name, simulators.hodgkin_huxley, *cable(n, steps))


POLICIES = (
    ("cart-pole", simulators.cart_pole, 4, np.array([0.0, 0.0, 0.1, 0.0])),
    ("pendulum", simulators.pendulum, 3, np.array([3.0, 0.0])),
)


def control() -> Iterator[Program]:
    for name, rollout, inputs, start in POLICIES:
        params = policy_params(inputs)
        yield from both(f"{name}, 200 steps", rollout, params, start)
        for n in (16, 256):
            make = simulators.many(rollout)
            yield from both(f"{name} x {n}, 200 steps", make, params, near(start, n))


def robots() -> Iterator[Program]:
    angles = np.linspace(-1, 1, 7)
    alone, many = (angles, arm()), (near(angles, 64), arm())
    for name, make in (
        ("kinematics, value", simulators.kinematics),
        ("kinematics, jacobian", transformed(simulators.kinematics, "jacfwd")),
        ("mass matrix, value", simulators.mass_matrix),
        ("kinetic energy, gradient", transformed(simulators.kinetic_energy, "grad")),
        ("log det mass matrix, gradient", transformed(simulators.log_volume, "grad")),
    ):
        yield Program(f"7 joints: {name}", make, alone)
        yield Program(f"7 joints x 64: {name}", mapped(make, many), many)


def time_series() -> Iterator[Program]:
    noise = np.array([-3.0, -2.0])
    yield from both("Kalman filter, 4 x 4, 200 steps", recurrences.kalman, noise, track())
    yield from both("RTS smoother, 4 x 4, 200 steps", recurrences.smoother, noise, track())
    yield from both(
        "hidden Markov model, 6 states, 500 steps",
        recurrences.hidden_markov,
        recurrences.markov_params(),
        recurrences.symbols(),
    )
    yield from both("GARCH, 2000 steps", recurrences.garch, np.array([-2, -2, -0.3]), normal(2000))
    rate = np.array(-3.0)
    yield from both("HMC, 200 x 5, 10 x 20 steps", recurrences.hmc, rate, *regression())


def fields() -> Iterator[Program]:
    for n, steps in ((16, 200), (128, 50)):
        make = partial(simulators.heat, steps=steps)
        yield from both(f"heat, {n} x {n}, {steps} steps", make, bump(n, n))
    yield from both("wave, 40 points, 300 steps", simulators.wave, bump(40))


def roots() -> Iterator[Program]:
    slope = transformed(simulators.kepler, "jacfwd")
    for name, make in (("value", simulators.kepler), ("forward derivative", slope)):
        yield Program(f"Newton, Kepler's equation, {name}", make, (np.array(1.0), np.array(0.6)))
    a, b = 0.3 * normal(4, 4), normal(4, seed=1)
    yield from both("Newton, 4 unknowns", simulators.newton, a, b)


def networks() -> Iterator[Program]:
    xs = normal(200, 8)
    yield from both("GRU, hidden 16, 200 steps", recurrences.gru, recurrences.gru_params(), xs)
    yield from both("LSTM, hidden 16, 200 steps", recurrences.lstm, recurrences.gated_params(4), xs)
    for batch, hidden in ((1, 8), (1, 32), (8, 16), (8, 64), (32, 32), (32, 128)):
        params = jax.tree.map(lambda a: np.asarray(a, float), rnn_params(8, hidden))
        data = normal(100, batch, 8), normal(batch, 1, seed=1)
        yield from both(f"RNN, batch {batch}, hidden {hidden}, 100 steps", rnn_loss, params, *data)


def carries() -> Iterator[Program]:
    for n in (4, 8, 16, 32, 80):
        make = partial(recurrences.scalars, n=n)
        yield from both(f"{n} scalars, 300 steps", make, np.linspace(0, 3, n), np.array(0.5))
    spin = np.array([0.3, -0.5, 0.8])
    yield from both("3 x 3 matrix, float64, 1000 steps", recurrences.attitude, spin, x64=True)


def ensembles(n: int = 8192) -> Iterator[Program]:
    """The loops that are mapped, over many systems."""
    rates, start = np.array([1.1, 0.4, 0.4, 0.1]), np.array([1.0, 2.0, 20.0])
    observed = simulators.observed_animals()
    yield from both(f"Lotka-Volterra x {n}", simulators.lotka_volterra, near(rates, n), observed, rows=True)
    yield from both(f"Lorenz x {n}", simulators.lorenz, near(start, n), rows=True)
    for name, rollout, inputs, first in POLICIES:
        yield from both(f"{name} x {n}", simulators.many(rollout), policy_params(inputs), near(first, n))
    kepler = transformed(simulators.kepler, "vmap", in_axes=(0, None))
    yield Program(f"Kepler's equation x {n}, value", kepler, (near(np.array(3.0), n), np.array(0.8)))


GROUPS = (differential_equations, control, robots, time_series, fields, roots, networks, carries)


# --- measurement ----------------------------------------------------------------------------------


def measured(program: Program, x64: bool, repeats: int) -> LoopLine:
    """Measure the row of a program; an error becomes the failure of the row."""
    with jax.enable_x64(x64 or program.x64):
        try:
            return _measured(program, repeats)
        except Exception as error:  # one failed row does not stop the table
            first = str(error).strip().splitlines() or [""]
            return LoopLine(program.name, failure=f"{type(error).__name__}: {first[0][:200]}")


def _measured(program: Program, repeats: int) -> LoopLine:
    args = jax.tree.map(jnp.asarray, program.args)
    compilation, temporaries = _compiled(program, args)
    jits = [ft.jit(program.make(OURS)), jax.jit(program.make(JAX))]
    jits += [jit(program.make(OURS)) for jit in (plain, blocking)]
    ours, peer, *others = (jax.block_until_ready(jit(*args)) for jit in jits)
    line = LoopLine(program.name, compilation=compilation, temporaries=temporaries)
    off = max(difference(out, peer) for out in (ours, *others))
    line.check(off, program.amplifies * float(np.finfo(_width(args)).eps))
    line.plain, line.blocking = line.time(jits, args, repeats)
    return line


def _compiled(program: Program, args: tuple[Any, ...]) -> tuple[float, tuple[int, int]]:
    """Trace, lower and compile; return the ratio of the times, and both sides' bytes of temporaries."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(COMPILATIONS):
        sizes = []
        for lib, taken in zip((OURS, JAX), seconds, strict=True):
            clear()
            start = time.perf_counter()
            compiled = lib.ft.jit(program.make(lib)).lower(*args).compile()
            taken.append(time.perf_counter() - start)
            sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    return min(seconds[0]) / min(seconds[1]), (sizes[0], sizes[1])


def _width(args: Any) -> Any:
    floats = [a.dtype for a in jax.tree.leaves(args) if jnp.issubdtype(a.dtype, jnp.floating)]
    return floats[0] if floats else np.float32


# --- the table ------------------------------------------------------------------------------------


HEADER = """\
| program | functrans, ms | JAX, ms | plain, ms | ratio (quartiles) | fastest | compilation | \
temporaries | difference | blocking, ms |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""


def shown(line: LoopLine) -> str:
    """Return the line as Markdown."""
    text = (
        f"| {line.name} | {line.ours:.4g} | {line.peer:.4g} | {line.plain:.4g} | {line.ratio:.3f} "
        f"({line.low:.3f}-{line.high:.3f}) | {line.fastest:.3f} "
        f"| {line.compilation:.2f} | {share(*line.temporaries)} | {line.difference:.0e} "
        f"| {line.blocking:.4g} |"
    )
    return text if line.failure is None else f"{text} **{line.failure}**"


def share(ours: int, peer: int) -> str:
    if peer:
        return f"{ours / peer:.2f}"
    return f"{ours} B : 0" if ours else "both 0"


def run(
    rows: str = "",
    x64: bool = False,
    repeats: int = 15,
    groups: Sequence[Callable[[], Iterator[Program]]] = GROUPS,
) -> list[LoopLine]:
    """Measure the rows whose name contains `rows`, and print the table line by line."""
    return table([p for group in groups for p in group() if rows in p.name], repeats, x64)


def table(programs: list[Program], repeats: int, x64: bool = False) -> list[LoopLine]:
    """Measure programs, and print the table line by line."""
    for lib in (OURS, JAX):  # so that no row pays for what is loaded once
        lib.ft.jit(lib.ft.grad(lambda x: x * x)).lower(1.0).compile()
    lines = printed(HEADER, (measured(program, x64, repeats) for program in programs), shown)
    failed = [line for line in lines if line.failure is not None]
    held = [line for line in lines if line.failure is None]
    print(f"\n{means(held)}")
    for line in failed:
        print(f"FAILED {line.name}: {line.failure}")
    return lines
