"""`python -m benchmarks existing [--rows WORD] [--repeats N]`: existing JAX code, one word changed.

Programs in plain JAX, flax, haiku, optax and diffrax under `jax.jit` and under `ft.jit`: the first
step (with tracing and compiling), the later ones, and temporaries. Private training is also measured
against the plain step of the same model under `jax.jit`, which its user would pay without privacy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import functrans as ft
from benchmarks import existing_models as models
from benchmarks import existing_steps as steps
from benchmarks import training_models
from benchmarks.compared import Line, difference, means, printed, side
from benchmarks.existing_models import Model
from benchmarks.models import JAX, training_step
from benchmarks.timing import clear, quartiles, turns

Jit = Callable[[Callable[..., Any]], Any]
ROUNDING = 1e-2  # as in training.py
FIRST = 3  # first steps of each side


def one_word(fun: Callable[..., Any]) -> Any:
    """Use `ft.jit` in place of `jax.jit`."""
    return ft.jit(fun)


class Program(NamedTuple):
    """A row: a function to be jitted, and its arguments. `plain` is the step without privacy, and
    `within` how many of those a private step may take. `moves`: the function returns a new version
    of its first argument, and the changes are what has to agree."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    plain: Callable[..., Any] | None = None
    within: float | None = None
    moves: bool = True

    def jitted(self, jit: Jit) -> Any:
        return jit(self.fun)

    def apart(self, ours: Any, peer: Any) -> float:
        """Return how far two results are apart. Changes of parameters are compared with the largest
        of all: those of the biases of attention's keys are zero except for rounding."""
        if not self.moves:
            return difference(ours, peer)
        changes = [jax.tree.leaves(jax.tree.map(np.subtract, p, self.args[0])) for p in (ours, peer)]
        largest = max([np.abs(c).max() for c in changes[1]])
        pairs = zip(*changes, strict=True)
        return float(max([np.abs(np.subtract(a, b)).max() for a, b in pairs]) / largest)


@dataclass
class Steps(Line):
    """A line with also first steps in seconds, temporaries in MB, and ratios to the plain step."""

    first: tuple[float, float] = (0.0, 0.0)
    temporaries: tuple[float, float] = (0.0, 0.0)
    to_plain: tuple[float, float, float] | None = None  # quartiles
    plain_temporaries: float | None = None
    within: float | None = None


# --- the programs ---------------------------------------------------------------------------------


def private() -> Iterator[Program]:
    """DP-SGD, by hand and by optax."""
    for name, model, within in (
        ("MLP", models.mlp, 1.2),
        ("CNN", models.cnn, 1.2),
        ("LSTM", models.lstm, 1.5),
        ("transformer", models.transformer, 1.2),
        ("haiku MLP", models.haiku_mlp, 1.2),
    ):
        for about, step in (("by hand", steps.by_hand), ("by optax", steps.by_optax)):
            yield clipped(f"DP-SGD {about}, {name}", step, model(), within)
    for batch in (32, 256):
        for name, model, within in (
            ("MLP", models.mlp, 1.2),
            ("CNN", models.cnn, 1.2),
            ("LSTM", models.lstm, 1.5),
        ):
            row = f"DP-SGD by optax, {name}, batch {batch}"
            yield clipped(row, steps.by_optax, model(batch), within)


def spellings() -> Iterator[Program]:
    """Other ways to write DP-SGD."""
    for about, step in (
        ("vdot of leaves", steps.by_vdot),
        ("optax.clip_by_global_norm", steps.by_global_norm),
        ("each layer", steps.per_layer),
        ("lax.map of 16", steps.by_microbatches),
    ):
        yield clipped(f"DP-SGD, {about}, MLP", step, models.mlp(), 1.2)
    model = models.mlp()
    yield Program(
        "DP-SGD by optax with noise, MLP",
        steps.with_noise(model.loss),
        model.args,
        steps.plain_with_noise(model.loss),
        1.2,
    )


def clipped(name: str, step: Callable[..., Any], model: Model, within: float) -> Program:
    return Program(name, step(model.loss), model.args, steps.plain(model.loss), within)


def statistics_of_gradients() -> Iterator[Program]:
    for about, fun in (
        ("NTK", steps.tangent_kernel),
        ("gradient noise scale", steps.noise_scale),
        ("K-FAC factors", steps.kronecker_factors),
    ):
        model = models.mlp()
        yield Program(f"{about}, MLP", fun(model.loss), model.args, moves=False)


def training() -> Iterator[Program]:
    tokens = training_models.integers(512, 8, 65)
    gpt = training_step(JAX, training_models.gpt(JAX))
    args = in_float32(training_models.gpt_params(rms=False), tokens)
    yield Program("GPT", gpt, args, moves=False)
    resnet = training_step(JAX, training_models.resnet(JAX, layout="NHWC"))
    args = in_float32(training_models.resnet_params("NHWC"), *training_models.images("NHWC"))
    yield Program("ResNet", resnet, args, moves=False)
    model = models.transformer(8)
    yield Program("flax transformer + optax", steps.with_adam(model.loss), model.args)
    args = models.mlp_params((2, 64, 2)), jnp.ones((64, 2))
    yield Program("diffrax ODE", fitted(), args, moves=False)


def fitted() -> Callable[..., Any]:
    """Return the gradient of a neural ODE with respect to its parameters."""

    def field(t, y, params):
        (w1, b1), (w2, b2) = params
        return jnp.tanh(y @ w1 + b1) @ w2 + b2

    def loss(params, y0):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.05, y0, args=params, max_steps=32
        )
        return jnp.mean(solution.ys**2)

    return jax.value_and_grad(loss)


def in_float32(*args: Any) -> tuple[Any, ...]:
    return jax.tree.map(lambda a: jnp.asarray(a, "float32" if a.dtype.kind == "f" else a.dtype), args)


GROUPS = (private, spellings, statistics_of_gradients, training)


def programs(rows: str) -> Iterator[Program]:
    """Yield the programs whose name contains the word."""
    return (program for group in GROUPS for program in group() if rows in program.name)


# --- measurement ----------------------------------------------------------------------------------


def measured(program: Program, repeats: int) -> Steps:
    """Measure the row of a program."""
    line = Steps(program.name, within=program.within)
    jits = [program.jitted(one_word), program.jitted(jax.jit)]
    try:
        line.first = first_steps(jits, program.args)
    except Exception as error:
        line.failure = f"{type(error).__name__}: {error}".splitlines()[0]
        return line
    ours, peer = (jit(*program.args) for jit in jits)
    line.check(program.apart(ours, peer), ROUNDING)
    line.time(jits, program.args, repeats)
    line.temporaries = tuple([temporaries(jit, program.args) for jit in jits])  # type: ignore[assignment]
    if program.plain is not None:
        plain = jax.jit(program.plain)
        line.plain_temporaries = temporaries(plain, program.args)
        private, without = turns([side(j, program.args) for j in (jits[0], plain)], repeats)
        line.to_plain = quartiles([a / b for a, b in zip(private, without, strict=True)])
    return line


def first_steps(jits: Sequence[Any], args: tuple[Any, ...]) -> Any:
    """Return the seconds of a first call of each, the medians of FIRST in turn. What only the first
    compilation of a process does is done before."""
    seconds: list[list[float]] = [[] for _ in jits]
    sides = list(zip(jits, seconds, strict=True))
    jax.block_until_ready(jits[-1](*args))
    for _ in range(FIRST):
        for jitted, taken in sides:
            clear()
            start = time.perf_counter()
            jax.block_until_ready(jitted(*args))
            taken.append(time.perf_counter() - start)
        sides.reverse()
    return tuple(map(statistics.median, seconds))


def temporaries(jitted: Any, args: tuple[Any, ...]) -> float:
    """Return the megabytes of temporaries."""
    return float(jitted.lower(*args).compile().memory_analysis().temp_size_in_bytes / 1e6)


# --- the table ------------------------------------------------------------------------------------

HEADER = """\
| program | first step, s: ft / JAX | step, ms: ft / JAX | ratio (quartiles) | \
temporaries, MB: ft / JAX | plain steps (quartiles) | plain temporaries | difference |
|---|---:|---:|---:|---:|---:|---:|---:|"""


def shown(line: Steps) -> str:
    """Return the line as Markdown."""
    if line.failure is not None and not line.ours > 0:
        return f"| {line.name} | **{line.failure}** |"
    plain = ["", ""]
    if line.to_plain is not None and line.plain_temporaries is not None:
        low, ratio, high = line.to_plain
        goal = "" if line.within is None else f", <= {line.within}"
        plain = [f"{ratio:.2f} ({low:.2f}-{high:.2f}{goal})", f"{line.plain_temporaries:.4g}"]
    cells = [
        line.name,
        " / ".join([f"{s:.2f}" for s in line.first]),
        f"{line.ours:.4g} / {line.peer:.4g}",
        f"{line.ratio:.3f} ({line.low:.3f}-{line.high:.3f})",
        " / ".join([f"{s:.4g}" for s in line.temporaries]),
        *plain,
        f"{line.difference:.0e}",
    ]
    text = f"| {' | '.join(cells)} |"
    return text if line.failure is None else f"{text} **{line.failure}**"


def run(rows: str = "", repeats: int = 15) -> list[Steps]:
    """Measure the rows whose name contains `rows`, and print the table line by line."""
    lines = printed(HEADER, (measured(program, repeats) for program in programs(rows)), shown)
    print(f"\n{means([line for line in lines if line.ours > 0])}")
    return lines
