"""Gamma-distributed samples. One primitive, because its derivative is not that of its algorithm.

    random_gamma   u32[*s, 2] (keys), float[*s, *shape] (a) -> float[*s, *shape]

Bits and samples are those of `jax.random.gamma` and `loggamma`: rejection sampling (Marsaglia and
Tsang, A simple method for generating gamma variables, 2000). The derivative with respect to `a` keeps
P(a, x) constant. On a CPU many samples are drawn at once, and the few that are rejected one by one
again; elsewhere it is lowered to `jax.random`.

The reference interprets that program, with one loop that draws all samples again. A sample on the edge of
rejection, about one in a million float32 samples, is decided by rounding, and the two may differ. In 16-bit
dtypes this is one in a hundred, so there, and for other generators than the default, the reference calls
`jax.random` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from functrans import runtime
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Params
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.cond import choose
from functrans.primitives.control_flow.revolve import loop
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.elementwise.arithmetic import max_, pow_
from functrans.primitives.elementwise.bitwise import and_, or_, shift_right_logical
from functrans.primitives.elementwise.conversion import bitcast_convert_type
from functrans.primitives.elementwise.families import add, div, eq, full_like, ge, le, lt, mul, ne, neg, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.special import erf_inv, random_gamma_grad
from functrans.primitives.elementwise.transcendental import exp, log, log1p, sqrt
from functrans.primitives.random.bits import DEFAULT, Random, random_bits, random_split, written
from functrans.primitives.shape.moving import index_axis, reshape
from functrans.trace import literal, stage, typeof


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

    def is_written(self, types: Sequence[ArrayType], params: Params) -> bool:
        return super().is_written(types, params) and types[1].dtype.itemsize >= 4

    def lower(self, ctx: Any, data: Any, a: Any, **params: Any) -> Any:
        keys, t = ctx.in_types
        if ctx.on_this_cpu and t.size > 1 and self.is_written(ctx.in_types, params):
            return ctx.call(written(self, keys, t, **params), (data, a))[0]
        return ctx.via_jax(self.through_jax(keys.ndim, **params), data, a)[0]

    def words(self, data: Any, a: Any, *, log_space: bool, in_numpy: bool = False, **_: Any) -> Any:
        """Draw as `jax.random.gamma` does."""
        t, keys = typeof(a), typeof(data)
        a, each = reshape(a, shape=(t.size,)), t.size // max(keys.size // 2, 1)
        key, boost_key = _keys(reshape(random_split(data, shape=(each,)), shape=(t.size, 2)), 2)
        is_boosted = lt(a, 1.0)  # gamma(a) is gamma(a + 1) * uniform ** (1 / a)
        d = sub(select_n(is_boosted, a, add(a, 1.0)), 1 / 3)
        c = div(1 / 3, sqrt(d))
        v = _until_accepted(key, c, d, in_numpy)
        u = _draw_uniform(boost_key, t.dtype)
        if log_space:
            log_u = log1p(neg(u))
            is_boosted = and_(is_boosted, ne(log_u, 0.0))
            boost = select_n(is_boosted, full_like(a, 0), mul(log_u, div(1.0, a)))
            return reshape(add(add(log(d), log(v)), boost), shape=t.shape)
        boost = select_n(is_boosted, full_like(a, 1), pow_(sub(1.0, u), div(1.0, a)))
        return reshape(mul(mul(d, v), boost), shape=t.shape)

    def of_key(self, key: Any, a: Any, *, log_space: bool) -> Any:
        sample = jax.random.loggamma if log_space else jax.random.gamma
        return sample(key, a, None, a.dtype)

    def jvp(self, primals: Any, tangents: Any, out: Any, *, log_space: bool, **how: Any) -> Any:
        """dx = random_gamma_grad(a, x) da; d log x = dx / x, with x kept away from 0."""
        a, da = primals[1], tangents[1]
        if not log_space:
            return mul(da, random_gamma_grad(a, out))
        x = exp(out)
        tiny = full_like(x, float(ml_dtypes.finfo(typeof(x).dtype).tiny))
        x = select_n(eq(x, full_like(x, 0)), x, tiny)
        return mul(da, div(random_gamma_grad(a, x), x))


# --- the program ----------------------------------------------------------------------------------
#
# XLA draws all samples again as long as one of them is rejected. On a CPU the first draw of each is in
# vector code, and then one loop over all samples, a single kernel, draws the rejected ones again: one in
# twenty at most (benchmarks/cliffs.md). `together`, for NumPy, does as XLA does.


def _until_accepted(keys: Any, c: Any, d: Any, together: bool) -> Any:
    """Return cubes v of accepted proposals, one for each key: d v is a sample."""
    n, dtype = typeof(c).size, typeof(c).dtype
    following, normal_key, uniform_key = _keys(keys, 3)
    x = _draw_normal(_keys(normal_key, 2)[1], dtype)
    root = add(1.0, mul(x, c))
    is_below = le(root, 0.0)  # then another normal number is drawn with the same key
    v, is_rejected = _judged(x, root, _draw_uniform(uniform_key, dtype), d)
    keys = choose(is_below, [following, keys])
    state = [keys, v, or_(is_below, is_rejected), c, d]

    def one(key: Any, v: Any, is_rejected: Any, c: Any, d: Any) -> list[Any]:
        def draw(key: Any, *_: Any) -> list[Any]:
            key, normal_key = _keys(key, 2)
            x = _draw_normal(normal_key, dtype)
            return [key, x, add(1.0, mul(x, c))]

        def again(key: Any, *_: Any) -> list[Any]:
            key, normal_key, uniform_key = _keys(key, 3)
            first = [normal_key, literal(0, typeof(c)), literal(-1, typeof(c))]
            _, x, root = loop(lambda key, x, root: le(root, 0.0), draw, first)
            return [key, *_judged(x, root, _draw_uniform(uniform_key, dtype), d)]

        return [loop(lambda key, v, is_rejected: is_rejected, again, [key, v, is_rejected])[1]]

    body = stage(one, [typeof(x).update(shape=typeof(x).shape[1:]) for x in state], "sample")
    if together:
        return jit(*state, program=runtime.batch_program(body, n))[0]
    return scan(*state, program=body, length=n, consts=0, carry=0)[0]


def _judged(x: Any, root: Any, u: Any, d: Any) -> tuple[Any, Any]:
    """Return the cube of a proposal, and whether it is rejected."""
    v, square = mul(mul(root, root), root), mul(x, x)
    is_outside = ge(u, sub(1.0, mul(0.0331, mul(square, square))))
    bound = add(mul(square, 0.5), mul(d, add(sub(1.0, v), log(v))))
    return v, and_(is_outside, ge(log(u), bound))


def _keys(keys: Any, n: int) -> list[Any]:
    """Derive n new keys of each: u32[*s, 2] -> n arrays of keys."""
    new = random_split(keys, shape=(n,))
    return [index_axis(new, typeof(new).ndim - 2, i) for i in range(n)]


def _draw_normal(keys: Any, dtype: Any) -> Any:
    lowest = float(-1 + np.finfo(dtype).epsneg)
    width = float(dtype.type(1) - dtype.type(lowest))
    u = max_(add(mul(_draw_uniform(keys, dtype), width), lowest), lowest)
    return mul(float(dtype.type(np.sqrt(2))), erf_inv(u))


def _draw_uniform(keys: Any, dtype: Any) -> Any:
    """Draw a number of [0, 1) from each key: random bits as the mantissa of a number of [1, 2)."""
    width, mantissa = 8 * dtype.itemsize, np.finfo(dtype).nmant
    bits = random_bits(keys, shape=(), bit_width=width)
    bits = shift_right_logical(bits, full_like(bits, width - mantissa))
    one = int(np.ones((), dtype).view(f"uint{width}"))
    return sub(bitcast_convert_type(or_(bits, full_like(bits, one)), dtype=dtype), 1.0)


random_gamma: RandomGamma = RandomGamma()
