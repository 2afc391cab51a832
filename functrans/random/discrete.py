"""Choices: from categories, from the elements of an array, and orders of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import lax
from functrans import numpy as jnp
from functrans.ir.types import canonical_dtype, dtype_class
from functrans.lax.arguments import placeable
from functrans.numpy.promotion import (
    array_of,
    axis_index,
    cast,
    expand,
    invalid,
    mismatch,
    to_inexact,
    value_of,
)
from functrans.primitives.arithmetic import floor
from functrans.primitives.elementwise import add, div, eq, neg
from functrans.primitives.transcendental import log, log1p
from functrans.random.arguments import dtype_of, fitting, shape_of, shape_with
from functrans.random.continuous import gumbel, gumbel_mode, gumbel_of
from functrans.random.staged import Source, sampler
from functrans.random.uniform import randint, uniform, unit
from functrans.trace import literal, typeof

__all__ = ["categorical", "choice", "geometric", "permutation"]


@placeable
def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw indices of categories, i with probability softmax(logits)[i].

    Arguments:
      key: a key.
      logits: unnormalised log probabilities, the categories along `axis`.
      shape: of the result: that of logits without `axis`, with further axes in front of it.
      replace: False: the samples along the further axes are all different.
      mode: as in `gumbel`.

    Returns:
      Integers.

    Source: `jax.random.categorical`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.random.categorical(ft.random.key(0), jnp.array([0.0, -jnp.inf])))
      0
    """
    logits = value_of(logits, "categorical")
    t = typeof(logits)
    if dtype_class(t.dtype) != "float":
        raise invalid("categorical", f"logits must be floats, got {t}", "Cast them first.")
    axis = axis_index(axis, t.ndim, "categorical")
    batch = (*t.shape[:axis], *t.shape[axis + 1 :])
    shape = (
        batch if shape is None else fitting("categorical", shape_of("categorical", shape), [batch])
    )
    count = math.prod(shape[: len(shape) - len(batch)])
    if not replace and count > t.shape[axis]:
        raise invalid(
            "categorical",
            f"{count} samples without replacement, but there are {t.shape[axis]} categories",
        )
    sample = _categorical if replace else _categorical_without_replacement
    return sample(key, logits, axis=axis, shape=shape, mode=gumbel_mode(mode))


@sampler("categorical")
def _categorical(source: Source, logits: Any, *, axis: int, shape: Any, mode: str) -> Any:
    """The largest of logits + Gumbel noise."""
    t = typeof(logits)
    n = len(shape) - (t.ndim - 1)
    full = (*shape[: n + axis], t.shape[axis], *shape[n + axis :])
    noise = gumbel_of(source, full, t.dtype, mode)
    return lax.argmax(add(noise, expand(logits, full)), n + axis, canonical_dtype(np.int64))


@sampler("categorical")
def _categorical_without_replacement(
    source: Source, logits: Any, *, axis: int, shape: Any, mode: str
) -> Any:
    """The k largest of logits + Gumbel noise."""
    t = typeof(logits)
    noisy = add(logits, gumbel_of(source, t.shape, t.dtype, mode))
    n = len(shape) - (t.ndim - 1)
    order = (*[i for i in range(t.ndim) if i != axis], axis)
    _, indices = lax.top_k(lax.transpose(noisy, order), math.prod(shape[:n]))
    to_front = (t.ndim - 1, *range(t.ndim - 1))
    return lax.reshape(lax.transpose(indices, to_front), shape)


@placeable
def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Any:
    """Shuffle an array along an axis, or the integers below x.

    Arguments:
      key: a key.
      x: an array, or an integer n that stands for arange(n).
      axis: the axis along which elements change places.
      independent: True: each line along the axis is shuffled by itself.

    Source: `jax.random.permutation`.

    Example:
      >>> import functrans as ft
      >>> sorted(ft.random.permutation(ft.random.key(0), 4).tolist())
      [0, 1, 2, 3]
    """
    t = typeof(x)
    axis = axis_index(axis, t.ndim or 1, "permutation")
    if not t.ndim:
        if dtype_class(t.dtype) not in ("int", "uint"):
            raise mismatch("permutation", f"takes an array or an integer, but was given {t}")
        return _shuffled_range(key, n=max(0, int(x)))
    x = array_of(x, "permutation")
    keys = dtype_class(t.dtype) == "key"  # which cannot be sorted along
    if t.ndim > 1 and independent and keys:
        raise mismatch("permutation", f"independent=True shuffles numbers, not keys, {t}")
    if not keys and (independent or t.ndim == 1):
        return _shuffle(key, x, axis=axis)
    return jnp.take(x, _shuffled_range(key, n=t.shape[axis]), axis)


@sampler("shuffle")
def _shuffle(source: Source, x: Any, *, axis: int) -> Any:
    return _sorted_by_noise(source, x, axis)


@sampler("shuffle")
def _shuffled_range(source: Source, *, n: int) -> Any:
    return _sorted_by_noise(source, lax.iota(canonical_dtype(np.int64), n), 0)


def _sorted_by_noise(source: Source, x: Any, axis: int) -> Any:
    """x sorted by random 32-bit words along an axis; again and again, until words that are equal in
    every round are unlikely: 3 log(size) / log(2^32) rounds."""
    t = typeof(x)
    rounds = math.ceil(3 * np.log(max(1, t.size)) / np.log(2**32 - 1))
    for _ in range(rounds):
        source, now = source.split()
        _, x = lax.sort_key_val(now.bits(t.shape, 32), x, axis)
    return x


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: Any = None,
) -> Any:
    """Draw elements of an array, or integers below a.

    Arguments:
      key: a key.
      a: an array, or an integer n that stands for arange(n).
      shape: how many; it stands in the result at the place of `axis`.
      replace: may an element be drawn more than once?
      p: a vector of probabilities; None: all are equal.
      axis: the axis of `a` along which elements are drawn.
      mode: as in `gumbel`, for draws without replacement.

    Source: `jax.random.choice`.

    Example:
      >>> import functrans as ft
      >>> ft.random.choice(ft.random.key(0), 10, (2, 3)).shape
      (2, 3)
    """
    if not isinstance(shape, Sequence):
        raise mismatch("choice", f"shape must be a sequence of integers, got {shape!r:.60}")
    shape = shape_of("choice", shape)
    t = typeof(a)
    a = array_of(a, "choice") if t.ndim else int(a)
    axis = axis_index(axis, t.ndim, "choice") if t.ndim else 0
    n, draws = t.shape[axis] if t.ndim else a, math.prod(shape)
    if draws == 0:
        return jnp.zeros(shape, t.dtype)
    if n <= 0:
        raise invalid("choice", f"nothing to draw {draws} samples from: a has {n} elements")
    if not replace and draws > n:
        raise invalid(
            "choice", f"{draws} samples without replacement, but there are {n} elements",
            "Draw fewer, or give replace=True.",
        )  # fmt: skip
    if p is None and not replace:
        order = permutation(key, a, axis)
        return _shaped(lax.slice_in_dim(order, 0, draws, axis=axis), t, axis, shape)
    where = randint(key, shape, 0, n) if p is None else _by_weight(key, n, p, shape, replace, mode)
    taken = jnp.take(a, where, axis) if t.ndim else where
    return _shaped(taken, t, axis, shape)


def _shaped(x: Any, t: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """The drawn elements, with `shape` at the place of the axis."""
    return lax.reshape(x, (*t.shape[:axis], *shape, *t.shape[axis + 1 :]) if t.ndim else shape)


def _by_weight(key: Any, n: int, p: Any, shape: Any, replace: bool, mode: Any) -> Any:
    p = to_inexact(value_of(p, "choice"))
    t = typeof(p)
    if t.shape != (n,):
        raise invalid(
            "choice", f"p must be a vector of {n} probabilities, one for each element, got {t}"
        )
    index = canonical_dtype(np.int64)
    if replace:
        cumulative = jnp.cumsum(p)
        r = jnp.subtract(1, uniform(key, shape, t.dtype))
        return cast(jnp.searchsorted(cumulative, jnp.multiply(cumulative[-1], r)), index)
    noisy = add(gumbel(key, (n,), t.dtype, mode), jnp.log(p))
    return cast(lax.top_k(noisy, math.prod(shape))[1], index)


@placeable
def geometric(
    key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw the number of the first success of trials that succeed with probability p.

    Source: `jax.random.geometric`.

    Example:
      >>> import functrans as ft
      >>> print(ft.random.geometric(ft.random.key(0), 1.0))
      1
    """
    dtype = dtype_of("geometric", dtype, int, ("int", "uint"))
    return _geometric(key, p, shape=shape_with("geometric", shape, p), dtype=dtype)


@sampler("geometric")
def _geometric(source: Source, p: Any, *, shape: Any, dtype: Any) -> Any:
    p = to_inexact(p)
    if dtype_class(typeof(p).dtype) != "float":
        raise invalid("geometric", f"p must be real, got {typeof(p)}")
    u = unit(source, shape, typeof(p).dtype)
    one = literal(1.0, typeof(u))
    u = lax.select(eq(u, literal(0.0, typeof(u))), one, u)
    trials = floor(div(log(u), expand(log1p(neg(p)), shape)))
    return cast(add(trials, one), dtype)
