"""What the passes above XLA gain, and what they cost where there is nothing to gain.

Each program runs once under both libraries, and the results are compared before it is timed. Rows:
time, the temporary memory that XLA states, numbers of equations. A program that takes JAX seconds is
timed three times, a fast one up to 401 times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import functrans as ft
from benchmarks import controls, private
from benchmarks.models import JAX, OURS, Library
from benchmarks.private import Model
from benchmarks.timing import Row, clear, counted, pair
from functrans.passes.explanation import measured

Make = Callable[[Library], Callable[..., Any]]
SECONDS = 5.0  # of each row, about
TURN = 0.1  # seconds
TOLERANCE = 1e-4  # of float32 sums of up to a million terms, relative to an array's largest number


def optimizer_private() -> Iterator[Row]:
    """Per-example gradients: clipped and summed, their norms, or their mean and variance."""
    yield from dp_rows("MLP, batch 64", private.mlp(64), 1 / 100, 1 / 100)
    yield from dp_rows("MLP, batch 256", private.mlp(256), 1 / 100, 1 / 100)
    yield from dp_rows("MLP, batch 1024", private.mlp(1024), 1 / 100, 1 / 100)
    yield from dp_rows("MLP in bfloat16, batch 256", private.narrow_mlp(256), 1 / 100, 1 / 100)
    yield from dp_rows("4-layer transformer", private.transformer(), 1 / 6, 3 / 4)
    yield from dp_rows("sequence MLP, 16 steps", private.sequence(), 1 / 12, 1 / 6)
    yield from dp_rows("gated linear units", private.gated(), 1 / 100, None)
    yield from dp_rows("tied weights", private.tied(), 1 / 100, None)
    yield from dp_rows("embedding, 8 words", private.embedding(), 1 / 100, None)
    yield from dp_rows("embedding, 1 word", private.embedding(words=1), 1 / 100, None)
    yield from dp_rows("conv net on 28x28", private.conv_net(), 1 / 3, None)
    flat = private.mlp(256)
    yield from gain_rows(
        "DP-SGD step, gradients flattened, MLP, batch 256",
        made(private.flat_dp_sgd, flat),
        flat.args,
        None,
        1 / 100,
    )
    kinds = (("norms of gradients", private.squared_norms), ("noise scale", private.noise_scale))
    for kind, of in kinds:
        for name, model, goal, memory in (
            ("MLP, batch 256", private.mlp(256), 1 / 100, 1 / 100),
            ("sequence MLP", private.sequence(), 1 / 12, 1 / 6),
            ("conv net", private.conv_net(), 1 / 3, None),
        ):
            yield from gain_rows(f"{kind}, {name}", made(of, model), model.args, goal, memory)


def optimizer_algebra() -> Iterator[Row]:
    """Products of matrices of which only a small part is wanted."""
    n = 1500
    a, b, v = private.normal(n, n), private.normal(n, n, seed=1), private.normal(n)
    programs: dict[str, Make] = {
        "trace(A @ B)": lambda lib: lambda a, b, v: lib.np.trace(a @ b),
        "(A @ B) @ v": lambda lib: lambda a, b, v: (a @ b) @ v,
        "sum(A @ B)": lambda lib: lambda a, b, v: lib.np.sum(a @ b),
        "diagonal(A @ B)": lambda lib: lambda a, b, v: lib.np.diagonal(a @ b),
    }
    for name, make in programs.items():
        yield from gain_rows(f"{name}, n = {n}", make, (a, b, v), 0.1, None, memory=False)


def optimizer_controls() -> Iterator[Row]:
    """Training steps with nothing to gain."""
    table = controls.controls()
    for name, control in table.items():
        _, args = controls.step_of(OURS, name, control)
        yield from gain_rows(
            f"training step, {name}",
            lambda lib, name=name, control=control: controls.step_of(lib, name, control)[0],
            args,
            1.02,
            None,
            memory=False,
        )
    for name, control in table.items():
        yield passes_row(name, *controls.step_of(OURS, name, control))
    for name, control in table.items():
        yield equations_row(
            name,
            lambda lib, control=control: controls.per_example(lib, control)[0],
            controls.per_example(OURS, control)[1],
        )


# --- rows -----------------------------------------------------------------------------------------


def made(of: Callable[..., Any], model: Model) -> Make:
    return lambda lib: of(lib, model.loss(lib))


def dp_rows(name: str, model: Model, goal: float, memory_goal: float | None) -> Iterator[Row]:
    """Measure a step of DP-SGD against JAX's, and against our own ordinary step."""
    step = made(private.dp_sgd, model)
    yield from gain_rows(f"DP-SGD step, {name}", step, model.args, goal, memory_goal)
    clipped = ft.jit(step(OURS)).lower(*model.args).compile()
    ordinary = ft.jit(made(private.sgd, model)(OURS)).lower(*model.args).compile()
    jax.block_until_ready((clipped(*model.args), ordinary(*model.args)))
    yield timed(
        f"our DP-SGD step (ours) against our ordinary step, {name}",
        lambda: clipped(*model.args),
        lambda: ordinary(*model.args),
        1.3 if name.startswith("MLP") else None,
    )


def gain_rows(
    name: str, make: Make, args: tuple, goal: float | None, memory_goal: float | None, memory: bool = True
) -> Iterator[Row]:
    """Measure the time and, if asked for, the temporary memory of a program under both libraries."""
    ours, peer = (lib.ft.jit(make(lib)).lower(*args).compile() for lib in (OURS, JAX))
    compare(name, ours(*args), peer(*args))
    yield timed(name, lambda: ours(*args), lambda: peer(*args), goal)
    if memory:
        sizes = [c.memory_analysis().temp_size_in_bytes / 1e6 for c in (ours, peer)]
        yield counted(f"{name}, temporaries", *sizes, unit="MB", goal=memory_goal)


def compare(name: str, ours: Any, peer: Any) -> None:
    """Raise an error unless both sides' results are the same except for rounding."""
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(peer), strict=True):
        x, y = np.asarray(a, "float64"), np.asarray(b, "float64")
        error = float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30))
        if not error <= TOLERANCE:
            raise AssertionError(f"{name}: results differ by {error:.1e} of the largest number")


def timed(name: str, ours: Callable, peer: Callable, goal: float | None) -> Row:
    """Measure a row of as many turns as fit into SECONDS, of programs that have run before.

    Sides that take about as long are timed call by call. Otherwise a side's turn takes at least
    TURN: right after a run that fills caches and memory with per-example gradients, the first call
    of the other side would measure that run."""
    once = [_seconds(run) for run in (ours, peer)]
    turn = 0 if max(once) < 2 * min(once) else TURN
    calls = [max(1, math.ceil(turn / seconds)) for seconds in once]
    turns = sum(n * seconds for n, seconds in zip(calls, once, strict=True))
    repeats = int(min(401, max(3, SECONDS / turns)))
    return pair(name, ours, peer, goal=goal, repeats=repeats, calls=(calls[0], calls[1]))


def _seconds(run: Callable[[], Any]) -> float:
    jax.block_until_ready(run())
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def passes_row(name: str, step: Callable[..., Any], args: tuple) -> Row:
    """Measure the time of all passes against that of tracing and lowering without them, from cold."""
    kept: list[Any] = []

    def keep(program: Any) -> Any:
        kept[:] = [program]
        return program

    def trace_again() -> None:
        clear()
        ft.jit(step, passes=(keep,)).lower(*args)

    trace_again()
    return pair(
        f"passes (ours) against trace + lower, {name}",
        lambda: ft.passes.optimize(kept[0]),
        lambda: ft.jit(step, passes=()).lower(*args),
        goal=0.2,
        repeats=9,
        before=(trace_again, clear),
    )


def equations_row(name: str, make: Make, args: tuple) -> Row:
    """Count the operations of our program after the passes, and of JAX's before lowering."""
    ours = measured(ft.jit(make(OURS)).program(*args)).equations
    peer = operations(jax.make_jaxpr(make(JAX))(*args).jaxpr)
    return counted(f"vmap(grad(loss)), {name}", ours, peer, unit="equations", goal=0.999)


def operations(jaxpr: Any) -> int:
    """Count the equations of a jaxpr and of those inside it; a call itself does not count."""
    total = 0
    for eqn in jaxpr.eqns:
        values = [v for p in eqn.params.values() for v in (p if isinstance(p, tuple) else (p,))]
        inner = [getattr(v, "jaxpr", v) for v in values]
        inner = [j for j in inner if hasattr(j, "eqns")]
        is_call = bool(inner) and eqn.primitive.name not in ("scan", "while", "cond")
        total += (not is_call) + sum(operations(j) for j in inner)
    return total
