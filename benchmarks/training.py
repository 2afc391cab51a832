"""`python -m benchmarks training [--rows WORD] [--repeats N]`: whole training steps.

Models as people train them, each written once and compiled by both libraries. A step is a gradient
and an update by SGD in float32; the updates of both libraries must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import functrans as ft
from benchmarks import equinox_models
from benchmarks import training_models as models
from benchmarks.compared import Line, difference, means, printed
from benchmarks.models import JAX, OURS, Library, mlp_params, training_step
from benchmarks.recurrences import gated_params
from benchmarks.simulators import Function, normal

# How much another order of summation may change, relative to an array's largest number: a number that is
# 0 except for rounding may or may not pass a relu.
ROUNDING = 1e-2


@dataclass(frozen=True)
class Program:
    """What is compiled, and its arguments. `moves`: its result begins with a new version of its first
    argument, and the changes are what has to agree."""

    name: str
    make: Callable[[Library], Function]
    args: tuple[Any, ...]
    moves: bool = True

    def arrays(self) -> tuple[Any, ...]:
        """Return the arguments, with floats in float32."""
        return jax.tree.map(
            lambda a: jnp.asarray(a, "float32" if a.dtype.kind == "f" else a.dtype), self.args
        )

    def result(self, out: Any) -> Any:
        """Return the part of the result that has to agree."""
        if not self.moves:
            return out
        params, value = out
        return jax.tree.map(lambda new, old: np.subtract(new, old), params, self.arrays()[0]), value


# --- the programs ---------------------------------------------------------------------------------


def trained(name: str, loss: Callable[[Library], Function], *args: Any) -> Program:
    """Return a step of SGD on the loss."""
    return Program(name, lambda lib: training_step(lib, loss(lib)), args)


def transformers() -> Iterator[Program]:
    tokens = models.integers(512, 8, 65)
    yield trained("GPT, layer norm", models.gpt, models.gpt_params(rms=False), tokens)
    yield trained("GPT, RMS norm", models.gpt, models.gpt_params(rms=True), tokens)


def vision() -> Iterator[Program]:
    for layout in ("NCHW", "NHWC"):
        loss, params = partial(models.resnet, layout=layout), models.resnet_params(layout)
        yield trained(f"ResNet, {layout}", loss, params, *models.images(layout))
    yield trained("MobileNet", models.mobilenet, models.mobilenet_params(), *models.images())


def equinox() -> Iterator[Program]:
    for name, loss, params, size in equinox_models.networks():
        yield trained(name, lambda lib, loss=loss: loss, params, *models.images(batch=16, size=size))


def structures() -> Iterator[Program]:
    yield trained("LSTM, 64 steps", models.lstm, gated_params(4, 64, 128), normal(32, 64, 64))
    yield trained("graph net", models.graph_net, models.graph_params(), *models.graph())
    tokens = normal(256, 64), normal(256, 64, seed=1)
    for about, loss in (("soft", models.soft_experts), ("top-1", models.routed_experts)):
        yield trained(f"mixture of experts, {about}", loss, models.expert_params(), *tokens)


def dense() -> Iterator[Program]:
    pictures = np.random.default_rng(0).uniform(size=(128, models.PICTURE))
    yield trained("VAE", models.vae, models.vae_params(), pictures, normal(128, models.LATENT))
    points = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    for about, how in (("grad of grad", models.by_reverse), ("jvp of jvp", models.by_forward)):
        loss = partial(models.pinn, derivatives=how)
        yield trained(f"PINN, {about}", loss, mlp_params((2, 32, 32, 32, 1)), points)
    flow = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    yield trained("PINN, Navier-Stokes", models.navier_stokes, mlp_params((3, 32, 32, 32, 3)), flow)
    yield trained("PINN, hessian", models.laplace, mlp_params((2, 32, 32, 32, 1)), points)
    yield trained("MAML", models.maml, mlp_params((4, 64, 64, 1)), *models.tasks())
    args = mlp_params((8, 64, 64, 1)), normal(64, 8), normal(64, seed=1)
    yield Program("NTK", models.ntk_step, args, moves=False)


GROUPS = (transformers, vision, equinox, structures, dense)


def programs(rows: str) -> list[Program]:
    """Return the programs whose name contains the word."""
    return [program for group in GROUPS for program in group() if rows in program.name]


# --- measurement ----------------------------------------------------------------------------------


def measured(program: Program, repeats: int) -> Line:
    """Measure the row of a program."""
    args = program.arrays()
    jits = [ft.jit(program.make(OURS)), jax.jit(program.make(JAX))]
    ours, peer = (program.result(jit(*args)) for jit in jits)
    line = Line(program.name)
    line.check(difference(ours, peer), ROUNDING)
    line.time(jits, args, repeats)
    return line


# --- the table ------------------------------------------------------------------------------------

HEADER = """\
| training step | functrans, ms | JAX, ms | ratio (quartiles) | fastest | difference |
|---|---:|---:|---:|---:|---:|"""


def shown(line: Line) -> str:
    """Return the line as Markdown."""
    text = (
        f"| {line.name} | {line.ours:.4g} | {line.peer:.4g} | {line.ratio:.3f} "
        f"({line.low:.3f}-{line.high:.3f}) | {line.fastest:.3f} | {line.difference:.0e} |"
    )
    return text if line.failure is None else f"{text} **{line.failure}**"


def run(rows: str = "", repeats: int = 15) -> list[Line]:
    """Measure the rows whose name contains `rows`, and print the table line by line."""
    lines = printed(HEADER, (measured(program, repeats) for program in programs(rows)), shown)
    print(f"\n{means(lines)}")
    return lines
