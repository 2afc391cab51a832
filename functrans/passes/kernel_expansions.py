"""Expansions of operations inside a kernel: products as sums, joins as sums of padded arrays, orders of
a few numbers, scatters window by window, and what is in kernel_factorizations.py. They are ordinary
traced code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from functrans.ir.program import PRIMITIVES, Equation, Literal, Program, program_of
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.kernel_factorizations import FACTORIZATIONS
from functrans.passes.rewrite import Rewriter
from functrans.primitives.calls.jit import outlined
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.scan import scanned
from functrans.primitives.elementwise.bitwise import and_, not_, or_
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import Elementwise, add, eq, full_like, ge, le, lt, ne
from functrans.primitives.elementwise.selection import optimization_barrier, select_n
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice, part_of
from functrans.primitives.indexing.gather import Windows, last_places
from functrans.primitives.indexing.scatter import SCATTERS
from functrans.primitives.indexing.sorting import sort
from functrans.primitives.linalg.matrices import INT32, permuted
from functrans.primitives.random.bits import is_ours, random_split
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.joining import concatenate, iota, pad
from functrans.primitives.shape.moving import (
    broadcast_in_dim,
    broadcast_to_axis,
    index_axis,
    move_axis,
    reshape,
    slice_,
    slice_axis,
    transpose,
    without,
)
from functrans.records import NamedTuple
from functrans.trace import literal, typeof

FEW = 8  # sums of up to this many terms are unrolled
SHORT = 16  # sums of so many floats are written so that no library takes them (backends/cpu.py)
LINE = 64  # bytes
LANES = 32  # sums of at least twice as many terms along rows are of vectors of so many,
ROWS = 32  # if they have up to so many results; XLA's own code is fast for so many short rows
SUMS = 4096  # the sums of more products are always taken so
UNROLLED = 256  # arrays joined to up to this many numbers are left: LLVM unrolls these loops
ALONE = 64  # joins of at least this many numbers are functions of their own
VECTORS = 16  # keys that LLVM hashes as vectors, in less time than three one by one
SORTED = 40  # up to so many numbers are sorted by counting

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


# --- keys -----------------------------------------------------------------------------------------


def _split(key: Any, *, shape: tuple[int, ...], **how: Any) -> Any:
    """Return few keys: the first of a vector of them."""
    words = random_split(key, shape=(VECTORS,), **how)
    n, rest = prod(shape), typeof(words).shape[1:]
    return reshape(slice_axis(words, 0, 0, n), shape=(*shape, *rest))


def _are_few_keys(e: Equation) -> bool:
    """Return whether these are so few keys that LLVM hashes them one by one."""
    n = prod(e.params["shape"])
    few = 2 < n < VECTORS and n & (n - 1) > 0
    return few and is_ours(**e.params) and e.inputs[0].type.ndim == 1


# --- products -------------------------------------------------------------------------------------


def _product(x: Any, y: Any, *, lhs: Values, rhs: Values, out: Values, **how: Any) -> Any:
    """Return the sum of products. Terms are added one after the other, on whole results, which LLVM
    vectorizes: few at once, many in a loop. XLA's own code computes some of a vector, and loops over vectors
    compute few long sums. (Parts of large reductions would call a library.)"""
    summed = tuple([n for n in lhs if n not in out])
    sizes = _sizes(lhs, typeof(x), rhs, typeof(y))
    results = prod([sizes[n] for n in out])
    if len(summed) == 1:
        (term, i, j), size = _terms(lhs, rhs, out, summed[0]), sizes[summed[0]]
        if _has_code(typeof(x), typeof(y), i, j, results):
            return dot_general(x, y, lhs=lhs, rhs=rhs, out=out)
        if _is_in_lanes(typeof(x), typeof(y), i, j, results):
            return _in_lanes(x, y, i, j, {"lhs": lhs, "rhs": rhs, "out": (*out, *summed)})
        if results > 1:
            if size <= FEW:
                return sum_of_terms(x, y, lhs=lhs, rhs=rhs, out=out)
            return _accumulated(term, x, y, i, j, 4 if size >= 12 else 3)
    made = dot_general(x, y, lhs=lhs, rhs=rhs, out=(*out, *summed))
    last = tuple(range(len(out), len(out) + len(summed)))
    return reduce_sum(made, axes=last) if summed else made


def _has_code(x: ArrayType, y: ArrayType, i: int, j: int, results: int) -> bool:
    """Return whether XLA's code for a product over axis i of x and j of y is fast: of a vector with the rows
    of a matrix, unless many are short, or with its columns, if its rows are whole lines."""
    size = x.shape[i]
    matrix, axis = (x, i) if y.size == size else (y, j)
    if min(x.size, y.size) != size or results == 1 or dtype_class(x.dtype) != "float":
        return False
    if axis == matrix.ndim - 1:
        return size >= SHORT or results <= ROWS
    return results * x.dtype.itemsize % LINE == 0


def _is_in_lanes(x: ArrayType, y: ArrayType, i: int, j: int, results: int) -> bool:
    """Return whether these are few long sums of floats along rows."""
    along_rows = i == x.ndim - 1 and j == y.ndim - 1 and dtype_class(x.dtype) == "float"
    return along_rows and results <= ROWS and x.shape[i] >= 2 * LANES


def _in_lanes(x: Any, y: Any, i: int, j: int, names: dict[str, Values]) -> Any:
    """Return sums along rows: of every `LANES`-th term, in a loop over vectors of them, and then of these."""
    size, sizes = typeof(x).shape[i], _sizes(names["lhs"], typeof(x), names["rhs"], typeof(y))
    shape = (*[sizes[n] for n in names["out"][:-1]], LANES)
    first, total = literal(0, ArrayType((), INT32)), literal(0, ArrayType(shape, typeof(x).dtype))

    def step(at: Any, total: Any) -> list[Any]:
        xs, ys = part_of(x, i, at, LANES), part_of(y, j, at, LANES)
        return [add(at, full_like(at, LANES)), add(total, dot_general(xs, ys, **names))]

    _, total = scanned(step, [first, total], [], size // LANES, "product")
    last, n = len(shape) - 1, LANES
    while n > 1:
        n //= 2
        total = add(slice_axis(total, last, 0, n), slice_axis(total, last, n, 2 * n))
    total = reshape(total, shape=shape[:-1])
    if not (rest := size % LANES):
        return total
    xs, ys = slice_axis(x, i, size - rest, size), slice_axis(y, j, size - rest, size)
    return add(total, reduce_sum(dot_general(xs, ys, **names), axes=(last,)))


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

    def step(at: Any, total: Any) -> list[Any]:
        xs, ys = part_of(x, i, at, many), part_of(y, j, at, many)
        for k in range(many):
            total = add(total, term(xs, ys, k))
        return [add(at, full_like(at, many)), total]

    _, total = scanned(step, [first, total], [], size // many, "product")
    return functools.reduce(add, [term(x, y, k) for k in range(size // many * many, size)], total)


def summed_axes(e: Equation) -> list[tuple[int, int]]:
    """Return the axes over which a product sums, and their sizes."""
    lhs, shape = e.params["lhs"], e.inputs[0].type.shape
    return [(n, size) for n, size in zip(lhs, shape, strict=True) if n not in e.params["out"]]


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


def products(e: Equation) -> int:
    """Return the number of products that are computed at once or summed."""
    sizes = _sizes(e.params["lhs"], e.inputs[0].type, e.params["rhs"], e.inputs[1].type)
    return prod([sizes[n] for n in (sizes if _sums(e) else e.params["out"])])


def _work(e: Equation) -> int:
    n, results = products(e), e.outputs[0].type.size
    return max(results, n // 32) if n > SUMS and len(summed_axes(e)) == 1 else n


def _sizes(lhs: Values, x: ArrayType, rhs: Values, y: ArrayType) -> dict[Any, int]:
    """Return the size of each axis of a product by its name."""
    return dict(zip((*lhs, *rhs), (*x.shape, *y.shape), strict=True))


def _sums(e: Equation) -> bool:
    summed = [n for n, _ in summed_axes(e)]
    return bool(summed) and not _are_few(summed, e.params["lhs"], e.params["rhs"], e.inputs[0].type.shape)


def _sums_many(e: Equation) -> bool:
    short = dtype_class(e.inputs[0].type.dtype) == "float" and prod([n for _, n in summed_axes(e)]) <= SHORT
    return _sums(e) and not short


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
    """Count for each element of a row those that come before it, for all at once, and gather them in
    this order."""
    last = typeof(xs[0]).ndim - 1
    xs = tuple([move_axis(x, dimension, last) for x in xs])
    shape = typeof(xs[0]).shape
    n, square = shape[last], {"dtype": INT32, "shape": (*shape, shape[last])}
    element, other = (iota(**square, dimension=d) for d in (last, last + 1))
    others, mine = ([broadcast_to_axis(x, d, n) for x in xs[:num_keys]] for d in (last, last + 1))
    before = _comes_before(others, mine, lt(other, element))
    ones = convert_element_type(before, dtype=INT32, weak_type=False)
    rank = optimization_barrier(reduce_sum(ones, axes=(last + 1,)))[0]
    is_here = eq(broadcast_to_axis(rank, last + 1, n), other)
    order = reduce_sum(select_n(is_here, full_like(element, 0), element), axes=(last,))
    order = optimization_barrier(order)[0]

    def placed(x: Any) -> Any:
        x = permuted(reshape(x, shape=(*shape[:-1], 1, n)), order, -1)
        return move_axis(reshape(x, shape=shape), last, dimension)

    return [placed(x) for x in xs]


def _comes_before(xs: list[Any], ys: list[Any], is_earlier: Any) -> Any:
    """Return whether keys xs are sorted before ys: NaN is last, and equal ones keep their order."""
    result = is_earlier
    for x, y in reversed(list(zip(xs, ys, strict=True))):
        no_x, no_y = ne(x, x), ne(y, y)
        less = or_(lt(x, y), and_(no_y, not_(no_x)))
        result = or_(less, and_(or_(eq(x, y), and_(no_x, no_y)), result))
    return result


def _are_few_numbers(e: Equation) -> bool:
    real = all([dtype_class(v.type.dtype) in ("int", "uint", "float") for v in e.inputs])
    return real and e.inputs[0].type.shape[e.params["dimension"]] <= SORTED


def _comparisons(e: Equation) -> int:
    return _whole(e) * e.inputs[0].type.shape[e.params["dimension"]] // 8  # of a vector at once


# --- scatters --------------------------------------------------------------------------------------
#
# Each window is read, updated and written back, one after the other, if it is inside x. Several are a
# loop: unrolled, they take longer to compile, and up to 1.8 times as long to run.


def _scattered(combine: str | None) -> Callable[..., Any]:
    """Return the expansion of a scatter, given the primitive that combines an element and its update."""

    def write(x: Any, i: Any, updates: Any, *, mode: str, **params: Any) -> Any:
        windows = Windows.of(params)
        one: Callable[..., Any] = functools.partial(_with_window, combine, windows, mode)
        if prod(typeof(i).shape[:-1]) > 1:
            return _in_turn(one, x, i, updates, windows)
        first = literal(0, _kind(i))
        return one(x, reshape(i, shape=typeof(i).shape[-1:]), updates, dict.fromkeys(windows.indices, first))

    return write


def _with_window(
    combine: str | None, windows: Windows, mode: str, x: Any, row: Any, new: Any, at: Mapping[int, Any]
) -> Any:
    """Return x with one window written, whose start is `row`, and `at` along batch axes."""
    kind, sizes = _kind(row), windows.sizes
    last = last_places(typeof(x).shape, kind.dtype, windows)
    starts = [index_axis(row, 0, k) for k in range(len(last))]
    inside = [
        test(start, literal(int(bound), kind))
        for start, top in zip(starts, last, strict=True)
        for test, bound in ((ge, 0), (le, top))
    ]
    found = {**at, **dict(zip(windows.indexed, starts, strict=True))}
    where = [found.get(name, literal(0, kind)) for name in windows.operand]
    new = reshape(new, shape=sizes)
    old = dynamic_slice(x, *where, sizes=sizes)
    if combine is not None:
        new = PRIMITIVES[combine](old, new)
    if mode != "clip" and inside:
        lies = functools.reduce(and_, inside)
        new = select_n(broadcast_in_dim(lies, shape=sizes, dimensions=()), old, new)
    return dynamic_update_slice(x, new, *where)


def _in_turn(one: Callable[..., Any], x: Any, i: Any, updates: Any, windows: Windows) -> Any:
    """Return x with all windows written, by a loop."""
    _, indices, slices, _, sizes = windows
    *shape, width = typeof(i).shape
    n, kind = prod(shape), _kind(i)
    front = [slices.index(name) for name in indices]
    back = [d for d, name in enumerate(slices) if name not in indices]
    rows = reshape(transpose(updates, permutation=(*front, *back)), shape=(n, *sizes))
    places = [
        reshape(iota(shape=tuple(shape), dtype=kind.dtype, dimension=d), shape=(n,))
        for d in range(len(shape))
    ]
    xs = [reshape(i, shape=(n, width)), rows, *places]

    def body(x: Any, row: Any, new: Any, *at: Any) -> list[Any]:
        return [one(x, row, new, dict(zip(indices, at, strict=True)))]

    return scanned(body, [x], xs, n, "windows")[0]


def _kind(i: Any) -> ArrayType:
    return typeof(i).update(shape=(), weak_type=False)


def _can_be_written(e: Equation) -> bool:
    """Return whether a scatter can be expanded."""
    x, i, _ = (v.type for v in e.inputs)
    if not x.shape or not i.size or dtype_class(x.dtype) == "key":
        return False
    return max(i.shape[:-1], default=0) <= np.iinfo(i.dtype).max


def _updates(e: Equation) -> int:
    return e.inputs[2].type.size


# --- before the expansions ------------------------------------------------------------------------


def rules(program: Program) -> dict[Any, Any]:
    """Return the rules for a program that are applied before the expansions."""
    by_element = [e.primitive for e in program.equations if isinstance(e.primitive, Elementwise)]
    return {**dict.fromkeys(by_element, _of_fewer), add: _sum, concatenate: _vector}


def _sum(w: Rewriter, e: Equation) -> Any:
    return _vector_of_pads(w, e) or _of_fewer(w, e)


def _of_fewer(w: Rewriter, e: Equation) -> Any:
    """Rewrite an operation by element of arrays that are broadcast alike as the broadcast of a smaller one.
    XLA does too, but what a barrier keeps for several readers would be the large one."""
    spread = {x: w.made(x, broadcast_in_dim) for x in e.inputs if x.__class__ is not Literal}
    small = {x: b.inputs[0] for x, b in spread.items() if b is not None}
    alike = {(b.inputs[0].type.shape, b.params["dimensions"]) for b in spread.values() if b is not None}
    if len(small) != len(spread) or len(alike) != 1:
        return None
    ((shape, dimensions),) = alike
    if prod(shape) == e.outputs[0].type.size:
        return None
    operands = [small[x] if x in small else Literal(x.value, x.type.update(shape=shape)) for x in e.inputs]
    made = w.make(e.primitive, *operands, **e.params)
    return w.make(broadcast_in_dim, made, shape=e.outputs[0].type.shape, dimensions=dimensions)


FORMS: dict[Any, Form] = {
    concatenate: Form(_joined, _are_rows_of_floats, _whole),
    dot_general: Form(_product, _is_plain, _work, _sums_many),
    **{p: Form(write, takes, _whole) for p, (write, takes) in FACTORIZATIONS.items()},
    random_split: Form(_split, _are_few_keys, _whole),
    sort: Form(_sorted, _are_few_numbers, _comparisons),
    **{p: Form(_scattered(p.combine), _can_be_written, _updates) for p in SCATTERS},
}
