"""Values that depend on the platform a program is compiled for, and platform-specific operations.

platform_index       -> int32[]        the group of platforms that it is compiled for
rng_bit_generator    key data          -> new key data, bits      XLA's generators
rng_uniform          low, high         -> numbers                 the platform's generator
approx_top_k         x                 -> values, positions       the k largest, approximately
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.flags import flags
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Cost, Primitive, bytes_of
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, mul, sub
from functrans.primitives.indexing.sorting import TopK
from functrans.primitives.random.bits import over_batch
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import literal, typeof

INT32 = np.dtype(np.int32)
_DRAWN = ("int32", "int64", "uint32", "uint64", "float16", "bfloat16", "float32", "float64")
Groups = tuple[tuple[str, ...] | None, ...]


class PlatformIndex(Primitive):
    """The index of the group of platform names that matches; None matches any platform."""

    name = "platform_index"
    locally_constant = True

    def abstract_eval(self, *, platforms: Groups) -> ArrayType:
        return ArrayType((), INT32)

    def reference(self, *, platforms: Groups) -> Any:
        return np.asarray(self._fitting(platforms, jax.default_backend()), INT32)

    def _fitting(self, platforms: Groups, here: str) -> int:
        """Return the first group that contains the current platform."""
        names = {here, *{"gpu": ("cuda", "rocm")}.get(here, ())}
        fits = [i for i, group in enumerate(platforms) if group is None or names & set(group)]
        if not fits:
            problem = f"there is no branch for the platform {here}, only for {platforms}"
            raise self.mismatch((), problem, error=errors.NotSupported)
        return fits[0]

    def lower(self, ctx: Any, *, platforms: Groups) -> Any:
        if ctx.platform is not None:
            self._fitting(platforms, ctx.platform)  # raises if none fits
        branches = [lambda i=i: jax.numpy.int32(i) for i in range(len(platforms))]
        named = {
            name: branch for group, branch in zip(platforms, branches, strict=True) for name in group or ()
        }
        default = branches[-1] if platforms[-1] is None else None
        return ctx.via_jax(lambda: jax.lax.platform_dependent(default=default, **named))[0]

    def batch(self, t: Any, args: Any, dims: Any, *, platforms: Groups) -> Any:
        return self(platforms=platforms), None  # it has no operands that could be batched


class RngBitGenerator(Primitive):
    """Random bits and the next state of a generator state; batch axes of states come first."""

    name: str = "rng_bit_generator"
    multiple_results: bool = True
    locally_constant: bool = True
    axis_params: tuple[str, ...] = ()

    def abstract_eval(
        self, key: ArrayType, *, shape: tuple[int, ...], dtype: Any, algorithm: int
    ) -> Sequence[ArrayType]:
        words = {(4, "uint32"), (2, "uint64")}
        if not key.ndim or (key.shape[-1], key.dtype.name) not in words:
            raise self.mismatch((key,), "the key must be uint32[4] or uint64[2]")
        if dtype_class(dtype) != "uint":
            raise self.mismatch((key,), f"dtype must be an unsigned integer dtype, got {dtype}")
        return key, ArrayType((*key.shape[:-1], *shape), dtype)

    def reference(self, key: Any, **how: Any) -> Any:
        with jax.enable_x64(flags.jax_enable_x64 or key.dtype == np.uint64):
            return [np.asarray(y) for y in _generate(key.ndim, how)(key)]

    def lower(self, ctx: Any, key: Any, **how: Any) -> Any:
        return ctx.via_jax(_generate(ctx.in_types[0].ndim, how), key)

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(20 * out_types[1].size, bytes_of(*in_types, *out_types))


def _generate(ndim: int, how: dict[str, Any]) -> Any:
    algorithm = jax.lax.RandomAlgorithm(how["algorithm"])

    def one(key: Any) -> Any:
        return jax.lax.rng_bit_generator(key, how["shape"], how["dtype"], algorithm)

    return over_batch(one, ndim - 1)


class RngUniform(Primitive):
    """Numbers in [low, high) from the platform's own state: no two calls give the same. The
    parameter `call` distinguishes calls, so that none is merged with another."""

    name = "rng_uniform"
    locally_constant = True

    def abstract_eval(
        self, low: ArrayType, high: ArrayType, *, shape: tuple[int, ...], call: int
    ) -> ArrayType:
        if low.shape or high.shape or low.dtype != high.dtype:
            raise self.mismatch((low, high), "the bounds must be scalars of one dtype")
        if low.dtype.name not in _DRAWN:  # XLA would crash
            raise self.mismatch((low, high), f"XLA draws {', '.join(_DRAWN)}, not {low.dtype}")
        return ArrayType(shape, low.dtype)

    def reference(self, low: Any, high: Any, *, shape: Any, call: int) -> Any:
        return np.random.default_rng().uniform(low, high, shape).astype(low.dtype)

    def lower(self, ctx: Any, low: Any, high: Any, *, shape: Any, call: int) -> Any:
        return ctx.via_jax(lambda a, b: jax.lax.rng_uniform(a, b, shape), low, high)[0]

    def batch(self, t: Any, args: Any, dims: Any, *, shape: Any, call: int) -> Any:
        """Draw numbers in [0, 1) for each example and scale them."""
        low, high = [t.at(x, d, 0) for x, d in zip(args, dims, strict=True)]
        dtype = typeof(low).dtype
        whole = dtype_class(dtype) in ("int", "uint")
        scalar = ArrayType((), np.dtype("float32") if whole else dtype)
        full = (t.size, *shape)
        u = self(literal(0, scalar), literal(1, scalar), shape=full, call=call)
        low, high = [broadcast_in_dim(x, shape=full, dimensions=(0,)) for x in (low, high)]
        width = convert_element_type(sub(high, low), dtype=scalar.dtype)
        return add(low, convert_element_type(mul(u, width), dtype=dtype)), 0


class ApproxTopK(TopK):
    """The k largest (or smallest) elements along an axis and their positions. On TPU a share of
    1 - recall_target may be missed; elsewhere the result is exact."""

    name: str = "approx_top_k"
    axis_params: tuple[str, ...] = ("reduction_dimension",)

    def abstract_eval(self, x: ArrayType, *, k: int, reduction_dimension: int, **how: Any) -> Any:
        axis = reduction_dimension
        if dtype_class(x.dtype) != "float":
            raise self.wrong_dtype((x,), x, ("float",))
        if not 0 <= axis < x.ndim:
            raise self.mismatch((x,), f"axis {axis} must lie in 0..{x.ndim - 1}")
        if not 0 < k <= x.shape[axis]:
            raise self.mismatch((x,), f"k = {k} must lie in 1..{x.shape[axis]}, the axis's size")
        search = _search(k=k, reduction_dimension=axis, **how)
        made = jax.eval_shape(search, jax.ShapeDtypeStruct(x.shape, x.dtype))
        shape = made[0].shape
        return x.update(shape=shape), x.update(shape=shape, dtype=INT32)

    def reference(self, x: Any, *, reduction_dimension: int, is_max_k: bool, **how: Any) -> Any:
        axis = reduction_dimension
        types = self.abstract_eval(
            ArrayType(x.shape, x.dtype), reduction_dimension=axis, is_max_k=is_max_k, **how
        )
        wide = x.astype(np.float64)
        order = np.argsort(-wide if is_max_k else wide, axis, kind="stable")
        order = np.take(order, np.arange(types[0].shape[axis]), axis)
        return [np.take_along_axis(x, order, axis), order.astype(np.int32)]

    def lower(self, ctx: Any, x: Any, **how: Any) -> Any:
        return ctx.via_jax(_search(**how), x)


def _search(*, is_max_k: bool, **how: Any) -> Any:
    search = jax.lax.approx_max_k if is_max_k else jax.lax.approx_min_k
    return functools.partial(search, **how)


rng_bit_generator: RngBitGenerator = RngBitGenerator()
rng_uniform: RngUniform = RngUniform()
approx_top_k: ApproxTopK = ApproxTopK()
platform_index: PlatformIndex = PlatformIndex()
