"""An existing JAX program, private training with flax and optax, with one word changed.

    python examples/private_flax.py [--steps N] [--out private_flax.png]

The script is JAX's throughout: a flax.linen network, `jax.vmap(jax.grad(loss))` for one gradient
per example, optax's `differentially_private_aggregate` (DP-SGD: clip each, sum, add noise). The one
word is the jit of its step, `jax.jit` or `ft.jit`: the same step is timed under both at the end,
beside a plain step of the same network, which is not private.

The data are the 1,797 digits of 8 x 8 pixels that ship inside scikit-learn: no network is needed.
Needs the extras `examples` and `libraries`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import functrans as ft

BATCH, CLIP, NOISE, RATE = 256, 1.0, 0.6, 0.5
EVERY = 10  # steps, after which the test images are looked at


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.tanh(nn.Dense(512)(x))
        x = nn.tanh(nn.Dense(512)(x))
        return nn.Dense(10)(x)


network = Network()


def loss(params: Any, x: Any, y: Any) -> Any:
    """Of one example."""
    return optax.softmax_cross_entropy_with_integer_labels(network.apply(params, x), y)


def private(jit: Callable[..., Any]) -> tuple[Any, Any]:
    """The optimizer, and its step as `jit` compiles it."""
    optimizer = optax.chain(
        optax.contrib.differentially_private_aggregate(CLIP, NOISE, key=jax.random.key(1)), optax.sgd(RATE)
    )

    @jit
    def step(params, state, x, y):
        gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return optimizer, step


def plain(jit: Callable[..., Any]) -> tuple[Any, Any]:
    """The same without privacy: the gradient of the mean, which is what a step costs at least."""
    optimizer = optax.sgd(RATE)

    @jit
    def step(params, state, x, y):
        mean = lambda p: jax.vmap(loss, (None, 0, 0))(p, x, y).mean()  # noqa: E731
        updates, state = optimizer.update(jax.grad(mean)(params), state, params)
        return optax.apply_updates(params, updates), state

    return optimizer, step


# --- data, training -------------------------------------------------------------------------------


def load() -> tuple[np.ndarray, ...]:
    """Images in [0, 1] of shape (n, 64) and labels, split 1,437 : 360."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    images = (digits.data[order] / 16.0).astype("float32")
    labels = digits.target[order].astype("int32")
    return images[360:], labels[360:], images[:360], labels[:360]


def batches(images: np.ndarray, labels: np.ndarray, steps: int) -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chosen = rng.choice(len(images), BATCH, replace=False)
        yield images[chosen], labels[chosen]


def train(steps: int, made: Callable[..., Any] = private) -> tuple[list[float], Any, Any]:
    """The test accuracy every few steps and at the end; the parameters; a batch."""
    images, labels, test_images, test_labels = load()
    optimizer, step = made(ft.jit)  # the one word: was jax.jit
    params = network.init(jax.random.key(0), images[:1])
    state, accuracies = optimizer.init(params), []
    batch = (images[:BATCH], labels[:BATCH])
    for i, batch in enumerate(batches(images, labels, steps), 1):
        params, state = step(params, state, *batch)
        if i % EVERY == 0 or i == steps:
            found = jnp.argmax(network.apply(params, test_images), axis=1)
            accuracies.append(float((found == test_labels).mean()))
    return accuracies, params, batch


# --- times, the picture ---------------------------------------------------------------------------


def milliseconds(params: Any, batch: tuple[Any, Any], rounds: int) -> dict[str, float]:
    """A step of each kind, in turn; the median."""
    made = {
        "private, jax.jit": private(jax.jit),
        "private, ft.jit": private(ft.jit),
        "plain, jax.jit": plain(jax.jit),
    }
    times: dict[str, list[float]] = {name: [] for name in made}
    for i in range(rounds + 1):
        for name, (optimizer, step) in made.items():
            state = optimizer.init(params)
            begun = time.perf_counter()
            jax.block_until_ready(step(params, state, *batch))
            if i:  # the first one compiles
                times[name].append(1e3 * (time.perf_counter() - begun))
    return {name: statistics.median(found) for name, found in times.items()}


def draw(path: str, accuracies: dict[str, list[float]], steps: int, times: dict[str, float]) -> None:
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, found in accuracies.items():
        seen = [*range(EVERY, steps, EVERY), steps]
        left.plot(seen, found, ".-", label=f"{name}: {found[-1]:.1%}")
    left.set(xlabel="steps", title="accuracy on the test digits", ylim=(0.5, 1))
    left.legend()
    bars = right.barh(list(times), list(times.values()), color=["0.6", "C0", "0.8"])
    right.bar_label(bars, [f"{ms:.1f} ms" for ms in times.values()], padding=3)
    right.set(xscale="log", xlim=(1, 9 * max(times.values())), title=f"a step of {BATCH}")
    right.invert_yaxis()
    figure.savefig(path, dpi=100)


def main(steps: int, out: str, rounds: int = 7) -> tuple[float, dict[str, float]]:
    """The accuracy of private training, and milliseconds of each kind of step."""
    accuracies, params, batch = train(steps)
    print(f"accuracy on the test digits after {steps} private steps: {accuracies[-1]:.3f}")
    without, _, _ = train(steps, plain)
    print(f"and after as many that are not private: {without[-1]:.3f}")
    times = milliseconds(params, batch, rounds)
    for name, found in times.items():
        print(f"{name:18s} {found:8.2f} ms a step of {BATCH}")
    draw(out, {"private": accuracies, "not private": without}, steps, times)
    print(f"picture in {out}")
    return accuracies[-1], times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", default="private_flax.png", help="where the picture goes")
    options = parser.parse_args()
    main(options.steps, options.out)
