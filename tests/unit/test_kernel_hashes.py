"""Random numbers in loops: the bits are JAX's, and few of them are hashed as vectors or one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from functrans.ir.text import with_nested

KEY = jax.random.key(7)
MANY = np.ones((64, 64), "float32")


def drawn(draw: Callable[[Any], Any], steps: int = 5) -> Callable[[Any], Any]:
    def step(key: Any, _: Any) -> Any:
        key, used = jax.random.split(key)
        return key, draw(used)

    return lambda key: jax.lax.scan(step, key, None, length=steps)[1]


def split(shape: Any) -> Callable[[Any], Any]:
    return lambda key: jax.random.key_data(jax.random.split(key, shape))


DRAWS: dict[str, Callable[[Any], Any]] = {
    **{f"{n} keys": split(n) for n in (2, 3, 4, 7, 15, 17)},
    "keys in rows": split((3, 2)),
    **{f"{bits} bits": lambda key, b=bits: jax.random.bits(key, (5,), f"uint{b}") for bits in (8, 16, 32)},
    "rows of bits": lambda key: jax.random.bits(key, (2, 3)),
    "floats": lambda key: jax.random.uniform(key, (6,)),
    "of several keys": lambda key: jax.vmap(jax.random.bits)(jax.random.split(key, 3)),
    "of one key": lambda key: jax.random.fold_in(key, 3),
}


@pytest.mark.parametrize("name", DRAWS)
def test_bits_are_jax_s(name: str):
    draw = DRAWS[name]

    def long(key: Any) -> Any:  # another thread runs it
        return drawn(draw)(key), MANY @ MANY

    expected = jax.jit(drawn(draw))(KEY)
    for found in (ft.jit(drawn(draw))(KEY), ft.jit(long)(KEY)[0], ft.jit(drawn(draw), cpu="blocking")(KEY)):
        assert (found == expected).all()


@pytest.mark.parametrize("name", ["3 keys", "floats"])
def test_bits_of_many_keys(name: str):
    keys, draw = jax.random.split(KEY, 3), DRAWS[name]
    assert (ft.jit(ft.vmap(drawn(draw)))(keys) == jax.vmap(drawn(draw))(keys)).all()


def test_64_bits():
    with jax.enable_x64(True):
        f = drawn(lambda key: jax.random.bits(key, (5,), "uint64"))
        assert (ft.jit(f)(KEY) == jax.jit(f)(KEY)).all()


def lengths(program: Any) -> list[int]:
    """The lengths of the loops in a program, the outermost first."""
    return [e.params["length"] for p in with_nested(program) for e in p.equations if "length" in e.params]


@pytest.mark.parametrize(
    ("n", "vectors", "loop"), [(2, 2, False), (3, 16, True), (4, 4, False), (15, 16, True)]
)
def test_few_words_are_hashed_as_vectors_or_one_by_one(n: int, vectors: int, loop: bool):
    """As vectors where another thread runs the program anyway; XLA counts one hash of a loop."""
    f = drawn(split(n), steps=20)
    program = ft.passes.explain(f)(KEY).after
    for whole in (False, True):
        found = ft.passes.kernels.kernels(program, whole=whole)
        assert lengths(found)[1:] == ([n, 5] if whole and loop else [])  # rounds, four in a turn
        assert f"random_split[shape=({n if whole else vectors},)]" in str(found) or (whole and loop)


def test_many_steps_gain_more_by_vectors():
    program = ft.passes.explain(drawn(split(3), steps=1000))(KEY).after
    assert lengths(ft.passes.kernels.kernels(program)) == [1000]
