"""Keep XLA:CPU from fusing operations that are faster apart. Measured in `benchmarks/cliffs.md`.

`unfused` runs when a program is lowered for a CPU, after the other passes. Nested programs are
unchanged, and lowered separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Literal, Program, Var
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.outlining import fused_into, is_by_element, with_alone
from functrans.passes.rewrite import Rewriter, uses, with_equations
from functrans.passes.updates_in_place import computed_first
from functrans.primitives.base import bytes_of
from functrans.primitives.calls.jit import jit, outlined
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.families import Elementwise, add, div
from functrans.primitives.elementwise.selection import clamp, optimization_barrier, select_n
from functrans.primitives.indexing.dynamic_slice import dynamic_update_slice
from functrans.primitives.random.bits import random_bits, random_fold_in, random_split, threefry2x32
from functrans.primitives.shape.joining import concatenate, pad
from functrans.primitives.shape.moving import Structural, broadcast_in_dim, reshape, slice_, transpose
from functrans.trace import stage


@memoized
def unfused(program: Program, on_this_cpu: bool) -> Program:
    """Return the program with all of these operations kept apart, or, for the CPU of another
    machine, updates and large broadcasts only; the same object if there are none."""
    settled = program.marks.settled
    rewrites = (computed_first, apart, computed_once, chained, spread, side_by_side, by_rows, hashes_apart)
    for rewrite in rewrites if on_this_cpu else rewrites[:2]:
        program = rewrite(program)
    if settled:  # by `cpu="plain"`, or as a part of a kernel
        program.mark(settled=True)
    return program


# --- large broadcasts: a separate copy for each equation that reads one ---------------------------
#
# XLA fuses a broadcast into each loop that reads it. XLA:CPU's library kernels for reductions fuse
# it only if it has no other user. Otherwise it stays in memory from its first use to its last: for
# example the scale and deviation of a layer norm, each as large as the activations, from the
# forward to the backward pass. An optimization barrier keeps XLA's CSE from merging the copies
# again.

_LARGE = 2**20  # bytes; for smaller arrays, the extra compile time is not worth it
_TIMES = 8  # minimal ratio of the result's size to the operand's


def apart(program: Program) -> Program:
    """Return the program with a copy of each large broadcast per equation that reads it; the same
    object if each is read once."""
    broadcasts = [e for e in program.equations if e.primitive is broadcast_in_dim]
    repeated = {e.outputs[0]: e for e in broadcasts if _repeats(e)}
    if not repeated:
        return program
    equations: list[Equation] = []
    read: set[Any] = set()

    def own(v: Any, reader: Equation) -> Any:
        if v not in repeated or v not in read:
            read.add(v)
            return v
        e = repeated[v]
        behind, copy = Var(e.inputs[0].type), Var(v.type)
        about = reader.source, e.origin
        equations.append(Equation(optimization_barrier, e.inputs, (behind,), {}, *about))
        equations.append(Equation(broadcast_in_dim, (behind,), (copy,), e.params, *about))
        return copy

    for e in program.equations:
        inputs = tuple([own(v, e) for v in e.inputs])
        equations.append(e if inputs == e.inputs else replace(e, inputs=inputs))
    return with_equations(program, equations)


def _repeats(e: Equation) -> bool:
    size = bytes_of(e.outputs[0].type)
    if size < _LARGE or e.inputs[0].__class__ is Literal:
        return False
    return size >= _TIMES * bytes_of(e.inputs[0].type)


# --- arrays that are shifted ----------------------------------------------------------------------
#
# XLA would compute such an array anew in each slice, amid the conditions that pads and joins become,
# where LLVM does not vectorize. Gradients of `roll` and of finite differences are of this kind.

# Elements, of a vector and of other arrays: below, starting another operation takes longer. (LLVM
# vectorizes many loops over vectors anyway.)
_VECTOR_SIZE, _SHIFTED_SIZE = 2**17, 4096


def computed_once(program: Program) -> Program:
    """Return the program with each array that is computed element by element, and read by slices
    that overlap, computed in a function of its own, if it is costly or the slices are padded; the same
    object if there are none."""
    slices = [e for e in program.equations if e.primitive is slice_]
    read: Counter[Any] = Counter()
    for e in slices:
        read[e.inputs[0]] += e.outputs[0].type.size
    if not read:
        return program
    padded = {e.inputs[0] for e in program.equations if e.primitive is pad}
    before_pads = {e.inputs[0] for e in slices if e.outputs[0] in padded}
    makers = {e.outputs[0]: e for e in program.equations if is_by_element(e)}
    times = uses(program)

    def with_makers(e: Equation) -> list[Equation]:
        if not isinstance(e.primitive, Elementwise):
            return []
        t = e.outputs[0].type
        if t.size < (_VECTOR_SIZE if t.ndim == 1 else _SHIFTED_SIZE) or read[e.outputs[0]] < 1.5 * t.size:
            return []
        found = fused_into(e, makers, times)
        is_costly = sum([_operations(x) or 0 for x in found]) >= _SEVERAL
        return found if is_costly or e.outputs[0] in before_pads else []

    return with_alone(program, with_makers)


# --- products of few terms ------------------------------------------------------------------------
#
# XLA:CPU calls a library for matrix products with at most this many terms per sum and this many
# columns in the result; that is 2 to 50 times slower than a loop, batched or not. They are lowered as
# sums of products of elements, which XLA fuses into what reads them: into another such product each
# element would be computed anew for each column. A barrier between them prevents it.

_TERMS, _TERMS_IN_STACKS, _COLUMNS = 6, 7, 8


def chained(program: Program) -> Program:
    """Return the program with a barrier before each product of few terms that reads what another one makes,
    by element; the same object if there are none. In kernels `computed_before` decides."""
    return program if program.marks.settled else _with_barriers(program, _is_written_out, _is_written_out)


def _with_barriers(
    program: Program, makes: Callable[[Equation], bool], reads: Callable[[Equation], bool]
) -> Program:
    """Return the program with a barrier before each equation of one kind that reads what one of another kind
    makes, by element."""
    if not any(map(makes, program.equations)):
        return program
    made: set[Any] = set()
    equations: list[Equation] = []
    for e in program.equations:
        if reads(e):
            for v in [v for v in dict.fromkeys(e.inputs) if v in made]:
                kept = Var(v.type)
                equations.append(Equation(optimization_barrier, (v,), (kept,), {}, e.source, e.origin))
                e = replace(e, inputs=tuple([kept if x is v else x for x in e.inputs]))
        if makes(e):
            made.update(e.outputs)
        elif isinstance(e.primitive, (Elementwise, Structural)):
            sizes = [v.type.size for v in e.inputs if v in made]
            if sizes and e.outputs[0].type.size <= max(sizes):  # a larger one would take memory
                made.update(e.outputs)
        equations.append(e)
    return with_equations(program, equations)


def _is_written_out(e: Equation) -> bool:
    if e.primitive is not dot_general or len(e.params) > 3:
        return False
    x, y = e.inputs
    return has_few_terms(x.type, y.type, **e.params)


def has_few_terms(
    x: ArrayType, y: ArrayType, lhs: Sequence[int], rhs: Sequence[int], out: Sequence[int]
) -> bool:
    """Return whether this is a product with a small matrix, such as points times a rotation."""
    if dtype_class(x.dtype) != "float" or x.dtype.itemsize < 4:
        return False
    size = dict(zip((*lhs, *rhs), (*x.shape, *y.shape), strict=True))
    summed = [n for n in lhs if n in rhs and n not in out]
    most = _TERMS_IN_STACKS if any([n in lhs and n in rhs for n in out]) else _TERMS
    if len(summed) != 1 or not 2 <= size[summed[0]] <= most:
        return False
    of_x, of_y = (
        prod([size[n] for n in axes if n not in others]) for axes, others in ((lhs, rhs), (rhs, lhs))
    )
    columns, rows = (of_x, of_y) if out and out[-1] not in rhs else (of_y, of_x)
    return rows > 1 and 1 < columns <= _COLUMNS


# --- diagonals that are broadcast -----------------------------------------------------------------
#
# XLA would take the diagonal of a matrix, a slice with strides, anew for each element that is computed from
# it, where LLVM does not vectorize: of a matrix with another diagonal, or that is normalized to ones there.

_SPREAD_SIZE = 1024  # elements; below, starting another operation takes longer


def spread(program: Program) -> Program:
    """Return the program with a barrier before each broadcast of a slice with strides; the same object if
    there are none."""
    return _with_barriers(program, _has_strides, _is_spread)


def _has_strides(e: Equation) -> bool:
    if e.primitive is jit:
        return any(map(_has_strides, e.params["program"].equations))
    return e.primitive is slice_ and max(e.params["strides"], default=1) > 1


def _is_spread(e: Equation) -> bool:
    size = e.outputs[0].type.size
    return e.primitive is broadcast_in_dim and size >= max(_SPREAD_SIZE, _TIMES * e.inputs[0].type.size)


# --- columns that are written side by side ---------------------------------------------------------
#
#     pad a + (pad b + pad c)   ->   concatenate a b c
#
# XLA fuses what computes the columns into one loop over all elements, amid the conditions that pads become:
# it is not vectorized, and what columns share is computed for each of them. Gradients with respect to
# `x[..., 0]`, `x[..., 1]` and so on are of this kind. XLA computes operands of a join before.

_JOINED_SIZE = 4096  # elements; smaller arrays are in kernels, or take no longer
_FEW = 24  # operations: LLVM vectorizes loops with as many
_MANY_PADS = 8  # XLA adds all of them for each element


def side_by_side(program: Program) -> Program:
    """Return the program with each sum of pads that are beside each other as a join of what is padded, if
    those are many or take many operations; the same object if there are none."""
    pads = [e for e in program.equations if e.primitive is pad]
    if len(pads) < _MANY_PADS and not any([e.outputs[0].type.size > _JOINED_SIZE for e in pads]):
        return program
    return Rewriter(program, {add: _joined}, "side_by_side").run()


def _joined(w: Rewriter, e: Equation) -> Any:
    """Return the join of padded arrays that together are a whole one, or None."""
    t, pads = e.outputs[0].type, _summed_pads(w, e)
    are_many = len(pads) >= _MANY_PADS
    if not pads or not (are_many or t.size > _JOINED_SIZE):
        return None
    axes = {i for p in pads for i, sides in enumerate(p.params["config"]) if any(sides)}
    if len(axes) != 1:
        return None
    (axis,) = axes
    pads.sort(key=lambda p: p.params["config"][axis])
    end = 0
    for p in pads:
        low, high, inside = p.params["config"][axis]
        if low != end or inside or high < 0 or p.inputs[1].__class__ is not Literal or p.inputs[1].value != 0:
            return None
        end = t.shape[axis] - high
    if end != t.shape[axis] or not (are_many or _takes_many_operations(w, [p.inputs[0] for p in pads])):
        return None
    return w.make(concatenate, *[p.inputs[0] for p in pads], dimension=axis)


def _summed_pads(w: Rewriter, e: Equation) -> list[Equation]:
    """Return the pads of which an equation is the sum; none if it sums anything else."""
    found: list[Equation] = []
    for v in e.inputs:
        one = w.made_by.get(v)
        if one is None or one.primitive not in (pad, add) or not w.read_once(v):
            return []
        more = [one] if one.primitive is pad else _summed_pads(w, one)
        if not more:
            return []
        found += more
    return found


def _takes_many_operations(w: Rewriter, values: list[Any]) -> bool:
    """Return whether more than a few operations by element compute these values."""
    seen, count = set[Any](), 0
    while values and count <= _FEW:
        e = w.made_by.get(values.pop())
        if e is not None and e not in seen and isinstance(e.primitive, (Elementwise, Structural)):
            seen.add(e)
            values += e.inputs
            count += isinstance(e.primitive, Elementwise)
    return count > _FEW


# --- values in kernels ----------------------------------------------------------------------------
#
# XLA fuses an operation into each of its readers, and so computes it, with all that is fused into it,
# anew for each of them, and for each element of a broadcast. In a kernel, where keeping a value costs
# little, that was half of the work of many simulators. A barrier prevents it.

_MORE = 3  # operations per element to compute a value anew, beyond those that it takes to read it
_ONE, _SEVERAL = 1, 4  # operations: of arithmetic; of a function, or a join, which XLA makes conditions


def computed_before(program: Program) -> Program:
    """Return the program of a kernel with each value that XLA would compute anew for its readers
    behind a barrier; the same object if there are none. Numbers need none: LLVM computes them once."""
    reads = _reads(program)
    anew: dict[Any, int] = {}  # operations for an element of a value, unless it is kept
    equations: list[Equation] = []
    for e in program.equations:
        equations.append(e)
        own = _operations(e)
        if own is None:
            continue
        (v,), size = e.outputs, e.outputs[0].type.size
        anew[v] = own + sum([anew.get(x, 0) for x in e.inputs])
        if own and size > 1 and (anew[v] - 1) * (reads[v] - size) >= _MORE * size:
            kept, about = Var(v.type), (e.source, e.origin)
            equations[-1] = Equation(e.primitive, e.inputs, (kept,), e.params, *about)
            equations.append(Equation(optimization_barrier, (kept,), (v,), {}, *about))
            anew[v] = 0
    return with_equations(program, equations)


def _operations(e: Equation) -> int | None:
    """Return how many operations an element takes, none for moves; None if XLA does not fuse the
    equation into its readers."""
    p = e.primitive
    if len(e.outputs) != 1:
        return None
    if isinstance(p, Structural):
        return 0
    if p is dot_general and not {*e.params["lhs"]} <= {*e.params["out"]}:
        return None  # a sum of products that XLA has code for; others are expanded
    if p in _BY_ELEMENT:
        return _ONE
    if isinstance(p, Elementwise):
        return _ONE if p.flops <= 1 and p is not div else _SEVERAL
    if p is dynamic_update_slice and not all([i.__class__ is Literal for i in e.inputs[2:]]):
        return None
    return _SEVERAL if p in (concatenate, pad, dynamic_update_slice) else None


_BY_ELEMENT = (select_n, clamp, dot_general)


def _reads(program: Program) -> Counter[Any]:
    """Return how many elements of each value are read, those of moved ones by their readers."""
    read = Counter({v: v.type.size for v in program.outputs})
    for e in reversed(program.equations):
        if isinstance(e.primitive, Structural):
            read[e.inputs[0]] += sum([read[v] for v in e.outputs])
            continue
        fused = _operations(e) is not None
        by_element = isinstance(e.primitive, Elementwise) or e.primitive in _BY_ELEMENT
        for v in e.inputs:
            n = (e.outputs[0] if by_element else v).type.size
            read[v] += min(n, read[e.outputs[0]]) if fused else n
    return read


# --- random bits ----------------------------------------------------------------------------------
#
# XLA would fuse the hash of random numbers, a hundred operations, into each loop that reads them, and
# the hash that makes a key into the one that reads it. A step that draws its points, and differentiates
# twice, compiled for ten times as long.

_HASHES = (random_bits, random_split, random_fold_in, threefry2x32)


def hashes_apart(program: Program) -> Program:
    """Return the program with each hash in a function of its own; the same object if there are none,
    or nothing else."""
    if len(program.equations) == 1:
        return program
    return with_alone(program, lambda e: [e] if e.primitive in _HASHES else [])


# --- products that sum over rows ------------------------------------------------------------------
#
# In: a product that sums over the first axes of both operands, as in gradients of weights. Out: the
# product by rows of a transposed copy of one operand.
#
#     dot_general["ki,kj->ij"] x y   ->   dot_general["ik,kj->ij"] (transpose x) y
#
# XLA:CPU reads columns of x, whose elements share cache sets if rows lie a multiple of 512 bytes apart.
# With a narrow y that takes up to three times as long; with a wide one hardly longer than the copy.
# The copy is a function of its own: fused with what computes x, it would compute this by columns.

_PRODUCTS = 2**20  # multiplications; below, the copy takes longer
_APART, _LEAST = 512, 1024  # bytes of a row; shorter ones are hardly slower


def by_rows(program: Program) -> Program:
    """Return the program with large products over the rows of both operands computed from a copy of
    one; the same object if there are none."""
    if not any([e.primitive is dot_general for e in program.equations]):
        return program
    turned = {e.inputs[0] for e in program.equations if e.primitive is transpose}

    def product(w: Rewriter, e: Equation) -> Any:
        return _on_a_copy(w, e, e.outputs[0] in turned) if _sums_rows(e) else None

    return Rewriter(program, {dot_general: product}, "by_rows").run()


def _sums_rows(e: Equation) -> bool:
    """Return whether this is a large product of floats that sums over the first axes of both."""
    lhs, rhs, out = (e.params[name] for name in ("lhs", "rhs", "out"))
    n, x, y = len([name for name in lhs if name not in out]), *(v.type for v in e.inputs)
    if not n or len(e.params) > 3 or lhs[:n] != rhs[:n] or {*lhs} & {*rhs} & {*out}:
        return False
    large = min(x.ndim, y.ndim) > n and x.size * y.size >= _PRODUCTS * prod(x.shape[:n]) > 0
    return large and dtype_class(x.dtype) == "float" and x.dtype.itemsize >= 4


def _on_a_copy(w: Rewriter, e: Equation, is_turned: bool) -> Any:
    """Return the result of such a product, or None if no copy is needed. `is_turned`: whether it is
    read transposed, which XLA does by exchanging the operands."""
    (x, y), (lhs, rhs, out) = e.inputs, (e.params[name] for name in ("lhs", "rhs", "out"))
    n = len([name for name in lhs if name not in out])
    if (out[-1] in lhs) != (is_turned and w.read_once(e.outputs[0])):
        x, y, lhs, rhs = y, x, rhs, lhs
    rows = prod(x.type.shape[:n])
    row, other = (bytes_of(v.type) // rows for v in (x, y))
    if row < _LEAST or row % _APART or row < 2 * other:
        return None
    x, y = (w.make(reshape, v, shape=(rows, v.type.size // rows)) for v in (x, y))
    move = stage(lambda x: [transpose(x, permutation=(1, 0))], [x.type], "transpose")
    made = w.make(dot_general, w.make(outlined, x, program=move), y, lhs=(1, 0), rhs=(0, 2), out=(1, 2))
    made_in, size = (*lhs[n:], *rhs[n:]), dict(zip(out, e.outputs[0].type.shape, strict=True))
    made = w.make(reshape, made, shape=tuple([size[name] for name in made_in]))
    order = tuple([made_in.index(name) for name in out])
    return made if made_in == out else w.make(transpose, made, permutation=order)
