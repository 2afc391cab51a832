"""Expansions of operations inside a kernel: products as sums, factorizations of small matrices step
by step, joins as sums of padded arrays. They are ordinary traced code; for stacks of matrices
`[*stack, n, n]` where these are meant.

A matrix is split into rows `[*stack, n]` or elements `[*stack]`, and each step operates on all
matrices of the stack at once. Pivoting and the order of the steps are LAPACK's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from functrans.ir.program import Equation, Program, program_of
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.kernel_scatters import can_be_written, scattered
from functrans.passes.rewrite import Rewriter
from functrans.primitives.calls.jit import outlined
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.elementwise.bitwise import and_, not_, or_
from functrans.primitives.elementwise.complex_numbers import abs_, imag, real
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, div, eq, full_like, gt, lt, mul, ne, sub
from functrans.primitives.elementwise.selection import optimization_barrier, select_n
from functrans.primitives.elementwise.transcendental import sqrt
from functrans.primitives.indexing.dynamic_slice import dynamic_slice
from functrans.primitives.indexing.scatter import SCATTERS
from functrans.primitives.indexing.sorting import sort
from functrans.primitives.linalg.factors import lu, lu_pivots_to_permutation
from functrans.primitives.linalg.matrices import INT32, conj, is_complex, lower_part, transposed
from functrans.primitives.linalg.triangular import cholesky, triangular_solve
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.joining import concatenate, pad, stack
from functrans.primitives.shape.moving import (
    broadcast_in_dim,
    broadcast_to_axis,
    index_axis,
    slice_,
    slice_axis,
    without,
)
from functrans.trace import bind, literal, stage, typeof

FEW = 8  # sums of up to this many terms are unrolled
SHORT = 16  # sums of so many floats are written so that no library takes them (backends/cpu.py)
UNROLLED = 256  # arrays joined to up to this many numbers are left: LLVM unrolls these loops
ALONE = 64  # joins of at least this many numbers are functions of their own
LARGEST = 6  # matrices of up to this many rows are factorized step by step

Values = Sequence[Any]


class Form(NamedTuple):
    """An expansion of an operation.

    write             : operands, parameters -> the results
    takes(equation)   : whether it can expand this equation
    elements(equation): the number of elements it operates on
    sums(equation)    : whether it contains a reduction that XLA may hand to a library
    """

    write: Callable[..., Any]
    takes: Callable[[Equation], bool]
    elements: Callable[[Equation], int]
    sums: Callable[[Equation], bool] = lambda e: False


# --- products -------------------------------------------------------------------------------------


def _product(x: Any, y: Any, *, lhs: Values, rhs: Values, out: Values, **how: Any) -> Any:
    """Return the sum of products; each element is summed from first to last. Few terms are added
    one after the other, on whole results: parts of large reductions would call a library. With a
    vector many are added so in a loop, some in each step."""
    summed = tuple([n for n in lhs if n not in out])
    if _are_few(summed, lhs, rhs, typeof(x).shape):
        return sum_of_terms(x, y, lhs=lhs, rhs=rhs, out=out)
    if len(summed) == 1:
        term, i, j = _terms(lhs, rhs, out, summed[0])
        size = typeof(x).shape[i]
        matrix, axis = (x, i) if typeof(y).size == size else (y, j)  # the other is a vector
        products = typeof(matrix).size
        if min(typeof(x).size, typeof(y).size) == size >= FEW and products > UNROLLED // 2:
            if products > UNROLLED:
                return _accumulated(term, x, y, i, j, 4 if size >= 32 or size == FEW else 2)
            if axis < typeof(matrix).ndim - 1:  # read row by row
                return _accumulated(term, x, y, i, j, size // 2)
    made = dot_general(x, y, lhs=lhs, rhs=rhs, out=(*out, *summed))
    last = tuple(range(len(out), len(out) + len(summed)))
    return reduce_sum(made, axes=last) if summed else made


def sum_of_terms(x: Any, y: Any, *, lhs: Values, rhs: Values, out: Values, **how: Any) -> Any:
    """Return a product that sums over one axis as the sum of its terms, from first to last."""
    (axis,) = [n for n in lhs if n not in out]
    term, i, _ = _terms(lhs, rhs, out, axis)
    return functools.reduce(add, [term(x, y, k) for k in range(typeof(x).shape[i])])


def _terms(lhs: Values, rhs: Values, out: Values, axis: int) -> tuple[Callable[..., Any], int, int]:
    """Return the function `(x, y, k) -> term k` of a product, and where x and y have the summed axis."""
    i, j = lhs.index(axis), rhs.index(axis)
    names = {"lhs": without(lhs, i), "rhs": without(rhs, j), "out": out}
    return lambda x, y, k: dot_general(index_axis(x, i, k), index_axis(y, j, k), **names), i, j


def _accumulated(term: Callable[[Any, Any, int], Any], x: Any, y: Any, i: int, j: int, many: int) -> Any:
    """Return the sum over axis i of x and j of y of the terms, `many` of them in each step of a loop."""
    size = typeof(x).shape[i]
    first, total = literal(0, ArrayType((), INT32)), full_like(term(x, y, 0), 0)

    def step(x: Any, y: Any, at: Any, total: Any) -> tuple[Any, Any]:
        x, y = _from(x, i, at, many), _from(y, j, at, many)
        for k in range(many):
            total = add(total, term(x, y, k))
        return add(at, full_like(at, many)), total

    program = stage(step, [*map(typeof, (x, y, first, total))], "product")
    how = {"program": program, "length": size // many, "consts": 2, "carry": 2}
    _, total = bind(scan, [x, y, first, total], how)
    return functools.reduce(add, [term(x, y, k) for k in range(size // many * many, size)], total)


def in_steps(e: Equation) -> Program:
    """Return the program of a product that is summed step by step along its longest summed axis."""
    lhs, rhs, out = (e.params[name] for name in ("lhs", "rhs", "out"))
    axis, _ = max(summed_axes(e), key=lambda found: found[1])
    term, i, j = _terms(lhs, rhs, out, axis)
    return stage(lambda x, y: [_accumulated(term, x, y, i, j, 1)], [v.type for v in e.inputs], "product")


def summed_axes(e: Equation) -> list[tuple[int, int]]:
    """Return the axes over which a product sums, and their sizes."""
    lhs, shape = _axes(e, 0), e.inputs[0].type.shape
    return [(n, size) for n, size in zip(lhs, shape, strict=True) if n not in e.params["out"]]


def _from(x: Any, axis: int, start: Any, size: int) -> Any:
    """Return the elements from `start` on along an axis."""
    shape = typeof(x).shape
    starts = [start if d == axis else full_like(start, 0) for d in range(len(shape))]
    sizes = tuple([size if d == axis else n for d, n in enumerate(shape)])
    return dynamic_slice(x, *starts, sizes=sizes)


def _are_few(summed: Values, lhs: Values, rhs: Values, shape: tuple[int, ...]) -> bool:
    """Return whether this is a product of two matrices over a short axis."""
    few = len(summed) == 1 and 0 < shape[lhs.index(summed[0])] <= FEW
    return few and not set(lhs) <= set(rhs) and not set(rhs) <= set(lhs)


def _is_plain(e: Equation) -> bool:
    """Return whether these are sums that need no wider dtype: those of small floats do."""
    t = e.inputs[0].type
    if dtype_class(t.dtype) == "bool":
        return False
    how = [e.params.get("precision"), e.params.get("preferred")]
    plain = how[1] in (None, t.dtype) and not isinstance(how[0], str)
    return plain and (t.dtype.itemsize >= 4 or dtype_class(t.dtype) not in ("float", "complex"))


def _products(e: Equation) -> int:
    size = {n: k for i in (0, 1) for n, k in zip(_axes(e, i), e.inputs[i].type.shape, strict=True)}
    return prod([size[n] for n in (size if _sums(e) else e.params["out"])])


def _sums(e: Equation) -> bool:
    summed = [n for n, _ in summed_axes(e)]
    return bool(summed) and not _are_few(summed, _axes(e, 0), _axes(e, 1), e.inputs[0].type.shape)


def _sums_many(e: Equation) -> bool:
    short = dtype_class(e.inputs[0].type.dtype) == "float" and prod([n for _, n in summed_axes(e)]) <= SHORT
    return _sums(e) and not short


def _axes(e: Equation, operand: int) -> Values:
    return e.params[("lhs", "rhs")[operand]]


# --- matrices -------------------------------------------------------------------------------------


def _rows(x: Any) -> list[Any]:
    axis = typeof(x).ndim - 2
    return [index_axis(x, axis, i) for i in range(typeof(x).shape[axis])]


def _element(row: Any, j: int) -> Any:
    return index_axis(row, typeof(row).ndim - 1, j)


def _along(element: Any, row: Any) -> Any:
    """Broadcast an element along a row."""
    shape = typeof(row).shape
    return broadcast_to_axis(element, len(shape) - 1, shape[-1])


def _chosen(row: Any, index: Any, others: Iterable[tuple[int, Any]]) -> Any:
    """Return, per matrix of the stack, the row of number `index`; else `row`."""
    for i, other in others:
        here = eq(index, full_like(index, i))
        row = select_n(_along(here, row) if typeof(row).ndim > typeof(here).ndim else here, row, other)
    return row


def _size(x: Any) -> Any:
    """Return the magnitude that LAPACK compares to find a pivot."""
    return add(abs_(real(x)), abs_(imag(x))) if is_complex(x) else abs_(x)


def _lu(x: Any) -> list[Any]:
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


def _exchange(rows: list[Any], j: int, at: Any) -> None:
    """Exchange row j with a later row, of number `at`."""
    old = rows[j]
    rows[j] = _chosen(old, at, [(i, rows[i]) for i in range(j + 1, len(rows))])
    for i in range(j + 1, len(rows)):
        rows[i] = _chosen(rows[i], at, [(i, old)])


def _permutation(pivots: Any, *, permutation_size: int) -> Any:
    *stacked, k = typeof(pivots).shape
    index = typeof(pivots).update(shape=tuple(stacked), weak_type=False)
    order: list[Any] = [literal(i, index) for i in range(permutation_size)]
    for j in range(k):
        _exchange(order, j, _element(pivots, j))
    return stack(order, -1)


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


def _triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    if not left_side:  # x a = b means a^T x^T = b^T
        how = {"lower": lower, "conjugate_a": conjugate_a, "unit_diagonal": unit_diagonal}
        turned = _triangular_solve(a, transposed(b), left_side=True, transpose_a=not transpose_a, **how)
        return transposed(turned)
    a = transposed(a) if transpose_a else a
    rows = _rows(conj(a) if conjugate_a else a)
    forwards = lower != transpose_a
    x = _substituted(lambda i, j: _element(rows[i], j), _rows(b), forwards, unit_diagonal)
    return stack(x, -2)


def _cholesky(x: Any) -> Any:
    rows = _rows(x)
    n = len(rows)
    factor: list[list[Any]] = []
    positive = None
    for i in range(n):
        row: list[Any] = []
        for j in range(i + 1):
            rest = _element(rows[i], j)
            for k in range(j):
                rest = sub(rest, mul(row[k], (factor[j] if j < i else row)[k]))
            if j < i:
                row.append(div(rest, factor[j][j]))
            else:
                here = gt(rest, full_like(rest, 0))
                positive = here if positive is None else and_(positive, here)
                row.append(sqrt(rest))
        factor.append(row)
    zero = full_like(factor[0][0], 0)
    made = stack([stack([*row, *[zero] * (n - len(row))], -1) for row in factor], -2)
    nan = lower_part(full_like(made, np.nan))
    axes = tuple(range(typeof(positive).ndim))
    spread = broadcast_in_dim(positive, shape=typeof(made).shape, dimensions=axes)
    return select_n(spread, nan, made)


def _is_small(e: Equation) -> bool:
    t = e.inputs[0].type
    return max(t.shape[-2:]) <= LARGEST and t.dtype.itemsize >= 4


def _is_small_and_real(e: Equation) -> bool:
    return _is_small(e) and dtype_class(e.inputs[0].type.dtype) == "float"


def _whole(e: Equation) -> int:
    return max([prod(v.type.shape) for v in (*e.inputs, *e.outputs)])


# --- joins ----------------------------------------------------------------------------------------


def _joined(x: Any, y: Any, *, dimension: int) -> Any:
    """Return the rows of two arrays of floats joined as the sum of them padded, which LLVM
    vectorizes: a number plus -0 is that number."""
    n, m = (typeof(x).shape[dimension] for x in (x, y))
    rest, nothing = [(0, 0, 0)] * dimension, literal(-0.0, ArrayType((), typeof(x).dtype))
    before, after = (*rest, (0, m, 0)), (*rest, (n, 0, 0))
    return add(pad(x, nothing, config=before), pad(y, nothing, config=after))


def _are_rows_of_floats(e: Equation) -> bool:
    t = e.outputs[0].type
    rows = len(e.inputs) == 2 and e.params["dimension"] == t.ndim - 1 > 0
    return rows and dtype_class(t.dtype) == "float" and t.size > UNROLLED


def _vector(w: Rewriter, e: Equation) -> Any:
    """Join vectors in a function of their own: fused with their readers, LLVM does not vectorize."""
    t = e.outputs[0].type
    return _alone(w, [e]) if t.ndim == 1 and t.size >= ALONE else None


def _vector_of_pads(w: Rewriter, e: Equation) -> Any:
    """Add padded vectors, as in gradients of shifts, in a function of their own."""
    t = e.outputs[0].type
    pads = [w.made(v, pad) for v in e.inputs] if t.ndim == 1 and t.size >= ALONE else [None]
    return _alone(w, [*pads, e]) if None not in pads else None


def _alone(w: Rewriter, equations: list[Equation]) -> Any:
    """Return the result of the last equation, computed in a function that XLA does not inline,
    together with the slices that these equations read."""
    slices = [e for e in [w.made(v, slice_) for e in equations for v in e.inputs] if e is not None]
    program = program_of([*dict.fromkeys(slices), *equations], equations[-1].outputs, "joined")
    return w.make(outlined, *program.inputs, program=program)


# --- orders ---------------------------------------------------------------------------------------


def _sorted(*xs: Any, dimension: int, is_stable: bool, num_keys: int) -> list[Any]:
    """Count for each element those that come before it, and put it there."""
    size = typeof(xs[0]).shape[dimension]
    rows = [[index_axis(x, dimension, i) for i in range(size)] for x in xs]
    keys = [list(key) for key in zip(*rows[:num_keys], strict=True)]
    count = typeof(rows[0][0]).update(dtype=INT32, weak_type=False)
    ranks = []
    for i, key in enumerate(keys):
        before = [_comes_before(other, key, j < i) for j, other in enumerate(keys) if j != i]
        ones = [convert_element_type(b, dtype=INT32, weak_type=False) for b in before]
        ranks.append(functools.reduce(add, ones, literal(0, count)))
    ranks = optimization_barrier(*ranks)
    sorted_ = []
    for row in rows:
        placed = [row[0]] * size
        for rank, x in zip(ranks[1:], row[1:], strict=True):
            placed = [select_n(eq(rank, full_like(rank, k)), y, x) for k, y in enumerate(placed)]
        sorted_.append(stack(placed, dimension - typeof(xs[0]).ndim))
    return sorted_


def _comes_before(xs: list[Any], ys: list[Any], is_first: bool) -> Any:
    """Return whether keys xs are sorted before ys: NaN is last, and equal ones keep their order."""
    result = literal(is_first, typeof(xs[0]).update(dtype=np.dtype(bool), weak_type=False))
    for x, y in reversed(list(zip(xs, ys, strict=True))):
        no_x, no_y = ne(x, x), ne(y, y)
        less = or_(lt(x, y), and_(no_y, not_(no_x)))
        result = or_(less, and_(or_(eq(x, y), and_(no_x, no_y)), result))
    return result


def _are_few_numbers(e: Equation) -> bool:
    real = all([dtype_class(v.type.dtype) in ("int", "uint", "float") for v in e.inputs])
    return real and e.inputs[0].type.shape[e.params["dimension"]] <= LARGEST


RULES: dict[Any, Any] = {add: _vector_of_pads, concatenate: _vector}  # applied before the expansions

FORMS: dict[Any, Form] = {
    concatenate: Form(_joined, _are_rows_of_floats, _whole),
    dot_general: Form(_product, _is_plain, _products, _sums_many),
    lu: Form(_lu, _is_small, _whole),
    lu_pivots_to_permutation: Form(_permutation, lambda e: e.params["permutation_size"] <= LARGEST, _whole),
    triangular_solve: Form(_triangular_solve, _is_small, _whole),
    cholesky: Form(_cholesky, _is_small_and_real, _whole),
    sort: Form(_sorted, _are_few_numbers, _whole),
    **{p: Form(scattered(p.combine), can_be_written, lambda e: e.inputs[2].type.size) for p in SCATTERS},
}
