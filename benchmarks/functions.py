"""`python -m benchmarks.functions [--repeats N]`: functions of large arrays that XLA:CPU calls the C
library for, and programs made of them, by `ft.jit` and by `jax.jit` in turn."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import functrans as ft
from benchmarks.compared import difference
from benchmarks.timing import Row, pair, table

SIZE = 2**20
FUNCTIONS = ("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2")


def functions() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Yield each function of numbers between -3 and 3, or -1 and 1, in both precisions."""
    for dtype in ("float32", "float64"):
        x = np.random.default_rng(0).uniform(-1, 1, SIZE).astype(dtype)
        for name in FUNCTIONS:
            args = (x,) if name in ("arcsin", "arccos") else (3 * x,)
            args = (x, x[::-1]) if name == "arctan2" else args
            yield f"{name}, {dtype}", getattr(jnp, name), args


def euler_angles(q: Any) -> Any:
    """Return the Euler angles [n, 3] of unit quaternions [n, 4]."""
    w, x, y, z = (q[:, i] for i in range(4))
    roll = jnp.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = jnp.arcsin(jnp.clip(2 * (w * y - z * x), -1, 1))
    yaw = jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return jnp.stack([roll, pitch, yaw], -1)


def distances(a: Any, b: Any) -> Any:
    """Return the great-circle distances of points [n, 2] on the unit sphere: latitude and longitude."""
    across = jnp.sin((b - a) / 2) ** 2
    return 2 * jnp.arcsin(jnp.sqrt(across[:, 0] + jnp.cos(a[:, 0]) * jnp.cos(b[:, 0]) * across[:, 1]))


def siren(weights: Any, x: Any) -> Any:
    """A network whose activations are sines (Sitzmann et al. 2020)."""
    for w in weights[:-1]:
        x = jnp.sin(30 * (x @ w))
    return x @ weights[-1]


def swarm(angles: Any, rates: Any) -> Any:
    """Return the phases of coupled oscillators (Kuramoto) after 10 steps."""

    def step(angles: Any, _: Any) -> Any:
        pull = jnp.mean(jnp.sin(angles[None] - angles[:, None]), 1)
        return angles + 0.1 * (rates + pull), None

    return jax.lax.scan(step, angles, None, 10)[0]


def programs() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Yield programs and their gradients."""
    rng = np.random.default_rng(0)

    def uniform(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape).astype("float32")

    def squared(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda *args: jnp.mean(f(*args) ** 2))

    q = uniform(100_000, 4)
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    weights = [
        0.5 * uniform(2, 128),
        0.02 * uniform(128, 128),
        0.02 * uniform(128, 128),
        0.02 * uniform(128, 3),
    ]
    for name, f, args in (
        ("Euler angles of 100,000 quaternions", euler_angles, (q,)),
        ("100,000 great-circle distances", distances, (uniform(100_000, 2), uniform(100_000, 2))),
        ("network of sines, 4,096 points", siren, (weights, uniform(4096, 2))),
        ("400 coupled oscillators, 10 steps", swarm, (3 * uniform(400), uniform(400))),
    ):
        yield f"{name}, value", f, args
        yield f"{name}, gradient", squared(f), args


def rows(repeats: int) -> Iterator[Row]:
    """Yield a row for each function and program; check that the answers agree."""
    for name, f, args in (*functions(), *programs()):
        with jax.enable_x64("float64" in name):
            given = jax.tree.map(jnp.asarray, args)
            ours, theirs = partial(ft.jit(f), *given), partial(jax.jit(f), *given)
            if not (off := difference(ours(), theirs())) <= 1e-4:
                raise AssertionError(f"{name}: the answers differ by {off:.0e}")
            yield pair(name, ours, theirs, repeats=repeats)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=31)
    print(f"JAX {jax.__version__}")
    print(table(list(rows(parser.parse_args().repeats))))
