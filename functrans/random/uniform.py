"""Bits, and the distributions that are a few operations on them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans import lax
from functrans.ir.types import dtype_class
from functrans.lax.arguments import placeable
from functrans.numpy.promotion import cast, expand, invalid, mismatch, value_of
from functrans.primitives.arithmetic import max_, rem
from functrans.primitives.bitwise import and_, or_, shift_right_logical
from functrans.primitives.elementwise import add, gt, le, lt, mul, sub
from functrans.random.arguments import dtype_of, fitting, shape_of, shape_with
from functrans.random.staged import Source, sampler
from functrans.trace import literal, typeof

__all__ = ["bernoulli", "bits", "rademacher", "randint", "uniform"]


@placeable
def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Draw unsigned integers, every bit a coin flip.

    Arguments:
      key: a key.
      shape: of the result.
      dtype: an unsigned integer dtype; uint32, or uint64 where 64-bit types are enabled.

    Source: `jax.random.bits`.

    Example:
      >>> import functrans as ft
      >>> ft.random.bits(ft.random.key(0), (2,), "uint8").dtype
      dtype('uint8')
    """
    dtype = dtype_of("bits", dtype, np.uint64, ("uint",))
    return _bits(key, shape=shape_of("bits", shape), width=8 * dtype.itemsize)


@placeable
def uniform(
    key: Any,
    shape: Any = (),
    dtype: Any = None,
    minval: Any = 0.0,
    maxval: Any = 1.0,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw floats that lie evenly in [minval, maxval).

    Arguments:
      key: a key.
      shape: of the result.
      dtype: a float dtype.
      minval, maxval: numbers or arrays that broadcast to `shape`; differentiable.

    Source: `jax.random.uniform`.

    Example:
      >>> import functrans as ft
      >>> ft.random.uniform(ft.random.key(0), (3,)).shape
      (3,)
    """
    dtype = dtype_of("uniform", dtype)
    shape = shape_of("uniform", shape)
    if minval.__class__ is float and maxval.__class__ is float and (minval, maxval) == (0.0, 1.0):
        return _unit(key, shape=shape, dtype=dtype)
    fitting("uniform", shape, [typeof(minval).shape, typeof(maxval).shape])
    return _uniform(key, minval, maxval, shape=shape, dtype=dtype)


@placeable
def randint(
    key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw integers from minval up to, but not including, maxval.

    Arguments:
      key: a key.
      shape: of the result.
      minval, maxval: integers or arrays of them that broadcast to `shape`.
      dtype: an integer dtype.

    Source: `jax.random.randint`.

    Example:
      >>> import functrans as ft
      >>> ft.random.randint(ft.random.key(0), (3,), 0, 10).dtype
      dtype('int32')
    """
    dtype = dtype_of("randint", dtype, int, ("int", "uint"))
    shape = shape_of("randint", shape)
    wide = np.dtype(np.int32) if dtype.itemsize < 4 else dtype
    low, high = [_bound(x, dtype, i) for i, x in enumerate((minval, maxval))]
    fitting("randint", shape, [typeof(low).shape, typeof(high).shape])
    return _randint(key, low, high, shape=shape, wide=wide, dtype=dtype)


def _bound(x: Any, dtype: Any, excluded: int) -> Any:
    """A bound as an integer; one of a narrow dtype clipped to its range."""
    x = value_of(x, "randint")
    kind = dtype_class(typeof(x).dtype)
    if dtype.itemsize < 4:
        info = np.iinfo(dtype)
        x = cast(x, np.dtype(np.int32))
        return lax.clamp(np.int32(info.min), x, np.int32(info.max + excluded))
    if kind not in ("int", "uint"):
        x = cast(x, dtype_of("randint", None, int))
    return x


@placeable
def bernoulli(
    key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None
) -> Any:
    """Draw booleans that are true with probability p.

    Arguments:
      key: a key.
      p: a probability, or an array of them that broadcasts to `shape`.
      shape: of the result; None: that of p.
      mode: "high" draws twice as many bits, for small p.

    Source: `jax.random.bernoulli`.

    Example:
      >>> import functrans as ft
      >>> print(ft.random.bernoulli(ft.random.key(0), 1.0, (2,)))
      [ True  True]
    """
    if mode not in ("high", "low"):
        raise invalid("bernoulli", f"mode must be 'high' or 'low', got {mode!r}")
    t = typeof(p)
    if dtype_class(t.dtype) != "float":
        raise mismatch("bernoulli", f"the probability p must be a float, got {t}")
    return _bernoulli(key, p, shape=shape_with("bernoulli", shape, p), mode=mode)


@placeable
def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Draw -1 or 1.

    Source: `jax.random.rademacher`.

    Example:
      >>> import functrans as ft
      >>> ft.random.rademacher(ft.random.key(0), (3,)).dtype
      dtype('int32')
    """
    dtype = dtype_of("rademacher", dtype, int, ("bool", "int", "uint", "float", "complex"))
    return _rademacher(key, shape=shape_of("rademacher", shape), dtype=dtype)


# --- the samplers ---------------------------------------------------------------------------------


@sampler("bits")
def _bits(source: Source, *, shape: Any, width: int) -> Any:
    return source.bits(shape, width)


@sampler("uniform")
def _uniform(source: Source, minval: Any, maxval: Any, *, shape: Any, dtype: Any) -> Any:
    u = unit(source, shape, dtype)
    low, high = [expand(cast(x, dtype), shape) for x in (minval, maxval)]
    return max_(low, add(mul(u, sub(high, low)), low))


@sampler("uniform")
def _unit(source: Source, *, shape: Any, dtype: Any) -> Any:
    return unit(source, shape, dtype)


@sampler("bernoulli")
def _bernoulli(source: Source, p: Any, *, shape: Any, mode: str) -> Any:
    dtype = typeof(p).dtype
    p = expand(p, shape)
    if mode == "low":
        return lt(unit(source, shape, dtype), p)
    high, low = halves(unit(source, (2, *shape), dtype))
    low = mul(low, literal(2.0 ** -jax.numpy.finfo(dtype).nmant, typeof(low)))
    return lt(low, sub(p, high))


@sampler("rademacher")
def _rademacher(source: Source, *, shape: Any, dtype: Any) -> Any:
    return rademacher_of(source, shape, dtype)


def rademacher_of(source: Source, shape: tuple[int, ...], dtype: Any) -> Any:
    """2 b - 1, b in {0, 1}."""
    heads = lt(unit(source, shape, dtype_of("rademacher", None)), 0.5)
    signed = np.dtype(np.int32) if dtype_class(dtype) == "bool" else dtype  # both signs are True
    return cast(sub(mul(cast(heads, signed), 2), 1), dtype)


@sampler("randint")
def _randint(source: Source, minval: Any, maxval: Any, *, shape: Any, wide: Any, dtype: Any) -> Any:
    """The remainder of twice as many bits as the result has: (high * 2^n + low) mod span. Computed
    in n bits by (a b) mod m = ((a mod m) (b mod m)) mod m."""
    width = 8 * wide.itemsize
    unsigned = np.dtype(f"uint{width}")
    info = np.iinfo(wide)
    all_above = gt(maxval, _clipped(info.max, typeof(maxval).dtype))
    low, high = [expand(cast(_clip(x, info), wide), shape) for x in (minval, maxval)]
    first, second = source.split()
    higher, lower = first.bits(shape, width), second.bits(shape, width)

    span = cast(sub(high, low), unsigned)
    one = literal(1, typeof(span))
    span = lax.select(le(high, low), one, span)
    # maxval beyond the range includes its last integer; a full range wraps to 0, and x % 0 is x
    more = and_(expand(all_above, shape), gt(high, low))
    span = lax.select(more, add(span, one), span)

    shift = rem(literal(2 ** (width // 2), typeof(span)), span)
    shift = rem(mul(shift, shift), span)
    offset = add(mul(rem(higher, span), shift), rem(lower, span))
    return cast(add(low, cast(rem(offset, span), wide)), dtype)


def _clipped(value: int, dtype: Any) -> int:
    """The nearest number that a dtype has."""
    info = np.iinfo(dtype)
    return min(max(value, int(info.min)), int(info.max))


def _clip(x: Any, info: Any) -> Any:
    """x at the nearest number that the dtype of `info` has too."""
    dtype = typeof(x).dtype
    low, high = _clipped(int(info.min), dtype), _clipped(int(info.max), dtype)
    mine = np.iinfo(dtype)
    if low == mine.min and high == mine.max:
        return x
    return lax.clamp(dtype.type(low), x, dtype.type(high))


# --- floats of bits -------------------------------------------------------------------------------


def unit(source: Source, shape: tuple[int, ...], dtype: Any) -> Any:
    """Floats in [0, 1): random bits as the mantissa of a number in [1, 2), less 1."""
    info = jax.numpy.finfo(dtype)
    width = 8 if info.nmant < 8 else info.bits  # a short mantissa needs one byte
    unsigned = np.dtype(f"uint{info.bits}")
    mantissa = cast(source.bits(shape, width), unsigned)
    mantissa = shift_right_logical(mantissa, width - info.nmant)
    one = int(np.array(1.0, dtype).view(unsigned))
    return sub(lax.bitcast_convert_type(or_(mantissa, one), dtype), 1.0)


def between(source: Source, shape: tuple[int, ...], dtype: Any, low: Any, high: Any) -> Any:
    """Floats in [low, high), which are Python or NumPy numbers."""
    low, high = np.asarray(low, dtype), np.asarray(high, dtype)
    u = unit(source, shape, dtype)
    if low == 0 and high == 1:
        return u
    t = typeof(u)
    return max_(literal(low, t), add(mul(u, literal(high - low, t)), literal(low, t)))


def halves(x: Any) -> tuple[Any, Any]:
    """x[0], x[1]."""
    return lax.index_in_dim(x, 0, 0, False), lax.index_in_dim(x, 1, 0, False)
