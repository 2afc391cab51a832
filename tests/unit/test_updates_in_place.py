"""Updates that are computed from other elements of the array (passes/updates_in_place.py). Of most in `WRONG`
XLA:CPU reads what it has written, when `jax.jit` compiles them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.passes.fusion_boundaries import unfused
from functrans.passes.rewrite import all_equations
from tests.support.closeness import assert_close

A = np.random.default_rng(0).normal(size=64).astype("float32")
M = np.random.default_rng(1).normal(size=(64, 64)).astype("float32") / 8


def replaced(a: Any) -> Any:
    return a.at[36].set(a[jnp.argmax(a)])


def twice(v: Any) -> Any:
    return v.reshape(1, -1).at[:, 1:].add(v.reshape(1, -1)[:, :-1]).reshape(-1)


def branch(v: Any, w: Any, x: Any) -> Any:
    return jax.lax.cond(x > 9, lambda v, w: v.T, lambda v, w: v.at[1:].set(w[:-1]).T, v, w)


@jax.checkpoint
def again(v: Any, w: Any) -> Any:
    return v.reshape(-1).at[1:].set(0.5 * w).reshape(1, -1)


def stepped(v: Any, w: Any) -> Any:
    return jax.lax.scan(lambda c, _: (c.at[1:].set(w), None), v, None, 1)[0]


def steps_at_once(v: Any) -> Any:
    def step(vs: Any, _: Any) -> Any:
        v = vs[0].at[1:].set(vs[1][:-1])
        return (v, v), None

    return jax.lax.scan(step, (v, v), None, 2, unroll=True)[0][0].T


def from_updated(v: Any) -> Any:
    return v.at[31:48].add(v.at[33:34].add(2.0)[29:46]).reshape(1, -1)


WRONG: dict[str, Callable[[Any], Any]] = {
    "operand": lambda a: a.at[1:].set(0.5 * a[:-1]).reshape(1, -1),
    "added": lambda a: a.reshape(-1, 1).at[1:].add(a.reshape(-1, 1)[:-1]),
    "after an update": lambda a: twice(replaced(a)),
    "rows": lambda a: replaced(a).reshape(4, 16).at[1:].set(replaced(a).reshape(4, 16)[:-1]),
    "multiplied": lambda a: replaced(a).at[1:].multiply(0.5 * replaced(a)[:-1]).reshape(1, -1),
    "function": lambda a: jnp.sin(a).reshape(4, 16).at[1:].set(jnp.sin(a).reshape(4, 16)[:-1]),
    "product": lambda a: (M @ a).reshape(-1, 1).at[1:].set((M @ a).reshape(-1, 1)[:-1]).T,
    "sorted": lambda a: jnp.sort(a).reshape(4, 16).at[1:].multiply(jnp.sort(a).reshape(4, 16)[:-1]),
    "transposed": lambda a: a.reshape(1, -1).at[:, 1:].set(a.reshape(1, -1)[:, :-1]).T,
    "equal in the end": lambda a: jnp.flip(jnp.flip(a)).reshape(-1, 1).at[1:].set((a + 0.0)[:-1, None]).T,
    "sorted by one": lambda a: jnp.sort(a[:, None]).at[1:].multiply(jnp.sin(a)[:-1, None]).reshape(1, -1),
    "one of two branches": lambda a: branch(a.reshape(-1, 1), a.reshape(-1, 1), a[0]),
    "parts of one array": lambda a: again(a, a[:-1]),
    "updated before": lambda a: from_updated(jnp.sort(a)),
    "numbers": lambda a: again(jnp.zeros(64), jnp.zeros(63)) + again(a, a[1:]),
    "two steps at once": lambda a: steps_at_once(a[:, None]),
    "one step": lambda a: stepped(a[:, None], a[:-1, None]),
    "dynamic": lambda a: jax.lax.dynamic_update_slice(a, a[:-1], (1 - jnp.argmin(0 * a),)).reshape(1, -1),
}


def eagerly(f: Callable[..., Any], *args: Any) -> Any:
    with jax.disable_jit():
        return f(*map(jnp.asarray, args))


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("cpu", ["fast", "plain"])
def test_nothing_is_read_after_it_is_written(name: str, cpu: Any):
    f, two = WRONG[name], np.stack([A, 2 * A])
    assert_close(ft.jit(f, cpu=cpu)(A), eagerly(f, A), 1e-6)
    assert_close(ft.jit(ft.vmap(f), cpu=cpu)(two), np.stack([eagerly(f, a) for a in two]), 1e-6)

    def looped(a: Any) -> Any:
        return jax.lax.scan(lambda c, _: (f(c).reshape(-1), None), a, None, 3)[0]

    assert_close(ft.jit(looped, cpu=cpu)(A), eagerly(looped, A), 1e-5)


def functions(f: Callable[..., Any], *args: Any) -> int:
    """Return how many functions of their own the program has."""
    program = unfused(ft.passes.optimize(ft.make_ir(f)(*args)), True)
    return [e.primitive.name for e in all_equations(program)].count("outlined")


@pytest.mark.parametrize(
    ("n", "f"),
    [
        (1, lambda a, i: a.at[1:].add(a[:-1])),
        (1, lambda a, i: a.reshape(8, 8).at[:, 1:].set(a.reshape(8, 8)[:, :-1])),
        (1, lambda a, i: a.at[1:].set(jnp.cumsum(a)[:-1])),
        (1, lambda a, i: a.at[:63].multiply(jnp.max(a))),
        (1, lambda a, i: a.at[1:].set(jax.lax.optimization_barrier((a[1:], a[:-1]))[1])),
        (1, lambda a, i: a[:, None].at[1:].set(jax.lax.optimization_barrier(a)[:-1, None])),
        (1, lambda a, i: a.at[1:].add(jax.lax.split(a, [64, 0])[0][:-1])),
        (1, lambda a, i: a.at[1:].add(jax.lax.split(a, [0, 64])[1][:-1])),
        (0, lambda a, i: a.at[1:].set(jax.lax.optimization_barrier((a[1:], a[:-1]))[0])),
        (0, lambda a, i: a.at[1:].add(2 * a[1:])),
        (0, lambda a, i: a.reshape(8, 8).at[i].set(jnp.sin(a.reshape(8, 8)[i]))),
        (0, lambda a, i: a.reshape(8, 8).at[i].add(a.reshape(8, 8)[i])),
        (0, lambda a, i: a.at[i].set(a[i + 1])),
        (0, lambda a, i: a.at[:].set(a[::-1])),
        (0, lambda a, i: a.at[1:].add(jnp.arange(63.0))),
        (0, lambda a, i: a.at[1:].set(jnp.sort(a)[:-1])),
    ],
    ids=range(16),
)
def test_what_is_computed_apart(n: int, f: Callable[..., Any]):
    assert functions(f, A, np.int32(3)) == n
