"""Random programs of both worlds: operations and transformations of JAX and of ours, nested in any
order, beside the same program of JAX alone."""

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import functrans as ft
from tests.support.closeness import assert_close

X = jnp.linspace(0.3, 1.7, 6).reshape(2, 3)

Function = Callable[[Any], Any]  # of an array, to one of its shape


class Worlds:
    """Picks, at each place, a library; the choices of one seed are the same for any pair."""

    def __init__(self, seed: int, libraries: tuple[Any, Any]):
        self.random = random.Random(seed)
        self.libraries = libraries

    def one(self) -> Any:
        return self.libraries[self.random.random() < 0.5]

    def function(self, depth: int, outer: tuple[Any, ...] = ()) -> Function:
        """A function that may close over values of the functions around it."""
        if depth == 0:
            return self.operation(outer)
        kinds = [self.composed, self.mapped, self.gradient, self.jitted, self.again, self.looped]
        kinds += [self.chosen, self.tangent, self.custom, self.pulled, self.linearized]
        return self.random.choice(kinds)(depth, outer)

    def operation(self, outer: tuple[Any, ...]) -> Function:
        np_ = self.one().numpy
        name = self.random.choice(["sin", "tanh", "cos", "exp", "arctan", "logaddexp", "where"])
        held = self.random.choice(outer) if outer and self.random.random() < 0.5 else None

        def apply(x):
            other = x * 0.5 if held is None else held[0] * np_.ones_like(x)
            if name == "logaddexp":
                return np_.logaddexp(x, other)
            if name == "where":
                return np_.where(x > 0.5, x, other)
            return getattr(np_, name)(x) + (0 if held is None else 0.1 * other)

        return apply

    def composed(self, depth: int, outer: tuple[Any, ...]) -> Function:
        f, g = self.function(depth - 1, outer), self.function(depth - 1, outer)
        return lambda x: g(f(x)) * 0.5 + f(x)

    def holding(self, depth: int, outer: tuple[Any, ...]) -> tuple[Function, list[Any]]:
        """A function, and a box for a value that it may close over."""
        box: list[Any] = [1.0]
        return self.function(depth - 1, (*outer, box)), box

    def mapped(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, f = self.one(), self.function(depth - 1, outer)
        return lambda x: library.vmap(f)(x) if x.ndim else f(x)

    def gradient(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, (f, box) = self.one(), self.holding(depth, outer)

        def g(x):
            box[0] = jnp.sum(x) * 0.1
            return library.grad(lambda v: (f(v) * v).sum())(x)

        return g

    def pulled(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, f = self.one(), self.function(depth - 1, outer)

        def g(x):
            y, pullback = library.vjp(f, x)
            return pullback(y * 0.3)[0]

        return g

    def tangent(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, f = self.one(), self.function(depth - 1, outer)
        return lambda x: sum(library.jvp(f, (x,), (x * 0.2,)))

    def linearized(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, f = self.one(), self.function(depth - 1, outer)

        def g(x):
            y, push = library.linearize(f, x)
            return y + push(x * 0.2)

        return g

    def jitted(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, f = self.one(), self.function(depth - 1, outer)
        return lambda x: library.jit(lambda v: f(v))(x)  # a new function: it may close over values

    def again(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, f = self.one(), self.function(depth - 1, outer)
        return lambda x: library.checkpoint(lambda v: f(v))(x)

    def looped(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, (f, box) = self.one(), self.holding(depth, outer)

        def g(x):
            box[0] = x.sum() * 0.1
            return library.lax.scan(lambda c, _: (f(c) * 0.7, None), x, None, length=2)[0]

        return g

    def chosen(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library = self.one()
        f, g = self.function(depth - 1, outer), self.function(depth - 1, outer)
        return lambda x: library.lax.cond(x.sum() > 1.0, f, g, x)

    def custom(self, depth: int, outer: tuple[Any, ...]) -> Function:
        library, f, g = self.one(), self.function(depth - 1, ()), self.function(0, ())
        made = library.custom_jvp(f)
        made.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * g(*primals)))
        return made


def program(seed: int, *libraries: Any) -> Function:
    worlds = Worlds(seed, libraries)  # type: ignore[arg-type]
    f = worlds.function(3)
    transform = worlds.random.choice(["jit", "grad", "vmap", "none"])
    library = worlds.one()
    if transform == "jit":
        return library.jit(f)
    if transform == "grad":
        return library.grad(lambda x: f(x).sum())
    return library.vmap(f) if transform == "vmap" else f


@pytest.mark.smoke
@pytest.mark.parametrize(
    "seed", [*range(20), *[pytest.param(s, marks=pytest.mark.sweep) for s in range(20, 60)]]
)
def test_random_programs_of_two_worlds(seed):
    """At once, and the recorded program by the reference."""
    expected, f = program(seed, jax, jax)(X), program(seed, ft, jax)
    assert_close(f(X), expected, 2e-4, f"seed {seed}")
    recorded = ft.ir.check(ft.make_ir(f)(X))
    assert_close(ft.interpret(recorded, X), [expected], 2e-4, f"seed {seed}")
