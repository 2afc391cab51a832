"""Finds reductions at which XLA:CPU is far slower than at another form of the same.

    python -m benchmarks.cliffs [leading|middle|minor] [dtype ...]

Each row takes one reduction, alone or after a fused elementwise producer, and times its forms in
turn in one process. It shows the least time of each form, in nanoseconds per element of the operand,
and how many times slower the plain form is than the best of the others. The choices of
`functrans/backends/cpu.py` rest on this table, of which `benchmarks/cliffs.md` shows a part.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Form = Callable[[Any, tuple[int, ...], str], Any]

# --- the forms: x[before, reduced, after] -> [before, after] --------------------------------------

COMBINE = {"sum": lax.add, "max": lax.max}
REDUCE = {"sum": lax.reduce_sum, "max": lax.reduce_max}


def folded(x: Any, axes: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Return x with three axes, the middle one to be reduced, and the shape of the result."""
    before, after = x.shape[: axes[0]], x.shape[axes[-1] + 1 :]
    return x.reshape(prod(before), prod([x.shape[a] for a in axes]), prod(after)), before + after


def plain(x: Any, axes: tuple[int, ...], kind: str) -> Any:
    """Reduce as XLA is usually asked to."""
    return REDUCE[kind](x, axes)


def flat(x: Any, axes: tuple[int, ...], kind: str) -> Any:
    """Reduce an operand of three axes."""
    y, shape = folded(x, axes)
    return REDUCE[kind](y, (1,)).reshape(shape)


def dot(x: Any, axes: tuple[int, ...], kind: str) -> Any:
    """Multiply by ones."""
    y, shape = folded(x, axes)
    ones = jnp.ones(y.shape[:2], x.dtype)
    if y.shape[0] == 1:
        return lax.dot(ones, y[0]).reshape(shape)
    return lax.dot_general(ones, y, (((1,), (1,)), ((0,), (0,)))).reshape(shape)


def halve(x: Any, axes: tuple[int, ...], kind: str, fuse: int = 4) -> Any:
    """Combine one half with the other, again and again; a barrier follows every `fuse` steps."""
    y, shape = folded(x, axes)
    left, step = [], 0
    while (n := y.shape[1]) > 1:
        half = n // 2
        if n % 2:
            left.append(y[:, -1:])
        y = COMBINE[kind](y[:, :half], y[:, half : 2 * half])
        step += 1
        if step % fuse == 0 and half > 1:
            y = lax.optimization_barrier(y)
    for row in left:
        y = COMBINE[kind](y, row)
    return y.reshape(shape)


def transposed(x: Any, axes: tuple[int, ...], kind: str) -> Any:
    """Reduce the last axis of the transposed operand."""
    y, shape = folded(x, axes)
    return REDUCE[kind](lax.optimization_barrier(y.transpose(0, 2, 1)), (2,)).reshape(shape)


def split(x: Any, axes: tuple[int, ...], kind: str) -> Any:
    """Reduce in two steps of about the square root of the rows each."""
    y, shape = folded(x, axes)
    rows = y.shape[1]
    few = max((d for d in range(1, int(rows**0.5) + 1) if rows % d == 0), default=1)
    y = y.reshape(y.shape[0], few, rows // few, y.shape[2])
    y = REDUCE[kind](lax.optimization_barrier(REDUCE[kind](y, (2,))), (1,))
    return y.reshape(shape)


FORMS: dict[str, Form] = {
    "plain": plain,
    "flat": flat,
    "dot": dot,
    "halve": halve,
    "transposed": transposed,
    "split": split,
}

PRODUCERS: dict[str, Callable[[Any], Any]] = {"": lambda x: x, "mul": lambda x: x * x, "exp": jnp.exp}

# --- measuring ------------------------------------------------------------------------------------


def least_times(runs: dict[str, Callable[[], Any]], repeats: int = 7) -> dict[str, float]:
    """Return the least time of each in seconds, taken in turn; what takes long runs once only."""
    best: dict[str, float] = {}
    for name, run in runs.items():
        jax.block_until_ready(run())
        best[name] = _time(run)
    for _ in range(repeats):
        for name, run in runs.items():
            if best[name] < 0.2:
                best[name] = min(best[name], _time(run))
    return best


def _time(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


GRID: dict[str, Sequence[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "leading": [
        ((64, 512, 512), (0,)),
        ((8, 512, 512), (0,)),
        ((64, 100, 500), (0,)),
        ((64, 8, 32, 256), (0, 1)),
        ((64, 8192), (0,)),
        ((64, 16384), (0,)),
        ((64, 16400), (0,)),
        ((64, 32768), (0,)),
        ((2, 20000), (0,)),
        ((3, 40000), (0,)),
        ((1000, 20000), (0,)),
        ((8192, 512), (0,)),
        ((32, 28, 28, 64), (0, 1, 2)),
    ],
    "middle": [
        ((2, 64, 10000), (1,)),
        ((2, 64, 65536), (1,)),
        ((4, 64, 128, 512), (1,)),
        ((8, 64, 32768), (1,)),
        ((8, 64, 4096), (1,)),
        ((64, 512, 512), (1,)),
        ((4096, 64, 32), (1,)),
        ((100000, 8, 4), (1,)),
    ],
    "minor": [((512, 4096), (1,)), ((64, 512, 64), (0, 2)), ((64, 64, 512), (0, 1, 2))],
}


def main(arguments: Sequence[str]) -> None:
    groups = [a for a in arguments if a in GRID] or list(GRID)
    dtypes = [a for a in arguments if a not in GRID] or ["float32", "float64", "bfloat16", "int32"]
    print(f"jax {jax.__version__}, {jax.devices()[0].platform}\n")
    print("| operation | " + " | ".join(FORMS) + " | plain / best |")
    print("|---|" + "---:|" * (len(FORMS) + 1))
    for dtype in dtypes:
        for group in groups:
            for shape, axes in GRID[group]:
                for kind in REDUCE:
                    for producer in PRODUCERS:
                        print(row(dtype, shape, axes, kind, producer), flush=True)


def row(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], kind: str, producer: str) -> str:
    """Return one line of the table."""
    with jax.enable_x64(True):
        numbers = np.random.default_rng(0).uniform(1, 2, shape)
        x = jnp.asarray(numbers).astype(dtype)
        make = PRODUCERS[producer]
        runs = {}
        for name, form in FORMS.items():
            if (
                (name == "dot" and kind != "sum")
                or (name != "plain" and axes != tuple(range(axes[0], axes[-1] + 1)))
                or (producer == "exp" and dtype == "int32")
            ):
                continue
            compiled = jax.jit(lambda x, form=form: form(make(x), axes, kind))
            runs[name] = lambda compiled=compiled: compiled(x)
        if not runs:
            return f"| {dtype} {kind} {producer} of {list(shape)} over {list(axes)} |"
        best = least_times(runs)
    per_element = {name: f"{1e9 * t / prod(shape):.3g}" for name, t in best.items()}
    others = [t for name, t in best.items() if name != "plain"]
    ratio = f"{best['plain'] / min(others):.2f}" if others else ""
    cells = [per_element.get(name, "") for name in FORMS]
    what = f"{dtype} {kind} {producer} of {list(shape)} over {list(axes)}"
    return f"| {what} | " + " | ".join(cells) + f" | {ratio} |"


if __name__ == "__main__":
    main(sys.argv[1:])
