"""Values that depend on the platform a program is compiled for, and platform-specific operations.

platform_index       -> int32[]        the group of platforms that it is compiled for
rng_uniform          low, high         -> numbers                 the platform's generator
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Primitive
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, mul, sub
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

    def numpy_source(self, w: Any, *, platforms: Groups) -> Any:
        return f"np.int32({self.reference(platforms=platforms)})"

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
        named = {
            name: functools.partial(jax.numpy.int32, i)
            for i, group in enumerate(platforms)
            for name in group or ["default"]
        }
        return ctx.via_jax(lambda: jax.lax.platform_dependent(**named))[0]


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


rng_uniform: RngUniform = RngUniform()
platform_index: PlatformIndex = PlatformIndex()
