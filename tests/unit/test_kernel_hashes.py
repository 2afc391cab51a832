"""Random numbers in loops: the bits are JAX's, and few keys are hashed as vectors."""

from collections.abc import Callable
from typing import Any

import jax
import pytest

import functrans as ft

KEY = jax.random.key(7)


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
    assert (ft.jit(drawn(draw))(KEY) == jax.jit(drawn(draw))(KEY)).all()


@pytest.mark.parametrize("name", ["3 keys", "floats"])
def test_bits_of_many_keys_and_of_64_bits(name: str):
    keys, draw = jax.random.split(KEY, 3), DRAWS[name]
    assert (ft.jit(ft.vmap(drawn(draw)))(keys) == jax.vmap(drawn(draw))(keys)).all()
    with jax.enable_x64(True):
        f = drawn(lambda key: jax.random.bits(key, (5,), "uint64"))
        assert (ft.jit(f)(KEY) == jax.jit(f)(KEY)).all()


@pytest.mark.parametrize(("n", "vectors"), [(2, 2), (3, 16), (4, 4), (15, 16)])
def test_few_keys_are_hashed_as_vectors(n: int, vectors: int):
    program = ft.passes.explain(drawn(split(n), steps=20))(KEY).after
    assert f"random_split[shape=({vectors},)]" in str(ft.passes.kernels.kernels(program))
