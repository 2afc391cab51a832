"""Products, parts and permutations of stacks of matrices, for the rules of linear algebra.

In: values `[*batch, i, j]` with equal batch axes. Out: others. Products have the highest precision
of the platform: a derivative should be as accurate as the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.ir.types import dtype_class
from functrans.primitives.contractions.dot_general import HIGHEST, dot_general
from functrans.primitives.elementwise import complex_numbers as complex_numbers
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.families import add, eq, full_like, ge, gt, le, lt, mul, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.gather import PROMISE, gather
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import broadcast_to_axis, reshape, transpose
from functrans.trace import typeof


def is_complex(x: Any) -> bool:
    """Return whether a value is complex."""
    return dtype_class(typeof(x).dtype) == "complex"


def einsum(axes: str, x: Any, y: Any) -> Any:
    """Multiply each pair of matrices in the stacks by an einsum such as `ij,jk->ik`."""
    left, _, out = axes.partition("->")
    lhs, _, rhs = left.partition(",")
    n = typeof(x).ndim - len(lhs)
    stack = tuple(range(n))

    def names(letters: str) -> tuple[int, ...]:
        return (*stack, *[n + ord(letter) - ord("a") for letter in letters])

    return dot_general(x, y, lhs=names(lhs), rhs=names(rhs), out=names(out), precision=HIGHEST)


def matmul(x: Any, y: Any) -> Any:
    """Return the matrix product."""
    return einsum("ij,jk->ik", x, y)


def transposed(x: Any) -> Any:
    """Return the transpose."""
    n = typeof(x).ndim
    return transpose(x, permutation=(*range(n - 2), n - 1, n - 2))


def conj(x: Any) -> Any:
    """Return the complex conjugate; a real value unchanged."""
    return complex_numbers.conj(x) if is_complex(x) else x


def real(x: Any) -> Any:
    """Return the real part; a real value unchanged."""
    return complex_numbers.real(x) if is_complex(x) else x


def adjoint(x: Any) -> Any:
    """Return the conjugate transpose, x^H."""
    return conj(transposed(x))


def plus_adjoint(x: Any) -> Any:
    """Return x + x^H."""
    return add(x, adjoint(x))


def minus_adjoint(x: Any) -> Any:
    """Return x - x^H."""
    return sub(x, adjoint(x))


# --- parts ----------------------------------------------------------------------------------------


def where_indices(compare: Callable[[Any, Any], Any], x: Any) -> Any:
    """Return compare(row, column) for each element of x."""
    t = typeof(x)
    rows, columns = [
        iota(dtype=np.dtype(np.int32), shape=t.shape, dimension=t.ndim + axis) for axis in (-2, -1)
    ]
    return compare(rows, columns)


def kept_where(compare: Callable[[Any, Any], Any], x: Any) -> Any:
    """Return x where compare(row, column), else 0."""
    return select_n(where_indices(compare, x), full_like(x, 0), x)


def lower_part(x: Any, strict: bool = False) -> Any:
    """Return x with zeros above its diagonal; with `strict` on it too."""
    return kept_where(gt if strict else ge, x)


def upper_part(x: Any, strict: bool = False) -> Any:
    """Return x with zeros below its diagonal; with `strict` on it too."""
    return kept_where(lt if strict else le, x)


def identity_like(x: Any) -> Any:
    """Return identity matrices of the shape of x."""
    return select_n(where_indices(eq, x), full_like(x, 0), full_like(x, 1))


def diagonal(x: Any) -> Any:
    """Return the diagonal, [..., n] of [..., n, n]."""
    return reduce_sum(kept_where(eq, x), axes=(typeof(x).ndim - 2,))


# --- rows and columns -----------------------------------------------------------------------------


def per_column(v: Any, x: Any) -> Any:
    """Broadcast a vector with one number per column of x to the shape and dtype of x."""
    t = typeof(x)
    return cast(broadcast_to_axis(v, t.ndim - 2, t.shape[-2]), t.dtype)


def per_row(v: Any, x: Any) -> Any:
    """Broadcast a vector with one number per row of x to the shape and dtype of x."""
    t = typeof(x)
    return cast(broadcast_to_axis(v, t.ndim - 1, t.shape[-1]), t.dtype)


def scaled_columns(x: Any, v: Any) -> Any:
    """Return x diag(v)."""
    return mul(x, per_column(v, x))


def permuted(x: Any, order: Any, axis: int) -> Any:
    """Return x[..., order, :] if `axis` is -2, x[..., order] if it is -1; one order per matrix."""
    t = typeof(x)
    n = t.ndim
    stack, new = tuple(range(n - 2)), n
    sizes = [1] * n
    sizes[-2 if axis == -1 else -1] = t.shape[-2 if axis == -1 else -1]
    return gather(
        x,
        reshape(order, shape=(*typeof(order).shape, 1)),
        operand=tuple(range(n)),
        indices=(*stack, new),
        slices=(*stack, n - 2, new) if axis == -1 else (*stack, new, n - 1),
        indexed=(n + axis,),
        sizes=tuple(sizes),
        mode=PROMISE,
        unique_indices=True,
    )
