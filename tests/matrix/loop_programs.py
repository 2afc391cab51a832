"""Random programs with loops, or stretches, of small operations, by their seed.

A loop carries a few arrays of mixed shapes; its step is a handful of operations of all kinds that
may stand in a kernel, among them such that XLA computes when it compiles (constants, products with
zero, what nobody reads), loops in loops and branches. What is made of the loop is drawn too:
derivatives, batches, checkpoints, calls.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
import functrans.numpy as jnp
from functrans import lax, random

SHAPES = ((), (), (3,), (4,), (3, 3), (2, 3), (70,), (20, 17))
Random = np.random.Generator


class Drawn(NamedTuple):
    """A function of arrays, and arrays; `exact`: are its operations the same in a kernel?"""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    exact: bool


SMOOTH: tuple[Callable[[Any], Any], ...] = (
    jnp.sin,
    jnp.cos,
    jnp.tanh,
    jnp.negative,
    jnp.abs,
    jnp.square,
    lambda x: jnp.exp(jnp.tanh(x)),
    lambda x: jnp.log1p(x * x),
    lambda x: jnp.sqrt(x * x + 1),
    lambda x: jnp.clip(x, -0.7, 0.9),
    lambda x: x * 0,
    lambda x: x,
    lambda x: jnp.isfinite(x) * 0.5,
    lambda x: ft.nn.gelu(x),
    lambda x: ft.nn.sigmoid(x),
    lambda x: lax.erf(x),
    lambda x: x * np.pi,
    lambda x: lax.stop_gradient(x) + x,
)
UNARY = (
    *SMOOTH,
    jnp.floor,
    jnp.sign,
    lambda x: x.astype("int32") * 3,
    lambda x: jnp.cbrt(x),
    lambda x: (x > 0.1).astype(x.dtype),
    lambda x: jnp.where(x > 0, x, 0.5 - x),
    lambda x: x % 1.5,
    lambda x: x.astype("int32").astype("uint8") // 3,
)
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    jnp.add,
    jnp.subtract,
    jnp.multiply,
    jnp.maximum,
    jnp.minimum,
    jnp.arctan2,
    lambda x, y: x / (1 + y * y),
    lambda x, y: jnp.where(x > y, x, y * 0.5),
    lambda x, y: jnp.logaddexp(x, y),
    lambda x, y: jnp.hypot(x, y) * 0.1,
)
OF_A_VECTOR: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, i: x - jnp.mean(x),
    lambda x, i: jnp.cumsum(x) * 0.1,
    lambda x, i: jnp.roll(x, 1),
    lambda x, i: x[::-1],
    lambda x, i: ft.nn.softmax(x),
    lambda x, i: jnp.pad(x[1:], (0, 1)),
    lambda x, i: jnp.concatenate([x[1:], x[:1]]),
    lambda x, i: x.at[i % len(x)].set(0.5),
    lambda x, i: x * x[i % len(x)],
    lambda x, i: x + jnp.argmax(x),
    lambda x, i: x - jnp.max(x),
    lambda x, i: x + lax.dynamic_slice(x, (i,), (1,)),
    lambda x, i: x * jnp.arange(len(x)),
    lambda x, i: x[jnp.array([1, 0, *range(2, len(x))])],
    lambda x, i: ft.nn.logsumexp(x) - x,
    lambda x, i: jnp.outer(x[:3], x[:3]).sum() + x,
    lambda x, i: jnp.any(x > 0) * x,
)
OF_A_MATRIX: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, i: x - jnp.mean(x, 0),
    lambda x, i: x / (1 + jnp.sum(x * x, 1, keepdims=True)),
    lambda x, i: jnp.roll(x, 1, 1) - x,
    lambda x, i: jnp.concatenate([x[:1], x[:-1]]) - jnp.pad(x[:, 1:], ((0, 0), (0, 1))),
    lambda x, i: x.at[i % x.shape[0]].multiply(0.5),
    lambda x, i: x + x[i % x.shape[0]],
    lambda x, i: jnp.cumsum(x, 1) * 0.1,
    lambda x, i: jnp.swapaxes(jnp.swapaxes(x, 0, 1) * 0.9, 0, 1),
    lambda x, i: jnp.tril(x),
    lambda x, i: x * jnp.arange(x.shape[1]),
    lambda x, i: jnp.max(x, 0) - x,
)
BY_A_LIBRARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, i: jnp.tanh(x @ jnp.swapaxes(x, 0, 1) @ x),
    lambda x, i: (x @ jnp.ones(x.shape[1:]))[:, None] + x[0, 0],
    lambda x, i: jnp.linalg.solve(x @ x.T + 2 * jnp.eye(len(x)), x),
    lambda x, i: jnp.linalg.cholesky(x @ x.T + 2 * jnp.eye(len(x))) @ x,
    lambda x, i: jnp.linalg.det(x @ x.T + jnp.eye(len(x))) * 0.1 + x * 0.1,
)


def _step_of(rng: Random, exact: bool, depth: int) -> Callable[[Any, list[Any]], list[Any]]:
    """i, arrays -> arrays of the same types."""
    choices = [
        (rng.integers(1 << 30), rng.integers(1 << 30), rng.integers(9)) for _ in range(rng.integers(2, 9))
    ]
    inner = _step_of(rng, exact, depth - 1) if depth and rng.integers(3) == 0 else None
    constant = rng.normal(size=340).astype("float32")

    def step(i: Any, state: list[Any]) -> list[Any]:
        state = list(state)
        for a, b, kind in choices:
            k = int(a) % len(state)
            x = state[k]
            if kind <= 2:
                unary = UNARY if exact else SMOOTH
                y = unary[b % len(unary)](x)
            elif kind <= 4:
                same = [z for z in state if z.shape == x.shape]
                y = BINARY[b % len(BINARY)](x, same[int(a) // 7 % len(same)])
            elif kind == 5:
                known = constant[: x.size].reshape(x.shape) if b % 2 else 0
                y = x * constant[b % 40] + (i % 3) * known
            elif kind == 6 and x.ndim == 0 and exact:
                y = lax.cond(x > 0.3, lambda v: v * 0.5, lambda v: jnp.sin(v) + i, x)
            elif kind == 6 and inner is not None:
                state = list(lax.fori_loop(0, 2 + i % 2, lambda j, s: tuple(inner(i + j, s)), tuple(state)))
                continue
            elif x.ndim == 1:
                y = OF_A_VECTOR[b % len(OF_A_VECTOR)](x, i)
            elif x.ndim == 2:
                more = () if exact else BY_A_LIBRARY
                choice = (*OF_A_MATRIX, *more, *more)
                y = choice[b % len(choice)](x, i)
            else:
                y = sum((jnp.sum(z) for z in state[:2]), x) * 0.2
            state[k] = jnp.tanh(jnp.broadcast_to(y, x.shape).astype("float32"))
        return state

    return step


def drawn(seed: int) -> Drawn:
    """The program of a seed."""
    rng = np.random.default_rng(seed)
    exact = bool(rng.integers(2))
    shapes = [SHAPES[k] for k in rng.integers(len(SHAPES), size=rng.integers(1, 7))]
    start = tuple([rng.normal(size=shape).astype("float32") for shape in shapes])
    step = _step_of(rng, exact, 2)
    length, form = int(rng.integers(2, 60)), int(rng.integers(7))
    reads = rng.normal(size=(length, 3)).astype("float32")
    seed_of_keys = int(rng.integers(1000))

    def stepped(i: Any, state: Any) -> tuple[Any, ...]:
        return tuple(step(i, list(state)))

    def numbered(state: Any, i: Any) -> Any:
        made = stepped(i, state)
        return made, made[0]

    def reading(state: Any, x: Any) -> Any:
        return stepped(0, [v + x[0] * 0.1 for v in state]), (x[1] * state[0], state[-1])

    def drawing(state: Any, key: Any) -> Any:
        noisy = [v + 0.1 * random.uniform(key, v.shape) for v in state]
        return stepped(1, noisy), state[0]

    def looped(*state: Any) -> Any:
        if form == 0:
            return lax.fori_loop(0, length, stepped, state)
        if form == 1:
            return lax.scan(numbered, state, jnp.arange(length))
        if form == 2:
            return lax.scan(reading, state, reads, reverse=bool(seed % 2))
        if form == 3:  # as long as a number is small, which it may not be
            return lax.while_loop(
                lambda c: (c[0] < length) & (jnp.sum(c[1][0]) < 30),
                lambda c: (c[0] + 1, stepped(c[0], c[1])),
                (0, state),
            )
        if form == 4:
            return lax.scan(drawing, state, random.split(random.key(seed_of_keys), length))
        if form == 5:
            return lax.map(lambda x: stepped(2, [v * x[0] for v in state]), reads)
        for i in range(12):  # a stretch of many operations
            state = stepped(i, state)
        return state

    def floats(results: Any) -> list[Any]:
        return [x for x in ft.tree.leaves(results) if x.dtype == np.float32]

    def total(*state: Any) -> Any:
        return sum(jnp.sum(jnp.sin(x)) for x in floats(looped(*state)))

    def twice(*state: Any) -> Any:
        return looped(*floats(looped(*state))) if form == 0 else looped(*state)

    def branching(*state: Any) -> Any:
        return lax.cond(jnp.sum(state[0]) > 0, looped, lambda *s: looped(*[x * 2 for x in s]), *state)

    one = tuple([np.ones(shape, "float32") for shape in shapes])
    each = tuple([np.stack([x, 0.5 * x]) for x in start])
    everything = tuple(range(len(start)))
    ways: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (looped, start),
        (lambda *s: ft.jvp(looped, s, one), start),
        (ft.vmap(looped), each),
        (twice, start),
        (branching, start),
        (lambda *s: ft.jit(looped)(*s), start),
    ]
    if form != 3:  # which has no end that is known
        gradient = ft.grad(total, everything)
        ways += [
            (gradient, start),
            (gradient, start),
            (ft.vmap(gradient), each),
            (ft.grad(ft.checkpoint(total), everything), start),
            (lambda *s: ft.jvp(gradient, s, one), start),
        ]
    run, args = ways[int(rng.integers(len(ways)))]
    return Drawn(run, args, exact)
