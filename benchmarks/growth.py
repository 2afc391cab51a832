"""Measures whether memory grows when every step meets something new: a shape, a lambda, a closure or
a Python number, through `grad`, `vmap`, `jit` and un-jitted operations.

    python -m benchmarks.growth functrans "lambda jit" 1000
    python -m benchmarks.growth jax                          (all cases, at their own numbers)

In: a library, a case, and the number of steps. Out: milliseconds per step, and by how many MB the
process grew after the first quarter of the steps.
"""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

X = np.ones(3, np.float32)


class Case(NamedTuple):
    """What is done at step i, and how many steps are measured."""

    step: Callable[[int], Any]
    steps: int


# The steps of SHAPES and COMPILED each compile. What is compiled for a shape stays, in both libraries,
# until thousands of others have come and JAX drops it.
SHAPES, COMPILED, PLAIN = 400, 1000, 100_000


def cases(library: str) -> dict[str, Case]:
    """Return the cases by name, for `functrans` or for `jax`."""
    t = importlib.import_module(library)
    np_, lax = importlib.import_module(f"{library}.numpy"), t.lax
    jitted = t.jit(lambda x: np_.sin(x) * x)
    gradient = t.grad(lambda x: np_.sum(np_.sin(x) * x))
    mapped = t.vmap(lambda x: np_.sin(x) * 2.0)
    x = jax.device_put(X)

    def of_shape(f: Callable[..., Any]) -> Case:
        return Case(lambda i: f(np.ones((1 + i % 317, 1 + i // 317), np.float32)), SHAPES)

    def loss(_: int) -> Callable[..., Any]:
        return lambda x: np_.sum(np_.sin(x) * x)

    def closure(i: int) -> Callable[..., Any]:
        array = jax.device_put(np.full(3, i, np.float32))
        return lambda x: np_.sum(np_.sin(x) * array)

    def times(i: int) -> Callable[..., Any]:
        return lambda x: np_.sum(np_.sin(x) * (1.0 + i))

    return {
        "shape operation": of_shape(lambda y: np_.sin(y)),
        "shape number": of_shape(lambda y: np_.multiply(y, 2.0)),
        "shape grad": of_shape(gradient),
        "shape vmap": of_shape(mapped),
        "shape jit": of_shape(jitted),
        "shape vmap of jit": of_shape(lambda y: t.vmap(jitted)(y)),
        "lambda grad": Case(lambda i: t.grad(loss(i))(x), PLAIN),
        "lambda vmap": Case(lambda i: t.vmap(loss(i))(x), PLAIN),
        "lambda jit": Case(lambda i: t.jit(loss(i))(x), COMPILED),
        "lambda grad of jit": Case(lambda i: t.grad(t.jit(loss(i)))(x), COMPILED),
        "lambda scan": Case(lambda i: lax.scan(lambda c, _: (c * 2.0, None), x, None, length=3), COMPILED),
        "closure grad": Case(lambda i: t.grad(closure(i))(x), PLAIN),
        "closure vmap": Case(lambda i: t.vmap(closure(i))(x), PLAIN),
        "closure jit": Case(lambda i: t.jit(closure(i))(x), COMPILED),
        "number operation": Case(lambda i: np_.sin(x) * (1.0 + i), PLAIN),
        "number where": Case(lambda i: np_.where(x > 0.5 + i, x, 1.5 * i), PLAIN),
        "number grad": Case(lambda i: t.grad(times(i))(x), PLAIN),
        "number vmap": Case(lambda i: t.vmap(times(i))(x), PLAIN),
        "number jit": Case(lambda i: jitted(1.0 + i), PLAIN),
        "number jvp": Case(lambda i: t.jvp(times(i), (x,), (x,)), PLAIN),
    }


def resident() -> float:
    """Return the MB that this process holds."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def growth(library: str, name: str, steps: int | None = None) -> tuple[float, float]:
    """Return milliseconds per step, and the MB that were added after the first quarter of the steps."""
    case = cases(library)[name]
    n = steps or case.steps
    for i in range(n // 4):
        case.step(i)
    gc.collect()
    before, start = resident(), time.perf_counter()
    for i in range(n // 4, n):
        case.step(i)
    took = time.perf_counter() - start
    gc.collect()
    return took / (n - n // 4) * 1e3, resident() - before


def in_a_process(library: str, name: str, steps: int | None = None) -> tuple[float, float]:
    """Run `growth` in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.growth", library, name, *([str(steps)] * bool(steps))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    time_taken, grown = done.stdout.split()[-4:][::2]
    return float(time_taken), float(grown)


def main() -> None:
    library, *rest = sys.argv[1:]
    if rest:
        took, grown = growth(library, rest[0], int(rest[1]) if len(rest) > 1 else None)
        print(f"{library} {rest[0]}: {took:.3f} ms {grown:.1f} MB")
        return
    for name in cases(library):
        took, grown = in_a_process(library, name)
        print(f"{name:20} {took:9.3f} ms a step, grown by {grown:8.1f} MB", flush=True)


if __name__ == "__main__":
    main()
