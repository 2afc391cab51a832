"""Private training as JAX's users and libraries write it: no gradient of one example is made, and
the numbers are JAX's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.backends import reference
from functrans.ir import Program, check
from functrans.ir.text import with_nested
from tests.support import extras
from tests.support.matrices import alternately

BATCH, WIDTH, CLIP = 16, 128, 0.5


def loss(params: Any, x: Any, y: Any) -> Any:
    (w1, b1), (w2, b2) = params
    return -jax.nn.log_softmax(jnp.tanh(x @ w1 + b1) @ w2 + b2)[y]


def lstm_loss(params: Any, x: Any, y: Any) -> Any:
    """The gates are joined for one product, and taken apart, as flax does."""
    gates, out = params

    def step(carry, x):
        c, h = carry
        joined = jnp.concatenate([w for w, _ in gates], axis=1)
        bias = jnp.concatenate([b for _, b in gates])
        i, f, g, o = jnp.split(jnp.concatenate([x, h]) @ joined + bias, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (c, jax.nn.sigmoid(o) * jnp.tanh(c)), None

    (_, h), _ = jax.lax.scan(step, (jnp.zeros(WIDTH), jnp.zeros(WIDTH)), x)
    return -jax.nn.log_softmax(h @ out)[y]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape) / shape[0] ** 0.5


def dense(dtype: str) -> tuple[Any, ...]:
    params = [(normal(WIDTH, WIDTH), normal(WIDTH)), (normal(WIDTH, 4), normal(4))]
    return typed(dtype, params, normal(BATCH, WIDTH), np.arange(BATCH, dtype="int32") % 4)


def recurrent(dtype: str) -> tuple[Any, ...]:
    gates = [(normal(2 * WIDTH, WIDTH, seed=i), normal(WIDTH, seed=i)) for i in range(4)]
    params = gates, normal(WIDTH, 4)
    x = normal(BATCH, 6, WIDTH, seed=1)
    return typed(dtype, params, x, np.arange(BATCH, dtype="int32") % 4)


def typed(dtype: str, *args: Any) -> tuple[Any, ...]:
    return jax.tree.map(lambda a: jnp.asarray(a, dtype if a.dtype.kind == "f" else a.dtype), args)


Gradient = Callable[..., Any]
Spelling = Callable[[Gradient], Callable[..., Any]]


def by_example(clip: Callable[[Any], Any], batch_size: int | None = None) -> Spelling:
    """The mean of the examples' gradients, each of which is clipped."""

    def spelled(gradient):
        def step(params, x, y):
            def clipped(example):
                return clip(gradient(params, *example))

            if batch_size:
                made = jax.lax.map(clipped, (x, y), batch_size=batch_size)
            else:
                made = jax.vmap(clipped)((x, y))
            return jax.tree.map(lambda g: g.mean(0), made)

        return step

    return spelled


def by_factor(norm: Callable[[list[Any]], Any], **how: Any) -> Spelling:
    """One example's gradient times the factor that its norm asks for."""

    def clip(grads):
        factor = jnp.minimum(1.0, CLIP / norm(jax.tree.leaves(grads)))
        return jax.tree.map(lambda g: g * factor, grads)

    return by_example(clip, **how)


def complex_square(g: Any) -> Any:
    return jnp.square(g.real) + jnp.square(g.imag)


def chosen(grads: Any) -> Any:
    """The gradient as it is, or scaled."""
    norm = jnp.sqrt(sum([jnp.sum(complex_square(g)) for g in jax.tree.leaves(grads)]))
    return jax.tree.map(lambda g: jnp.where(norm < CLIP, g, g / norm * CLIP), grads)


def branched(grads: Any) -> Any:
    g, unravel = jax.flatten_util.ravel_pytree(grads)
    norm = jnp.linalg.norm(g)
    return unravel(jax.lax.cond(norm < CLIP, lambda g: g, lambda g: g * (CLIP / norm), g))


def each_leaf(grads: Any) -> Any:
    return jax.tree.map(lambda g: g / jnp.maximum(1.0, jnp.linalg.norm(g) / CLIP), grads)


def of_rows(use: Callable[[Any], Any]) -> Spelling:
    """Of the matrix whose rows are the examples' gradients."""

    def spelled(gradient):
        def step(params, x, y):
            return use(jax.vmap(lambda e: jax.flatten_util.ravel_pytree(gradient(params, *e))[0])((x, y)))

        return step

    return spelled


NORMS: dict[str, Callable[[list[Any]], Any]] = {
    "vdot": lambda gs: jnp.sqrt(sum([jnp.vdot(g, g) for g in gs])),
    "square": lambda gs: jnp.sqrt(sum([jnp.sum(jnp.square(g)) for g in gs])),
    "real and imaginary": lambda gs: jnp.sqrt(sum([jnp.sum(complex_square(g)) for g in gs])),
    "conjugate": lambda gs: jnp.sqrt(sum([jnp.sum((g.conj() * g).real) for g in gs])),
    "from zero": lambda gs: jnp.sqrt(0.0 + sum([jnp.sum(g**2 + 0.0) for g in gs])),
    "norm of norms": lambda gs: jnp.linalg.norm(jnp.stack([jnp.linalg.norm(g) for g in gs])),
    "raveled": lambda gs: jnp.linalg.norm(jax.flatten_util.ravel_pytree(gs)[0]),
}
SPELLINGS: dict[str, Spelling] = {
    **{name: by_factor(norm) for name, norm in NORMS.items()},
    "where": by_example(chosen),
    "cond": by_example(branched),
    "each leaf": by_example(each_leaf),
    "lax.map": by_factor(NORMS["vdot"], batch_size=4),
    "rows": of_rows(lambda rows: jnp.sqrt(jnp.sum(rows * rows, axis=1)) @ rows),
    "products of rows": of_rows(lambda rows: rows @ rows.T),
}


def optimized(step: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Program, Program]:
    """The program as it was traced, and as it is lowered."""
    program = ft.make_ir(step)(*args)
    made = ft.passes.optimize(program)
    check(made)
    return program, made


def largest(program: Program) -> int:
    """The elements of the largest value that is made."""
    return max([v.type.size for p in with_nested(program) for e in p.equations for v in e.outputs])


def agree(made: Any, expected: Any, tolerance: float) -> None:
    for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("name", SPELLINGS)
def test_no_gradient_of_an_example_is_made(name):
    args = dense("float32")
    before, made = optimized(SPELLINGS[name](jax.grad(loss)), args)
    assert largest(before) >= 2 * WIDTH * WIDTH  # two examples' at the least
    assert largest(made) <= WIDTH * WIDTH + WIDTH * 5 + 4  # the parameters in a row


@pytest.mark.parametrize("name", alternately(SPELLINGS))
def test_the_numbers_are_those_of_float64(name):
    step = SPELLINGS[name](jax.grad(loss))
    made = ft.jit(step)(*dense("float32"))
    with jax.enable_x64(True):
        agree(made, jax.jit(step)(*dense("float64")), 2e-6)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["real and imaginary", "each leaf"])
def test_recurrent_network(name):
    """Neither the gradients of a step's weights nor those of one example are made."""
    step = SPELLINGS[name](jax.grad(lstm_loss))
    args = recurrent("float32")
    _, made = optimized(step, args)
    carried = [
        v.type.size
        for p in with_nested(made)
        for e in p.equations
        if e.primitive.name == "scan"
        for v in e.outputs[: e.params["carry"]]
    ]
    assert max(carried) <= BATCH * WIDTH
    assert largest(made) <= 2 * WIDTH * 4 * WIDTH  # all gates' weights in one matrix
    with jax.enable_x64(True):
        expected = jax.jit(step)(*recurrent("float64"))
    agree(ft.jit(step)(*args), expected, 5e-6)


@pytest.mark.parametrize("name", alternately(SPELLINGS))
def test_numbers_that_are_none(name):
    """An example of NaN or infinity spoils what it spoils in the program as it was written; one without
    a gradient, too."""
    step = SPELLINGS[name](jax.grad(loss))
    made = ft.jit(step)
    program = ft.make_ir(step)(*dense("float32"))
    for bad in (np.nan, np.inf, 0.0):
        params, x, y = dense("float32")
        x = x.at[3].set(bad)
        if bad == 0.0:
            params = [(jnp.zeros_like(params[0][0]), params[0][1]), params[1]]
        with np.errstate(all="ignore"):
            wanted = reference.run(program, jax.tree.leaves((params, x, y)))
        for a, b in zip(jax.tree.leaves(made(params, x, y)), wanted, strict=True):
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_library_steps():
    """optax's clipping, of a batch of gradients and of one example's."""
    optax = extras.library("optax")

    def by_optax(gradient):
        def step(params, x, y):
            grads = jax.vmap(gradient, (None, 0, 0))(params, x, y)
            leaves, tree = jax.tree.flatten(grads)
            sums, count = optax.per_example_global_norm_clip(leaves, CLIP)
            return tree.unflatten(sums), count

        return step

    clip = optax.clip_by_global_norm(CLIP)
    clipped = by_example(lambda grads: clip.update(grads, clip.init(grads))[0])
    for spelled in (by_optax, clipped, by_factor(optax.tree.norm)):
        step = spelled(jax.grad(loss))
        args = dense("float32")
        _, made = optimized(step, args)
        assert largest(made) <= WIDTH * WIDTH, spelled
        agree(ft.jit(step)(*args), jax.jit(step)(*args), 1e-5)
