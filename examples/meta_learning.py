"""Learning to learn: MAML on sine curves, in JAX and optax, with one word changed.

    python examples/meta_learning.py [--steps N] [--out meta_learning.png]

A task is a sine curve with an amplitude and a phase of its own. A network adapts to it by one step
of gradient descent on ten points; training finds weights from which that one step helps most
(Finn, Abbeel and Levine 2017). So the loss of a task contains a gradient, the meta-gradient goes
through it, and `jax.vmap` maps all of it over a batch of tasks. The baseline is a network that was
trained on the same tasks without adapting, and then adapts at the rate that is best for it. One
step is timed under `jax.jit` and under `ft.jit`. Needs the extras `examples` and `libraries`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import functrans as ft

TASKS, SHOTS, RATE, WIDTHS = 25, 10, 0.01, (1, 40, 40, 1)
SHOWN = (0, 1, 5)  # steps of adaptation
RATES = (0.01, 0.003, 0.001, 0.0003, 0.0001)  # the baseline uses the best of these


def initial(key: Any) -> list[tuple[Any, Any]]:
    """Weights and biases of the layers."""
    keys = jax.random.split(key, len(WIDTHS) - 1)
    return [
        (jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, jnp.zeros(n))
        for k, m, n in zip(keys, WIDTHS[:-1], WIDTHS[1:], strict=True)
    ]


def predict(params: Any, x: Any) -> Any:
    """Of points (n, 1), the values (n, 1)."""
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def error(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((predict(params, x) - y) ** 2)


def adapted(params: Any, x: Any, y: Any, steps: int, rate: Any = RATE) -> Any:
    """The weights after some steps of gradient descent on the points of one task."""
    for _ in range(steps):
        gradient = jax.grad(error)(params, x, y)
        params = jax.tree.map(lambda p, g: p - rate * g, params, gradient)
    return params


def tasks(key: Any, n: int, points: int) -> tuple[Any, Any]:
    """Points of n curves, and their values: (n, points, 1) each."""
    keys = jax.random.split(key, 3)
    amplitude = jax.random.uniform(keys[0], (n, 1, 1), minval=0.1, maxval=5)
    phase = jax.random.uniform(keys[1], (n, 1, 1), maxval=jnp.pi)
    x = jax.random.uniform(keys[2], (n, points, 1), minval=-5, maxval=5)
    return x, amplitude * jnp.sin(x + phase)


def training(jit: Callable[..., Any], adaptation: int) -> tuple[Any, Any]:
    """The optimizer, and its step as `jit` compiles it; no adaptation: ordinary training."""
    optimizer = optax.adam(2e-3)

    def after(params, x, y):  # one task: adapt to its first points, judge by the others
        there = adapted(params, x[:SHOTS], y[:SHOTS], adaptation)
        return error(there, x[SHOTS:], y[SHOTS:])

    @jit
    def step(params, state, key):
        key, now = jax.random.split(key)
        x, y = tasks(now, TASKS, 2 * SHOTS)
        mean = lambda p: jax.vmap(after, (None, 0, 0))(p, x, y).mean()  # noqa: E731
        value, gradient = jax.value_and_grad(mean)(params)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, key, value

    return optimizer, step


def train(steps: int, adaptation: int = 1) -> Any:
    """The weights from which adaptation begins."""
    optimizer, step = training(ft.jit, adaptation)  # the one word: was jax.jit
    params, key = initial(jax.random.key(0)), jax.random.key(1)
    state = optimizer.init(params)
    for _ in range(steps):
        params, state, key, _ = step(params, state, key)
    return params


# --- how well it adapts, times, the picture -------------------------------------------------------


@ft.jit
def errors(params: Any, rate: Any = RATE) -> Any:
    """The mean error on 500 new curves, after each number of steps of `SHOWN`."""

    def after(x, y):
        there = [adapted(params, x[:SHOTS], y[:SHOTS], k, rate) for k in SHOWN]
        return jnp.stack([error(p, x[SHOTS:], y[SHOTS:]) for p in there])

    return jax.vmap(after)(*tasks(jax.random.key(7), 500, 110)).mean(0)


def milliseconds(params: Any, rounds: int) -> dict[str, float]:
    """A step by each jit, in turn; the median."""
    made = {"jax.jit": training(jax.jit, 1), "ft.jit": training(ft.jit, 1)}
    times: dict[str, list[float]] = {name: [] for name in made}
    for i in range(rounds + 1):
        for name, (optimizer, step) in made.items():
            state = optimizer.init(params)
            begun = time.perf_counter()
            jax.block_until_ready(step(params, state, jax.random.key(2)))
            if i:  # the first one compiles
                times[name].append(1e3 * (time.perf_counter() - begun))
    return {name: statistics.median(found) for name, found in times.items()}


def draw(path: str, starts: dict[str, Any], rates: dict[str, float]) -> None:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    x = np.linspace(-5, 5, 200, dtype="float32")[:, None]
    seen = np.linspace(-4, 0.5, SHOTS, dtype="float32")[:, None]  # half of the curve only
    curve = lambda x: 3 * np.sin(x + 1)  # noqa: E731
    for axes, (name, params) in zip(figure.subplots(1, 2, sharey=True), starts.items(), strict=True):
        axes.plot(x, curve(x), "k", linewidth=3, alpha=0.25, label="a new curve")
        axes.plot(seen, curve(seen), "k^", label="what is seen of it")
        for k, style in zip(SHOWN, (":", "--", "-"), strict=True):
            there = adapted(params, seen, curve(seen), k, rates[name])
            axes.plot(x, predict(there, x), f"C0{style}", label=f"steps of adaptation: {k}")
        axes.set(title=name, ylim=(-5, 5))
    axes.legend(loc="lower right", fontsize="small")
    figure.savefig(path, dpi=100)


def main(steps: int, out: str, rounds: int = 100) -> tuple[dict[str, Any], dict[str, float]]:
    """The errors of both kinds of training, and milliseconds of a step of MAML."""
    begun = time.perf_counter()
    starts = {"MAML": train(steps), "trained without adapting": train(steps, adaptation=0)}
    print(f"{steps} steps of {TASKS} tasks, twice, in {time.perf_counter() - begun:.0f} s")
    last = list(starts)[1]
    best = min(RATES, key=lambda rate: errors(starts[last], rate)[-1])
    rates = {"MAML": RATE, last: best}
    found = {name: errors(params, rates[name]) for name, params in starts.items()}
    for name, row in found.items():
        shown = ", ".join(f"{e:.2f} after {k}" for k, e in zip(SHOWN, row, strict=True))
        print(f"{name:25s} mean squared error on new curves: {shown} steps")
    times = milliseconds(starts["MAML"], rounds)
    for name, ms in times.items():
        print(f"{name:8s} {ms:7.3f} ms a step of MAML")
    draw(out, starts, rates)
    print(f"picture in {out}")
    return found, times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--out", default="meta_learning.png", help="where the picture goes")
    options = parser.parse_args()
    main(options.steps, options.out)
