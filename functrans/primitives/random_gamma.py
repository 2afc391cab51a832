"""Samples of the gamma distribution: one operation, as its derivative is not that of its steps.

    random_gamma   u32[*s, 2] (keys), float[*s, *shape] (a) -> float[*s, *shape]

Bits and samples are those of `jax.random.gamma` and `loggamma`, through which it runs: rejection
sampling after Marsaglia and Tsang (2000). A sample moves with `a` so that P(a, x) stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

from functrans.flags import flags
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Cost, bytes_of
from functrans.primitives.elementwise import div, eq, full_like, mul
from functrans.primitives.random_bits import DEFAULT, Random, key_shape
from functrans.primitives.selection import select_n
from functrans.primitives.special_incomplete import random_gamma_grad
from functrans.primitives.transcendental import exp
from functrans.trace import typeof


class RandomGamma(Random):
    """One sample for each parameter `a`; its logarithm if `log_space`."""

    name = "random_gamma"

    def type(
        self, data: ArrayType, a: ArrayType, *, log_space: bool, impl: str = DEFAULT,
        partitionable: bool = True,
    ) -> ArrayType:  # fmt: skip
        batch = self.batch_shape(data, impl)
        if a.shape[: len(batch)] != batch:
            raise self.mismatch((data, a), f"the parameters must have axes for the keys {batch}")
        if dtype_class(a.dtype) != "float":
            raise self.mismatch((data, a), f"the parameters must be floats, got {a.dtype}")
        return a

    def reference(
        self, data: Any, a: Any, *, log_space: bool, impl: str = DEFAULT, partitionable: bool = True
    ) -> Any:
        by_jax = _by_jax(log_space, impl, partitionable, data.ndim, a.dtype)
        with jax.enable_x64(flags.jax_enable_x64 or a.dtype == np.float64):
            return np.asarray(by_jax(data, a))

    def lower(
        self, ctx: Any, data: Any, a: Any, *, log_space: bool, impl: str = DEFAULT,
        partitionable: bool = True,
    ) -> Any:  # fmt: skip
        keys, t = ctx.in_types
        return ctx.via_jax(_by_jax(log_space, impl, partitionable, keys.ndim, t.dtype), data, a)[0]

    def jvp(self, primals: Any, tangents: Any, out: Any, *, log_space: bool, **how: Any) -> Any:
        """dx = random_gamma_grad(a, x) da; d log x = dx / x, x kept from 0."""
        a, da = primals[1], tangents[1]
        if not log_space:
            return mul(da, random_gamma_grad(a, out))
        x = exp(out)
        tiny = full_like(x, float(ml_dtypes.finfo(typeof(x).dtype).tiny))
        x = select_n(eq(x, full_like(x, 0)), x, tiny)
        return mul(da, div(random_gamma_grad(a, x), x))

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(1000 * out_types[0].size, bytes_of(*in_types, *out_types))


def _by_jax(
    log_space: bool, impl: str, partitionable: bool, ndim: int, dtype: Any
) -> Callable[..., Any]:
    sample = jax.random.loggamma if log_space else jax.random.gamma

    def one(data: Any, a: Any) -> Any:
        with jax.threefry_partitionable(partitionable):
            return sample(jax.random.wrap_key_data(data, impl=impl), a, None, dtype)

    for _ in range(ndim - len(key_shape(impl))):
        one = jax.vmap(one)
    return one


random_gamma = RandomGamma()
