"""`python -m benchmarks accelerator [--rows WORD] [--repeats N]`: training steps on a GPU or TPU.

Sizes that keep an accelerator busy, which would take a CPU minutes; and the gradients of the loops
that `python -m benchmarks loops` measures on a CPU. Results are compared at the precision that JAX
chooses, on a GPU that of TF32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from benchmarks import private, simulators, small_loops
from benchmarks import training_models as models
from benchmarks.compared import Line, difference, means, printed
from benchmarks.models import JAX, OURS, Library, mlp_params, transformer_params
from benchmarks.optimizer import made
from benchmarks.simulators import Function, normal
from benchmarks.training import Program, trained

ROUNDING = 3e-2  # TF32 and bfloat16 keep 8 to 10 bits, and a gradient is a sum of thousands of these


@dataclass
class Measured(Line):
    """A line with the temporary memory of both programs, in MB."""

    ours_memory: float = 0.0
    peer_memory: float = 0.0


def language() -> Iterator[Program]:
    tokens = models.integers(4096, 16, 257)

    def gpt(lib: Library, dtype: str = "float32") -> Function:
        loss = models.gpt(lib, heads=8)
        return lambda params, tokens: loss(jax.tree.map(lambda p: p.astype(dtype), params), tokens)

    for rms, name in ((False, "layer norm"), (True, "RMS norm")):
        yield trained(f"GPT, {name}", gpt, transformer_params(6, 512, 4096, rms), tokens)
    narrow = partial(gpt, dtype="bfloat16")
    yield trained("GPT, layer norm, bfloat16", narrow, transformer_params(6, 512, 4096), tokens)


def vision() -> Iterator[Program]:
    images = models.images("NHWC", batch=256)
    params = models.resnet_params("NHWC", channels=64)
    yield trained("ResNet, NHWC", partial(models.resnet, layout="NHWC"), params, *images)
    yield trained("MobileNet", models.mobilenet, models.mobilenet_params(), *models.images(batch=256))


def physics() -> Iterator[Program]:
    points = np.random.default_rng(0).uniform(-1, 1, (20_000, 2))
    params = mlp_params((2, 128, 128, 128, 1))
    pinn = partial(models.pinn, derivatives=models.by_reverse)
    yield trained("PINN, grad of grad", pinn, params, points)
    yield trained("PINN, hessian", models.laplace, params, points)
    yield trained("MAML", models.maml, mlp_params((4, 64, 64, 1)), *models.tasks(64))
    start = simulators.cluster(30)
    orbit = partial(simulators.bodies, steps=50)
    yield Program("30 bodies, gradient", lambda lib: lib.ft.grad(orbit(lib)), start, moves=False)


def recurrent() -> Iterator[Program]:
    yield trained(
        "LSTM, 64 steps", models.lstm, models.recurrences.gated_params(4, 64, 128), normal(128, 64, 64)
    )


def clipped() -> Iterator[Program]:
    """Steps of DP-SGD. There is no MLP: JAX's own step of 784-512-512-10 crashed or hung on an H100."""
    many = {
        "4-layer transformer, batch 64": private.transformer(width=256, time=128),
        "conv net on 28x28, batch 512": private.conv_net(512),
        "conv net, 64 channels, batch 64": private.conv_net(64, (64, 64)),
    }
    for name, model in many.items():
        for kind, step in (("DP-SGD", private.dp_sgd), ("plain step", private.sgd)):
            yield Program(f"{kind}, {name}", made(step, model), model.args, moves=False)


def loops() -> Iterator[Program]:
    for program in [program for group in small_loops.GROUPS for program in group()]:
        if "steps, gradient" in program.name and not program.x64:
            yield Program(program.name, program.make, program.args, moves=False)


GROUPS: tuple[Callable[[], Iterator[Program]], ...] = (language, physics, recurrent, vision, clipped, loops)


def measured(program: Program, repeats: int) -> Measured:
    """Measure the row of a program."""
    args = program.arrays()
    ours, peer = (lib.ft.jit(program.make(lib)).lower(*args).compile() for lib in (OURS, JAX))
    line = Measured(program.name)
    line.check(difference(program.result(ours(*args)), program.result(peer(*args))), ROUNDING)
    line.time([ours, peer], args, repeats)
    line.ours_memory, line.peer_memory = (c.memory_analysis().temp_size_in_bytes / 1e6 for c in (ours, peer))
    return line


HEADER = """\
| step | functrans, ms | JAX, ms | ratio (quartiles) | temporaries, MB | JAX's | difference |
|---|---:|---:|---:|---:|---:|---:|"""


def shown(line: Measured) -> str:
    """Return the line as Markdown."""
    text = (
        f"| {line.name} | {line.ours:.4g} | {line.peer:.4g} | {line.ratio:.3f} "
        f"({line.low:.3f}-{line.high:.3f}) | {line.ours_memory:.4g} | {line.peer_memory:.4g} "
        f"| {line.difference:.0e} |"
    )
    return text if line.failure is None else f"{text} **{line.failure}**"


def run(rows: str = "", repeats: int = 15) -> list[Measured]:
    """Measure the rows whose name contains `rows`, and print the table line by line."""
    chosen = [program for group in GROUPS for program in group() if rows in program.name]
    lines = printed(HEADER, (measured(program, repeats) for program in chosen), shown)
    print(f"\n{means(lines)}")
    return lines
