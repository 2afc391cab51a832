"""Loops over many lanes block by block (passes/lanes.py) give what they give all at once."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax, random
from functrans.passes import machines
from tests.support.closeness import assert_close
from tests.support.tables import functions
from tests.unit.test_kernels import LOOPS

W = np.float32([[0.3, -0.2], [0.1, 0.4], [0.2, 0.2]])
TIMES = np.linspace(0, 1, 6, dtype=np.float32)


def wave(x: Any, t: Any) -> tuple[Any, Any]:
    return 0.9 * x + jnp.sin(x[::-1] + t), jnp.sum(x * x)


def summed(w: Any, x: Any) -> Any:
    def step(x: Any, t: Any) -> tuple[Any, Any]:
        hidden = jnp.tanh(jnp.concatenate([x, x[:1] + t]) @ w)
        return x + 0.1 * hidden, jnp.sum(hidden**2)

    return jnp.mean(lax.scan(step, x, TIMES)[1])


def drawn(x: Any, key: Any) -> Any:
    def step(carry: Any, i: Any) -> tuple[Any, Any]:
        x, key = carry
        key, now = random.split(key)
        x = x + random.normal(now, (2,)) * lax.dynamic_index_in_dim(TIMES, i, keepdims=False)
        return (x, key), jnp.cumsum(x)

    return lax.scan(step, (x, key), jnp.arange(6))


def nested(x: Any) -> Any:
    def step(x: Any, t: Any) -> tuple[Any, Any]:
        inner = lax.scan(lambda c, s: (c * s + t, c), x, jnp.float32([0.5, 0.25]))
        more = lax.cond(t > 0.5, lambda x: jnp.sqrt(1 + x * x), lambda x: -x, inner[0])
        return more, (ft.jit(lambda x: jnp.max(x, 0))(inner[1]), t)

    return lax.scan(step, x, TIMES, reverse=True)


def shaped(x: Any) -> Any:
    def step(carry: Any, _: Any) -> tuple[Any, Any]:
        x, count = carry
        grid = jnp.pad(jnp.outer(x, x + count), 1)
        return (jnp.where(x > 0, grid[1:-1, 1:-1].sum(0), grid.T[1, 1:3] - 1) / 3, count + 1), jnp.argmax(
            grid
        )

    return lax.scan(step, (x, 0.0), None, 5)


def newton(x: Any, tolerance: float) -> Any:
    """The number of steps differs from lane to lane."""

    def step(c: Any) -> Any:
        root, _, count = c
        change = (root**3 - x) / (3 * root**2)
        return root - change, change, count + 1

    start = jnp.stack([1 + x[0] ** 2, 3.0]), 1 + 0 * x, 0

    def goes_on(c: Any) -> Any:
        return (jnp.max(jnp.abs(c[1])) > tolerance * (1 + x[1] ** 2)) & (c[2] < 40)

    return lax.while_loop(goes_on, step, start)


def counted(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, c: (jnp.sin(c[0]) + i, c[1] + c[0]), (x, 0 * x))


def fitted(p: Any, x: Any) -> Any:
    """The gradient with respect to the numbers of a vector is a sum of pads."""

    def step(x: Any, t: Any) -> tuple[Any, Any]:
        return x + 0.1 * (p[0] * x[::-1] - p[1] * jnp.tanh(x) + p[2] / 3 * t), None

    return lax.scan(step, x, TIMES)[0].sum()


def many(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32)


def mapped(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: ft.vmap(f)(*xs)


def mean(w: Any, x: Any) -> Any:
    return jnp.mean(ft.vmap(lambda x: summed(w, x))(x))


PROGRAMS = functions(LOOPS, "block by block", "", globals())


@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks(name: str):
    f, args = PROGRAMS[name]()
    loops = ft.passes.explain(f)(*args).loops
    assert loops
    assert all(loop.is_by_blocks for loop in loops)
    assert_close(ft.jit(f)(*args), ft.jit(lambda *xs: f(*xs), cpu="plain")(*args), 1e-5)


MIXED = functions(LOOPS, "mixed lanes", "x", globals())


@pytest.mark.every(1)
@pytest.mark.parametrize("name", MIXED)
def test_steps_that_mix_lanes(name: str):
    f, x = MIXED[name], many(512)
    assert not any(loop.is_by_blocks for loop in ft.passes.explain(f)(x).loops)
    assert_close(ft.jit(f)(x), jax.tree.map(np.asarray, ft.jit(lambda x: f(x), cpu="plain")(x)), 2e-6)


def test_what_many_cores_share_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machines, "CORES", 16)
    for n, is_by_blocks in ((1024, True), (2**17, False)):
        (loop,) = ft.passes.explain(mapped(lambda x: lax.scan(wave, x, TIMES)))(many(n)).loops
        assert loop.is_by_blocks == is_by_blocks


def test_sums_over_a_prime_number_of_lanes():
    f, args = ft.grad(mean), (W, many(521))
    assert_close(ft.jit(f)(*args), ft.jit(lambda *xs: f(*xs), cpu="plain")(*args), 1e-5)


def test_a_gradient_keeps_the_states_of_a_block():
    w, x = W, many(2**15)
    memory = [
        made.lower(w, x).compile().memory_analysis().temp_size_in_bytes
        for made in (ft.jit(ft.grad(mean)), ft.jit(ft.grad(mean), cpu="plain"))
    ]
    assert memory[0] * 3 < memory[1]


def test_special_numbers_and_effects():
    x = many(512)
    x[7], x[300] = np.nan, np.inf
    f = mapped(lambda x: lax.scan(wave, x, TIMES))
    assert_close(ft.jit(f)(x), ft.jit(lambda x: f(x), cpu="plain")(x), 2e-6)
    seen: list[float] = []

    def shown(x: Any) -> Any:
        ft.debug.callback(lambda v: seen.append(float(v)), x[0, 0])
        return f(x)

    ft.jit(shown)(many(512))
    jax.effects_barrier()
    assert seen == [many(512)[0, 0]]


def other_axis(x: Any, z: Any) -> Any:
    """The second loop reads what the first keeps along the axis that the blocks do not write."""
    ys = lax.scan(lambda c, t: (c * t + 1, c.T), x, TIMES)[1]
    return lax.scan(lambda c, y: (c + jnp.sum(y, 1), None), z, ys)[0], ys


def as_many_steps(x: Any) -> Any:
    ys = lax.scan(lambda c, t: (c * t + 1, c), x, np.linspace(0, 1, x.size, dtype=np.float32))[1]
    sums = jnp.sum(ys, 1)
    return lax.scan(lambda c, t: (c * t + sums, None), sums, TIMES), ys


def rounded(x: Any) -> Any:
    return lax.scan(lambda c, _: ((c[0] + 1, lax.div(jnp.sum(c[0]), 7)), None), (x, 0), None, length=3)[0]


def shared_while(x: Any) -> Any:
    """A loop within a step goes on until the last of as many elements as lanes, which are not the lanes."""

    def step(c: Any, t: Any) -> tuple[Any, Any]:
        state = jnp.arange(x.size, dtype=np.float32)[::-1] + t
        last = lax.while_loop(lambda s: jnp.any(s < 5), lambda s: jnp.where(s < 5, s + 1, s), state)
        return c + last[-1], c

    return lax.scan(step, x, TIMES)


def crossed(x: Any, y: Any) -> Any:
    """Each of two groups of loops reads what the other has made."""

    def step(c: Any, t: Any) -> Any:
        return c * t + 1, None

    first = lax.scan(step, x, TIMES)[0]
    other = lax.scan(step, y + jnp.sum(jnp.sin(first)), TIMES)[0]
    second = lax.scan(step, y * 2, TIMES)[0]
    return first, other, second, lax.scan(step, x + jnp.sum(jnp.sin(second)), TIMES)[0]


def shared_noise(x: Any, key: Any) -> Any:
    def step(c: Any, i: Any) -> Any:
        return c / 2 + random.normal(random.fold_in(key, i), c.shape), None

    return lax.scan(step, x, jnp.arange(6))[0]


SQUARE = np.random.default_rng(1).normal(size=(40, 40)).astype(np.float32)
ONE = many(300)[:, 0]

TAKEN_FOR_LANES = {
    "a stack read along another axis": (other_axis, (SQUARE, SQUARE[0]), None),
    "as many steps as lanes": (as_many_steps, (SQUARE[0],), None),
    "a rounded quotient of a sum": (rounded, ((100 * SQUARE[0]).astype(np.int32),), False),
    "a loop over as many elements": (shared_while, (ONE,), True),
    "two groups that read each other's results": (crossed, (SQUARE[0], many(33)[:, 0]), None),
    "random numbers of all lanes at once": (shared_noise, (ONE, jax.random.key(0)), False),
}


@pytest.mark.parametrize("name", TAKEN_FOR_LANES)
def test_what_looks_like_lanes(monkeypatch: pytest.MonkeyPatch, name: str):
    f, args, is_by_blocks = TAKEN_FOR_LANES[name]
    monkeypatch.setattr("functrans.passes.lanes.SIZES", (8,))
    if is_by_blocks:
        monkeypatch.setattr("functrans.passes.lanes._ANEW", np.inf)

    def made(*xs: Any) -> Any:
        return f(*xs)

    if is_by_blocks is not None:
        assert ft.passes.explain(made)(*args).loops[0].is_by_blocks is is_by_blocks
    assert_close(ft.jit(made)(*args), ft.jit(lambda *xs: f(*xs), cpu="plain")(*args), 1e-5)
