"""`jax.lax` names over primitives/contractions/dot_general.py."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.lax import DotAlgorithmPreset as DotAlgorithmPreset
from jax.lax import Precision as Precision
from jax.lax import PrecisionLike

from functrans import errors
from functrans.caching import cached
from functrans.ir.source import brief, here
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.contractions import dot_general as contraction
from functrans.trace import bind, typeof
from functrans.typing import Array, ArrayLike, Device, DTypeLike

_dot_general = contraction.dot_general
_CONFIG: Any = jax.config  # its attributes are created at run time


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Any,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: Device = None,
) -> Array:
    """Contract two arrays over pairs of axes, with optional batch axes.

    Arguments:
        lhs, rhs: arrays; different dtypes are cast to the wider one.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, axes.
        precision: None (`jax_default_matmul_precision`), a `Precision` or its name, a pair of them,
            or a `DotAlgorithmPreset` or its name.
        preferred_element_type: dtype of the result and, as a hint, of the accumulation.
        out_sharding: must be None here; shard the operands, or the arguments of `jit`.

    Returns:
        An array with the batch axes, then the free axes of lhs, then those of rhs.

    Raises:
        TypeMismatch: the axes do not exist, or differ in size.

    Source: jax.lax.dot_general

    Example:
        >>> import numpy as np
        >>> dot_general(np.ones((2, 3)), np.ones((3, 4)), (((1,), (0,)), ((), ()))).shape
        (2, 4)
    """
    if out_sharding is not None:
        raise errors.InvalidArgument(
            f"dot_general does not support out_sharding yet, got {out_sharding}, {here()}\n"
            "Use in_shardings and out_shardings of jit."
        )
    x, y = typeof(lhs), typeof(rhs)
    params = _parameters(x, y, _hashable(dimension_numbers))
    params = params | contraction_options(precision, preferred_element_type)
    if x.dtype != y.dtype:
        lhs, rhs = _cast_to_common(lhs, rhs, x, y, params.get("preferred"))
    return product_of(lhs, rhs, params)


def product_of(x: Any, y: Any, params: dict[str, Any]) -> Any:
    """Bind the contraction of two operands of one dtype. For complex operands and a real preferred
    dtype, return the real part."""
    t, to = typeof(x), params.get("preferred")
    if to is None or dtype_class(t.dtype) != "complex" or dtype_class(to) == "complex":
        return bind(_dot_general, (x, y), params)
    if np.dtype(to).itemsize < np.dtype(t.dtype).itemsize // 2:
        raise _dot_general.mismatch(
            (t, typeof(y)), f"preferred_element_type {to} must not be narrower than {t.dtype}"
        )
    made = bind(_dot_general, (x, y), {k: v for k, v in params.items() if k != "preferred"})
    weak = typeof(made).weak_type
    return PRIMITIVES["convert_element_type"](made, dtype=to, weak_type=weak)


# --- arguments ------------------------------------------------------------------------------------


def _hashable(dimension_numbers: Any) -> Any:
    try:
        hash(dimension_numbers)
        return dimension_numbers
    except TypeError:
        pass
    try:
        return tuple([tuple([_axes(axes) for axes in pair]) for pair in dimension_numbers])
    except TypeError:
        return str(dimension_numbers)  # malformed


def _axes(axes: Any) -> tuple[int, ...]:
    several = isinstance(axes, Sequence) or hasattr(axes, "__len__")
    return tuple(map(operator.index, axes)) if several else (operator.index(axes),)


@cached("axes of dot_general", 4096)
def _parameters(x: ArrayType, y: ArrayType, dimension_numbers: Any) -> dict[str, Any]:
    """Return the primitive's axis names for operands of these types."""
    n, m, example = x.ndim, y.ndim, "For two matrices: (((1,), (0,)), ((), ()))."
    try:
        (lhs_summed, rhs_summed), (lhs_batch, rhs_batch) = dimension_numbers
        summed, batch = (_axes(lhs_summed), _axes(rhs_summed)), (_axes(lhs_batch), _axes(rhs_batch))
    except (TypeError, ValueError):
        raise errors.InvalidArgument(
            f"dot_general: dimension_numbers {dimension_numbers!s:.60} are not of the form\n"
            f"((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)), {here()}\n{example}"
        ) from None
    for which, axes, ndim in (("first", (*summed[0], *batch[0]), n), ("second", (*summed[1], *batch[1]), m)):
        if any(not 0 <= a < ndim for a in axes) or len(set(axes)) != len(axes):
            problem = f"must name distinct axes of the {which} operand, in 0..{ndim - 1}, got {axes}"
            raise _dot_general.mismatch((x, y), f"dimension_numbers {dimension_numbers} {problem}", example)
    if len(summed[0]) != len(summed[1]) or len(batch[0]) != len(batch[1]):
        problem = "must name equally many contracting axes, and equally many batch axes, of both operands"
        raise _dot_general.mismatch((x, y), f"dimension_numbers {dimension_numbers} {problem}", example)
    pairs = dict(zip((*summed[1], *batch[1]), (*summed[0], *batch[0]), strict=True))
    fresh = iter(range(n, n + m))
    lhs = tuple(range(n))
    rhs = tuple([pairs[i] if i in pairs else next(fresh) for i in range(m)])
    kept_x = [i for i in lhs if i not in pairs.values()]
    kept_y = [rhs[i] for i in range(m) if i not in pairs]
    return {"lhs": lhs, "rhs": rhs, "out": (*batch[0], *kept_x, *kept_y)}


def contraction_options(precision: Any, preferred: Any) -> dict[str, Any]:
    """Return the parameters `precision` and `preferred`, if they are not the default."""
    if precision is None:
        precision = _CONFIG.jax_default_matmul_precision
    made: dict[str, Any] = {} if precision is None else {"precision": _canonical_precision(precision)}
    if preferred is not None:
        made["preferred"] = jax.numpy.dtype(canonical_dtype(preferred))
    return made


_PRECISIONS = {p.name: p.name for p in Precision}
_PRECISIONS |= dict.fromkeys(("default", "fastest", "bfloat16"), "DEFAULT")
_PRECISIONS |= dict.fromkeys(("high", "bfloat16_3x", "tensorfloat32"), "HIGH")
_PRECISIONS |= dict.fromkeys(("highest", "float32"), "HIGHEST")
_PRESETS = {p.name for p in DotAlgorithmPreset}


def _canonical_precision(precision: Any) -> tuple[str, str] | str:
    """Convert a user's `precision` to the primitive's parameter."""
    if isinstance(precision, DotAlgorithmPreset):
        return precision.name
    if isinstance(precision, str) and precision in _PRESETS and precision not in _PRECISIONS:
        return precision
    pair = tuple(precision) if isinstance(precision, (tuple, list)) else (precision, precision)
    names = [_PRECISIONS.get(p.name if isinstance(p, Precision) else p) for p in pair]
    if len(names) != 2 or None in names:
        raise errors.InvalidArgument(
            f"precision must be None, a lax.Precision, one of {sorted(_PRECISIONS)}, a pair of these, "
            f"or one of {sorted(_PRESETS)}, got {brief(precision)}, {here()}"
        )
    return names[0], names[1]  # type: ignore[return-value]


def _cast_to_common(lhs: Any, rhs: Any, x: ArrayType, y: ArrayType, preferred: Any) -> list[Any]:
    """Cast different dtypes to the wider of the two, or to the preferred one."""
    try:
        to = preferred or _wider(x.dtype, y.dtype)
    except (TypeError, AssertionError):  # the operation says so
        return [lhs, rhs]
    cast = PRIMITIVES["convert_element_type"]
    return [v if t.dtype == to else cast(v, dtype=to, weak_type=t.weak_type) for v, t in ((lhs, x), (rhs, y))]


@cached("wider dtypes", 256)
def _wider(*dtypes: Any) -> Any:
    """Return the wider dtype, by the rule of JAX and XLA for contractions, which is not that of promotion."""
    scalars = [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]
    return jax.eval_shape(lambda x, y: jax.lax.dot_general(x, y, (((), ()), ((), ()))), *scalars).dtype


__all__ = ["DotAlgorithmPreset", "Precision", "dot_general"]
