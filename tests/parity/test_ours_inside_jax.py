"""JAX's transformations of functions of functrans, jitted and un-jitted, beside JAX's own.

Each function is written once, over a `World`: functrans's names or JAX's. What JAX makes of the one
must be what it makes of the other: values, dtypes, weak types, shapes and structure.
"""

import functools
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

import functrans as ft
from tests.support.closeness import assert_close
from tests.support.tables import TABLES, functions
from tests.support.worlds import JAX, JITTED, OURS, PLAIN, Function, M, V, World, X, assert_same

float0 = jax.dtypes.float0
WORLDS = (JITTED, PLAIN, JAX)


def with_rule(w: World, reverse: bool) -> Function:
    """The sine, whose derivative is said to be twice what it is."""
    if reverse:
        sine = w.top.custom_vjp(lambda x: w.np.sin(x))
        sine.defvjp(lambda x: (sine(x), x), lambda x, ct: (2 * ct * w.np.cos(x),))
    else:
        sine = w.top.custom_jvp(lambda x: w.np.sin(x))
        sine.defjvp(lambda p, t: (sine(*p), 2 * t[0] * w.np.cos(p[0])))
    return sine


FUNCTIONS = functions(TABLES / "inside_jax.txt", "functions", "w", globals())


def loss(fun: Function) -> Function:
    """The sum of what a function computes."""

    def total(x: Any) -> Any:
        outs = [y for y in jax.tree.leaves(fun(x)) if jnp.issubdtype(y.dtype, jnp.inexact)]
        return functools.reduce(jnp.add, [jnp.sum(y) for y in outs])

    return total


def cotangents(outs: Any) -> Any:
    def ones(y: Any) -> Any:
        inexact = jnp.issubdtype(y.dtype, jnp.inexact)
        return jnp.ones_like(y) if inexact else np.zeros(y.shape, float0)

    return jax.tree.map(ones, outs)


def vjp(f: Function) -> Any:
    outs, pull = jax.vjp(f, X)
    return outs, pull(cotangents(outs))


def with_own_rule(f: Function) -> Any:
    """A custom_vjp function of JAX's, all of whose parts call f."""
    g = jax.custom_vjp(loss(f))
    g.defvjp(lambda x: (loss(f)(x), x), lambda x, ct: (3 * ct * jax.grad(loss(f))(x),))
    return jax.grad(g)(X)


TABLE = TABLES / "inside_jax.txt"
TRANSFORMATIONS = functions(TABLE, "transformations", "f", {**globals(), "jaxpr_as_fun": jaxpr_as_fun})
IN_REVERSE = functions(TABLE, "transformations in reverse", "f", globals())  # JAX has none of a while loop


@pytest.mark.parametrize("name", FUNCTIONS)
def test_table(name):
    def every(world: World) -> dict[str, Any]:
        f = world.jit(FUNCTIONS[name](world))
        return {how: transform(f) for how, transform in transformations.items()}

    transformations = TRANSFORMATIONS | (IN_REVERSE if name != "a while loop" else {})
    found = dict(zip(WORLDS, jax.jit(lambda: [every(world) for world in WORLDS])(), strict=True))
    for how, transform in transformations.items():
        for world in (JITTED, PLAIN):
            assert_same(found[world][how], found[JAX][how])
        if how in ("jvp", "vmap of grad", "make_jaxpr"):
            assert_same(transform(FUNCTIONS[name](PLAIN)), found[JAX][how])


def two_batches(w: World) -> Any:
    f = w.jit(lambda a, b: (a @ b, w.np.sum(b), a.T))
    return jax.vmap(f, (1, None), (1, None, 0))(jnp.ones((3, 4, 2)), M[:2])


def training(w: World) -> Any:
    """An optimized step in someone's training loop."""
    step = w.jit(w.top.value_and_grad(lambda p, x: w.np.mean((w.np.tanh(x @ p["w"]) - 1) ** 2)))

    def body(p: Any, x: Any) -> Any:
        value, g = step(p, x)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), value

    return jax.jit(lambda p, xs: jax.lax.scan(body, p, xs))({"w": M}, jnp.stack([M, M + 1]))


def linear_transpose_of_jvps(w: World) -> Any:
    f = w.jit(lambda x: w.np.sin(x) * x)
    inner = lambda v: jax.jvp(lambda x: jax.jvp(f, (x,), (v,))[1], (X,), (V,))[1]  # noqa: E731
    return jax.linear_transpose(inner, X)(V)


def rule_around(w: World, reverse: bool) -> Any:
    """JAX's custom function, whose function and rule are ours."""
    f = w.jit(lambda x: w.np.sin(x))
    pushed = w.jit(lambda x, t: 3 * t * w.np.cos(x))
    g = (jax.custom_vjp if reverse else jax.custom_jvp)(f)
    if reverse:
        g.defvjp(lambda x: (f(x), x), lambda x, ct: (pushed(x, ct),))
    else:
        g.defjvp(lambda p, t: (f(*p), pushed(*p, *t)))
    return jax.vmap(jax.grad(g))(X), jax.jit(jax.grad(lambda x: jnp.sum(g(x))))(X)


def rule_with_a_number(w: World) -> Any:
    @jax.custom_jvp
    def scaled(x: Any, y: Any) -> Any:
        return x * y

    scaled.defjvp(lambda p, t: (scaled(*p), p[1] * t[0] + p[0] * t[1]))
    root = lambda a: jax.lax.custom_root(  # noqa: E731
        lambda x: x * x - a, 1.0, lambda f, x: w.np.sqrt(a), lambda g, y: y / g(1.0)
    )
    return jax.vmap(jax.grad(w.jit(lambda x: scaled(x, 2.0))))(X), jax.grad(w.jit(root))(4.0)


def own_rule(w: World) -> Any:
    f = with_rule(w, True)
    g = w.jit(f)
    total = w.jit(lambda x: w.np.sum(f(x) * x))
    return jax.vmap(jax.grad(g))(X), jax.jit(jax.grad(total))(X), jax.vjp(total, X)[1](2.0)


def static(w: World) -> Any:
    power = lambda x, n: w.np.sum(x**n)  # noqa: E731
    f = ft.jit(power, static_argnums=1) if w is JITTED else power
    return jax.grad(f)(X, 3), jax.jit(f, static_argnums=1)(X, 2)


def donated(w: World) -> Any:
    f = lambda x: w.np.sum(w.np.sin(x))  # noqa: E731
    return jax.grad(ft.jit(f, donate_argnums=0) if w is JITTED else f)(X + 0)


def names(w: World) -> Any:
    share = w.jit(lambda x: x**2 / w.lax.psum(x * x, "i"))
    mean = w.jit(lambda x: x - w.lax.pmean(x, ("i", "j")))
    place = w.jit(lambda x: x * w.lax.axis_index("i") + w.lax.psum(1, "i"))
    folded = w.jit(lambda x, y: (w.lax.psum(y, "i"), w.lax.all_gather(x, "i")))
    steps = w.jit(lambda x: w.lax.scan(lambda c, y: (c + w.lax.psum(y * x, "i"), c), 0.0, V))
    return (
        jax.vmap(share, axis_name="i")(X),
        jax.vmap(jax.grad(share), axis_name="i")(X),
        jax.grad(lambda x: jnp.sum(jax.vmap(share, axis_name="i")(x) ** 2))(X),
        jax.vmap(jax.vmap(mean, axis_name="j"), axis_name="i")(M),
        jax.vmap(place, axis_name="i")(X),
        jax.vmap(folded, (0, None), axis_name="i")(X, 2.0),
        jax.vmap(steps, axis_name="i")(X),
        jax.vmap(steps, axis_name="i")(X[:2]),  # an axis of the same name, of another size
    )


def keys(w: World) -> Any:
    draw = w.jit(lambda k: w.random.normal(k, (2,)))
    many = jax.random.split(jax.random.key(0), 3)
    return (
        jax.vmap(draw)(many),
        jax.grad(lambda x, k: jnp.sum(x * draw(k)))(1.0, many[0]),
        jax.vmap(w.jit(lambda k: w.random.split(k)))(many),
        jax.jit(w.jit(lambda seed: w.random.bits(w.random.key(seed), (2,))))(7),
    )


SPECIAL = functions(TABLE, "special", "w", globals())
AT_ONCE = {"static arguments", "donated arguments", "lower and compile", "weak types", "named axes", "keys"}


@pytest.mark.rest
def test_special():
    jitted = [case for case in SPECIAL if case not in AT_ONCE]
    found = jax.jit(lambda: [{case: SPECIAL[case](world) for case in jitted} for world in WORLDS])()
    for case in SPECIAL:
        *ours, want = [SPECIAL[case](w) for w in WORLDS] if case in AT_ONCE else [of[case] for of in found]
        for got in ours:
            assert_same(got, want)


@OURS
def test_reverse_mode_of_a_loop_of_unknown_length(world):
    """Which JAX does not have of its own."""
    f = FUNCTIONS["a while loop"](world)
    expected = jax.grad(lambda x: jnp.sum(jnp.sin(jnp.sin(jnp.sin(x) * x) * x) * x))(X)
    assert_close(jax.grad(world.jit(lambda x: world.np.sum(f(x)[1])))(X), expected, 2e-5)


@pytest.mark.rest
@OURS
def test_random_numbers_of_a_batch_of_seeds(world):
    draw = world.jit(lambda s: world.random.uniform(world.random.key(s), (2,)))
    expected = jax.vmap(lambda s: jax.random.uniform(jax.random.key(s), (2,)))(jnp.arange(3))
    assert_same(jax.vmap(draw)(jnp.arange(3)), expected)
