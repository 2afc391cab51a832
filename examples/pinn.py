"""A physics-informed neural network (PINN) that solves Burgers' equation, in JAX and optax.

    python examples/pinn.py [--steps N] [--out pinn.png]

A network u(t, x) is trained until its own derivatives obey the equation

    u_t + u u_x = nu u_xx,   u(0, x) = -sin(pi x),   u(t, -1) = u(t, 1) = 0

at random points, new ones in each step (Raissi et al. 2019). The derivatives are `jax.grad` of
`jax.grad` of the network, mapped over the points, and the step differentiates them once more with
respect to the parameters. No data are used. The result is compared with the exact solution (Cole-
Hopf), and one step is timed under `jax.jit` and under `ft.jit`. Needs the extras `examples` and
`libraries`.
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

NU, POINTS, WIDTHS = 0.03, 1024, (2, 32, 32, 32, 1)


def initial(key: Any) -> list[tuple[Any, Any]]:
    """Weights and biases of the layers."""
    keys = jax.random.split(key, len(WIDTHS) - 1)
    return [
        (jax.random.normal(k, (m, n)) * m**-0.5, jnp.zeros(n))
        for k, m, n in zip(keys, WIDTHS[:-1], WIDTHS[1:], strict=True)
    ]


def u(params: Any, t: Any, x: Any) -> Any:
    """The solution at one point; its form makes it exact at t = 0 and at the walls."""
    h = jnp.stack([t, x])
    for w, b in params[:-1]:
        h = jnp.tanh(h @ w + b)
    w, b = params[-1]
    return -jnp.sin(jnp.pi * x) + t * (1 - x**2) * (h @ w + b)[0]


def residual(params: Any, t: Any, x: Any) -> Any:
    """By how much the equation does not hold at one point."""
    u_t = jax.grad(u, 1)(params, t, x)
    u_x = jax.grad(u, 2)(params, t, x)
    u_xx = jax.grad(jax.grad(u, 2), 2)(params, t, x)
    return u_t + u(params, t, x) * u_x - NU * u_xx


def loss(params: Any, t: Any, x: Any) -> Any:
    return jnp.mean(jax.vmap(residual, (None, 0, 0))(params, t, x) ** 2)


def training(jit: Callable[..., Any], steps: int) -> tuple[Any, Any]:
    """The optimizer, and its step as `jit` compiles it."""
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, steps))

    @jit
    def step(params, state, key):
        key, *keys = jax.random.split(key, 3)
        t = jax.random.uniform(keys[0], (POINTS,))
        x = jax.random.uniform(keys[1], (POINTS,), minval=-1)
        value, gradient = jax.value_and_grad(loss)(params, t, x)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, key, value

    return optimizer, step


def train(steps: int) -> tuple[Any, list[float]]:
    """The trained parameters, and the loss of each step."""
    optimizer, step = training(ft.jit, steps)  # the one word: was jax.jit
    params, key = initial(jax.random.key(0)), jax.random.key(1)
    state, losses = optimizer.init(params), []
    for _ in range(steps):
        params, state, key, value = step(params, state, key)
        losses.append(value)
    return params, [float(value) for value in losses]


# --- the exact solution, times, the picture -------------------------------------------------------


def exact(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """By Cole and Hopf: a quotient of integrals against a Gaussian, by Gauss-Hermite quadrature."""
    z, weights = np.polynomial.hermite.hermgauss(80)
    y = x[..., None] - np.sqrt(4 * NU * t)[..., None] * z
    density = weights * np.exp(-np.cos(np.pi * y) / (2 * np.pi * NU))
    return -(np.sin(np.pi * y) * density).sum(-1) / density.sum(-1)


def on_grid(params: Any, n: int = 101) -> tuple[np.ndarray, ...]:
    """Times, places, the network's solution and the exact one, each (n, n)."""
    t, x = np.meshgrid(np.linspace(0, 1, n), np.linspace(-1, 1, n), indexing="ij")
    of_all = jax.vmap(jax.vmap(u, (None, 0, 0)), (None, 0, 0))
    return t, x, np.asarray(ft.jit(of_all)(params, t, x)), exact(t, x)


def milliseconds(params: Any, rounds: int) -> dict[str, float]:
    """A step by each jit, in turn; the median."""
    made = {"jax.jit": training(jax.jit, 1000), "ft.jit": training(ft.jit, 1000)}
    times: dict[str, list[float]] = {name: [] for name in made}
    for i in range(rounds + 1):
        for name, (optimizer, step) in made.items():
            state = optimizer.init(params)
            begun = time.perf_counter()
            jax.block_until_ready(step(params, state, jax.random.key(2)))
            if i:  # the first one compiles
                times[name].append(1e3 * (time.perf_counter() - begun))
    return {name: statistics.median(found) for name, found in times.items()}


def draw(path: str, params: Any, losses: list[float]) -> None:
    t, x, ours, true = on_grid(params)
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    image = left.pcolormesh(t, x, ours, cmap="RdBu", rasterized=True)
    figure.colorbar(image, ax=left)
    left.set(xlabel="t", ylabel="x", title="u(t, x)")
    for i, color in ((0, "C0"), (50, "C1"), (100, "C2")):
        middle.plot(x[i], true[i], color=color, linewidth=3, alpha=0.4)
        middle.plot(x[i], ours[i], ":", color=color, label=f"t = {t[i, 0]:.1f}")
    middle.set(xlabel="x", title="dots: network; bands: exact")
    middle.legend()
    image = right.pcolormesh(t, x, np.abs(ours - true), cmap="magma", rasterized=True)
    figure.colorbar(image, ax=right)
    right.set(xlabel="t", ylabel="x", title=f"|error|; loss {losses[0]:.2g} -> {losses[-1]:.1g}")
    figure.savefig(path, dpi=100)


def main(steps: int, out: str, rounds: int = 30) -> tuple[float, dict[str, float]]:
    """The error of the solution, relative to its size, and milliseconds of a step."""
    begun = time.perf_counter()
    params, losses = train(steps)
    _, _, ours, true = on_grid(params)
    error = float(np.linalg.norm(ours - true) / np.linalg.norm(true))
    print(f"{steps} steps in {time.perf_counter() - begun:.0f} s, loss {losses[-1]:.1e}")
    print(f"relative error against the exact solution: {error:.2%}")
    times = milliseconds(params, rounds)
    for name, found in times.items():
        print(f"{name:8s} {found:7.2f} ms a step of {POINTS} points")
    draw(out, params, losses)
    print(f"picture in {out}")
    return error, times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", default="pinn.png", help="where the picture goes")
    options = parser.parse_args()
    main(options.steps, options.out)
