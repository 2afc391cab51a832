"""The neural tangent kernel of an equinox network, as JAX code is written, with one word changed.

    python examples/equinox_kernel.py [--examples N] [--steps N] [--out equinox_kernel.png]

`kernel` is JAX and equinox throughout: one gradient per example, flattened, and the product of all
pairs of them. The rows are as long as the network has parameters, and only their products are
wanted: the passes of `ft.jit` see that and never compute the rows. The network first learns a surface by
optax, with a step that is jitted by `ft.jit` too. The kernels by both jits are compared and timed
in turn. The picture shows how training changed the kernel, and how well regression by the kernel
predicts points that it has not seen.

Needs the extras `examples` and `libraries`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import functrans as ft


def data(n: int) -> tuple[Any, Any]:
    """Points of the unit square, shape (n, 2), and a curved function of them."""
    x = jax.random.uniform(jax.random.key(0), (n, 2))
    return x, jnp.sin(6 * x[:, 0]) * jnp.cos(4 * x[:, 1])


def initial() -> Any:
    return eqx.nn.MLP(2, "scalar", 256, 2, jnp.tanh, key=jax.random.key(1))


def fitted(x: Any, y: Any, steps: int) -> tuple[Any, float]:
    """A network that has learnt the data, and its mean squared error."""
    model = initial()
    optimizer = optax.adam(3e-3)
    arrays, static = eqx.partition(model, eqx.is_array)

    def error(arrays):
        return jnp.mean((jax.vmap(eqx.combine(arrays, static))(x) - y) ** 2)

    @ft.jit
    def step(arrays, state):
        value, gradient = jax.value_and_grad(error)(arrays)
        updates, state = optimizer.update(gradient, state)
        return eqx.apply_updates(arrays, updates), state, value

    state, value = optimizer.init(arrays), jnp.inf
    for _ in range(steps):
        arrays, state, value = step(arrays, state)
    return eqx.combine(arrays, static), float(value)


def kernel(model: Any, jit: Callable[..., Any]) -> Callable[[Any], Any]:
    """The function from points [n, 2] to their kernel [n, n]."""
    arrays, static = eqx.partition(model, eqx.is_array)

    @jit
    def of(arrays, x):
        def gradient(x):
            g = eqx.filter_grad(lambda m: m(x))(eqx.combine(arrays, static))
            return jax.flatten_util.ravel_pytree(g)[0]

        rows = jax.vmap(gradient)(x)
        return rows @ rows.T

    return lambda x: of(arrays, x)


def unseen(k: Any, y: Any) -> tuple[Any, float]:
    """What regression by a kernel says of the second half of the points, and its error there."""
    half, y = len(y) // 2, np.asarray(y, "float64")
    k = np.asarray(k, "float64") / float(k.trace())
    said = k[half:, :half] @ np.linalg.solve(k[:half, :half] + 1e-7 * np.eye(half), y[:half])
    return said, float(np.mean((said - y[half:]) ** 2) ** 0.5)


def draw(path: str, x: Any, y: Any, kernels: dict[str, Any]) -> None:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    *maps, right = figure.subplots(1, 3)
    middle = int(jnp.argmin(jnp.sum((x - 0.5) ** 2, axis=1)))
    for axes, (name, k) in zip(maps, kernels.items(), strict=True):
        similar = k[middle] / jnp.sqrt(k[middle, middle] * k.diagonal())
        axes.scatter(*x.T, c=similar, s=20)
        axes.plot(*x[middle], "r+", markersize=16)
        axes.set(title=f"kernel {name}", xlabel="similarity of points to the one marked")
        said, error = unseen(k, y)
        right.plot(y[len(y) // 2 :], said, ".", label=f"{name}: error {error:.3f}")
    right.axline((0, 0), slope=1, color="k", linewidth=0.5)
    right.set(title="unseen points, by the kernel", xlabel="their value", ylim=(-1.5, 1.5))
    right.legend()
    figure.savefig(path, dpi=100)


def main(n: int, steps: int, out: str, rounds: int = 7) -> tuple[float, float, dict[str, float]]:
    """The error of the fit, the largest difference of the two kernels, and milliseconds of each."""
    x, y = data(n)
    model, error = fitted(x, y, steps)
    print(f"mean squared error after {steps} steps: {error:.5f}")
    made = {"jax.jit": kernel(model, jax.jit), "ft.jit": kernel(model, ft.jit)}
    found = {name: k(x) for name, k in made.items()}
    scale = jnp.abs(found["jax.jit"]).max()
    apart = float(jnp.abs(found["jax.jit"] - found["ft.jit"]).max() / scale)
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, k in made.items():
            begun = time.perf_counter()
            k(x).block_until_ready()
            times[name].append(1e3 * (time.perf_counter() - begun))
    medians = {name: statistics.median(ms) for name, ms in times.items()}
    for name, ms in medians.items():
        print(f"kernel of {n} points by {name:8s} {ms:8.2f} ms")
    print(f"they differ by {apart:.1e} of the largest entry")
    kernels = {"before": kernel(initial(), ft.jit)(x), "after learning": found["ft.jit"]}
    shown = [f"{unseen(k, y)[1]:.3f} {name}" for name, k in kernels.items()]
    print(f"root mean squared error of regression by the kernel: {', '.join(shown)}")
    draw(out, x, y, kernels)
    print(f"picture in {out}")
    return error, apart, medians


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", default="equinox_kernel.png", help="where the picture goes")
    options = parser.parse_args()
    main(options.examples, options.steps, options.out)
