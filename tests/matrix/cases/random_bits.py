"""Cases of primitives/random/bits.py."""

from typing import Any

import jax
import numpy as np

from tests.matrix.cases.case import INTS, UINTS, Case


def key_data(*shape: int) -> Any:
    """The data of a batch of keys: any words are the data of some key."""
    return lambda rng, dtype: rng.integers(0, 2**32, (*shape, 2), dtype=np.uint32)


def words(*shape: int) -> Any:
    return lambda rng, dtype: rng.integers(0, 2**32, shape, dtype=np.uint32)


def seeds(*shape: int) -> Any:
    """Integers over the whole range of the dtype."""

    def make(rng: np.random.Generator, dtype: Any) -> np.ndarray:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)

    return make


def per_key(one: Any, ndim: int) -> Any:
    """A function of one typed key, over a batch of key data."""

    def whole(data: Any, *rest: Any) -> Any:
        f = lambda d, *xs: one(jax.random.wrap_key_data(d), *xs)  # noqa: E731
        for _ in range(ndim):
            f = jax.vmap(f)
        return f(data, *rest)

    return whole


def bits(shape: tuple[int, ...], width: int, *batch: int, **params: Any) -> Case:
    def by_jax(key: Any) -> Any:
        with jax.threefry_partitionable(params.get("partitionable", True)):
            return jax.random.bits(key, shape, f"uint{width}")

    extra = "".join([f"-{name}" for name in params])
    return Case(
        "random_bits",
        (key_data(*batch),),
        per_key(by_jax, len(batch)),
        {"shape": shape, "bit_width": width, **params},
        ("uint64" if width == 64 else "uint32",),
        label=f"{width}-{batch}-{shape}{extra}",
    )


def split(shape: tuple[int, ...], *batch: int) -> Case:
    return Case(
        "random_split",
        (key_data(*batch),),
        per_key(lambda key: jax.random.key_data(jax.random.split(key, shape)), len(batch)),
        {"shape": shape},
        ("uint32",),
        label=f"{batch}-{shape}",
    )


def by_threefry(k0: Any, k1: Any, x: Any, y: Any) -> Any:
    """JAX's hash by its public face: `fold_in` hashes (0, number), so the cases keep x at 0."""
    fold = lambda a, b, n: jax.random.fold_in(jax.random.wrap_key_data(jax.numpy.stack([a, b])), n)  # noqa: E731
    data = jax.random.key_data(jax.vmap(fold)(k0, k1, y))
    return [data[:, 0], data[:, 1]]


CASES: list[Case] = [
    *[bits((3, 5), width) for width in (8, 16, 32, 64)],
    bits((), 32),
    bits((4,), 32, 2, 3),
    bits((0, 2), 32),
    bits((4,), 32, 3, partitionable=False),
    bits((3,), 8, 2, partitionable=False),
    split((2,)),
    split((2, 3), 4),
    split((), 2),
    Case(
        "random_fold_in",
        (key_data(), words()),
        per_key(lambda k, n: jax.random.key_data(jax.random.fold_in(k, n)), 0),
        {},
        ("uint32",),
    ),
    Case(
        "random_fold_in",
        (key_data(5), words(5)),
        per_key(lambda k, n: jax.random.key_data(jax.random.fold_in(k, n)), 1),
        {},
        ("uint32",),
        label="batch",
    ),
    Case("random_seed", (seeds(),), lambda s: jax.random.key_data(jax.random.key(s)), {}, (*INTS, *UINTS)),
    Case(
        "random_seed",
        (seeds(3),),
        lambda s: jax.random.key_data(jax.vmap(jax.random.key)(s)),
        {},
        ("int32", "int64"),
        label="batch",
    ),
    Case("random_wrap", (key_data(3),), jax.random.wrap_key_data, {}, ("uint32",)),
    Case("random_wrap", (key_data(),), jax.random.wrap_key_data, {}, ("uint32",), label="single"),
    Case(
        "random_unwrap",
        (lambda rng, dtype: jax.random.split(jax.random.key(rng.integers(100)), 3),),
        jax.random.key_data,
        {},
        ("uint32",),
    ),
    Case(
        "threefry2x32",
        (words(6), words(6), lambda rng, dtype: np.zeros(6, np.uint32), words(6)),
        by_threefry,
        {},
        ("uint32",),
    ),
]
