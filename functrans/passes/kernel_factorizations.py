"""Factorizations of matrices and triangular solves inside a kernel, where LAPACK cannot be called.

They are ordinary traced code, for stacks of matrices `[*stack, n, n]`. Matrices of up to `FEW` rows
are split into rows `[*stack, n]` or elements `[*stack]`, and all steps are written out; larger ones
are worked on by a loop over rows or columns. Pivoting and the order of the steps are LAPACK's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from functrans.ir.program import Equation
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.control_flow.revolve import loop
from functrans.primitives.control_flow.scan import scanned
from functrans.primitives.elementwise.bitwise import and_
from functrans.primitives.elementwise.complex_numbers import abs_, imag, real
from functrans.primitives.elementwise.families import add, div, eq, full_like, ge, gt, lt, mul, sub
from functrans.primitives.elementwise.selection import optimization_barrier, select_n
from functrans.primitives.elementwise.transcendental import sqrt
from functrans.primitives.indexing.dynamic_slice import element_of, part_of, with_element
from functrans.primitives.linalg.factors import lu, lu_pivots_to_permutation
from functrans.primitives.linalg.matrices import INT32, conj, is_complex, lower_part, permuted, transposed
from functrans.primitives.linalg.triangular import cholesky, triangular_solve
from functrans.primitives.reductions.folds import argmax, reduce_and, reduce_sum
from functrans.primitives.shape.joining import concatenate, iota, pad, stack
from functrans.primitives.shape.moving import (
    broadcast_in_dim,
    broadcast_to_axis,
    index_axis,
    move_axis,
    rev,
    slice_axis,
)
from functrans.trace import literal, typeof

FEW = 6  # rows of a matrix whose steps are written out
AT_ONCE = 4  # rows that are subtracted in a step of a loop
MANY, MANY_LU = 40, 16  # rows of a matrix up to which a loop takes hardly longer than LAPACK


# --- LU -------------------------------------------------------------------------------------------


def factorized(x: Any) -> list[Any]:
    """Return l and u in one matrix, the pivots and the order of the rows, by partial pivoting."""
    if max(typeof(x).shape[-2:]) > FEW:
        return _lu_in_a_loop(x)
    rows = _rows(x)
    n, width = len(rows), typeof(x).shape[-1]
    index = typeof(_element(rows[0], 0)).update(dtype=INT32, weak_type=False)
    order = [literal(i, index) for i in range(n)]
    pivots = []
    for j in range(min(n, width)):
        at, best = literal(j, index), _size(_element(rows[j], j))
        for i in range(j + 1, n):
            size = _size(_element(rows[i], j))
            larger = gt(size, best)
            best, at = select_n(larger, best, size), select_n(larger, at, literal(i, index))
        pivots.append(at)
        below = range(j + 1, n)
        _exchange(rows, j, at)
        _exchange(order, j, at)
        pivot, rest = _element(rows[j], j), slice_axis(rows[j], len(index.shape), j + 1, width)
        for i in below:
            head = _element(rows[i], j)
            factor = select_n(eq(pivot, full_like(pivot, 0)), div(head, pivot), head)
            parts = [slice_axis(rows[i], len(index.shape), 0, j), stack([factor], -1)]
            if j + 1 < width:
                tail = slice_axis(rows[i], len(index.shape), j + 1, width)
                parts.append(sub(tail, mul(_along(factor, rest), rest)))
            rows[i] = concatenate(*parts[j == 0 :], dimension=len(index.shape))
        if j + 1 < n:  # without a barrier XLA recomputes each step for each element of the next
            kept = optimization_barrier(*rows, *order)
            rows, order = kept[:n], kept[n:]
    return [stack(rows, -2), stack(pivots, -1), stack(order, -1)]


def _lu_in_a_loop(x: Any) -> list[Any]:
    *_, n, width = typeof(x).shape
    last = typeof(x).ndim - 2

    def step(j: Any, x: Any) -> list[Any]:
        column, here = _at(x, -1, j), _at(x, -2, j)
        rows, columns = _counted(column), _counted(here)
        this_row, this_column = _full(rows, j), _full(columns, j)
        size = _size(column)
        size = select_n(ge(rows, this_row), full_like(size, -1), size)
        at = argmax(size, axes=(last,), index_dtype=INT32)
        there = index_axis(permuted(x, stack([at], -1), -2), last, 0)
        column, here, there, at = optimization_barrier(column, here, there, at)
        is_there = eq(rows, _along(at, rows))
        head, pivot = select_n(is_there, column, _along(_at(here, -1, j), column)), _at(there, -1, j)
        quotient = div(head, _along(pivot, head))
        factor = select_n(_along(eq(pivot, full_like(pivot, 0)), head), quotient, head)
        factor = optimization_barrier(factor)[0]
        x = select_n(_along(is_there, x), x, _down(here, x))
        x = select_n(_along(eq(rows, this_row), x), x, _down(there, x))
        below = _along(gt(rows, this_row), x)
        left = and_(below, _down(eq(columns, this_column), x))
        rest = and_(below, _down(gt(columns, this_column), x))
        reduced = sub(x, mul(_along(factor, x), _down(there, x)))
        return [select_n(left, select_n(rest, x, reduced), _along(factor, x)), at]

    x, pivots = _loop(step, x, min(n, width))
    pivots = move_axis(pivots, 0, last)
    return [x, pivots, permutation(pivots, permutation_size=n)]


def _exchange(rows: list[Any], j: int, at: Any) -> None:
    """Exchange row j with a later row, of number `at`."""
    old = rows[j]
    rows[j] = _chosen(old, at, [(i, rows[i]) for i in range(j + 1, len(rows))])
    for i in range(j + 1, len(rows)):
        rows[i] = _chosen(rows[i], at, [(i, old)])


def permutation(pivots: Any, *, permutation_size: int) -> Any:
    """Return the order of rows after exchanging row i with row pivots[i], in sequence."""
    if permutation_size > FEW:
        return _permutation_in_a_loop(pivots, permutation_size)
    *stacked, k = typeof(pivots).shape
    index = typeof(pivots).update(shape=tuple(stacked), weak_type=False)
    order: list[Any] = [literal(i, index) for i in range(permutation_size)]
    for j in range(k):
        _exchange(order, j, _element(pivots, j))
    return stack(order, -1)


def _permutation_in_a_loop(pivots: Any, size: int) -> Any:
    *stacked, k = typeof(pivots).shape
    last = len(stacked)

    def step(j: Any, order: Any, at: Any) -> list[Any]:
        rows = _counted(order)
        is_there = eq(rows, _along(at, rows))
        here = _at(order, -1, j)
        there = reduce_sum(select_n(is_there, full_like(order, 0), order), axes=(last,))
        here, there = optimization_barrier(here, there)
        order = select_n(is_there, order, _along(here, order))
        return [select_n(eq(rows, _full(rows, j)), order, _along(there, order))]

    order = iota(dtype=INT32, shape=(*stacked, size), dimension=last)
    return _loop(step, order, k, move_axis(pivots, last, 0))[0]


# --- triangular systems ---------------------------------------------------------------------------


def _substituted(
    a: Callable[[int, int], Any], b: Sequence[Any], forwards: bool, unit_diagonal: bool
) -> list[Any]:
    """Return the rows x with a x = b; `a(i, j)` is an element of a triangular matrix."""
    x: dict[int, Any] = {}
    for i in range(len(b)) if forwards else reversed(range(len(b))):
        row = b[i]
        for j, known in x.items():
            row = sub(row, mul(_along(a(i, j), row), known))
        x[i] = row if unit_diagonal else div(row, _along(a(i, i), row))
    return [x[i] for i in range(len(b))]


def solved(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    """Return x with a x = b, or x a = b."""
    if not left_side:  # x a = b means a^T x^T = b^T
        how = {"lower": lower, "conjugate_a": conjugate_a, "unit_diagonal": unit_diagonal}
        turned = solved(a, transposed(b), left_side=True, transpose_a=not transpose_a, **how)
        return transposed(turned)
    a = conj(a) if conjugate_a else a
    a = transposed(a) if transpose_a else a
    forwards = lower != transpose_a
    if typeof(a).shape[-1] > FEW:
        return _solved_in_a_loop(a, b, forwards, unit_diagonal)
    rows = _rows(a)
    x = _substituted(lambda i, j: _element(rows[i], j), _rows(b), forwards, unit_diagonal)
    return stack(x, -2)


def _solved_in_a_loop(a: Any, b: Any, forwards: bool, unit_diagonal: bool) -> Any:
    """Return x with a x = b for a triangular matrix a."""
    last = typeof(b).ndim - 2
    if not forwards:  # the same from the last row to the first
        turned = rev(a, dimensions=(last, last + 1)), rev(b, dimensions=(last,))
        return rev(_solved_in_a_loop(*turned, True, unit_diagonal), dimensions=(last,))
    n, width = typeof(b).shape[-2:]

    def divided(row: Any, a: Any, j: Any) -> Any:
        row = row if unit_diagonal else div(row, _along(_at(a, -1, j), row))
        return optimization_barrier(row)[0]

    def by_columns(j: Any, b: Any, column: Any) -> list[Any]:
        row = divided(_at(b, -2, j), column, j)
        return [sub(b, mul(_along(column, b), _down(row, b))), row]

    def by_rows(j: Any, x: Any, b: Any, a: Any, before: Any) -> list[Any]:
        row = divided(_reduced(b, x, before, j), a, j)
        return [with_element(x, last, j, row)]

    if width == 1:
        _, rows = _loop(by_columns, b, n, move_axis(transposed(a), last, 0))
        return move_axis(rows, 0, last)
    before = _with_rows(lower_part(a, strict=True), last + 1)
    rows = [move_axis(v, last, 0) for v in (b, a, before)]
    (x,) = _loop(by_rows, _with_rows(full_like(b, 0), last), n, *rows)
    return slice_axis(x, last, 0, n)


# --- Cholesky -------------------------------------------------------------------------------------


def cholesky_factor(x: Any) -> Any:
    """Return the lower factor; NaN in its place where a matrix is not positive definite."""
    made, positive = (_cholesky_in_a_loop if typeof(x).shape[-1] > FEW else _cholesky)(x)
    nan = lower_part(full_like(made, np.nan))
    axes = tuple(range(typeof(positive).ndim))
    spread = broadcast_in_dim(positive, shape=typeof(made).shape, dimensions=axes)
    return select_n(spread, nan, made)


def _cholesky(x: Any) -> tuple[Any, Any]:
    """Compute each row of the factor from those above it, which multiply it to the row of x."""
    factor: list[list[Any]] = []
    pivots = []
    for i, whole in enumerate(_rows(x)):
        given = [_element(whole, j) for j in range(i)]
        row = _substituted(lambda i, j: factor[i][j], given, forwards=True, unit_diagonal=False)
        pivots.append(reduce(lambda rest, v: sub(rest, mul(v, v)), row, _element(whole, i)))
        factor.append([*row, sqrt(pivots[i])])
    zero = full_like(pivots[0], 0)
    made = stack([stack([*row, *[zero] * (len(factor) - len(row))], -1) for row in factor], -2)
    return made, reduce(and_, [gt(pivot, zero) for pivot in pivots])


def _cholesky_in_a_loop(x: Any) -> tuple[Any, Any]:
    """Compute the columns of the factor, the rows of its transpose, one after the other."""
    *stacked, n, _ = typeof(x).shape
    last = len(stacked)

    def step(j: Any, factor: Any, row: Any) -> list[Any]:
        row = _reduced(row, factor, _at(factor, -1, j), j)
        columns, pivot = _counted(row), _at(row, -1, j)
        root = _along(sqrt(pivot), row)
        after = select_n(gt(columns, _full(columns, j)), full_like(row, 0), div(row, root))
        row = select_n(eq(columns, _full(columns, j)), after, root)
        return [with_element(factor, last, j, optimization_barrier(row)[0]), gt(pivot, full_like(pivot, 0))]

    factor = _with_rows(full_like(x, 0), last)
    factor, positive = _loop(step, factor, n, move_axis(x, last + 1, 0))
    return transposed(slice_axis(factor, last, 0, n)), reduce_and(positive, axes=(0,))


# --- parts ----------------------------------------------------------------------------------------


def _rows(x: Any) -> list[Any]:
    axis = typeof(x).ndim - 2
    return [index_axis(x, axis, i) for i in range(typeof(x).shape[axis])]


def _element(row: Any, j: int) -> Any:
    return index_axis(row, typeof(row).ndim - 1, j)


def _along(element: Any, row: Any) -> Any:
    """Broadcast an element along a row, which may be an element too."""
    shape = typeof(row).shape
    if typeof(element).shape == shape:
        return element
    return broadcast_to_axis(element, len(shape) - 1, shape[-1])


def _down(row: Any, x: Any) -> Any:
    """Broadcast a row along the columns."""
    return broadcast_to_axis(row, typeof(x).ndim - 2, typeof(x).shape[-2])


def _chosen(row: Any, index: Any, others: Iterable[tuple[int, Any]]) -> Any:
    """Return, per matrix of the stack, the row of number `index`; else `row`."""
    for i, other in others:
        row = select_n(_along(eq(index, full_like(index, i)), row), row, other)
    return row


def _size(x: Any) -> Any:
    """Return the magnitude that LAPACK compares to find a pivot."""
    return add(abs_(real(x)), abs_(imag(x))) if is_complex(x) else abs_(x)


def _at(x: Any, axis: int, j: Any) -> Any:
    """Return element j along an axis, counted from the last."""
    return element_of(x, axis + typeof(x).ndim, j)


def _counted(row: Any) -> Any:
    """Return the positions of the elements of a row."""
    t = typeof(row)
    return iota(dtype=INT32, shape=t.shape, dimension=t.ndim - 1)


def _full(x: Any, j: Any) -> Any:
    return broadcast_in_dim(j, shape=typeof(x).shape, dimensions=())


def _loop(step: Callable[..., list[Any]], state: Any, length: int, *arrays: Any) -> list[Any]:
    """Return the last state, and what `step(j, state, *slices) -> [state, *written]` wrote for all j."""

    def counting(j: Any, *xs: Any) -> list[Any]:
        return [add(j, full_like(j, 1)), *step(j, *xs)]

    return scanned(counting, [literal(0, ArrayType((), INT32)), state], arrays, length, "column")[1:]


def _reduced(total: Any, rows: Any, factors: Any, n: Any) -> Any:
    """Return the total less the first n rows, each times its factor, subtracted in this order. The
    factors after them may be read, and must be 0 where the rows are not."""
    axis = typeof(rows).ndim - 2

    def step(k: Any, total: Any) -> list[Any]:
        block, by = part_of(rows, axis, k, AT_ONCE), part_of(factors, axis, k, AT_ONCE)
        for i in range(AT_ONCE):
            row = index_axis(block, axis, i)
            total = sub(total, mul(_along(index_axis(by, axis, i), row), row))
        return [add(k, full_like(k, AT_ONCE)), total]

    return loop(lambda k, total: lt(k, n), step, [full_like(n, 0), total], "rows")[1]


def _with_rows(x: Any, axis: int) -> Any:
    """Return x with zeros added along an axis, to a multiple of `AT_ONCE`."""
    t = typeof(x)
    config = [(0, -t.shape[d] % AT_ONCE if d == axis else 0, 0) for d in range(t.ndim)]
    return pad(x, literal(0, ArrayType((), t.dtype)), config=tuple(config))


# --- what is written so ---------------------------------------------------------------------------


def is_a_loop(e: Equation) -> bool:
    """Return whether an operation is a factorization that is not written out."""
    return e.primitive in FACTORIZATIONS and _rows_of(e) > FEW


def _fits(e: Equation) -> bool:
    most = MANY_LU if e.primitive is lu else MANY
    return _rows_of(e) <= most and e.inputs[0].type.dtype.itemsize >= 4


def _fits_and_is_real(e: Equation) -> bool:
    return _fits(e) and dtype_class(e.inputs[0].type.dtype) == "float"


def _rows_of(e: Equation) -> int:
    return e.params.get("permutation_size") or max(e.inputs[0].type.shape[-2:])


# For each operation how it is written, and whether that can be done for an equation.
FACTORIZATIONS: dict[Any, tuple[Callable[..., Any], Callable[[Equation], bool]]] = {
    lu: (factorized, _fits),
    lu_pivots_to_permutation: (permutation, _fits),
    triangular_solve: (solved, _fits),
    cholesky: (cholesky_factor, _fits_and_is_real),
}
