"""The operations of an index expression, computed once per shape and structure.

In: the shape of an array, the structure of an index (index_structure.py). Out: a `Reading` or a
`Writing`: the primitives with their parameters, cached, so that running the same line again is a
lookup. The axes of gather and scatter are named as in primitives/indexing/gather.py: here axis d
of the array is d, and the axes of the index arrays follow.

Reading takes these steps, without those that do nothing:

    x -> a new axis per bool -> static slice -> reverse -> window or gather -> reshape

Writing is one scatter (one dynamic_update_slice if everything is static and all steps are 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import errors
from functrans.caching import cached
from functrans.ir.program import Literal
from functrans.ir.source import here
from functrans.ir.types import ArrayType, dtype_class
from functrans.numpy.index_structure import Structure
from functrans.numpy.promotion import broadcast_shape, cast_to, expand
from functrans.primitives.elementwise.families import add, lt
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import broadcast_in_dim, reshape
from functrans.trace import literal, typeof

Shape = tuple[int, ...]


class Step(NamedTuple):
    """An index entry with its axis: kind "slice" (value: range), "int", "array" (value: shape) or
    "new"."""

    kind: str
    axis: int
    value: Any


class Layout(NamedTuple):
    """An index aligned with the axes of the array (with a new axis of size 1 per bool).

    group : the broadcast shape of the index arrays
    at    : the axis of the result where the group begins
    """

    shape: Shape
    steps: list[Step]
    group: Shape
    at: int


def layout(shape: Shape, structure: Structure) -> Layout:
    """Align an index with the axes of an array."""
    used = sum([_consumes(e) for e in structure])
    if structure.count(Ellipsis) > 1:
        raise _invalid("an index can only have a single ellipsis ('...')")
    if used > len(shape):
        raise _invalid(
            f"Too many indices: array is {len(shape)}-dimensional, but {used} were indexed",
            f"Its shape is {shape}; an index with None adds an axis.",
        )
    entries = list(structure) if Ellipsis in structure else [*structure, Ellipsis]
    steps: list[Step] = []
    full: list[int] = []  # the shape so far, with an axis per bool
    rest = list(shape)
    for entry in entries:
        if entry is None:
            steps.append(Step("new", len(full), None))
        elif entry is Ellipsis:
            for _ in range(len(shape) - used):
                n = rest.pop(0)
                steps.append(Step("slice", len(full), range(n)))
                full.append(n)
        else:
            n = rest.pop(0) if _consumes(entry) else 1
            steps.append(_step(entry, len(full), n))
            full.append(n)
    group = broadcast_shape([s.value for s in steps if s.kind == "array"], "indexing")
    return Layout(tuple(full), steps, group, _group_place(structure, steps))


def _consumes(entry: Any) -> bool:
    return (
        entry is not None and entry is not Ellipsis and not (entry.__class__ is tuple and entry[0] == "flag")
    )


def _is_array(entry: Any) -> bool:
    return entry.__class__ is tuple and entry[0].__class__ is str


def _step(entry: Any, axis: int, n: int) -> Step:
    if not n and (entry.__class__ is int or (_is_array(entry) and entry[1] == ())):
        raise _invalid(f"index is out of bounds for axis {axis} with size 0")
    if entry.__class__ is int:
        return Step("int", axis, entry)
    if not _is_array(entry):
        return Step("slice", axis, range(*slice(*entry).indices(n)))
    if len(entry) == 3 and entry[2] not in (0, n):
        raise _invalid(f"a boolean index of size {entry[2]} is used for axis {axis} of size {n}")
    return Step("array", axis, entry[1])


def _group_place(structure: Structure, steps: Sequence[Step]) -> int:
    """Return the axis of index arrays in the result. NumPy's rule: the place of the first one if
    they (and ints) are adjacent, else the front."""
    advanced = [i for i, e in enumerate(structure) if _is_array(e) or e.__class__ is int]
    if not advanced or advanced[-1] - advanced[0] != len(advanced) - 1:
        return 0
    before = 0
    for step in steps:
        if step.kind in ("int", "array"):
            return before
        before += 1
    return before


def _invalid(problem: str, fix: str = "") -> errors.InvalidIndex:
    below = f"\n{fix}" if fix else ""
    return errors.InvalidIndex(f"{problem}, {here()}{below}")


def _result(lay: Layout, group: bool) -> list[Any]:
    """Return the result's axes: a Step per slice and new axis, "group" at its place."""
    axes: list[Any] = [s for s in lay.steps if s.kind in ("slice", "new")]
    if group:
        axes.insert(lay.at, "group")
    return axes


# --- the names of axes --------------------------------------------------------------------------


class _IndexAxes(NamedTuple):
    """The names of the axes of indices and slices. `own`: axis of x -> the index axis that counts
    along it, for slices that are not windows. `after`: the number of index axes after the group."""

    slices: Shape
    indices: Shape
    shape: Shape
    own: dict[int, int]
    after: int


def _index_axes(lay: Layout, given: bool, is_window: Callable[[range], bool]) -> _IndexAxes:
    slices: list[int] = []
    indices: list[int] = []
    shape: list[int] = []
    own: dict[int, int] = {}
    group_end = 0
    for axis in _result(lay, given):
        if axis != "group" and is_window(axis.value):
            slices.append(axis.axis)
            continue
        if axis == "group":
            shape.extend(lay.group)
            group_end = len(shape)
        else:
            own[axis.axis] = len(shape)
            shape.append(len(axis.value))
        new = range(len(lay.shape) + len(indices), len(lay.shape) + len(shape))
        indices.extend(new)
        slices.extend(new)
    return _IndexAxes(tuple(slices), tuple(indices), tuple(shape), own, len(shape) - group_end)


def _parameters(
    lay: Layout, names: _IndexAxes, indexed: Sequence[int], sizes: Sequence[int]
) -> dict[str, Any]:
    """Return the axes of a gather or scatter, as its parameters."""
    return {
        "operand": tuple(range(len(lay.shape))),
        "indices": names.indices,
        "slices": names.slices,
        "indexed": tuple(indexed),
        "sizes": tuple([k if d in names.slices else 1 for d, k in enumerate(sizes)]),
    }


# --- reading --------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """The steps of reading; None for those that do nothing.

    window : for a dynamic_slice: per axis a literal start, or None if it has an index; the sizes
    axes   : the axes of a gather
    columns, index_shape : see `index_array`
    """

    expand: Shape | None
    cut: dict[str, Shape] | None
    reverse: tuple[int, ...]
    window: tuple[tuple[Literal | None, ...], Shape] | None
    axes: dict[str, Any] | None
    columns: tuple[Any, ...]
    index_shape: Shape
    out: Shape | None


@cached("indices that are read", 4096)
def reading(shape: Shape, structure: Structure, by_window: bool, wrap: bool) -> Reading:
    """Return how to read an index. `by_window`: scalar indices may be clamped, as in
    dynamic_slice."""
    lay = layout(shape, structure)
    low, high, by = [0] * len(lay.shape), list(lay.shape), [1] * len(lay.shape)
    given: list[int] = []
    reverse = []
    for kind, axis, value in lay.steps:
        if kind == "int":
            n = lay.shape[axis]
            low[axis] = min(max(value + n if wrap and value < 0 else value, 0), n - 1)  # clamped as by JAX
            high[axis] = low[axis] + 1
        elif kind == "slice":
            r = value if value.step > 0 else value[::-1]
            if len(r) > 1:
                by[axis] = r.step
                if value.step < 0:
                    reverse.append(axis)
            low[axis], high[axis] = (r[0], r[-1] + 1) if r else (0, 0)
        elif kind == "array":
            given.append(axis)
    sizes = [-(-(b - a) // s) for a, b, s in zip(low, high, by, strict=True)]
    cut = {"start": tuple(low), "limit": tuple(high), "strides": tuple(by)}
    window = axes = None
    if given and by_window and not any([s.value for s in lay.steps if s.kind == "array"]):
        place: list[int | None] = [0] * len(sizes)
        if not reverse and set(by) == {1}:
            place, cut = list(low), {}
        for axis in given:
            place[axis], sizes[axis] = None, 1
        dtype = index_dtype(lay.shape)
        starts = [None if s is None else literal(s, ArrayType((), dtype)) for s in place]
        window = tuple(starts), tuple(sizes)
    elif given:
        axes = _parameters(lay, _index_axes(_without_new(lay), True, lambda r: True), given, sizes)
    if cut and (cut["limit"] == lay.shape and not any(low) and set(by) <= {1}):
        cut = {}
    out = _shape_of(lay, bool(axes), sizes)
    now = tuple(sizes) if axes is None else _shape_of(_without_new(lay), True, sizes)
    return Reading(
        lay.shape if lay.shape != shape else None,
        cut or None,
        tuple(reverse),
        window,
        axes,
        tuple([lay.shape[d] for d in given]),
        lay.group,
        out if out != now else None,
    )


def _shape_of(lay: Layout, group: bool, sizes: Sequence[int]) -> Shape:
    shape: list[int] = []
    for axis in _result(lay, group):
        if axis == "group":
            shape.extend(lay.group)
        else:
            shape.append(1 if axis.kind == "new" else sizes[axis.axis])
    return tuple(shape)


def _without_new(lay: Layout) -> Layout:
    """Return the layout without its new axes."""
    kept = [s for s in lay.steps if s.kind != "new"]
    new_before = [s.kind for s in _result(lay, False)[: lay.at]].count("new")
    return lay._replace(steps=kept, at=lay.at - new_before)


# --- writing --------------------------------------------------------------------------------------


class Writing(NamedTuple):
    """The step of writing.

    value  : the shape to which the new values are broadcast; slices: the same without new axes
    window : the starts of a dynamic_update_slice, if everything is static and all steps are 1
    axes   : the axes of a scatter
    unique, sorted : no element is written twice; the indices ascend
    columns, index_shape, after : see `index_array`
    """

    expand: Shape | None
    value: Shape
    slices: Shape
    window: tuple[Literal, ...] | None
    axes: dict[str, Any]
    unique: bool
    sorted: bool
    columns: tuple[Any, ...]
    index_shape: Shape
    after: int


@cached("indices that are written", 4096)
def writing(shape: Shape, structure: Structure, wrap: bool) -> Writing:
    """Return how to write to an index."""
    lay = layout(shape, structure)
    slim = _without_new(lay)
    sizes = [len(s.value) if s.kind == "slice" else 1 for s in slim.steps]
    given = any([s.kind == "array" for s in slim.steps])
    names = _index_axes(slim, given, _is_window)
    found = [(s.axis, _column(s, lay.shape[s.axis], names, wrap)) for s in slim.steps]
    kept = [(d, c) for d, c in found if c is not None]
    return Writing(
        lay.shape if lay.shape != shape else None,
        _shape_of(lay, given, sizes),
        _shape_of(slim, given, sizes),
        _static_window(lay.shape, slim.steps, wrap),
        _parameters(lay, names, [d for d, _ in kept], sizes),
        not given or math.prod(lay.group) == 1,
        not given and all([s.kind != "slice" or s.value.step > 0 for s in slim.steps]),
        tuple([c for _, c in kept]),
        names.shape,
        names.after,
    )


def _is_window(r: range) -> bool:
    return r.step == 1 or len(r) < 2


def _column(step: Step, n: int, names: _IndexAxes, wrap: bool) -> Any:
    """Return the start indices along one axis; None if the window is the whole axis."""
    ones = [1] * len(names.shape)
    if step.kind == "array":
        return n
    if step.kind == "int":
        return np.full(ones, step.value + n if wrap and step.value < 0 else step.value)
    if not _is_window(step.value):
        ones[names.own[step.axis]] = len(step.value)
        return np.array(step.value).reshape(ones)
    if len(step.value) == n:
        return None
    return np.full(ones, step.value[0] if step.value else 0)


def _static_window(shape: Shape, steps: Sequence[Step], wrap: bool) -> tuple[Literal, ...] | None:
    starts = [0] * len(shape)
    for kind, axis, value in steps:
        n = shape[axis]
        if kind == "int" and (-n if wrap else 0) <= value < n:
            starts[axis] = value % n
        elif kind == "slice" and _is_window(value):
            starts[axis] = value[0] if value else 0
        else:
            return None
    return tuple([literal(s, ArrayType((), index_dtype(shape))) for s in starts])


# --- the array of indices -------------------------------------------------------------------------


def index_dtype(shape: Shape) -> Any:
    """Return the integer dtype that can index an array of a shape."""
    return np.dtype(np.int64 if max(shape, default=0) > 0x7FFFFFFF else np.int32)


def index_array(
    columns: Sequence[Any], index_shape: Shape, after: int, arrays: Sequence[Any], wrap: bool, dtype: Any
) -> Any:
    """Return the indices of a gather or scatter: [*index_shape, number of columns].

    A column is a constant array that broadcasts to `index_shape`, or the size of the axis that the
    next of `arrays` indexes; the shapes of `arrays` fill the axes of `index_shape` before the last
    `after`. `wrap`: their negative indices count from the end.
    """
    given = iter(arrays)
    parts: list[Any] = []
    sizes: list[int] = []
    for column in columns:
        part, size = column, 0
        if column.__class__ is int:
            part = next(given)
            if part.__class__ is np.ndarray:
                part = _counted_from_front(part, column, wrap, dtype)
                part = part.reshape((*part.shape, *[1] * after))
            elif dtype_class(typeof(part).dtype) == "int":
                size = column
        parts.append(part)
        sizes.append(size)
    if all([p.__class__ is np.ndarray for p in parts]):
        known = [np.broadcast_to(p, index_shape) for p in parts]
        return np.stack(known, -1).astype(dtype) if known else np.zeros((*index_shape, 0), dtype)
    full = (*index_shape, 1)
    made = [
        np.broadcast_to(p[..., None], full).astype(dtype)
        if p.__class__ is np.ndarray
        else expand(_with_ones(cast_to(p, dtype), after + 1), full)
        for p in parts
    ]
    i = made[0] if len(made) == 1 else concatenate(*made, dimension=len(index_shape))
    return wrapped(i, sizes) if wrap and any(sizes) else i


def _counted_from_front(i: np.ndarray, n: int, wrap: bool, dtype: Any) -> np.ndarray:
    limits = np.iinfo(dtype)
    if i.dtype.kind == "u":
        return np.minimum(i, min(np.iinfo(i.dtype).max, limits.max)).astype(dtype)
    wide = i.astype(np.int64)
    if wrap:
        wide = np.where(wide < 0, wide + n, wide)
    return np.clip(wide, limits.min, limits.max).astype(dtype)


def _with_ones(x: Any, n: int) -> Any:
    return reshape(x, shape=(*typeof(x).shape, *[1] * n))


def wrapped(i: Any, sizes: Sequence[int]) -> Any:
    """Return indices with negative ones counted from the end; the last axis has one per size."""
    t = typeof(i).strong()
    n: Any = literal(sizes[0], t)
    if len(set(sizes)) > 1:
        n = broadcast_in_dim(np.array(sizes, t.dtype), shape=t.shape, dimensions=(t.ndim - 1,))
    return select_n(lt(i, literal(0, t)), i, add(i, n))
