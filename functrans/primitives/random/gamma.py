"""Gamma-distributed samples. One primitive, because its derivative is not that of its algorithm.

    random_gamma   u32[*s, 2] (keys), float[*s, *shape] (a) -> float[*s, *shape]

Bits and samples are those of `jax.random.gamma` and `loggamma`, to which it is lowered: rejection
sampling (Marsaglia and Tsang, A simple method for generating gamma variables, 2000). The derivative
with respect to `a` keeps P(a, x) constant.

The reference draws the same random bits. A sample on the edge of rejection, about one in a million
float32 samples, is decided by rounding, and the two may differ. In 16-bit dtypes this is one in a
hundred, so there, and for other generators than the default, the reference calls `jax.random` too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

from functrans.flags import flags
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.elementwise.families import div, eq, full_like, mul
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.special import erf_inv, random_gamma_grad
from functrans.primitives.elementwise.transcendental import exp
from functrans.primitives.random.bits import DEFAULT, Random, by_jax, is_ours, random_bits, random_split
from functrans.trace import typeof


class RandomGamma(Random):
    """One sample per parameter `a`; its logarithm if `log_space`."""

    name = "random_gamma"
    flops: float = 1000
    at_own_dtype = True

    def abstract_eval(
        self,
        data: ArrayType,
        a: ArrayType,
        *,
        log_space: bool,
        impl: str = DEFAULT,
        partitionable: bool = True,
    ) -> ArrayType:
        batch = self.batch_shape(data, impl)
        if a.shape[: len(batch)] != batch:
            raise self.mismatch((data, a), f"the parameters must have axes for the keys {batch}")
        if dtype_class(a.dtype) != "float":
            raise self.mismatch((data, a), f"the parameters must be floats, got {a.dtype}")
        return a

    def reference(self, data: Any, a: Any, *, log_space: bool, **how: Any) -> Any:
        if is_ours(**how) and a.dtype.itemsize >= 4:
            return _sample(data, a, log_space)
        sample = _by_jax(log_space, data.ndim, a.dtype, how)
        with jax.enable_x64(flags.jax_enable_x64 or a.dtype == np.float64):
            return np.asarray(sample(data, a))

    def lower(self, ctx: Any, data: Any, a: Any, *, log_space: bool, **how: Any) -> Any:
        keys, t = ctx.in_types
        return ctx.via_jax(_by_jax(log_space, keys.ndim, t.dtype, how), data, a)[0]

    def jvp(self, primals: Any, tangents: Any, out: Any, *, log_space: bool, **how: Any) -> Any:
        """dx = random_gamma_grad(a, x) da; d log x = dx / x, with x kept away from 0."""
        a, da = primals[1], tangents[1]
        if not log_space:
            return mul(da, random_gamma_grad(a, out))
        x = exp(out)
        tiny = full_like(x, float(ml_dtypes.finfo(typeof(x).dtype).tiny))
        x = select_n(eq(x, full_like(x, 0)), x, tiny)
        return mul(da, div(random_gamma_grad(a, x), x))


def _by_jax(log_space: bool, ndim: int, dtype: Any, how: dict[str, Any]) -> Callable[..., Any]:
    sample = jax.random.loggamma if log_space else jax.random.gamma
    return by_jax(lambda key, a: sample(key, a, None, dtype), ndim, **how)


# --- the reference in NumPy -----------------------------------------------------------------------


def _sample(data: Any, a: Any, log_space: bool) -> Any:
    """Draw a sample per parameter, all at once; rejected ones are drawn again."""
    keys = random_split.reference(data, shape=(a.size // max(data.size // 2, 1),)).reshape(-1, 2)
    shape, dtype = a.shape, a.dtype
    a = a.reshape(-1)
    boosted = a < 1  # gamma(a) is gamma(a + 1) * uniform ** (1 / a)
    d = np.where(boosted, a + 1, a) - 1 / 3
    c = 1 / 3 / np.sqrt(d)
    key, boost_key = _split(keys, 2)
    v = np.ones_like(a)
    left = np.arange(a.size)
    while left.size:
        key, normal_key, uniform_key = _split(key, 3)
        x, root = _normal_above(normal_key, c[left], dtype)
        cube, square, u = root * root * root, x * x, _uniform(uniform_key, dtype)
        v[left] = cube
        rejected = u >= 1 - 0.0331 * (square * square)
        rejected &= np.log(u) >= square * 0.5 + d[left] * ((1 - cube) + np.log(cube))
        left, key = left[rejected], key[rejected]
    u = _uniform(boost_key, dtype)
    if log_space:
        log_u = np.log1p(-u)
        boost = np.where(boosted & (log_u != 0), log_u * (1 / a), dtype.type(0))
        return (np.log(d) + np.log(v) + boost).reshape(shape)
    boost = np.where(boosted, (1 - u) ** (1 / a), dtype.type(1))
    return (d * v * boost).reshape(shape)


def _normal_above(key: Any, c: Any, dtype: Any) -> tuple[Any, Any]:
    """Draw normal numbers x with 1 + c x > 0; return x and these sums."""
    x, root = np.zeros_like(c), np.zeros_like(c)
    left = np.arange(c.size)
    while left.size:
        key, normal_key = _split(key, 2)
        x[left] = _normal(normal_key, dtype)
        root[left] = 1 + x[left] * c[left]
        again = root[left] <= 0
        left, key = left[again], key[again]
    return x, root


def _split(keys: Any, n: int) -> list[Any]:
    """Derive n new keys of each: u32[k, 2] -> n arrays of keys."""
    new = random_split.reference(keys, shape=(n,))
    return [new[:, i] for i in range(n)]


def _normal(keys: Any, dtype: Any) -> Any:
    """Draw a normal number from each key."""
    lowest = -1 + np.finfo(dtype).epsneg
    u = np.maximum(_uniform(keys, dtype) * (1 - lowest) + lowest, lowest)
    return erf_inv.reference(u) * dtype.type(np.sqrt(2))


def _uniform(keys: Any, dtype: Any) -> Any:
    """Draw a number of [0, 1) from each key: random bits as the mantissa of a number of [1, 2)."""
    width, mantissa = 8 * dtype.itemsize, np.finfo(dtype).nmant
    bits = random_bits.reference(keys, shape=(), bit_width=width)
    one = np.ones((), dtype).view(bits.dtype)
    return ((bits >> bits.dtype.type(width - mantissa)) | one).view(dtype) - 1


random_gamma: RandomGamma = RandomGamma()
