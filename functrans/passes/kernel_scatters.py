"""Expansions of scatters inside a kernel: each window is read, updated and written back, one after the
other, if it is inside x. A few windows are unrolled, more are a loop, and so are all in a kernel of many.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from functrans.ir.program import PRIMITIVES, Equation, Program
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.rewrite import all_equations
from functrans.primitives.control_flow.scan import scanned
from functrans.primitives.elementwise.bitwise import and_
from functrans.primitives.elementwise.families import ge, le
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.primitives.indexing.gather import Windows, last_places
from functrans.primitives.indexing.scatter import SCATTERS
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import broadcast_in_dim, index_axis, reshape, transpose
from functrans.trace import literal, typeof

UNROLLED = 16  # scatters of up to this many windows are unrolled
MOST = 64  # in a kernel of more windows they are not: LLVM takes tens of milliseconds for each


def scattered(combine: str | None, unrolled: int = UNROLLED) -> Callable[..., Any]:
    """Return the expansion of a scatter, given the primitive that combines an element and its update."""

    def write(x: Any, i: Any, updates: Any, *, mode: str, **params: Any) -> Any:
        shape, windows = typeof(i).shape[:-1], Windows.of(params)
        one: Callable[..., Any] = functools.partial(_written, combine, windows, mode)
        if prod(shape) > unrolled:
            return _in_turn(one, x, i, updates, windows)
        for place in np.ndindex(shape):
            at = dict(zip(windows.indices, place, strict=True))
            row = _picked(i, dict(enumerate(place)))
            new = _picked(updates, {d: at[n] for d, n in enumerate(windows.slices) if n in at})
            kind = _kind(row)
            x = one(x, row, new, {n: literal(p, kind) for n, p in at.items()})
        return x

    return write


def _written(
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


def _picked(x: Any, at: dict[int, int]) -> Any:
    """Return x at indices along some axes, which are dropped."""
    for axis in sorted(at, reverse=True):
        x = index_axis(x, axis, at[axis])
    return x


def can_be_written(e: Equation) -> bool:
    """Return whether a scatter can be expanded."""
    x, i, _ = (v.type for v in e.inputs)
    if not x.shape or not i.size or dtype_class(x.dtype) == "key":
        return False
    return max(i.shape[:-1], default=0) <= np.iinfo(i.dtype).max


def unrolled_windows(program: Program) -> int:
    """Return the number of windows that the scatters of a program and those nested in it unroll."""
    scatters = [e for e in all_equations(program) if e.primitive in SCATTERS]
    counts = [prod(e.inputs[1].type.shape[:-1]) for e in scatters]
    return sum([n for n in counts if n <= UNROLLED])
