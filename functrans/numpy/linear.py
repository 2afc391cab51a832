"""Products of arrays: each function names the axes and binds one `dot_general`.

matmul  [.. i k] [.. k j] -> [.. i j]      dot  [a.. k] [b.. k c] -> [a.. b.. c]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.lax import PrecisionLike

from functrans import errors
from functrans.caching import cached
from functrans.ir.source import here
from functrans.ir.types import ArrayType
from functrans.lax.contraction import contraction_options, product_of
from functrans.numpy.promotion import array_of, axis_index, broadcast_shape, cast, invalid, promote_dtypes
from functrans.primitives.shape.moving import reshape, slice_, squeeze, transpose
from functrans.trace import ARRAYS, typeof
from functrans.typing import Array, ArrayLike, DTypeLike

__all__ = ["dot", "matmul"]

Axes = tuple[int, ...]


def contract(
    x: Any, y: Any, lhs: Axes, rhs: Axes, out: Axes, precision: Any = None, preferred: Any = None
) -> Any:
    """Bind one dot_general with named axes."""
    params: dict[str, Any] = {"lhs": lhs, "rhs": rhs, "out": out}
    params.update(contraction_options(precision, preferred))
    made = product_of(x, y, params)
    return made if preferred is None else cast(made, typeof(made).dtype)  # asked for: not weak


def _operands(name: str, x: Any, y: Any) -> tuple[Any, Any, ArrayType, ArrayType]:
    if x.__class__ not in ARRAYS or y.__class__ not in ARRAYS or typeof(x).dtype != typeof(y).dtype:
        x, y = promote_dtypes((x, y), name)
    return x, y, typeof(x), typeof(y)


def _disagree(name: str, tx: ArrayType, ty: ArrayType, i: int, j: int) -> errors.TypeMismatch:
    return errors.TypeMismatch(
        f"{name}({tx}, {ty}): axis {i} of the first operand and axis {j} of the second are "
        f"contracted and must have equal sizes, got {tx.shape[i]} and {ty.shape[j]}, {here()}\n"
        "Transpose or reshape one of the operands."
    )


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: None = None,
) -> Array:
    """Multiply matrices: contract the last axis of a and the second-to-last axis of b; leading axes
    are batch axes that are broadcast.

    Arguments:
      a: array [..., i, k] or [k].
      b: array [..., k, j] or [k].
      precision: as in `jax.lax.dot_general`.
      preferred_element_type: dtype of the accumulation and result.

    Returns:
      An array [..., i, j], without i or j where an operand has one axis.

    Raises:
      TypeMismatch: sizes do not match, or an operand is a scalar.

    Source: `jax.numpy.matmul`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.matmul(jnp.ones((2, 3)), jnp.ones(3)))
      [3. 3.]
    """
    a, b, ta, tb = _operands("matmul", a, b)
    n, m = len(ta.shape), len(tb.shape)
    if n == 0 or m == 0:
        raise invalid("matmul", f"operands need at least one axis, got {ta} and {tb}", "Use * for scalars.")
    k = max(m - 2, 0)
    if ta.shape[-1] != tb.shape[k]:
        raise _disagree("matmul", ta, tb, n - 1, k)
    lhs, rhs, out = _axes(n, m)
    if n > 2 and m > 2 and ta.shape[:-2] != tb.shape[:-2]:
        broadcast_shape([ta.shape[:-2], tb.shape[:-2]], "matmul", (ta, tb))  # raises
        a, lhs, b, rhs = without_ones(a, lhs, b, rhs)
    return contract(a, b, lhs, rhs, out, precision, preferred_element_type)


@cached("axes of matmul", 256)
def _axes(n: int, m: int) -> tuple[Axes, Axes, Axes]:
    """Names of the axes of a product of arrays of n and m axes, and of its result: batch axes count
    from the right, 0, 1, ...; then rows, columns, summed."""
    batch = max(n, m, 2) - 2
    rows, columns, summed = batch, batch + 1, batch + 2
    lhs = (*range(batch - n + 2, batch), rows, summed) if n > 1 else (summed,)
    rhs = (*range(batch - m + 2, batch), summed, columns) if m > 1 else (summed,)
    out = (*range(batch), *((rows,) if n > 1 else ()), *((columns,) if m > 1 else ()))
    return lhs, rhs, out


def without_ones(x: Any, x_names: Any, y: Any, y_names: Any) -> tuple[Any, Any, Any, Any]:
    """Drop axes of size 1 whose name has another size in the other operand."""
    x_sizes, y_sizes = [
        dict(zip(names, typeof(v).shape, strict=True)) for v, names in ((x, x_names), (y, y_names))
    ]
    differ = [n for n in x_sizes if n in y_sizes and x_sizes[n] != y_sizes[n]]
    x, x_names = _without(x, x_names, [n for n in differ if x_sizes[n] == 1])
    y, y_names = _without(y, y_names, [n for n in differ if y_sizes[n] == 1])
    return x, x_names, y, y_names


def _without(x: Any, names: Any, dropped: Sequence[Any]) -> tuple[Any, Any]:
    if not dropped:
        return x, names
    x = squeeze(x, dimensions=tuple([i for i, n in enumerate(names) if n in dropped]))
    return x, tuple([n for n in names if n not in dropped])


def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: None = None,
) -> Array:
    """Contract the last axis of a and the second-to-last (or only) axis of b.

    Source: `jax.numpy.dot`.
    """
    a, b, ta, tb = _operands("dot", a, b)
    n, m = ta.ndim, tb.ndim
    i, j = n - 1, max(m - 2, 0)
    if n and m and ta.shape[i] != tb.shape[j]:
        raise _disagree("dot", ta, tb, i, j)
    return contract(a, b, *_dot_axes(n, m), precision, preferred_element_type)


@cached("axes of dot", 256)
def _dot_axes(n: int, m: int) -> tuple[Axes, Axes, Axes]:
    """Names of the axes of arrays of n and m axes, and of their product."""
    lhs, rhs = list(range(n)), list(range(n, n + m))
    if n and m:
        rhs[max(m - 2, 0)] = n - 1
    return tuple(lhs), tuple(rhs), tuple([k for k in (*lhs, *rhs) if not (n and m and k == n - 1)])


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements a[i, i + offset] of two axes, along a new last axis.

    The two axes are merged; in the merged axis the diagonal is a strided slice.

    Source: `jax.numpy.diagonal`.
    """
    a = array_of(a, "diagonal")
    t = typeof(a)
    if t.ndim < 2:
        raise invalid("diagonal", f"needs at least two axes, got {t}")
    i, j = axis_index(axis1, t.ndim, "diagonal"), axis_index(axis2, t.ndim, "diagonal")
    if i == j:
        raise invalid("diagonal", f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    order = (*[k for k in range(t.ndim) if k not in (i, j)], i, j)
    if order != tuple(range(t.ndim)):
        a = transpose(a, permutation=order)
    *lead, n, m = typeof(a).shape
    start = offset if offset >= 0 else -offset * m
    count = max(0, min(n, m - offset) if offset >= 0 else min(n + offset, m))
    a = reshape(a, shape=(*lead, n * m))
    limit = start + (count - 1) * (m + 1) + 1 if count else start
    if not count:
        start = limit = 0
    zeros = (0,) * len(lead)
    a = slice_(
        a, start=(*zeros, start), limit=(*lead, limit), strides=(*[1] * len(lead), m + 1 if count else 1)
    )
    main = t.ndim == 2 and n == m and offset == 0
    return cast(a, t.dtype) if main else a  # as in JAX, whose main diagonals are not weak
