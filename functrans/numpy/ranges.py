"""Numbers at equal distances or ratios."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class, promote
from functrans.lax.arguments import placeable
from functrans.numpy import prims
from functrans.numpy.arithmetic import power
from functrans.numpy.floating import log10
from functrans.numpy.promotion import (
    align_inexact,
    broadcast_shape,
    captured,
    cast,
    expand,
    inexact_dtype,
    invalid,
    promote_inexact,
    user_dtype,
)
from functrans.numpy.selecting import astype
from functrans.numpy.shaping import moveaxis
from functrans.trace import concrete_value, literal, materialize, typeof
from functrans.trace import full as filled
from functrans.typing import Array, ArrayLike, Device, DTypeLike, PyTree

__all__ = [
    "arange", "geomspace", "linspace", "logspace",
]  # fmt: skip


def known(x: Any, name: str) -> Any:
    """A number that is known while tracing."""
    value = concrete_value(x)
    if value is None:
        raise errors.AbstractValueError(
            f"{name}: the size of the result needs the value of {x!r}, which is unknown inside jit "
            f"and vmap, at\n    {describe(user_source())}\n"
            "Pass Python numbers, mark the argument static (static_argnums), or use jnp.linspace "
            "or lax.iota with a fixed size."
        )
    return value


@placeable
def arange(
    start: ArrayLike, stop: ArrayLike | None = None, step: ArrayLike | None = None,
    dtype: DTypeLike | None = None, *, device: Device = None, out_sharding: None = None,
) -> Array:  # fmt: skip
    """start, start + step, ... below stop.

    Raises:
      AbstractValueError: a bound is traced, so that the size is unknown.

    Source: `jax.numpy.arange`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.arange(2, 8, 3))
      [2 5]
    """
    given = [known(x, "arange") for x in (start, stop, step) if x is not None]
    if dtype is None:
        to = promote(tuple([typeof(x).update(shape=()) for x in given]))[0]
    else:
        to = user_dtype(dtype)
    kinds = {dtype_class(typeof(x).dtype) for x in given}
    if "complex" in kinds:
        raise invalid("arange", f"takes real numbers, got {given}", "Use jnp.linspace.")
    whole = kinds <= {"int", "uint"}
    if stop is None:
        start, stop = 0, start
    numbers: list[Any] = [x if x is None else _number(x) for x in (start, stop, step)]
    first, end, by = numbers
    by = 1 if by is None else by
    if by == 0:
        raise invalid(
            "arange",
            "step must not be zero",
            "Use jnp.full for equal numbers.",
            errors.DivisionByZero,
        )
    if by == 1 and first == 0 and dtype_class(to) != "bool":
        return prims.iota(dtype=to, shape=(max(0, math.ceil(end)),), dimension=0)
    if whole and dtype_class(to) in ("int", "uint"):
        return _integers(int(first), int(end), int(by), to)
    return captured(np.arange(first, end, by, dtype=to))


def _number(x: Any) -> Any:
    """A known number as one that NumPy counts with: not its extended floats (bfloat16, ...)."""
    value = concrete_value(x)
    extended = getattr(value, "dtype", np.dtype(float)).kind == "V"
    return value.item() if extended else value


def _integers(start: int, stop: int, step: int, dtype: Any) -> Any:
    n = max(0, -(-(stop - start) // step))
    x = prims.iota(dtype=dtype, shape=(n,), dimension=0)
    if step != 1:
        x = prims.mul(x, literal(step, typeof(x)))
    return prims.add(x, literal(start, typeof(x))) if start else x


@placeable
def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: DTypeLike | None = None, axis: int = 0, *, device: Device = None,
) -> PyTree:  # fmt: skip
    """`num` numbers at equal distances from start to stop, which may be traced arrays.

    Arguments:
      start, stop: numbers or arrays, which broadcast.
      num: how many.
      endpoint: is stop the last one?
      retstep: also return the distance.
      axis: where the new axis goes.

    Source: `jax.numpy.linspace`.
    """
    num = operator.index(num)
    if num < 0:
        raise invalid("linspace", f"Number of samples, {num}, must be non-negative.")
    start, stop = promote_inexact((start, stop), "linspace")
    to = typeof(start).dtype if dtype is None else user_dtype(dtype)
    wide = inexact_dtype(to)  # in which it is computed
    types = typeof(start), typeof(stop)
    shape = broadcast_shape([t.shape for t in types], "linspace", types, errors.InvalidArgument)
    start, stop = (expand(cast(x, wide), shape) for x in (start, stop))
    parts = num - 1 if endpoint else num
    out, distance = _interpolated(start, stop, num, parts, endpoint)
    if axis != 0:
        out = moveaxis(out, 0, axis)
    if dtype_class(to) in ("int", "uint"):
        out = prims.floor(out)
    out = materialize(cast(out, to))
    return (out, materialize(distance)) if retstep else out


def _interpolated(start: Any, stop: Any, num: int, parts: int, endpoint: bool) -> tuple[Any, Any]:
    """start (1 - i/parts) + stop i/parts for i = 0, 1, ..., and the distance of neighbours."""
    t = typeof(start)
    wide = t.update(shape=(num, *t.shape))
    if num > 1:
        distance = prims.div(prims.sub(stop, start), literal(parts, t))
    else:
        distance = literal(math.nan, t) if endpoint or num == 0 else prims.sub(stop, start)
    one = t.update(shape=(1, *t.shape))
    if num == 1:
        return expand(expand(start, one.shape), wide.shape), distance
    if num == 0:
        return filled(0, wide), distance
    inner = t.update(shape=(parts, *t.shape))
    i = prims.iota(dtype=t.dtype, shape=inner.shape, dimension=0)
    fraction = prims.div(i, literal(parts, inner))
    out = prims.add(
        prims.mul(expand(start, inner.shape), prims.sub(literal(1, inner), fraction)),
        prims.mul(expand(stop, inner.shape), fraction),
    )
    if endpoint:
        out = prims.concatenate(out, expand(stop, one.shape), dimension=0)
    return out, distance


def logspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None, axis: int = 0,
) -> Array:  # fmt: skip
    """base to the powers `linspace(start, stop)`, at the dtype of these unless another is given.

    Source: `jax.numpy.logspace`.
    """
    wide = None if dtype is None else inexact_dtype(user_dtype(dtype))
    powers = linspace(start, stop, num, endpoint, dtype=wide, axis=axis)
    return astype(power(base, powers), typeof(powers).dtype if dtype is None else dtype)


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """`num` numbers from start to stop, each the one before times a constant.

    Source: `jax.numpy.geomspace`.
    """
    start, stop = align_inexact((start, stop), "geomspace")
    sign = _common_sign(start, stop)
    start, stop = prims.div(start, sign), prims.div(stop, sign)
    powers = linspace(log10(start), log10(stop), num, endpoint, axis=axis)
    out = power(10.0, powers)
    n = typeof(out).shape[axis]
    ends = moveaxis(out, axis, 0)
    if n:
        first = expand(start, (1, *typeof(ends).shape[1:]))
        parts = [first, _rows(ends, 1, n)]
        if endpoint and n > 1:
            parts = [first, _rows(ends, 1, n - 1), expand(stop, typeof(first).shape)]
        ends = prims.concatenate(*parts, dimension=0)
    out = prims.mul(ends, expand(sign, typeof(ends).shape))
    out = moveaxis(out, 0, axis)
    return cast(out, typeof(out).dtype if dtype is None else user_dtype(dtype))


def _common_sign(start: Any, stop: Any) -> Any:
    """1 where both numbers are positive, -1 where both are negative, else NaN; of complex ones the
    direction of the first."""
    t = typeof(start)
    if dtype_class(t.dtype) == "complex":
        return prims.sign(start)
    zero = literal(0, t)
    negative = prims.and_(prims.lt(start, zero), prims.lt(stop, zero))
    positive = prims.and_(prims.gt(start, zero), prims.gt(stop, zero))
    sign = prims.select_n(negative, literal(math.nan, t), literal(-1, t))
    return prims.select_n(positive, sign, literal(1, t))


def _rows(x: Any, start: int, stop: int) -> Any:
    shape = typeof(x).shape
    rest = shape[1:]
    return prims.slice_(
        x, start=(start, *[0] * len(rest)), limit=(stop, *rest), strides=(1,) * len(shape)
    )
