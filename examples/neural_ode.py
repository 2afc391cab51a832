"""A neural ordinary differential equation by diffrax and equinox, with one word changed.

    python examples/neural_ode.py [--steps N] [--out neural_ode.png]

The data are motions of a damped pendulum, spirals in the plane of angle and velocity, as noisy
points at 40 times. The right-hand side of the equation is a network (equinox), diffrax solves it
with adaptive steps (Tsit5), and the gradient of the distance to the points goes back through the
solver (Chen et al. 2018). The one word is the jit of the step, which was `jax.jit`; it is timed
under both. Needs the extras `examples` and `libraries`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import functrans as ft

CURVES, TIMES, WIDTH, NOISE = 32, 40, 64, 0.02
SOLVER = diffrax.Tsit5()
CONTROL = diffrax.PIDController(rtol=1e-4, atol=1e-4)


class Field(eqx.Module):
    """The right-hand side, dy/dt, as a network of y."""

    network: eqx.nn.MLP

    def __init__(self, key):
        self.network = eqx.nn.MLP(2, 2, WIDTH, 2, jnp.tanh, key=key)

    def __call__(self, t, y, args):
        return self.network(y)


def pendulum(t: Any, y: Any, args: Any) -> Any:
    """The right-hand side that is to be found, of angle and velocity."""
    return jnp.stack([y[1], -4 * jnp.sin(y[0]) - 0.3 * y[1]])


def solved(field: Any, start: Any, times: Any) -> Any:
    """The solution from one start, at the times: (times, 2)."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        SOLVER,
        times[0],
        times[-1],
        0.05,
        start,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=CONTROL,
        max_steps=512,
    )
    return solution.ys


def data(n: int, key: Any) -> tuple[Any, Any]:
    """Times, and noisy points of n motions: (n, times, 2)."""
    times = jnp.linspace(0.0, 5.0, TIMES)
    first, noise = jax.random.split(key)
    starts = jax.random.uniform(first, (n, 2), minval=-2, maxval=2)
    exact = jax.vmap(partial(solved, pendulum), (0, None))(starts, times)
    return times, exact + NOISE * jax.random.normal(noise, exact.shape)


def distance(field: Any, times: Any, curves: Any) -> Any:
    """The mean squared distance of solutions from the points of their curves."""
    found = jax.vmap(lambda curve: solved(field, curve[0], times))(curves)
    return jnp.mean((found - curves) ** 2)


def training(jit: Callable[..., Any], static: Any, steps: int) -> tuple[Any, Any]:
    """The optimizer, and its step as `jit` compiles it."""
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, steps))

    @jit
    def step(arrays, state, times, curves):
        of = lambda arrays: distance(eqx.combine(arrays, static), times, curves)  # noqa: E731
        value, gradient = jax.value_and_grad(of)(arrays)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(arrays, updates), state, value

    return optimizer, step


# --- times, the picture ---------------------------------------------------------------------------


def milliseconds(made: dict[str, Any], *args: Any, rounds: int) -> dict[str, float]:
    """A step of each, in turn; the median."""
    taken: dict[str, list[float]] = {name: [] for name in made}
    for i in range(rounds + 1):
        for name, step in made.items():
            begun = time.perf_counter()
            jax.block_until_ready(step(*args))
            if i:  # the first one compiles
                taken[name].append(1e3 * (time.perf_counter() - begun))
    return {name: statistics.median(found) for name, found in taken.items()}


def draw(path: str, field: Any, curves: Any, found: Any, values: list[float]) -> None:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for i in range(3):
        left.plot(*curves[i].T, ".", color=f"C{i}", markersize=4)
        left.plot(*found[i].T, color=f"C{i}", linewidth=1)
    left.set(title="new motions: points, solutions", xlabel="angle", ylabel="velocity")
    y = np.stack(np.meshgrid(*[np.linspace(-2, 2, 13, dtype="float32")] * 2), -1)
    for of, color in ((pendulum, "0.6"), (field, "C3")):
        arrows = jax.vmap(jax.vmap(lambda y, of=of: of(0.0, y, None)))(y)
        middle.quiver(*y.transpose(2, 0, 1), *arrows.transpose(2, 0, 1), color=color, scale=60)
    middle.set(title="field: true (grey), learnt (red)", xlabel="angle")
    right.semilogy(values)
    right.axhline(NOISE**2, color="k", linestyle=":")
    right.set(xlabel="step", title="squared distance; dots: the noise")
    figure.savefig(path, dpi=100)


def main(steps: int, out: str, rounds: int = 30) -> tuple[float, dict[str, float]]:
    """The root mean squared distance from new motions, and milliseconds of a step."""
    times, curves = data(CURVES, jax.random.key(0))
    arrays, static = eqx.partition(Field(jax.random.key(1)), eqx.is_array)
    optimizer, step = training(ft.jit, static, steps)  # the one word: was jax.jit
    state, values = optimizer.init(arrays), []
    begun = time.perf_counter()
    for _ in range(steps):
        arrays, state, value = step(arrays, state, times, curves)
        values.append(float(value))
    print(f"{steps} steps in {time.perf_counter() - begun:.0f} s, distance {values[-1] ** 0.5:.3f}")
    field = eqx.combine(arrays, static)
    _, new = data(CURVES, jax.random.key(9))
    found = ft.jit(jax.vmap(lambda curve: solved(field, curve[0], times)))(new)
    error = float(jnp.mean((found - new) ** 2)) ** 0.5
    print(f"distance from new motions: {error:.3f}; noise of their points: {NOISE}")
    made = {"jax.jit": training(jax.jit, static, steps)[1], "ft.jit": step}
    taken = milliseconds(made, arrays, state, times, curves, rounds=rounds)
    for name, ms in taken.items():
        print(f"{name:8s} {ms:7.2f} ms a step of {CURVES} motions")
    draw(out, field, new, found, values)
    print(f"picture in {out}")
    return error, taken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", default="neural_ode.png", help="where the picture goes")
    options = parser.parse_args()
    main(options.steps, options.out)
