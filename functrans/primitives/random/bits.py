"""PRNG keys and random bits.

Programs operate on key data, `uint32[*batch, 2]`; typed keys only pass through `random_wrap` and
`random_unwrap`. The batch axes of keys come first:

    random_seed    int[*s]              -> u32[*s, 2]
    random_bits    u32[*s, 2]           -> uint[*s, *shape]
    random_split   u32[*s, 2]           -> u32[*s, *shape, 2]
    random_fold_in u32[*s, 2], u32[*s]  -> u32[*s, 2]
    threefry2x32   u32[n] * 4           -> u32[n] * 2         the hash that all of them use

The default generator, threefry2x32 in its partitionable form, is implemented here. The others
(`impl="rbg"`, ..., or `partitionable=False`) call `jax.random`. All produce the same bits as JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from functrans.caching import cached
from functrans.ir.program import Equation, Program, Var
from functrans.ir.types import ArrayType, dtype_class, is_key_dtype
from functrans.mlir import hlo
from functrans.primitives.base import Cost, Primitive, bytes_of

DEFAULT = "threefry2x32"
# XLA of JAX 0.11 compiles for minutes where it fuses one unrolled hash into the next (keys of keys, bits
# of keys). Where nothing keeps them apart (passes/fusion_boundaries.py), keys are made by JAX's loop.
_CHAINS_ARE_SLOW = jax.__version_info__ >= (0, 11)
UINT32 = np.dtype(np.uint32)
UINT_OF = {n: np.dtype(f"uint{n}") for n in (8, 16, 32, 64)}

# After Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (2011), section 3.3.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_HASH_COST = 20 * 5 + 5 * 3 + 4  # operations for two words


@cached("dtypes of keys", 64)
def key_dtype(impl: str) -> Any:
    """Return the dtype of typed keys of a generator."""
    return jax.random.key(0, impl=impl).dtype


@cached("shapes of keys", 64)
def key_shape(impl: str) -> tuple[int, ...]:
    """Return the shape of the data of one key: (2,) for threefry2x32."""
    if impl == DEFAULT:
        return (2,)
    return jax.random.key_data(jax.random.key(0, impl=impl)).shape


def word_type(t: ArrayType) -> ArrayType:
    """Return the type of a value in the backends: typed keys are arrays of words."""
    if not is_key_dtype(t.dtype):
        return t
    return ArrayType((*t.shape, *key_shape(impl_of(t.dtype))), UINT32)


@cached("generators of keys", 64)
def impl_of(dtype: Any) -> str:
    """Return the generator's name of a key dtype."""
    return str(jax.random.key_impl(jax.numpy.zeros((), dtype)))


def is_ours(impl: str = DEFAULT, partitionable: bool = True, **_: Any) -> bool:
    """Return whether the bits are those of the generator that is implemented here."""
    return impl == DEFAULT and partitionable


def over_batch(one: Callable[..., Any], batch_ndim: int) -> Callable[..., Any]:
    """Return a JAX function of one example as one of arrays with these many leading batch axes."""
    for _ in range(batch_ndim):
        one = jax.vmap(one)
    return one


class Random(Primitive):
    """Base class: no derivatives, and batch axes of keys come first."""

    in_kernel = True
    locally_constant = True
    axis_params: tuple[str, ...] = ()
    chained = False  # results are keys, of which others are made; see _CHAINS_ARE_SLOW

    # --- defined by subclasses instead of `reference` and `lower`; `_` are the generator's parameters

    def words(self, *arrays: Any, **params: Any) -> Any:
        """Return the result of the generator that is implemented here, in NumPy."""
        raise self.missing("reference")

    def emit(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        """Emit that in StableHLO."""
        raise self.missing("lower")

    def of_key(self, key: Any, *rest: Any, **params: Any) -> Any:
        """Apply the function of jax.random, to one typed key."""
        raise self.missing("reference")

    # --- derived

    def reference(self, *arrays: Any, **params: Any) -> Any:
        if is_ours(**params):
            return self.words(*arrays, **params)
        return np.asarray(self.through_jax(arrays[0].ndim, **params)(*arrays))

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        if not is_ours(**params):
            raise w.unwritable()
        return w.copied(self.words, xs, params)

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        slow = _CHAINS_ARE_SLOW and self.chained and not ctx.on_this_cpu
        if is_ours(**params) and not slow:
            return self.emit(ctx, *operands, **params)
        return ctx.via_jax(self.through_jax(ctx.in_types[0].ndim, **params), *operands)[0]

    def through_jax(
        self, ndim: int, impl: str = DEFAULT, partitionable: bool = True, **params: Any
    ) -> Callable[..., Any]:
        """Return `of_key` as a function of key data of `ndim` axes."""

        def one(data: Any, *rest: Any) -> Any:
            with jax.threefry_partitionable(partitionable):
                made = self.of_key(jax.random.wrap_key_data(data, impl=impl), *rest, **params)
            return jax.random.key_data(made) if is_key_dtype(made.dtype) else made

        return over_batch(one, ndim - len(key_shape(impl)))

    def batch_shape(self, data: ArrayType, impl: str) -> tuple[int, ...]:
        """Return the batch shape of keys whose data an operand holds."""
        last = key_shape(impl)
        if data.dtype != UINT32 or data.shape[data.ndim - len(last) :] != last:
            raise self.mismatch(
                (data,),
                f"the data of {impl} keys must have dtype uint32 and a shape that ends in {last}",
                "Make keys with random.key(seed); random.key_data(key) returns their data.",
            )
        return data.shape[: data.ndim - len(last)]


class RandomWrap(Random):
    """Convert key data to typed keys."""

    name = "random_wrap"

    def abstract_eval(self, data: ArrayType, *, impl: str = DEFAULT) -> ArrayType:
        return ArrayType(self.batch_shape(data, impl), key_dtype(impl))

    def reference(self, data: Any, *, impl: str = DEFAULT) -> Any:
        return jax.random.wrap_key_data(data, impl=impl)

    def numpy_source(self, w: Any, data: Any, *, impl: str = DEFAULT) -> Any:
        return data.full

    def lower(self, ctx: Any, data: Any, *, impl: str = DEFAULT) -> Any:
        return data  # a typed key is lowered to its data


class RandomUnwrap(Random):
    """Convert typed keys to key data."""

    name = "random_unwrap"

    def abstract_eval(self, keys: ArrayType) -> ArrayType:
        if dtype_class(keys.dtype) != "key":
            raise self.mismatch(
                (keys,), "takes typed keys", "Make one with random.key(seed) or wrap_key_data."
            )
        return word_type(keys)

    def reference(self, keys: Any) -> Any:
        return np.asarray(jax.random.key_data(keys))

    def numpy_source(self, w: Any, keys: Any) -> Any:
        return keys.full

    def lower(self, ctx: Any, keys: Any) -> Any:
        return keys


class RandomSeed(Random):
    """The key data of integer seeds."""

    name = "random_seed"

    def abstract_eval(self, seed: ArrayType, *, impl: str = DEFAULT) -> ArrayType:
        if dtype_class(seed.dtype) not in ("int", "uint"):
            raise self.mismatch((seed,), f"a seed must be an integer, not {seed.dtype}")
        return ArrayType((*seed.shape, *key_shape(impl)), UINT32)

    def words(self, seed: Any, **_: Any) -> Any:
        wide = seed.astype(np.uint64)
        high = wide >> np.uint64(32) if seed.dtype.itemsize == 8 else np.zeros_like(wide)
        return np.stack([high, wide & np.uint64(0xFFFFFFFF)], -1).astype(np.uint32)

    def through_jax(self, ndim: int, **how: Any) -> Callable[..., Any]:
        return over_batch(lambda seed: jax.random.key_data(jax.random.key(seed, **how)), ndim)

    def emit(self, ctx: Any, seed: Any, **_: Any) -> Any:
        t = ctx.in_types[0]
        words = t.update(dtype=UINT32)
        if t.dtype.itemsize == 8:
            high = hlo.shift_right_logical(seed, ctx.full(32, t))
            high = hlo.convert(ctx.type(words), high)
        else:
            high = ctx.full(0, words)
        return _pair(ctx, high, hlo.convert(ctx.type(words), seed), words)


class RandomBits(Random):
    """`shape` unsigned integers of `bit_width` bits from each key."""

    name = "random_bits"
    flops: float = _HASH_COST

    def abstract_eval(
        self,
        data: ArrayType,
        *,
        shape: tuple[int, ...],
        bit_width: int,
        impl: str = DEFAULT,
        partitionable: bool = True,
    ) -> ArrayType:
        if bit_width not in UINT_OF:
            raise self.mismatch((data,), f"bit_width must be 8, 16, 32 or 64, not {bit_width}")
        return ArrayType((*self.batch_shape(data, impl), *shape), UINT_OF[bit_width])

    def words(self, data: Any, shape: Any, bit_width: int, **_: Any) -> Any:
        dtype = UINT_OF[bit_width]
        x, y = _hash_counts(data, shape)
        if bit_width == 64:
            return (x.astype(dtype) << dtype.type(32)) | y
        return (x ^ y).astype(dtype)

    def emit(self, ctx: Any, data: Any, *, shape: Any, bit_width: int, **_: Any) -> Any:
        out = ctx.out_types[0]
        x, y = _lower_counts(ctx, data, shape)
        if bit_width == 32:
            return hlo.xor(x, y)
        if bit_width < 32:
            return hlo.convert(ctx.type(out), hlo.xor(x, y))
        x, y = hlo.convert(ctx.type(out), x), hlo.convert(ctx.type(out), y)
        return hlo.or_(hlo.shift_left(x, ctx.full(32, out)), y)

    def of_key(self, key: Any, *, shape: Any, bit_width: int) -> Any:
        return jax.random.bits(key, shape, UINT_OF[bit_width])


class RandomSplit(Random):
    """`shape` new keys from each key."""

    name = "random_split"
    flops: float = _HASH_COST / 2
    chained = True

    def abstract_eval(
        self, data: ArrayType, *, shape: tuple[int, ...], impl: str = DEFAULT, partitionable: bool = True
    ) -> ArrayType:
        return ArrayType((*self.batch_shape(data, impl), *shape, *key_shape(impl)), UINT32)

    def words(self, data: Any, shape: Any, **_: Any) -> Any:
        return np.stack(_hash_counts(data, shape), -1)

    def emit(self, ctx: Any, data: Any, *, shape: Any, **_: Any) -> Any:
        words = ArrayType(ctx.out_types[0].shape[:-1], UINT32)
        x, y = _lower_counts(ctx, data, shape)
        return _pair(ctx, x, y, words)

    def of_key(self, key: Any, *, shape: Any) -> Any:
        return jax.random.split(key, shape)


class RandomFoldIn(Random):
    """A new key from each key and an integer."""

    name = "random_fold_in"
    chained = True

    def abstract_eval(self, data: ArrayType, number: ArrayType, *, impl: str = DEFAULT) -> ArrayType:
        if number.dtype != UINT32 or number.shape != self.batch_shape(data, impl):
            raise self.mismatch((data, number), "takes one uint32 number for each key")
        return data

    def words(self, data: Any, number: Any, **_: Any) -> Any:
        zero = np.zeros_like(number)
        return np.stack(_threefry(data[..., 0], data[..., 1], zero, number), -1)

    def of_key(self, key: Any, number: Any) -> Any:
        return jax.random.fold_in(key, number)

    def emit(self, ctx: Any, data: Any, number: Any, **_: Any) -> Any:
        t = ctx.in_types[1]
        keys = [_word(ctx, data, i) for i in (0, 1)]
        x, y = ctx.call(_hash_program(t.shape), [*keys, ctx.full(0, t), number])
        return _pair(ctx, x, y, t)

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(_HASH_COST * in_types[1].size, bytes_of(*in_types, *out_types))


class Threefry2x32(Random):
    """The hash: two key words and two counter words -> two random words, elementwise."""

    name: str = "threefry2x32"
    flops: float = _HASH_COST
    multiple_results: bool = True

    def abstract_eval(self, *types: ArrayType) -> Sequence[ArrayType]:
        if len(types) != 4 or any(t.dtype != UINT32 or t.shape != types[0].shape for t in types):
            raise self.mismatch(types, "takes four operands of dtype uint32 and of equal shapes")
        return types[0].strong(), types[0].strong()

    def reference(self, *words: Any) -> Any:
        return list(_threefry(*words))

    def lower(self, ctx: Any, *words: Any) -> Any:
        """Emit the rounds unrolled: XLA fuses them to one loop, and compiles that faster than the loop of
        loops that JAX emits on CPU (4M words of float32 noise: 6 ms instead of 60; 0.1 s of compilation
        instead of 0.3)."""
        t = ctx.in_types[0]
        left = {r: ctx.full(r, t) for rs in _ROTATIONS for r in rs}
        right = {r: ctx.full(32 - r, t) for r in left}

        def rotate(x: Any, r: int) -> Any:
            return hlo.or_(hlo.shift_left(x, left[r]), hlo.shift_right_logical(x, right[r]))

        def full(v: int) -> Any:
            return ctx.full(v, t)

        return list(_rounds(words, hlo.add, hlo.xor, rotate, full))


# --- threefry2x32, shared by NumPy and StableHLO --------------------------------------------------


def _rounds(
    words: Sequence[Any],
    add: Callable[..., Any],
    xor: Callable[..., Any],
    rotate: Callable[..., Any],
    full: Callable[..., Any],
) -> tuple[Any, Any]:
    """Apply twenty rounds of mixing; after every four, add the next two of three key words."""
    k0, k1, x, y = words
    keys = (k0, k1, xor(xor(k0, k1), full(_PARITY)))
    x, y = add(x, k0), add(y, k1)
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x = add(x, y)
            y = xor(x, rotate(y, r))
        x = add(x, keys[(i + 1) % 3])
        y = add(y, add(keys[(i + 2) % 3], full(i + 1)))
    return x, y


def _threefry(*words: Any) -> tuple[Any, Any]:
    def rotate(x: Any, r: int) -> Any:
        return (x << np.uint32(r)) | (x >> np.uint32(32 - r))

    with np.errstate(over="ignore"):
        return _rounds([np.asarray(w, np.uint32) for w in words], np.add, np.bitwise_xor, rotate, np.uint32)


def _hash_counts(data: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the hash of 0, 1, 2, ... in row-major order over `shape`, for each key."""
    counts = np.arange(prod(shape), dtype=np.uint64).reshape(shape)
    high, low = (counts >> np.uint64(32)).astype(np.uint32), counts.astype(np.uint32)
    keys = data.reshape(*data.shape[:-1], *([1] * len(shape)), 2)
    x, y = _threefry(keys[..., 0], keys[..., 1], high, low)
    full = (*data.shape[:-1], *shape)
    return np.broadcast_to(x, full), np.broadcast_to(y, full)


@cached("programs of hashes", 256)
def _hash_program(shape: tuple[int, ...]) -> Program:
    """Return the hash as a program, so that a module contains it once per shape."""
    t = ArrayType(shape, UINT32)
    words, outs = [Var(t) for _ in range(4)], [Var(t), Var(t)]
    return Program(words, [Equation(threefry2x32, tuple(words), tuple(outs), {})], outs, name="threefry2x32")


def _word(ctx: Any, data: Any, i: int) -> Any:
    """Return word i of each key: u32[*s, 2] -> u32[*s]."""
    shape = ctx.in_types[0].shape
    start, limit = (*[0] * (len(shape) - 1), i), (*shape[:-1], i + 1)
    one = hlo.slice(data, start, limit, [1] * len(shape))
    return hlo.reshape(ctx.type(ArrayType(shape[:-1], UINT32)), one)


def _pair(ctx: Any, x: Any, y: Any, t: ArrayType) -> Any:
    """Stack x and y, of type t, along a new last axis."""
    one = ctx.type(t.update(shape=(*t.shape, 1)))
    return hlo.concatenate([hlo.reshape(one, x), hlo.reshape(one, y)], t.ndim)


def _lower_counts(ctx: Any, data: Any, shape: tuple[int, ...]) -> Any:
    """Emit `_hash_counts` in StableHLO."""
    batch = ctx.in_types[0].shape[:-1]
    n = prod(shape)
    flat = ArrayType((n,), np.dtype(np.uint64) if n > 2**32 else UINT32)
    full = ArrayType((*batch, *shape), UINT32)

    def spread(x: Any, dimensions: Sequence[int]) -> Any:
        return hlo.broadcast_in_dim(ctx.type(full), x, dimensions)

    keys = [spread(_word(ctx, data, i), range(len(batch))) for i in (0, 1)]
    counts = hlo.iota(ctx.type(flat), 0)
    words = ctx.type(ArrayType((n,), UINT32))
    each = ctx.type(ArrayType(shape, UINT32))
    where = range(len(batch), full.ndim)
    if n > 2**32:
        high = hlo.convert(words, hlo.shift_right_logical(counts, ctx.full(32, flat)))
        high = spread(hlo.reshape(each, high), where)
        counts = hlo.convert(words, counts)
    else:
        high = ctx.full(0, full)
    return ctx.call(_hash_program(full.shape), [*keys, high, spread(hlo.reshape(each, counts), where)])


random_wrap: RandomWrap = RandomWrap()
random_unwrap: RandomUnwrap = RandomUnwrap()
random_seed: RandomSeed = RandomSeed()
random_bits: RandomBits = RandomBits()
random_split: RandomSplit = RandomSplit()
random_fold_in: RandomFoldIn = RandomFoldIn()
threefry2x32: Threefry2x32 = Threefry2x32()
