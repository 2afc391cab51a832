"""Distributions of counts, drawn by loops that reject: the whole array goes on until every element
has been accepted, so the bits are those of `jax.random`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import lax
from functrans import numpy as jnp
from functrans.ir.types import dtype_class
from functrans.lax.arguments import placeable
from functrans.numpy.promotion import cast, expand, promote_inexact
from functrans.random.approximate import FLOAT32, poisson_counts
from functrans.random.arguments import check_method, dtype_of, fitting, shape_of, shape_with
from functrans.random.staged import Source, sampler
from functrans.random.uniform import unit
from functrans.trace import typeof

__all__ = ["binomial", "multinomial", "poisson"]


def _until_all(
    source: Source, limit: Any, going: Callable[[Any], Any], step: Callable[..., Any], start: Any
) -> Any:
    """`state = step(state, source)` while `going(state)` holds anywhere, `limit` times at most.
    `step` returns the new state and the source of the next turn."""

    def body(carry: Any) -> Any:
        i, state, data = carry
        state, after = step(state, source._replace(data=data))
        return i + 1, state, after.data

    def test(carry: Any) -> Any:
        i, state, _ = carry
        return jnp.any(going(state)) & (i < limit)

    return lax.while_loop(test, body, (0, start, source.data))[1]


# --- poisson --------------------------------------------------------------------------------------


@placeable
def poisson(
    key: Any,
    lam: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    method: str = "exact",
    out_sharding: Any = None,
) -> Any:
    """Draw counts k with probability lam^k e^-lam / k!.

    Arguments:
      key: a key.
      lam: a number or an array that broadcasts to `shape`: the mean.
      shape: of the result; None: that of lam.
      dtype: an integer dtype.
      method: "exact", by loops; or "approximate", by a formula, much faster, whose distribution is
        off by less than 1e-4 in total variation.

    Source: `jax.random.poisson`, with `method` from JAX 0.11 on.

    Example:
      >>> import functrans as ft
      >>> print(ft.random.poisson(ft.random.key(0), 0.0, (3,)))
      [0 0 0]
    """
    check_method("poisson", method)
    dtype = dtype_of("poisson", dtype, int, ("int", "uint"))
    shape = shape_with("poisson", shape, lam)
    return (_poisson if method == "exact" else _poisson_by_formula)(
        key, lam, shape=shape, dtype=dtype
    )


@sampler("poisson")
def _poisson_by_formula(source: Source, lam: Any, *, shape: Any, dtype: Any) -> Any:
    """In float64 for a mean or counts of 64 bits, which float32 would round above 2^24."""
    t = typeof(lam)
    wide = dtype.itemsize == 8 or (dtype_class(t.dtype) == "float" and t.dtype.itemsize == 8)
    lam = expand(cast(lam, np.dtype(np.float64 if wide else np.float32)), shape)
    return cast(poisson_counts(source, lam), dtype)


@sampler("poisson")
def _poisson(source: Source, lam: Any, *, shape: Any, dtype: Any) -> Any:
    """Small means by counting, large ones by rejection; both run on the whole array, each where
    the other is wanted on a number that is harmless to it."""
    lam = cast(expand(lam, shape), FLOAT32)
    small = jnp.isnan(lam) | (lam < 10)
    limit = dtype.type(jnp.iinfo(dtype).max)
    counted = _counted(source, jnp.where(small, lam, 0.0), shape, dtype, limit)
    chosen = _hormann(source, jnp.where(small, 1e5, lam), shape, dtype, limit)
    drawn = jnp.where(small, counted, chosen)
    return jnp.where(lam == 0, jnp.zeros_like(drawn), drawn)


def _counted(source: Source, lam: Any, shape: Any, dtype: Any, limit: Any) -> Any:
    """Knuth: how many uniform numbers multiply to more than e^-lam."""

    def step(state: Any, source: Source) -> Any:
        k, log_product = state
        source, now = source.split()
        k = jnp.where(log_product > -lam, k + 1, k)
        return (k, log_product + jnp.log(unit(now, shape, FLOAT32))), source

    start = jnp.zeros(shape, dtype), jnp.zeros(shape, FLOAT32)
    k, _ = _until_all(source, limit, lambda state: state[1] > -lam, step, start)
    return k - 1


def _hormann(source: Source, lam: Any, shape: Any, dtype: Any, limit: Any) -> Any:
    """Transformed rejection, Hormann (1993)."""
    log_lam = jnp.log(lam)
    b = 0.931 + 2.53 * jnp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def step(state: Any, source: Source) -> Any:
        out, accepted = state
        source, first, second = source.split(3)
        u = unit(first, shape, FLOAT32) - 0.5
        v = unit(second, shape, FLOAT32)
        near = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / near + b) * u + lam + 0.43)
        s = jnp.log(v * inverse_alpha / (a / (near * near) + b))
        t = -lam + k * log_lam - lax.lgamma(k + 1)
        reject = (k < 0) | ((near < 0.013) & (v > near))
        accept = ((near >= 0.07) & (v <= v_r)) | (~reject & (s <= t))
        return (jnp.where(accept, k, out), accepted | accept), source

    start = jnp.full(shape, -1, FLOAT32), jnp.zeros(shape, bool)
    out, _ = _until_all(source, limit, lambda state: ~state[1], step, start)
    return cast(out, dtype)


# --- binomial -------------------------------------------------------------------------------------


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Draw the number of successes of n trials that succeed with probability p.

    Arguments:
      key: a key.
      n, p: numbers or arrays that broadcast to `shape`.
      shape: of the result; None: that of n and p.
      dtype: a float dtype.

    Source: `jax.random.binomial`.

    Example:
      >>> import functrans as ft
      >>> print(ft.random.binomial(ft.random.key(0), 5, 1.0, (2,)))
      [5. 5.]
    """
    dtype = dtype_of("binomial", dtype)
    return _binomial(key, n, p, shape=shape_with("binomial", shape, n, p), dtype=dtype)


@sampler("binomial")
def _binomial(source: Source, n: Any, p: Any, *, shape: Any, dtype: Any) -> Any:
    return binomial_of(source, n, p, shape, dtype)


def binomial_of(source: Source, count: Any, p: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """By p or 1 - p, whichever is smaller; few expected successes by counting the trials between
    them, many by rejection."""
    (p,) = promote_inexact([p], "binomial")
    count = expand(cast(count, typeof(p).dtype), shape)
    p = expand(p, shape)
    low = p < 0.5
    q = jnp.where(low, p, 1.0 - p)
    bad_count = jnp.isnan(count) | (count < 0.0)
    bad_q = jnp.isnan(q)
    invalid = (q < 0.0) | bad_q | bad_count
    q = jnp.where(bad_q | (q < 0.0), 0.01, q)
    few = bad_count | (count * q <= 10.0)
    infinite = jnp.isinf(count)
    count = jnp.floor(count)

    limit = dtype.type(jnp.finfo(dtype).max)
    counted = _by_gaps(source, jnp.where(few, count, 0.0), q, shape, limit)
    chosen = _rejected(
        source, jnp.where(few, 1e4, count), jnp.where(few, 0.5, q), shape, limit
    )  # fmt: skip
    drawn = cast(jnp.where(few, counted, chosen), dtype)
    drawn = jnp.where(invalid, np.nan, drawn)
    drawn = jnp.where(infinite & ~invalid, np.inf, drawn)
    return jnp.where(low | bad_count | bad_q | infinite, drawn, cast(count, dtype) - drawn)


def _by_gaps(source: Source, count: Any, p: Any, shape: Any, limit: Any) -> Any:
    """How many geometric gaps fit into `count` trials."""
    log_miss = jnp.log1p(-p)

    def step(state: Any, source: Source) -> Any:
        number, total = state
        now, source = source.split()
        number = jnp.where(total <= count, number + 1, number)
        gap = jnp.ceil(jnp.log(unit(now, shape, typeof(p).dtype)) / log_miss)
        return (number, total + gap), source

    start = jnp.zeros(shape, typeof(p).dtype), jnp.zeros(shape, typeof(p).dtype)
    number, _ = _until_all(source, limit, lambda state: state[1] <= count, step, start)
    return number - 1


def _rejected(source: Source, count: Any, p: Any, shape: Any, limit: Any) -> Any:
    """BTRS: transformed rejection with a squeeze, Hormann (1993)."""
    stddev = jnp.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * stddev
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * stddev
    m = jnp.floor((count + 1) * p)

    def bound(k: Any) -> Any:
        """The logarithm of the probability of k over that of the mode m."""
        return (
            (m + 0.5) * jnp.log((m + 1) / (r * (count - m + 1)))
            + (count + 1) * jnp.log((count - m + 1) / (count - k + 1))
            + (k + 0.5) * jnp.log(r * (count - k + 1) / (k + 1))
            + _stirling_tail(m)
            + _stirling_tail(count - m)
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )

    def step(state: Any, source: Source) -> Any:
        out, accepted = state
        source, first, second = source.split(3)
        u = unit(first, shape, typeof(p).dtype)
        v = unit(second, shape, typeof(p).dtype)
        u = u - 0.5
        near = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / near + b) * u + c)
        reject = (k < 0) | (k > count)
        w = jnp.log(v * alpha / (a / (near * near) + b))
        accept = ((near >= 0.07) & (v <= v_r)) | (~reject & (w <= bound(k)))
        return (jnp.where(accept, k, out), accepted | accept), source

    start = jnp.full(shape, -1, typeof(p).dtype), jnp.zeros(shape, bool)
    return _until_all(source, limit, lambda state: ~state[1], step, start)[0]


# log k! less Stirling's formula for it, k = 0..9
_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_tail(k: Any) -> Any:
    """The same for any k: tabulated up to 9; beyond, three terms of the series, taken at 9 as
    `jax.random` takes them."""
    small = k <= 9
    k = jnp.clip(k, 0.0, 9.0)
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    tabulated = lax.select_n(
        cast(jnp.floor(k), np.dtype(np.int32)), *[lax.full_like(k, tail) for tail in _TAILS]
    )
    return jnp.where(small, tabulated, series)


# --- multinomial ----------------------------------------------------------------------------------


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1
) -> Any:
    """Draw how often each of k outcomes happens in n trials.

    Arguments:
      key: a key.
      n: how many trials; broadcasts to the shape of p without its last axis.
      p: probabilities [..., k].
      shape: of the result; None: that of p.
      dtype: of the result; None: that of the promoted n and p.
      unroll: as of `lax.scan`, over the outcomes.

    Source: `jax.random.multinomial`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> ft.eval_shape(ft.random.multinomial, ft.random.key(0), 9, jnp.ones(3) / 3).shape
      (3,)
    """
    n, p = promote_inexact([n, p], "multinomial")
    if shape is None:
        shape = typeof(p).shape
    shape = shape_of("multinomial", shape)
    fitting("multinomial", shape, [typeof(p).shape])
    fitting("multinomial", shape[:-1], [typeof(n).shape])
    dtype = dtype_of("multinomial", dtype, float, ("float", "int", "uint"))
    return _multinomial(key, n, p, shape=shape, dtype=dtype, unroll=unroll)


@sampler("multinomial")
def _multinomial(
    source: Source, n: Any, p: Any, *, shape: Any, dtype: Any, unroll: int | bool
) -> Any:
    """Each outcome in turn: a binomial number of the trials that are left."""
    n, p = expand(n, shape[:-1]), jnp.moveaxis(expand(p, shape), -1, 0)
    left = lax.cumsum(p, 0, reverse=True)
    ratios = p / jnp.where(left == 0, 1, left)

    def draw(remainder: Any, row: Any) -> Any:
        ratio, data = row
        own, kind = source._replace(data=data), typeof(remainder).dtype
        count = binomial_of(own, remainder, jnp.clip(ratio, 0, 1), shape[:-1], kind)
        return remainder - count, count

    keys = source.split_data((typeof(ratios).shape[0],))
    _, counts = lax.scan(draw, n, (ratios, keys), unroll=unroll)
    return cast(jnp.moveaxis(counts, 0, -1), dtype)
