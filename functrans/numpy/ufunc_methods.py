"""Which functions of this package have the methods of `ufunc`: those that JAX gives them to.

Importing this module gives them: `jnp.add.reduce`, `jnp.maximum.at`, ...
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.ir.types import dtype_class
from functrans.lax.reduction import cumlogsumexp, cummax, cummin
from functrans.numpy import floating, reductions, running, ufuncs
from functrans.numpy.indexing import At
from functrans.numpy.promotion import (
    array_of,
    axis_index,
    cast,
    promote_dtypes,
    to_inexact,
    user_dtype,
)
from functrans.numpy.selecting import astype
from functrans.numpy.ufunc_objects import NATIVE, check_one_axis, ufunc
from functrans.trace import typeof

Function = Callable[..., Any]


def _attach(function: Function, nin: int, identity: Any = None, **own: Any) -> None:
    methods = ufunc(function, nin, 1, call=function, identity=identity, **own)
    for name in ("nin", "nout", "nargs", "identity", "reduce", "accumulate", "at", "outer",
                 "reduceat"):  # fmt: skip
        setattr(function, name, getattr(methods, name))
    NATIVE.add(function)


def _cast_first(reduce: Function) -> Function:
    """A reduction that has no argument dtype, with one."""

    def of(a: Any, *, dtype: Any, **how: Any) -> Any:
        return reduce(a if dtype is None else astype(a, user_dtype(dtype)), **how)

    return of


def _truth(reduce: Function) -> Function:
    def of(a: Any, *, dtype: Any, initial: Any, **how: Any) -> Any:
        found = reduce(a, **how)
        return found if initial is None else _JOIN[reduce](found, initial)

    return of


_JOIN = {reductions.all: ufuncs.logical_and, reductions.any: ufuncs.logical_or}


def _running(cumulate: Function, name: str) -> Function:
    """A running reduction of the lax library as `accumulate`."""

    def of(a: Any, *, axis: Any, dtype: Any) -> Any:
        check_one_axis(f"{name}.accumulate", axis)
        a = array_of(a, f"{name}.accumulate")
        a = a if dtype is None else astype(a, user_dtype(dtype))
        a = to_inexact(a) if cumulate is cumlogsumexp else a
        kind = typeof(a).dtype
        number = astype(a, np.uint8) if dtype_class(kind) == "bool" else a
        out = cumulate(number, axis_index(axis, typeof(a).ndim, f"{name}.accumulate"))
        return cast(out, kind)

    return of


def _at(method: str) -> Function:
    return lambda a, indices, b: getattr(At(a)[indices], method)(b)


def _extreme_at(method: str) -> Function:
    """The same, of the common dtype of both operands."""

    def of(a: Any, indices: Any, b: Any) -> Any:
        a, b = promote_dtypes((a, b), f"{method}.at")
        return getattr(At(cast(a, typeof(a).dtype))[indices], method)(b)

    return of


_attach(ufuncs.add, 2, 0, reduce=reductions.sum, accumulate=running.cumsum, at=_at("add"))
_attach(
    ufuncs.multiply, 2, 1, reduce=reductions.prod, accumulate=running.cumprod, at=_at("multiply")
)
_attach(ufuncs.subtract, 2, at=_at("subtract"))
_attach(
    ufuncs.maximum, 2, reduce=_cast_first(reductions.max),
    accumulate=_running(cummax, "maximum"), at=_extreme_at("max"),
)  # fmt: skip
_attach(
    ufuncs.minimum, 2, reduce=_cast_first(reductions.min),
    accumulate=_running(cummin, "minimum"), at=_extreme_at("min"),
)  # fmt: skip
_attach(ufuncs.bitwise_and, 2, -1)
_attach(ufuncs.bitwise_or, 2, 0)
_attach(ufuncs.bitwise_xor, 2, 0)
_attach(ufuncs.logical_and, 2, True, reduce=_truth(reductions.all))
_attach(ufuncs.logical_or, 2, False, reduce=_truth(reductions.any))
_attach(ufuncs.logical_xor, 2, False)
_attach(floating.logaddexp, 2, -math.inf, accumulate=_running(cumlogsumexp, "logaddexp"))
_attach(floating.logaddexp2, 2, -math.inf)
_attach(ufuncs.negative, 1)
