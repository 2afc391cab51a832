"""PRNG keys and random bits.

Programs operate on key data, `uint32[*batch, 2]`; typed keys only pass through `random_wrap` and
`random_unwrap`. The batch axes of keys come first:

    random_seed    int[*s]              -> u32[*s, 2]
    random_bits    u32[*s, 2]           -> uint[*s, *shape]
    random_split   u32[*s, 2]           -> u32[*s, *shape, 2]
    random_fold_in u32[*s, 2], u32[*s]  -> u32[*s, 2]
    threefry2x32   u32[n] * 4           -> u32[n] * 2         the hash that all of them use

The default generator, threefry2x32 in its partitionable form, is written here in other operations: as
such it is lowered, and interpreted by the reference. The others (`impl="rbg"`, ..., or
`partitionable=False`) call `jax.random`. All produce the same bits as JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from functrans import runtime
from functrans.caching import cached
from functrans.flags import flags
from functrans.ir.program import PRIMITIVES, Equation, Program, Var
from functrans.ir.types import ArrayType, dtype_class, is_key_dtype
from functrans.mlir import hlo
from functrans.primitives.base import Cost, Params, Primitive, bytes_of
from functrans.primitives.elementwise.bitwise import or_, shift_left, shift_right_logical, xor
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.families import full_like
from functrans.primitives.shape.joining import iota, stack
from functrans.primitives.shape.moving import broadcast_in_dim, index_axis, reshape
from functrans.trace import stage, typeof

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
def impl_of(dtype: Any) -> Any:
    """Return the generator of a key dtype: its name, or the object that stands for one without a name."""
    return jax.random.key_impl(jax.numpy.zeros((), dtype))


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

    def words(self, *operands: Any, **params: Any) -> Any:
        """Return the result of the generator that is implemented here, by other operations; `in_numpy`
        if they are for NumPy."""
        raise self.missing("lower")

    def is_written(self, types: Sequence[ArrayType], params: Params) -> bool:
        """Return whether `words` has the same result as JAX."""
        return is_ours(**params)

    def of_key(self, key: Any, *rest: Any, **params: Any) -> Any:
        """Apply the function of jax.random, to one typed key."""
        raise self.missing("reference")

    # --- derived

    def reference(self, *arrays: Any, **params: Any) -> Any:
        types = [ArrayType(x.shape, x.dtype) for x in arrays]
        if self.is_written(types, params):
            return runtime.run_in_numpy(written(self, *types, in_numpy=True, **params), arrays)[0]
        with jax.enable_x64(flags.jax_enable_x64 or arrays[-1].dtype == np.float64):
            return np.asarray(self.through_jax(arrays[0].ndim, **params)(*arrays))

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        types = [v.type for v in w.equation.inputs]
        if not self.is_written(types, params):
            raise w.unwritable()
        return w.call(written(self, *types, in_numpy=True, **params), xs)

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        # JAX's loop cannot be lowered inside a function for several platforms (ctx.platform: None).
        slow = _CHAINS_ARE_SLOW and self.chained and ctx.platform and not ctx.on_this_cpu
        if is_ours(**params) and not slow:
            return ctx.emit(written(self, *ctx.in_types, **params), operands)[0]
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


@cached("programs of random bits", 1024)
def written(primitive: Random, *types: ArrayType, **params: Any) -> Program:
    """Return `words` as a program."""
    return stage(lambda *xs: [primitive.words(*xs, **params)], types, primitive.name)


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
        is_wide = typeof(seed).dtype.itemsize == 8
        high = shift_right_logical(seed, 32) if is_wide else full_like(seed, 0)
        return stack([cast(high, UINT32), cast(seed, UINT32)], -1)

    def through_jax(self, ndim: int, **how: Any) -> Callable[..., Any]:
        return over_batch(lambda seed: jax.random.key_data(jax.random.key(seed, **how)), ndim)


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

    def words(self, data: Any, *, shape: Any, bit_width: int, **_: Any) -> Any:
        x, y = _hashed_counts(data, shape)
        if bit_width == 64:
            x, y = cast(x, UINT_OF[64]), cast(y, UINT_OF[64])
            return or_(shift_left(x, 32), y)
        return cast(xor(x, y), UINT_OF[bit_width])

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

    def words(self, data: Any, *, shape: Any, **_: Any) -> Any:
        return stack(_hashed_counts(data, shape), -1)

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
        return stack(_hashed(data, full_like(number, 0), number), -1)

    def of_key(self, key: Any, number: Any) -> Any:
        return jax.random.fold_in(key, number)

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
        def rotate(x: Any, r: int) -> Any:
            return (x << np.uint32(r)) | (x >> np.uint32(32 - r))

        with np.errstate(over="ignore"):
            return list(_rounds(words, np.add, np.bitwise_xor, rotate, np.uint32))

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        return w.reference(self, xs, params)

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


@cached("programs of hashes", 256)
def _hash_program(shape: tuple[int, ...]) -> Program:
    """Return the hash as a program, so that a module contains it once per shape."""
    t = ArrayType(shape, UINT32)
    words, outs = [Var(t) for _ in range(4)], [Var(t), Var(t)]
    return Program(words, [Equation(threefry2x32, tuple(words), tuple(outs), {})], outs, name="threefry2x32")


def _hashed(data: Any, high: Any, low: Any) -> list[Any]:
    """Return the hash of counters, of two words each, with keys: u32[*s, 2], u32[*s, *shape] * 2 ->
    u32[*s, *shape] * 2."""
    t, last = typeof(low), typeof(data).ndim - 1
    words = [index_axis(data, last, i) for i in (0, 1)]
    keys = [broadcast_in_dim(word, shape=t.shape, dimensions=tuple(range(last))) for word in words]
    # by name: jit.py needs this module
    return PRIMITIVES["jit"](*keys, high, low, program=_hash_program(t.shape))


def _hashed_counts(data: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the hash of 0, 1, 2, ... in row-major order over `shape`, for each key."""
    n, batch = prod(shape), typeof(data).shape[:-1]
    is_long = n > 2**32
    counts = iota(dtype=UINT_OF[64] if is_long else UINT32, shape=(n,), dimension=0)

    def spread(words: Any) -> Any:
        full, axes = (*batch, *shape), tuple(range(len(batch), len(batch) + len(shape)))
        return broadcast_in_dim(reshape(cast(words, UINT32), shape=shape), shape=full, dimensions=axes)

    high = shift_right_logical(counts, 32) if is_long else full_like(counts, 0)
    return _hashed(data, spread(high), spread(counts))


random_wrap: RandomWrap = RandomWrap()
random_unwrap: RandomUnwrap = RandomUnwrap()
random_seed: RandomSeed = RandomSeed()
random_bits: RandomBits = RandomBits()
random_split: RandomSplit = RandomSplit()
random_fold_in: RandomFoldIn = RandomFoldIn()
threefry2x32: Threefry2x32 = Threefry2x32()
