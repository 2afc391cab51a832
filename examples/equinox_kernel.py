"""The neural tangent kernel of an equinox network, as JAX code is written, with one word changed.

    python examples/equinox_kernel.py [--examples N]

`kernel` is JAX and equinox throughout: one gradient per example, flattened, and the product of all
pairs of them. The rows are as long as the network has parameters, and only their products are
wanted: the passes of `ft.jit` see that and never make them. The network first learns a curve by
optax, its step jitted by `ft.jit` too. Both kernels are compared, and timed in turn.

Needs the extra `libraries`.
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
import optax

import functrans as ft


def data(n: int) -> tuple[Any, Any]:
    """Points of the unit square, shape (n, 2), and a curved function of them."""
    x = jax.random.uniform(jax.random.key(0), (n, 2))
    return x, jnp.sin(6 * x[:, 0]) * jnp.cos(4 * x[:, 1])


def fitted(x: Any, y: Any, steps: int) -> tuple[Any, float]:
    """A network that has learnt the data, and its mean squared error."""
    model = eqx.nn.MLP(2, "scalar", 256, 2, jnp.tanh, key=jax.random.key(1))
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


def main(n: int, steps: int = 300, rounds: int = 5) -> tuple[float, float, dict[str, float]]:
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
    return error, apart, medians


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=256)
    main(parser.parse_args().examples)
