"""The operations of an index expression, computed once per shape and structure.

In: the shape of an array, the structure of an index (index_structure.py). Out: a `Reading` or a
`Writing`: the primitives with their parameters, cached, so that running the same line again is a
lookup. The axes of gather and scatter are named as in primitives/indexing/gather.py: here axis d
of the array is d, and the axes of the index arrays follow.

Reading takes these steps, without those that do nothing:

    x -> static slice -> reverse -> window or gather -> reshape

Writing is one scatter (one dynamic_update_slice if everything is static and all steps are 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

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
from functrans.primitives.indexing.gather import Windows
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import broadcast_in_dim, reshape
from functrans.records import NamedTuple
from functrans.trace import literal, typeof

Shape = tuple[int, ...]


class Step(NamedTuple):
    """An index entry with its axis of the array: kind "int", "slice" (value: range, with step 1 unless it
    has several elements) or "array" (value: shape). "new" and an array that is a single bool have none."""

    kind: str
    axis: Any
    value: Any


class Layout(NamedTuple):
    """An index aligned with the axes of an array. The axes of the result are the slices and new axes
    `before`, those of all index `arrays` together (their broadcast shape), and the slices and new axes
    `after`."""

    steps: list[Step]
    before: list[Step]
    arrays: Shape
    after: list[Step]

    def shape(self, sizes: Sequence[int], new: bool = True) -> Shape:
        """Return the result's shape, given the sizes left of the array's axes; `new`: with the new axes."""

        def of(axes: Sequence[Step]) -> list[int]:
            return [sizes[a.axis] if a.kind == "slice" else 1 for a in axes if new or a.kind == "slice"]

        return (*of(self.before), *self.arrays, *of(self.after))


def layout(shape: Shape, structure: Structure) -> Layout:
    used = sum([_consumes(e) for e in structure])
    if structure.count(Ellipsis) > 1:
        raise _invalid("an index can only have a single ellipsis ('...')")
    if used > len(shape):
        raise _invalid(
            f"Too many indices: array is {len(shape)}-dimensional, but {used} were indexed",
            f"Its shape is {shape}; an index with None adds an axis.",
        )
    steps: list[Step] = []
    rest = iter(enumerate(shape))
    for entry in structure if Ellipsis in structure else (*structure, Ellipsis):
        if entry is Ellipsis:
            steps += [Step("slice", d, range(n)) for d, n in islice(rest, len(shape) - used)]
        elif entry is None:
            steps.append(Step("new", None, None))
        elif _consumes(entry):
            steps.append(_step(entry, *next(rest)))
        else:
            steps.append(Step("array", None, entry[1]))
    axes = [s for s in steps if s.kind in ("slice", "new")]
    arrays = broadcast_shape([s.value for s in steps if s.kind == "array"], "indexing")
    place = _place_of_arrays(structure, steps)
    return Layout(steps, axes[:place], arrays, axes[place:])


def _consumes(entry: Any) -> bool:
    """Return whether an entry is along an axis of the array."""
    return entry is not None and entry is not Ellipsis and not (_is_array(entry) and entry[0] == "flag")


def _is_array(entry: Any) -> bool:
    return entry.__class__ is tuple and entry[0].__class__ is str


def _step(entry: Any, axis: int, n: int) -> Step:
    if not n and (entry.__class__ is int or (_is_array(entry) and entry[1] == ())):
        raise _invalid(f"index is out of bounds for axis {axis} with size 0")
    if entry.__class__ is int:
        return Step("int", axis, entry)
    if not _is_array(entry):
        r = range(*slice(*entry).indices(n))
        return Step("slice", axis, r if len(r) > 1 else range(r.start, r.start + 1) if r else range(0))
    if len(entry) == 3 and entry[2] not in (0, n):
        raise _invalid(f"a boolean index of size {entry[2]} is used for axis {axis} of size {n}")
    return Step("array", axis, entry[1])


def _place_of_arrays(structure: Structure, steps: Sequence[Step]) -> int:
    """Return the axis of index arrays in the result. NumPy's rule: the place of the first one if
    they (and ints) are adjacent, else the front."""
    advanced = [i for i, e in enumerate(structure) if _is_array(e) or e.__class__ is int]
    if not advanced or advanced[-1] - advanced[0] != len(advanced) - 1:
        return 0
    return next(i for i, s in enumerate(steps) if s.kind in ("int", "array"))


def _invalid(problem: str, fix: str = "") -> errors.InvalidIndex:
    below = f"\n{fix}" if fix else ""
    return errors.InvalidIndex(f"{problem}, {here()}{below}")


# --- indices of gather and scatter ----------------------------------------------------------------


class Indices(NamedTuple):
    """The parameters of a gather or scatter that name axes, and how to make its indices (`index_array`).

    columns : of each indexed axis: a constant array that broadcasts to `shape`, or the axis' size if
              the next of the index arrays indexes it
    shape   : that of the indices, without the last axis
    after   : the index arrays fill the axes of `shape` before the last `after`
    """

    axes: dict[str, Any]
    columns: tuple[Any, ...]
    shape: Shape
    after: int


def _indices(
    shape: Shape, at: Layout, sizes: Sequence[int], steps: Sequence[Step], any_step: bool, wrap: bool
) -> Indices:
    """Return the indices that `steps` describe. A slice is a window if its step is 1 or may be `any_step`;
    else it has an index axis along it."""
    slices: list[int] = []
    grown: list[int] = []  # the sizes of the index axes, which are named by the numbers after the array's
    own: dict[int, int] = {}  # axis of the array -> the index axis that counts along it

    def grow(*sizes: int) -> None:
        slices.extend(range(len(shape) + len(grown), len(shape) + len(grown) + len(sizes)))
        grown.extend(sizes)

    def cut(axes: Sequence[Step]) -> None:
        for _, axis, value in [a for a in axes if a.kind == "slice"]:
            if any_step or value.step == 1:
                slices.append(axis)
            else:
                own[axis] = len(grown)
                grow(len(value))

    cut(at.before)
    grow(*at.arrays)
    until = len(grown)
    cut(at.after)
    found = {s.axis: _column(s, shape[s.axis], len(grown), own, wrap) for s in steps}
    columns = {axis: column for axis, column in found.items() if column is not None}
    kept = [k if d in slices else 1 for d, k in enumerate(sizes)]
    indices = range(len(shape), len(shape) + len(grown))
    parts = (range(len(shape)), indices, slices, columns, kept)
    windows = Windows(*map(tuple, parts))
    return Indices(windows._asdict(), tuple(columns.values()), tuple(grown), len(grown) - until)


def _column(step: Step, n: int, ndim: int, own: dict[int, int], wrap: bool) -> Any:
    """Return the start indices along one axis; None if the window is the whole axis."""
    ones = [1] * ndim
    if step.kind == "array":
        return n
    if step.kind == "int":
        return np.full(ones, step.value + n if wrap and step.value < 0 else step.value)
    if step.axis in own:
        ones[own[step.axis]] = len(step.value)
        return np.array(step.value).reshape(ones)
    return None if len(step.value) == n else np.full(ones, step.value.start)


# --- reading --------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """The steps of reading; None for those that do nothing.

    window : for a dynamic_slice: per axis a literal start, or its size if the next index is along it;
             and the sizes of the window
    """

    cut: dict[str, Shape] | None
    reverse: Shape
    window: tuple[tuple[Literal | int, ...], Shape] | None
    indices: Indices | None
    out: Shape | None


@cached("indices that are read", 4096)
def reading(shape: Shape, structure: Structure, by_window: bool, wrap: bool) -> Reading:
    """Return how to read an index. `by_window`: scalar indices may be clamped, as in dynamic_slice."""
    at = layout(shape, structure)
    all_of_it = [range(n) for n in shape]
    read = all_of_it.copy()  # of each axis, ascending
    reverse = []
    given: list[Step] = []
    for step in at.steps:
        kind, axis, value = step
        if kind == "int":
            n = shape[axis]
            i = min(max(value + n if wrap and value < 0 else value, 0), n - 1)  # clamped as by JAX
            read[axis] = range(i, i + 1)
        elif kind == "slice":
            read[axis] = value if value.step > 0 else value[::-1]
            if value.step < 0:
                reverse.append(axis)
        elif axis is not None:
            given.append(step)
    sizes = [len(r) for r in read]
    starts = tuple([r.start for r in read])
    cut = None
    if read != all_of_it:
        limit = tuple([r[-1] + 1 if r else 0 for r in read])
        cut = {"start": starts, "limit": limit, "strides": tuple([r.step for r in read])}
    window = indices = None
    if any([s.kind == "array" and s.value for s in at.steps]) or (given and not by_window):
        indices = _indices(shape, at, sizes, given, True, wrap)
    elif given:
        if reverse or any([r.step != 1 for r in read]):
            starts = (0,) * len(shape)
        else:
            cut = None
        begins: list[Literal | int] = [literal(s, ArrayType((), index_dtype(shape))) for s in starts]
        for _, axis, _ in given:
            begins[axis], sizes[axis] = shape[axis], 1
        window = tuple(begins), tuple(sizes)
    out = at.shape(sizes)
    now = tuple(sizes) if indices is None else at.shape(sizes, new=False)
    return Reading(cut, tuple(reverse), window, indices, out if out != now else None)


# --- writing --------------------------------------------------------------------------------------


class Writing(NamedTuple):
    """The step of writing.

    value  : the shape to which the new values are broadcast; slices: the same without new axes
    window : the starts of a dynamic_update_slice, if everything is static and all steps are 1
    unique, sorted : no element is written twice; the indices ascend
    """

    value: Shape
    slices: Shape
    window: tuple[Literal, ...] | None
    indices: Indices
    unique: bool
    sorted: bool


@cached("indices that are written", 4096)
def writing(shape: Shape, structure: Structure, wrap: bool) -> Writing:
    at = layout(shape, structure)
    steps = [s for s in at.steps if s.axis is not None]  # one for each axis
    sizes = [len(s.value) if s.kind == "slice" else 1 for s in steps]
    return Writing(
        at.shape(sizes),
        at.shape(sizes, new=False),
        _static_window(shape, steps, wrap),
        _indices(shape, at, sizes, steps, False, wrap),
        math.prod(at.arrays) == 1,
        all([s.kind == "int" or (s.kind == "slice" and s.value.step > 0) for s in steps]),
    )


def _static_window(shape: Shape, steps: Sequence[Step], wrap: bool) -> tuple[Literal, ...] | None:
    starts = []
    for (kind, _, value), n in zip(steps, shape, strict=True):
        if kind == "int" and (-n if wrap else 0) <= value < n:
            starts.append(value % n)
        elif kind == "slice" and value.step == 1:
            starts.append(value.start)
        else:
            return None
    return tuple([literal(s, ArrayType((), index_dtype(shape))) for s in starts])


# --- the array of indices -------------------------------------------------------------------------


def index_dtype(shape: Shape) -> Any:
    """Return the integer dtype that can index an array of a shape."""
    return np.dtype(np.int64 if max(shape, default=0) > 0x7FFFFFFF else np.int32)


def index_array(indices: Indices, arrays: Sequence[Any], wrap: bool, dtype: Any) -> Any:
    """Return the indices of a gather or scatter: [*indices.shape, number of columns]. `wrap`: negative
    ones of `arrays` count from the end."""
    given = iter(arrays)
    after = [1] * indices.after
    parts: list[Any] = []
    sizes: list[int] = []  # 0: has no negative indices to be wrapped
    for column in indices.columns:
        part, size = column, 0
        if column.__class__ is int:
            part = next(given)
            if part.__class__ is np.ndarray:
                part = _counted_from_front(part, column, wrap, dtype)
                part = part.reshape((*part.shape, *after))
            elif dtype_class(typeof(part).dtype) == "int":
                size = column
        parts.append(part)
        sizes.append(size)
    if all([p.__class__ is np.ndarray for p in parts]):
        known = [np.broadcast_to(p, indices.shape) for p in parts]
        i = np.stack(known, -1).astype(dtype) if known else np.zeros((*indices.shape, 0), dtype)
        is_one = i.size > 0 and bool((i == i.flat[0]).all())  # a literal: kernels know where the window is
        return literal(i.flat[0], ArrayType(i.shape, i.dtype)) if is_one else i
    full = (*indices.shape, 1)
    made = [
        np.broadcast_to(p[..., None], full).astype(dtype)
        if p.__class__ is np.ndarray
        else expand(reshape(cast_to(p, dtype), shape=(*typeof(p).shape, *after, 1)), full)
        for p in parts
    ]
    i = made[0] if len(made) == 1 else concatenate(*made, dimension=len(indices.shape))
    return wrapped(i, sizes) if wrap and any(sizes) else i


def _counted_from_front(i: np.ndarray, n: int, wrap: bool, dtype: Any) -> np.ndarray:
    limits = np.iinfo(dtype)
    if i.dtype.kind == "u":
        return np.minimum(i, min(np.iinfo(i.dtype).max, limits.max)).astype(dtype)
    wide = i.astype(np.int64)
    if wrap:
        wide = np.where(wide < 0, wide + n, wide)
    return np.clip(wide, limits.min, limits.max).astype(dtype)


def wrapped(i: Any, sizes: Sequence[int]) -> Any:
    """Return indices with negative ones counted from the end; the last axis has one per size."""
    t = typeof(i).strong()
    n: Any = literal(sizes[0], t)
    if len(set(sizes)) > 1:
        n = broadcast_in_dim(np.array(sizes, t.dtype), shape=t.shape, dimensions=(t.ndim - 1,))
    return select_n(lt(i, literal(0, t)), i, add(i, n))
