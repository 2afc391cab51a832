"""Rules of `simplify` for concatenated values: operate on the parts instead.

In: an equation that sums, contracts or slices a value made by `concatenate`, possibly followed by
elementwise operations. Out: the same operation on each part, so that the concatenation need not be
computed. The gradient of a model flattened into one vector becomes gradients of its weights again:

    g = concatenate a b;  n = reduce_sum(g ** 2)   ->   n = reduce_sum(a ** 2) + reduce_sum(b ** 2)

Sums and contractions are split only if a part is larger than its operands, as a per-example
gradient is: then it may never be materialized (passes/contractions.py). For the same reason a slice
of such a contraction becomes a contraction of slices: a product with concatenated weights, as of
the gates of an LSTM, becomes one product per gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import accumulate, pairwise
from typing import Any

from functrans.ir.program import Equation, Literal
from functrans.passes.rewrite import Rewriter, behind
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.families import Elementwise, add
from functrans.primitives.indexing.scatter import scatter, scatter_add
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import broadcast_in_dim, reshape, slice_, transpose
from functrans.records import NamedTuple

_DEEP = 8  # maximum number of elementwise operations after a concatenate
_MOST = 1000  # maximum number of parts
_LARGE = 4096  # elements; a smaller array costs little as a whole


class Parts(NamedTuple):
    """A value split along an axis. `grown`: one of the parts is larger than its operands."""

    axis: int
    values: list[Any]
    grown: bool

    @property
    def sizes(self) -> list[int]:
        return [v.type.shape[self.axis] for v in self.values]


def parts_of(w: Rewriter, v: Any, deep: int = _DEEP) -> Parts | None:
    """Return the parts of a concatenated value, also through elementwise operations, or None."""
    if not deep or not _anywhere(w).joined:
        return None
    if v in w.parts:
        return w.parts[v]
    e = w.made_by.get(v)
    found = None
    if e is not None:
        if e.primitive is concatenate and len(e.inputs) <= _MOST:
            grown = any([is_grown(w.made_by, x) for x in e.inputs])
            found = Parts(e.params["dimension"], list(e.inputs), grown)
        elif isinstance(e.primitive, Elementwise) and e.primitive.flops <= 1:
            found = _elementwise(w, e, deep)
        if found is not None:
            w.seen.append(e)
    w.parts[v] = found
    return found


def _elementwise(w: Rewriter, e: Equation, deep: int) -> Parts | None:
    """Apply an elementwise operation to each part."""
    known = [None if v.__class__ is Literal else parts_of(w, v, deep - 1) for v in e.inputs]
    joined = [p for p in known if p is not None]
    shape = e.outputs[0].type.shape
    if not joined or any([v.type.shape != shape for v in e.inputs]):
        return None
    axis, sizes = joined[0].axis, joined[0].sizes
    if any([p.axis != axis or p.sizes != sizes for p in joined]):
        return None
    rows = [
        _pieces(w, v, axis, sizes) if p is None else p.values for v, p in zip(e.inputs, known, strict=True)
    ]
    made = [w.make(e.primitive, *xs, **e.params) for xs in zip(*rows, strict=True)]
    return Parts(axis, made, any([p.grown for p in joined]))


def _pieces(w: Rewriter, v: Any, axis: int, sizes: Sequence[int]) -> list[Any]:
    """Split a value that was not concatenated into pieces of these sizes."""
    shapes = [(*v.type.shape[:axis], n, *v.type.shape[axis + 1 :]) for n in sizes]
    if v.__class__ is Literal:
        return [Literal(v.value, v.type.update(shape=s)) for s in shapes]
    inner = w.made(v, broadcast_in_dim)
    if inner is not None and axis not in inner.params["dimensions"]:
        (x,), dimensions = inner.inputs, inner.params["dimensions"]
        return [w.make(broadcast_in_dim, x, shape=s, dimensions=dimensions) for s in shapes]
    return _cut(w, v, axis, sizes)


def _cut(w: Rewriter, v: Any, axis: int, sizes: Sequence[int]) -> list[Any]:
    """Return slices of these sizes, one behind the other along an axis."""
    whole = [(0, n) for n in v.type.shape]
    ends = list(accumulate(sizes, initial=0))
    return [_slice(w, v, [*whole[:axis], place, *whole[axis + 1 :]]) for place in pairwise(ends)]


_MOVES = frozenset([reshape, transpose])
_LOOKED_AT = _MOVES | {dot_general, scatter, scatter_add}


class Anywhere(NamedTuple):
    """Whether the program has a concatenated value, and one with a part that is `grown`."""

    joined: bool
    grown: bool


def _anywhere(w: Rewriter) -> Anywhere:
    if w.joins is None:
        equations = w.program.equations
        parts = [v for e in equations if e.primitive is concatenate for v in e.inputs]
        made_by = {e.outputs[0]: e for e in equations if e.primitive in _LOOKED_AT} if parts else {}
        w.joins = Anywhere(bool(parts), any([is_grown(made_by, v) for v in parts]))
    return w.joins


def is_grown(made_by: dict[Any, Equation], v: Any) -> bool:
    """Return whether a value is a contraction, or rows scattered into zeros, larger than its operands."""
    e = behind(made_by, v, _MOVES)
    return e is not None and all([x.__class__ is Literal or x.type.size < v.type.size for x in e.inputs])


# --- rules for their users ------------------------------------------------------------------------


def sum_of_joined(w: Rewriter, e: Equation) -> Any:
    """Apply reduce_sum to each part, and add the results or concatenate them along a kept axis."""
    if not _anywhere(w).grown:
        return None
    found = parts_of(w, e.inputs[0])
    if found is None or not found.grown:
        return None
    axes = e.params["axes"]
    sums = [w.make(e.primitive, v, axes=axes) for v in found.values]
    if found.axis in axes:
        return reduce(partial(w.make, add), sums)
    return w.make(concatenate, *sums, dimension=found.axis - sum([a < found.axis for a in axes]))


def contraction_of_joined(w: Rewriter, e: Equation) -> Any:
    """Apply dot_general to each part, and add the results or concatenate them along a kept axis."""
    if not _anywhere(w).grown:
        return None
    for i, v in enumerate(e.inputs):
        found = parts_of(w, v)
        if found is None or not found.grown:
            continue
        names = [e.params["lhs"], e.params["rhs"]]
        name, other = names[i][found.axis], names[1 - i]
        fixed = e.inputs[1 - i]
        others = [fixed] * len(found.values)
        if name in other:
            axis, sizes = other.index(name), found.sizes
            same = parts_of(w, fixed)
            if same is not None and same.axis == axis and same.sizes == sizes:
                others = same.values
            else:
                others = _pieces(w, fixed, axis, sizes)
        pairs = [(x, y) if i == 0 else (y, x) for x, y in zip(found.values, others, strict=True)]
        made = [w.make(dot_general, x, y, **e.params) for x, y in pairs]
        if name in e.params["out"]:
            return w.make(concatenate, *made, dimension=e.params["out"].index(name))
        return reduce(partial(w.make, add), made)
    return None


def slice_of_joined(w: Rewriter, e: Equation) -> Any:
    """Take a slice inside one part from that part. What is computed from a small joined array is
    computed once, instead of anew for each slice."""
    (x,) = e.inputs
    found = parts_of(w, x)
    if found is None:
        return None
    if w.made(x, concatenate) is None and not found.grown and x.type.size < _LARGE:
        return None
    start, limit, strides = (e.params[name] for name in ("start", "limit", "strides"))
    axis = found.axis
    places = pairwise(accumulate(found.sizes, initial=0))
    for v, (before, end) in zip(found.values, places, strict=True):
        if before <= start[axis] < limit[axis] <= end:
            low, high = list(start), list(limit)
            low[axis], high[axis] = low[axis] - before, high[axis] - before
            return w.make(slice_, v, start=tuple(low), limit=tuple(high), strides=strides)
    return None


def split_of_joined(w: Rewriter, e: Equation) -> Any:
    """Return the parts of a concatenated value, or of a contraction larger than its operands; None
    unless all are found."""
    (x,), axis = e.inputs, e.params["axis"]
    if not _is_by_example(w.made_by, x) and parts_of(w, x) is None:
        return None
    return tuple(_cut(w, x, axis, e.params["sizes"]))


def _is_by_example(made_by: dict[Any, Equation], v: Any) -> bool:
    """Return whether a value is a, possibly transposed, batched contraction larger than its operands."""
    e = behind(made_by, v, (transpose,))
    if e is None or e.primitive is not dot_general or not is_grown(made_by, v):
        return False
    return not {*e.params["lhs"]}.intersection(e.params["rhs"]).isdisjoint(e.params["out"])


def slice_of_grown(w: Rewriter, e: Equation) -> Any:
    """Replace a slice of such a contraction by a contraction of slices."""
    (x,) = e.inputs
    by = w.made_by.get(x)
    if by is None or not _is_by_example(w.made_by, x) or set(e.params["strides"]) != {1}:
        return None
    w.seen.append(by)
    cut = list(zip(e.params["start"], e.params["limit"], strict=True))
    if by.primitive is transpose:
        order = by.params["permutation"]
        inner = _slice(w, by.inputs[0], [cut[order.index(i)] for i in range(len(order))])
        return w.make(transpose, inner, permutation=order)
    of = dict(zip(by.params["out"], cut, strict=True))
    operands = [
        _slice(w, v, [of.get(a, (0, n)) for a, n in zip(names, v.type.shape, strict=True)])
        for v, names in zip(by.inputs, (by.params["lhs"], by.params["rhs"]), strict=True)
    ]
    return w.make(dot_general, *operands, **by.params)


def _slice(w: Rewriter, v: Any, cut: Sequence[tuple[int, int]]) -> Any:
    """Return the elements of v between two indices along each axis."""
    start, limit = tuple([a for a, _ in cut]), tuple([b for _, b in cut])
    if v.__class__ is Literal:
        return Literal(v.value, v.type.update(shape=tuple([b - a for a, b in cut])))
    if limit == v.type.shape and not any(start):
        return v
    return w.make(slice_, v, start=start, limit=limit, strides=(1,) * len(cut))
