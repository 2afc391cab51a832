"""Rules of `simplify` for operations that move, broadcast or drop elements. All are exact.

Two moves in sequence become one, and a move that changes nothing becomes its operand. Pads and reversals are
left to XLA, whose own simplifier makes the same of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes

from functrans.ir.program import PRIMITIVES, Equation, Literal, Var
from functrans.ir.types import dtype_class, is_key_dtype
from functrans.passes.concatenations import slice_of_grown, slice_of_joined, split_of_joined
from functrans.passes.rewrite import Rewriter
from functrans.primitives.elementwise import transcendental as transcendental
from functrans.primitives.elementwise.arithmetic import integer_pow
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.families import add, div, lt, mul, square
from functrans.primitives.indexing.gather import Windows, gather
from functrans.primitives.indexing.scatter import SCATTERS
from functrans.primitives.reductions.folds import argmax, argmin, reduce_sum
from functrans.primitives.shape.joining import concatenate, iota, split
from functrans.primitives.shape.moving import (
    Structural,
    broadcast_in_dim,
    reshape,
    rev,
    slice_,
    squeeze,
    transpose,
)
from functrans.trace import literal

# --- values that are never negative ---------------------------------------------------------------
#
# In: a value and the equations before it. Out: whether it is known to be neither negative nor -0.0, so
# that adding 0.0 changes nothing and a power has its square root: a square, a magnitude, an exponential,
# and sums, products and moves of these; of integers only places such as 0, 1, 2, ... and moves of them,
# since sums may overflow. The default answer is no.

_DEEP = 8  # maximum depth of the search
_MOVES = frozenset([broadcast_in_dim, concatenate, reshape, rev, slice_, squeeze, transpose])
_POSITIVE = frozenset([square, abs_, transcendental.exp])
_AS_OPERANDS = _MOVES | {add, mul, div, integer_pow, reduce_sum}  # never negative if these are not


def never_negative(made_by: Mapping[Var, Equation], v: Any, deep: int = _DEEP) -> bool:
    """Return whether no element of a real value is known to be negative or -0.0."""
    if v.__class__ is Literal:
        number: Any = v.value
        return number.__class__ is not complex and number >= 0 and math.copysign(1.0, number) > 0
    e = made_by.get(v)
    if e is None or not deep:
        return False
    p, xs = e.primitive, e.inputs
    if dtype_class(v.type.dtype) != "float":
        return _is_place(e) or (p in _MOVES and all([never_negative(made_by, x, deep - 1) for x in xs]))
    if p in _POSITIVE or (p is mul and xs[0] is xs[1]):
        return True
    if p is integer_pow and e.params["y"] % 2 == 0:
        return bool(e.params["y"] > 0)
    if p in _AS_OPERANDS:
        return all([never_negative(made_by, x, deep - 1) for x in xs])
    return False


def _is_place(e: Equation) -> bool:
    """Return whether an equation makes places along an axis, all of which its dtype can hold."""
    if e.primitive is iota:
        n = e.params["shape"][e.params["dimension"]]
    elif e.primitive in (argmax, argmin):
        n = e.inputs[0].type.shape[e.params["axes"][0]]
    else:
        return False
    dtype = e.outputs[0].type.dtype
    return dtype_class(dtype) in ("int", "uint") and n - 1 <= int(ml_dtypes.iinfo(dtype).max)


# --- rules ----------------------------------------------------------------------------------------


def moved(w: Rewriter, primitive: Structural, x: Any, **params: Any) -> Any:
    """Return a move of x; a literal for a literal."""
    if x.__class__ is Literal:
        return Literal(x.value, primitive.abstract_eval(x.type, **params))
    return w.make(primitive, x, **params)


def _transpose(w: Rewriter, e: Equation) -> Any:
    (x,), order = e.inputs, e.params["permutation"]
    if order == tuple(range(len(order))):
        return x
    inner = w.made(x, transpose)
    if inner is not None:
        first = inner.params["permutation"]
        return moved(w, transpose, inner.inputs[0], permutation=tuple([first[i] for i in order]))
    inner = w.made(x, broadcast_in_dim)
    if inner is None:
        return None
    dimensions = tuple([order.index(d) for d in inner.params["dimensions"]])
    if list(dimensions) != sorted(dimensions):
        return None
    shape = e.outputs[0].type.shape
    return moved(w, broadcast_in_dim, inner.inputs[0], shape=shape, dimensions=dimensions)


def _reshape(w: Rewriter, e: Equation) -> Any:
    """Rewrite a reshape or a squeeze."""
    (x,), shape = e.inputs, e.outputs[0].type.shape
    if x.type.shape == shape:
        return x
    inner = w.made(x, reshape) or w.made(x, squeeze)
    if inner is not None:
        return moved(w, reshape, inner.inputs[0], shape=shape)
    inner = w.made(x, broadcast_in_dim)
    if inner is None:
        return None
    (y,), dimensions = inner.inputs, inner.params["dimensions"]
    if e.primitive is squeeze:
        dropped = e.params["dimensions"]
        if not set(dimensions).isdisjoint(dropped):
            return None
        dimensions = tuple([d - sum([i < d for i in dropped]) for d in dimensions])
    elif y.type.shape:
        if y.type.size == x.type.size != 0:  # the broadcast only adds axes of size 1
            return moved(w, reshape, y, shape=shape)
        return None
    return moved(w, broadcast_in_dim, y, shape=shape, dimensions=dimensions)


def _broadcast(w: Rewriter, e: Equation) -> Any:
    (x,), shape, dimensions = e.inputs, e.params["shape"], e.params["dimensions"]
    if x.type.shape == shape:
        return x
    inner = w.made(x, broadcast_in_dim)
    if inner is not None:
        first = tuple([dimensions[d] for d in inner.params["dimensions"]])
        return moved(w, broadcast_in_dim, inner.inputs[0], shape=shape, dimensions=first)
    inner = w.made(x, reshape)
    if inner is None:
        return None
    (y,) = inner.inputs
    kept = tuple([d for d, n in zip(dimensions, x.type.shape, strict=True) if n != 1])
    if y.type.shape != tuple([shape[d] for d in kept]):
        return None  # the reshape adds more than axes of size 1
    return moved(w, broadcast_in_dim, y, shape=shape, dimensions=kept)


def _slice(w: Rewriter, e: Equation) -> Any:
    (x,), shape = e.inputs, e.outputs[0].type.shape
    if x.type.shape == shape:
        return x
    inner = w.made(x, slice_)
    if inner is not None:
        return _slice_of_slice(w, inner, shape, e.params["start"], e.params["strides"])
    found = slice_of_joined(w, e) or slice_of_grown(w, e)
    if found is not None:
        return found
    inner = w.made(x, broadcast_in_dim)
    if inner is None:
        return None
    dimensions = inner.params["dimensions"]
    if any([shape[d] != x.type.shape[d] for d in dimensions]):
        return None
    return moved(w, broadcast_in_dim, inner.inputs[0], shape=shape, dimensions=dimensions)


def _slice_of_slice(w: Rewriter, inner: Equation, shape: Any, start: Any, strides: Any) -> Any:
    first, steps = inner.params["start"], inner.params["strides"]
    begin = tuple([a + s * b for a, s, b in zip(first, steps, start, strict=True)])
    by = tuple([s * t for s, t in zip(steps, strides, strict=True)])
    end = [a + (n - 1) * s + 1 if n else a for a, n, s in zip(begin, shape, by, strict=True)]
    if any([n == 0 for n in shape]):
        return None  # the slice is empty
    return moved(w, slice_, inner.inputs[0], start=begin, limit=tuple(end), strides=by)


def _split(w: Rewriter, e: Equation) -> Any:
    return e.inputs if len(e.outputs) == 1 else split_of_joined(w, e)


def _concatenate(w: Rewriter, e: Equation) -> Any:
    axis = e.params["dimension"]
    kept = [x for x in e.inputs if x.type.shape[axis]]
    if len(kept) == 1:
        return kept[0]
    if kept and len(kept) < len(e.inputs):
        return w.make(concatenate, *kept, dimension=axis)
    return None


def _scatter(w: Rewriter, e: Equation) -> Any:
    """Rewrite `x.at[...].set(y)`, a window as large as x that no index moves, as y."""
    x, i, y = e.inputs
    if i.type.shape != (0,) or e.params["sizes"] != x.type.shape or is_key_dtype(x.type.dtype):
        return None
    if y.type.shape != x.type.shape:
        y = w.make(reshape, y, shape=x.type.shape)
    return y if e.primitive.combine is None else w.make(PRIMITIVES[e.primitive.combine], x, y)


# --- the diagonal of a matrix ---------------------------------------------------------------------


def _lt(w: Rewriter, e: Equation) -> Any:
    """Rewrite `i < 0` as False for i = 0, 1, ...: whether an index counts from the end."""
    x, y = e.inputs
    never = y.__class__ is Literal and y.value == 0 and never_negative(w.made_by, x)
    return literal(False, e.outputs[0].type) if never else None


def _gather(w: Rewriter, e: Equation) -> Any:
    """Rewrite `x[..., i, i]` for i = 0, 1, ... as a strided slice of the rows behind one another."""
    x, indices = e.inputs
    read = Windows.of(e.params)
    kept, lead = read.operand[:-2], x.type.shape[:-2]
    if len(read.indexed) != 2 or read.operand != (*kept, *read.indexed) or read.sizes != (*lead, 1, 1):
        return None
    joined = w.made(indices, concatenate)
    if joined is None or joined.params["dimension"] != 1 or read.slices != (*kept, *read.indices):
        return None
    (rows, columns), n = x.type.shape[-2:], indices.type.shape[0]
    if not 0 < n <= min(rows, columns) or not all([_counts(w, v, n) for v in joined.inputs]):
        return None
    zeros, ones, by = [0] * len(lead), [1] * len(lead), columns + 1
    flat = w.make(reshape, x, shape=(*lead, rows * columns))
    limit = (*lead, (n - 1) * by + 1)
    return w.make(slice_, flat, start=(*zeros, 0), limit=limit, strides=(*ones, by))


def _counts(w: Rewriter, v: Any, n: int) -> bool:
    """Return whether a value is the column 0, 1, ..., n - 1."""
    made = w.made(v, broadcast_in_dim) or w.made(v, reshape)
    count = None if made is None else w.made(made.inputs[0], iota)
    if made is None or count is None or v.type.shape != (n, 1) or count.params["shape"] != (n,):
        return False
    return _is_place(count) and (made.primitive is reshape or made.params["dimensions"] == (0,))


RULES: dict[Any, Any] = {
    transpose: _transpose,
    reshape: _reshape,
    squeeze: _reshape,
    broadcast_in_dim: _broadcast,
    slice_: _slice,
    concatenate: _concatenate,
    split: _split,
    lt: _lt,
    gather: _gather,
    **dict.fromkeys(SCATTERS, _scatter),
}
