"""Reductions of what is not NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.ir.types import is_inexact
from functrans.numpy import prims
from functrans.numpy.promotion import (
    align,
    value_of,
)
from functrans.numpy.reductions import all, argmax, argmin, included, max, mean, min, prod, sum, var
from functrans.numpy.running import cumprod, cumsum
from functrans.numpy.shaping import reshape
from functrans.primitives.reduction import highest, lowest
from functrans.trace import literal, typeof

__all__ = [
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod",
    "nanstd", "nansum", "nanvar",
]  # fmt: skip


def _without_nan(name: str, a: Any, replacement: Any) -> tuple[Any, Any]:
    """a with NaN replaced, and where it was NaN."""
    a = value_of(a, name)
    missing = prims.ne(a, a)
    return prims.select_n(missing, a, literal(replacement, typeof(a))), missing


def _isnan_free(a: Any) -> bool:
    return not is_inexact(typeof(value_of(a, "")).dtype)


def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    """`sum`, with NaN as 0.

    Source: `jax.numpy.nansum`.
    """
    x, _ = _without_nan("nansum", a, 0)
    return sum(x, axis, dtype, None, keepdims, initial, where)


def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    """`prod`, with NaN as 1.

    Source: `jax.numpy.nanprod`.
    """
    x, _ = _without_nan("nanprod", a, 1)
    return prod(x, axis, dtype, None, keepdims, initial, where)


def _nan_extreme(
    reduce: Any, end: Any, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any
) -> Any:
    if _isnan_free(a):
        return reduce(a, axis, None, keepdims, initial, where)
    x, missing = _without_nan("nanmax", a, end(typeof(a).dtype))
    y = reduce(x, axis, None, keepdims, initial, where)
    if initial is not None:
        return y
    none_left = all(missing, axis, None, keepdims, where=where)
    return prims.select_n(none_left, y, literal(np.nan, typeof(y)))


def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """`max` of what is not NaN; NaN where nothing is left.

    Source: `jax.numpy.nanmax`.
    """
    return _nan_extreme(max, lowest, a, axis, keepdims, initial, where)


def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """`min` of what is not NaN; NaN where nothing is left.

    Source: `jax.numpy.nanmin`.
    """
    return _nan_extreme(min, highest, a, axis, keepdims, initial, where)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    where: Any = None,
) -> Any:  # fmt: skip
    """`mean` of what is not NaN.

    Source: `jax.numpy.nanmean`.
    """
    if _isnan_free(a):
        return mean(a, axis, dtype, None, keepdims, where=where)
    x, missing = _without_nan("nanmean", a, 0)
    total = sum(x, axis, dtype, None, keepdims, where=where)
    n = sum(prims.not_(missing), axis, typeof(total).dtype, None, keepdims, where=where)
    return prims.div(total, n)


def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0,
    keepdims: bool = False, where: Any = None, mean: Any = None,
) -> Any:  # fmt: skip
    """`var` of what is not NaN.

    Source: `jax.numpy.nanvar`.
    """
    if _isnan_free(a):
        return var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean)
    a = value_of(a, "nanvar")
    valid = prims.eq(a, a)
    if where is not None:
        valid = prims.and_(valid, included(where, typeof(a), "nanvar"))
    x = prims.select_n(valid, literal(0, typeof(a)), a)
    n = sum(valid, axis)
    too_few = prims.le(*align(n, ddof, "nanvar"))
    # NaN is chosen, not computed: the gradient of what is left out is 0
    all_but_one = prims.sub(n, literal(1, typeof(n)))
    ddof = prims.select_n(too_few, *align(ddof, all_but_one, "nanvar"))
    y = var(x, axis, dtype, None, ddof, keepdims, where=valid, mean=mean)
    too_few = reshape(too_few, typeof(y).shape)
    return prims.select_n(too_few, y, literal(np.nan, typeof(y)))


def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0,
    keepdims: bool = False, where: Any = None, mean: Any = None,
) -> Any:  # fmt: skip
    """`std` of what is not NaN.

    Source: `jax.numpy.nanstd`.
    """
    return prims.sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, where, mean))


def _nan_where(find: Any, end: Any, a: Any, axis: Any, keepdims: Any) -> Any:
    if _isnan_free(a):
        return find(a, axis, None, keepdims)
    x, missing = _without_nan("nanargmax", a, end(typeof(a).dtype))
    found = find(x, axis, None, keepdims)
    none_left = all(missing, axis, None, bool(keepdims))
    return prims.select_n(none_left, found, literal(-1, typeof(found)))


def nanargmax(a: Any, axis: Any = None, out: None = None, keepdims: Any = None) -> Any:
    """`argmax` of what is not NaN; -1 where nothing is left.

    Source: `jax.numpy.nanargmax`.
    """
    return _nan_where(argmax, lowest, a, axis, keepdims)


def nanargmin(a: Any, axis: Any = None, out: None = None, keepdims: Any = None) -> Any:
    """`argmin` of what is not NaN; -1 where nothing is left.

    Source: `jax.numpy.nanargmin`.
    """
    return _nan_where(argmin, highest, a, axis, keepdims)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """`cumsum`, with NaN as 0.

    Source: `jax.numpy.nancumsum`.
    """
    return cumsum(_without_nan("nancumsum", a, 0)[0], axis, dtype)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """`cumprod`, with NaN as 1.

    Source: `jax.numpy.nancumprod`.
    """
    return cumprod(_without_nan("nancumprod", a, 1)[0], axis, dtype)
