"""Products of arrays: each function names the axes and binds `dot_general`; `einsum` several, along a path
of pairwise contractions.

matmul  [.. i k] [.. k j] -> [.. i j]      dot  [a.. k] [b.. k c] -> [a.. b.. c]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import opt_einsum
from jax.lax import PrecisionLike
from opt_einsum.parser import convert_interleaved_input

from functrans import errors
from functrans.caching import cached
from functrans.ir.source import brief, here
from functrans.ir.types import ArrayType
from functrans.lax.contraction import contraction_options, product_of
from functrans.numpy.promotion import (
    array_of,
    axis_index,
    broadcast_shape,
    cast,
    invalid,
    promote_dtypes,
    user_dtype,
)
from functrans.primitives.elementwise.bitwise import and_
from functrans.primitives.elementwise.families import mul
from functrans.primitives.reductions.folds import reduce_or, reduce_sum
from functrans.primitives.shape.moving import reshape, slice_, squeeze, transpose
from functrans.trace import ARRAYS, materialize, typeof
from functrans.typing import Array, ArrayLike, DTypeLike, PyTree

__all__ = ["dot", "einsum", "matmul"]

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
    x, x_names = _without(x, x_names, [n for n in x_names if x_sizes[n] == 1 != y_sizes.get(n, 1)])
    y, y_names = _without(y, y_names, [n for n in y_names if y_sizes[n] == 1 != x_sizes.get(n, 1)])
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
    count = max(0, min(n, m - offset) if offset >= 0 else min(n + offset, m))
    start, step = (offset if offset >= 0 else -offset * m, m + 1) if count else (0, 1)
    limit = start + (count - 1) * step + 1 if count else 0
    zeros, ones = [0] * len(lead), [1] * len(lead)
    a = reshape(a, shape=(*lead, n * m))
    a = slice_(a, start=(*zeros, start), limit=(*lead, limit), strides=(*ones, step))
    main = t.ndim == 2 and n == m and offset == 0
    return cast(a, t.dtype) if main else a  # as in JAX, whose main diagonals are not weak


# --- einsum ---------------------------------------------------------------------------------------


def einsum(
    subscripts: str | ArrayLike | Sequence[int],
    /,
    *operands: PyTree,
    out: None = None,
    optimize: bool | str | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: None = None,
    **more: PyTree,
) -> Array:
    """Contract arrays over axes that are named by letters (Einstein summation).

    Arguments:
      subscripts: such as "bij,bjk->bik"; letters that are not in the result are summed over. "..."
        means leading axes that are broadcast.
      *operands: arrays.
      optimize: how to find the order of pairwise products; as in `opt_einsum.contract_path`.
      precision, preferred_element_type: for each contraction, as in `jax.lax.dot_general`.

    Raises:
      InvalidArgument: the subscripts do not match the operands, or sizes differ.

    Source: `jax.numpy.einsum`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.einsum("ij,j->i", jnp.ones((2, 3)), jnp.ones(3)))
      [3. 3.]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    xs = promote_dtypes([array_of(x, "einsum", i) for i, x in enumerate(operands)], "einsum")
    shapes = tuple([typeof(x).shape for x in xs])
    to = None if preferred_element_type is None else user_dtype(preferred_element_type)
    if isinstance(optimize, (list, tuple)):
        optimize = tuple([tuple(p) for p in optimize if p != "einsum_path"])
    for taken, names, kept, axes in _steps(subscripts, shapes, optimize):
        terms = [xs.pop(i) for i in taken]
        if to is not None:
            terms = promote_dtypes(terms, "einsum")
        how: dict[str, Any] = {"precision": precision, "preferred": preferred_element_type}
        xs.append(_contract(names, terms, kept, **how) if axes is None else contract(*terms, *axes, **how))
    out = xs[0]
    return materialize(out if to is None else cast(out, to))


def _from_lists(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Convert einsum(x, [0, 1], y, [1, 2], [0, 2]) to letters. Lists may hold anything with an order."""
    try:
        if any([hasattr(axes, "dtype") and axes.dtype.kind not in "iu" for axes in given[1::2]]):
            raise TypeError("an array is no list of axes")
        return convert_interleaved_input(given)
    except TypeError:
        raise invalid(
            "einsum",
            f"the first argument must be the subscripts, got {brief(given[0])}",
            'Write einsum("ij,jk->ik", x, y), or einsum(x, [0, 1], y, [1, 2]).',
        ) from None
    except KeyError as error:
        raise invalid(
            "einsum",
            f"the result has the axis {error}, which no operand has",
            "Name axes of the operands in the last list.",
        ) from None


@cached("steps of einsum", 4096)
def _steps(subscripts: str, shapes: tuple[Any, ...], optimize: Any) -> list[tuple[Any, ...]]:
    """Return, for each step, the operands to remove; the names of their axes; those of the result, which
    is appended; and dot_general's axes if the step is a single dot_general, else None."""
    try:
        _, info = opt_einsum.contract_path(
            subscripts, *shapes, shapes=True, optimize="auto" if optimize is True else optimize
        )
    except (ValueError, KeyError, IndexError) as error:
        shown = ", ".join(map(str, shapes))
        raise invalid(
            "einsum",
            f"{subscripts!r} does not match operands of shapes {shown}: {str(error).rstrip('.')}",
            "Use one letter per axis of each operand; axes of the same letter need equal sizes.",
        ) from None
    left = list(shapes)
    steps = []
    for taken, _, formula, *_ in info.contraction_list:
        terms, out = formula.split("->")
        names = terms.split(",")
        given = [left.pop(i) for i in taken]
        sizes = set(zip("".join(names), sum(given, ()), strict=True))
        large = dict(sorted(sizes))
        left.append(tuple([large[name] for name in out]))
        plain = len(large) == len(sizes) and _is_dot(names, out)
        steps.append((taken, names, out, _numbered(*names, out) if plain else None))
    return steps


def _is_dot(names: list[str], out: str) -> bool:
    """Return whether a step on equal sizes is a single dot_general; an elementwise product is not."""
    once = all(len(set(term)) == len(term) for term in names)
    return len(names) == 2 and once and set(names[0]) ^ set(names[1]) <= set(out) and names != [out, out]


def _numbered(*terms: str) -> tuple[tuple[int, ...], ...]:
    number = {n: i for i, n in enumerate(dict.fromkeys("".join(terms)))}
    return tuple([tuple([number[n] for n in names]) for names in terms])


def _contract(names: list[str], terms: list[Any], out: str, precision: Any, preferred: Any) -> Any:
    x, x_names = terms[0], names[0]
    if len(terms) == 1:
        x, x_names = _reduced(x, x_names, out)
        order = tuple([x_names.index(n) for n in out])
        return x if order == tuple(range(len(order))) else transpose(x, permutation=order)
    for i, (y, y_names) in enumerate(zip(terms[1:], names[1:], strict=True), 2):
        later = {*"".join(names[i:]), *out}
        union = dict.fromkeys(x_names + y_names)
        kept = out if i == len(terms) else "".join([n for n in union if n in later])
        x = _pair(x, x_names, y, y_names, kept, precision, preferred)
        x_names = kept
    return x


def _reduced(x: Any, names: str, needed: str) -> tuple[Any, str]:
    """Take the diagonal of repeated axes of x, and sum over axes that are not needed later."""
    for name, count in Counter(names).items():
        for _ in range(count - 1):
            i = names.index(name)
            j = names.index(name, i + 1)
            x = cast(diagonal(x, 0, i, j), typeof(x).dtype, typeof(x).weak_type)
            names = names[:i] + names[i + 1 : j] + names[j + 1 :] + name
    summed = tuple([i for i, n in enumerate(names) if n not in needed])
    if summed:
        total = reduce_or if typeof(x).dtype == bool else reduce_sum
        x = total(x, axes=summed)
        names = "".join([n for n in names if n in needed])
    return x, names


def _pair(x: Any, x_names: str, y: Any, y_names: str, out: str, precision: Any, preferred: Any) -> Any:
    x, left, y, right = without_ones(x, x_names, y, y_names)
    x_names, y_names = "".join(left), "".join(right)
    x, x_names = _reduced(x, x_names, out + y_names)
    y, y_names = _reduced(y, y_names, out + x_names)
    if x_names == y_names == out and preferred is None:
        return and_(x, y) if typeof(x).dtype == bool else mul(x, y)
    lhs, rhs, to = _numbered(x_names, y_names, out)
    return contract(x, y, lhs, rhs, to, precision, preferred)
