"""Functions written once, over functrans's names or JAX's; and some arrays for them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name as jax_name

import functrans as ft
from functrans.ad_checkpoint import checkpoint_name
from tests.support.closeness import assert_close

Function = Callable[..., Any]


class World(NamedTuple):
    """A library: its own name, its numpy, lax and random, its jit, its name for values to keep."""

    top: Any
    np: Any
    lax: Any
    random: Any
    jit: Function
    name: Function


def as_it_is(fun: Function, **options: Any) -> Function:
    return fun


JAX = World(jax, jnp, jax.lax, jax.random, as_it_is, jax_name)
JITTED = World(ft, ft.numpy, ft.lax, ft.random, ft.jit, checkpoint_name)
PLAIN = JITTED._replace(jit=as_it_is)
OURS = pytest.mark.parametrize("world", [JITTED, PLAIN], ids=["jitted", "un-jitted"])

X = jnp.array([0.3, 0.9, -0.4])
V = jnp.array([1.0, -0.5, 0.25])
M = jnp.array([[0.2, -0.1, 0.4], [0.5, 0.3, -0.6], [-0.7, 0.1, 0.8]])


def assert_same(actual: Any, expected: Any) -> None:
    """Equal values of equal types and structure."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert jax.typeof(x) == jax.typeof(y)
    assert_close(actual, expected, 2e-5)
