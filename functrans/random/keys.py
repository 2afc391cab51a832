"""Keys: made from seeds, split, folded, and taken apart.

A key is a typed key (`key<fry>[]`) or, in the older form, its data (`uint32[2]`). Functions that
make keys of a key give back the form that they were given.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.flags import flags
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_key_dtype
from functrans.numpy.promotion import captured, cast, invalid, mismatch, value_of
from functrans.primitives import random_bits as prims
from functrans.random.staged import Source, key_type, sampler
from functrans.trace import AnyTracer, Tracer, literal, materialize, staging_trace, typeof

UINT32 = np.dtype(np.uint32)


# --- from seeds -----------------------------------------------------------------------------------


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Make a typed key from an integer seed.

    Arguments:
      seed: an integer, 32 or 64 bits; a scalar (`vmap` makes many keys of many seeds).
      impl, dtype: the generator, by name ("threefry2x32", "rbg", ...) or key dtype; one of the two.

    Returns:
      A scalar key array of dtype `key<fry>` or of the generator asked for.

    Raises:
      TypeError: the seed is not an integer scalar.

    Source: `jax.random.key`.

    Example:
      >>> import functrans as ft
      >>> ft.random.key(0).shape
      ()
    """
    name = _generator("key", impl, dtype)
    check_seed("key", seed)
    if _can_be_made_now(seed):
        return jax.random.key(seed, impl=name)
    return prims.random_wrap(_seed_data(seed, name), impl=name)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """Make the data of a key, `uint32[2]`, from an integer seed.

    Source: `jax.random.PRNGKey`.

    Example:
      >>> import functrans as ft
      >>> print(ft.random.PRNGKey(7))
      [0 7]
    """
    name = _generator("PRNGKey", impl, None)
    check_seed("PRNGKey", seed)
    if _can_be_made_now(seed):
        return jax.random.PRNGKey(seed, impl=name)
    data = _seed_data(seed, name)
    return prims.random_wrap(data, impl=name) if flags.jax_enable_custom_prng else data


def check_seed(name: str, seed: Any) -> None:
    """Raise unless it is an integer scalar of at most 64 bits."""
    t = typeof(seed)
    if dtype_class(t.dtype) == "key":
        raise mismatch(
            name, "takes an integer seed, but was given a key", "Pass the key itself on."
        )
    if t.ndim:
        raise mismatch(
            name,
            f"takes a scalar seed, but was given an array {t}",
            "Use vmap to make a batch of keys: vmap(random.key)(seeds).",
        )
    if dtype_class(t.dtype) not in ("int", "uint"):
        raise mismatch(name, f"a seed must be an integer, but was given {t}")
    if isinstance(seed, int) and not -(2**63) <= seed < 2**63:
        raise errors.IntegerOverflow(
            f"{name}: the seed {seed} does not fit int64, at\n    {describe(user_source())}"
        )


def _can_be_made_now(seed: Any) -> bool:
    return not isinstance(seed, AnyTracer) and staging_trace() is None


def _seed_data(seed: Any, impl: str) -> Any:
    if isinstance(seed, int):  # keep the low bits of long integers, as JAX does
        t = ArrayType((), canonical_dtype(np.int64))
        seed = literal(np.int64(seed).astype(t.dtype), t)
    return prims.random_seed(seed, impl=impl)


def _generator(name: str, impl: Any, dtype: Any) -> str:
    """The name of the generator that the arguments ask for."""
    if impl is not None and dtype is not None:
        raise invalid(name, "both `impl` and `dtype` were given", "Give one of them.")
    asked = impl if dtype is None else dtype
    if asked is None:
        return flags.jax_default_prng_impl
    try:
        return prims.impl_of(asked if is_key_dtype(asked) else jax.random.key_dtype(asked))
    except (TypeError, ValueError) as error:  # which lists the names
        wrong = mismatch if isinstance(error, TypeError) else invalid
        problem, _, fix = str(error).partition(". ")
        raise wrong(name, problem, fix) from None


# --- data of keys ---------------------------------------------------------------------------------


def key_data(keys: Any) -> Any:
    """The bits of keys: `uint32[*shape, 2]` of `key<fry>[*shape]`.

    Source: `jax.random.key_data`.

    Example:
      >>> import functrans as ft
      >>> print(ft.random.key_data(ft.random.key(7)))
      [0 7]
    """
    t, _ = key_type("key_data", keys, batch=True)
    if dtype_class(t.dtype) == "key":
        return prims.random_unwrap(keys)
    return keys if isinstance(keys, (Tracer, jax.Array)) else captured(keys)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Typed keys of their bits: the inverse of `key_data`.

    Source: `jax.random.wrap_key_data`.

    Example:
      >>> import functrans as ft
      >>> k = ft.random.key(7)
      >>> print(ft.random.wrap_key_data(ft.random.key_data(k)) == k)
      True
    """
    name = _generator("wrap_key_data", impl, dtype)
    return prims.random_wrap(value_of(key_bits_array, "wrap_key_data"), impl=name)


def key_impl(keys: Any) -> Any:
    """The generator of keys: "threefry2x32", ...

    Source: `jax.random.key_impl`.

    Example:
      >>> import functrans as ft
      >>> ft.random.key_impl(ft.random.key(0))
      'threefry2x32'
    """
    return key_type("key_impl", keys, batch=True)[1]


def key_dtype(impl_spec: Any = None) -> Any:
    """The dtype of typed keys of a generator.

    Source: `jax.random.key_dtype`.

    Example:
      >>> import functrans as ft
      >>> ft.random.key_dtype()
      key<fry>
    """
    return jax.random.key_dtype(impl_spec)


def clone(key: Any) -> Any:
    """The same key.

    Source: `jax.random.clone`.

    Example:
      >>> import functrans as ft
      >>> k = ft.random.key(0)
      >>> print(ft.random.clone(k) == k)
      True
    """
    if flags.jax_debug_key_reuse and not isinstance(key, np.ndarray) and is_key_dtype(key.dtype):
        return jax.random.clone(key)
    return materialize(key)


# --- keys of keys ---------------------------------------------------------------------------------


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """Make `num` new keys of one.

    Arguments:
      key: a key.
      num: how many, or the shape of the array of keys.

    Returns:
      Keys of shape [num] (or `num`), in the form of `key`.

    Source: `jax.random.split`.

    Example:
      >>> import functrans as ft
      >>> a, b = ft.random.split(ft.random.key(0))
      >>> ft.random.split(a, (2, 3)).shape
      (2, 3)
    """
    shape = tuple(num) if isinstance(num, Sequence) else (num,)
    try:
        sizes = tuple([operator.index(n) for n in shape])
    except TypeError as error:
        if isinstance(error, jax.errors.ConcretizationTypeError):
            raise
        raise mismatch(
            "split", f"num must be an integer or a sequence of integers, got {num!r:.60}",
            "Write split(key, 3) for three keys.",
        ) from None  # fmt: skip
    if any(n < 0 for n in sizes):
        raise invalid("split", f"num is negative, {num!r:.60}", "Sizes are 0 or more.")
    return _split(key, shape=sizes)


def fold_in(key: Any, data: Any) -> Any:
    """Make a new key of a key and an integer: one for each step of a loop, say.

    Arguments:
      key: a key.
      data: an integer scalar, taken as 32 bits.

    Returns:
      A key in the form of `key`.

    Source: `jax.random.fold_in`.

    Example:
      >>> import functrans as ft
      >>> ft.random.fold_in(ft.random.key(0), 3).shape
      ()
    """
    t = typeof(data)
    if t.ndim:
        raise mismatch(
            "fold_in",
            f"takes a scalar, but was given an array {t}",
            "Use vmap: vmap(random.fold_in, (None, 0))(key, data).",
        )
    if isinstance(data, int):
        if not 0 <= data < 2**32:
            raise errors.IntegerOverflow(
                f"fold_in: the Python int {data} does not fit uint32, at\n"
                f"    {describe(user_source())}\nFold in data % 2**32."
            )
        data = literal(data, ArrayType((), UINT32))
    return _fold_in(key, cast(data, UINT32))


@sampler("split", gives_keys=True)
def _split(source: Source, *, shape: tuple[int, ...]) -> Any:
    return source.split_data(shape)


@sampler("fold_in", gives_keys=True)
def _fold_in(source: Source, number: Any) -> Any:
    return prims.random_fold_in(source.data, number, impl=source.impl)


__all__ = [
    "PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype", "key_impl", "split",
    "wrap_key_data",
]  # fmt: skip
