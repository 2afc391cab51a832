"""Loops of every number of steps from 0 to 70, forwards and back, against a loop of Python.

A loop whose number of steps is known only when it runs keeps some carries for the way back and
finds the others again; which ones, depends on that number. One compiled program is run for each.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax

STEPS = [*range(71), 97, 150, 561, 600]  # 561: all that 32 checkpoints reverse with two runs more
SCALE = 0.9
V = np.array([0.4, -0.3, 1.2])
SEEDS = np.array([[1.0, -0.5, 2.0], [0.3, 0.7, -1.1]])


def step(np_: Any, i: Any, w: Any, v: Any, u: Any) -> tuple[Any, Any]:
    """Of derivatives below 1 that differ from step to step; u is linear in what it was."""
    return np_.sin(w * v + 0.3 * i) + 0.2 * v[::-1] * u, u * np_.cos(v) * 0.5 + 0.1 * v


def by_while(n: Any, w: Any, v: Any) -> Any:
    def body(c: Any) -> Any:
        i, v, k, u = c
        v, u = step(jnp, i, w, v, u)
        return i + 1.0, v, k - 1, u

    start = (jnp.zeros(()), v, n, jnp.ones(3) * w[0])
    _, v, _, u = lax.while_loop(lambda c: c[2] > 0, body, start)
    return v, u


def in_blocks(n: Any, w: Any, v: Any) -> Any:
    """A loop in a loop: n steps in blocks of 8, the last one short."""

    def block(c: Any) -> Any:
        i, v, u = c
        left = jnp.minimum(n - i, 8)
        done = lax.fori_loop(0, left, lambda k, vu: step(jnp, i + k + 0.0, w, *vu), (v, u))
        return (i + left, *done)

    return lax.while_loop(lambda c: c[0] < n, block, (0 * n, v, jnp.ones(3) * w[0]))[1:]


def in_python(n: int, w: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The results, flat, and the cotangents of w and v, by the chain rule step after step."""
    u = np.ones(3) * w[0]
    carries = []
    for i in range(n):
        carries.append((v, u))
        v, u = step(np, float(i), w, v, u)
    out = np.stack([v, u])
    dv, du = SEEDS
    dw = np.zeros(3)
    for i in reversed(range(n)):
        v, u = carries[i]
        slope = np.cos(w * v + 0.3 * i) * dv
        turned = 0.2 * dv
        dw = dw + slope * v
        dv, du = (
            slope * w + (turned * u)[::-1] - du * u * np.sin(v) * 0.5 + 0.1 * du,
            turned * v[::-1] + du * np.cos(v) * 0.5,
        )
    dw[0] += du.sum()
    return out, [dw, dv]


WAYS: dict[str, Callable[..., Any]] = {"while_loop": by_while, "loops in a loop": in_blocks}


def both_ways(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(n: Any, w: Any, v: Any) -> Any:
        out, pullback = ft.vjp(lambda w, v: jnp.stack(f(n, w, v)), w, v)
        return out, pullback(jnp.asarray(SEEDS))

    return run


def assert_right(n: int, out: Any, cotangents: Sequence[Any]) -> None:
    want, back = in_python(n, np.full(3, SCALE), V)
    np.testing.assert_allclose(out, want, rtol=1e-9, atol=1e-12, err_msg=str(n))
    for mine, its in zip(cotangents, back, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-8, atol=1e-12, err_msg=str(n))


@pytest.mark.smoke
@pytest.mark.parametrize("way", WAYS)
def test_reverse_mode_of_every_number_of_steps(way: str):
    with jax.enable_x64(True):
        run = ft.jit(both_ways(WAYS[way]))
        for n in STEPS:
            assert_right(n, *run(n, np.full(3, SCALE), V))


def test_examples_of_different_numbers_of_steps_at_once():
    with jax.enable_x64(True):
        ns = np.array(STEPS[:71])
        outs, cotangents = ft.jit(ft.vmap(both_ways(by_while), (0, None, None)))(ns, np.full(3, SCALE), V)
        for n, out, dw, dv in zip(ns, outs, *cotangents, strict=True):
            assert_right(n, out, [dw, dv])
