"""Collectives over named mapped axes.

    psum, pmax, pmin    reduce x over all examples; each gets the result
    all_gather          each gets the x of all, concatenated along `dimension`
    psum_scatter        each gets its own part of the sum along `dimension`
    all_to_all          each sends part k of its axis `split` to example k, and concatenates what it
                        receives along `concat`
    ppermute            example `to` gets the x of example `from`, for `(from, to)` in `perm`
    axis_index          the index of this example

Common parameters
    axes    names of the axes, major to minor: together they number the examples in row-major order
    sizes   sizes of these axes. Recorded with the equation, because the names are bound only while
            the user's function runs, not when its program is later differentiated or batched
    groups  None, or tuples of examples; then each group communicates only within itself

A vmap over one of the names replaces the equation by ordinary operations along its batch axis
(`along`), and leaves the other names to the enclosing vmaps. A complete program has only names
bound by JAX: inside `jax.shard_map` the equation is lowered to JAX's collective (`by_jax`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import ArrayType
from functrans.jax_trace import axes_in_scope
from functrans.primitives.base import PRIMITIVES, Primitive, past_batch_axis
from functrans.primitives.elementwise import families as ew
from functrans.primitives.indexing.dynamic_slice import dynamic_slice
from functrans.primitives.reductions.folds import Reduction, reduce_max, reduce_min, reduce_sum
from functrans.primitives.shape.joining import concatenate, iota
from functrans.primitives.shape.moving import reshape, slice_axis, transpose, without
from functrans.records import NamedTuple
from functrans.trace import evaluate, literal, stage, typeof

Groups = tuple[tuple[int, ...], ...] | None


class Names(NamedTuple):
    """Some of the axes of a collective, with their sizes."""

    axes: tuple[Any, ...]
    sizes: tuple[int, ...]


def size_of_axis(operation: str, name: Any) -> int:
    """The size of the innermost axis of a name, ours or JAX's; UnboundAxis if there is none."""
    try:
        return jax.lax.axis_size(name)
    except NameError:
        raise unbound(operation, (name,)) from None


def unbound(operation: str, axes: Sequence[Any]) -> errors.UnboundAxis:
    """The error for a collective over a name that no transformation around it has given."""
    shown = ", ".join([repr(a) for a in axes])
    inside = ", ".join([f"{name!r} of size {n}" for name, n in axes_in_scope().items()]) or "none"
    return errors.UnboundAxis(
        f"{operation} over the axis {shown}: no axis of that name is in scope (names in scope: "
        f"{inside}), {here()}\n"
        f"Call it inside a function that is mapped with vmap(f, axis_name={axes[0]!r})."
    )


class Collective(Primitive):
    """Base class: one operand at most, and results that depend on the other examples."""

    linear_in: tuple[int, ...] = (0,)
    axis_params: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()  # classes of dtypes; () for all

    def abstract_eval(self, x: Any, *, axes: Any, sizes: Any, groups: Groups, **params: Any) -> Any:
        return self.result(x, count(sizes, groups), **params)

    def result(self, x: ArrayType, n: int) -> ArrayType:
        """Return the type of the result, if n examples communicate."""
        return x

    def named_axes(self, params: dict[str, Any]) -> Sequence[Any]:
        return params["axes"]

    def reference(self, *arrays: Any, axes: Any, **params: Any) -> Any:
        raise unbound(self.name, axes)

    def lower(self, ctx: Any, *operands: Any, axes: Any, sizes: Any, **params: Any) -> Any:
        """Lower to JAX's collective, if JAX binds the names."""
        try:
            return ctx.via_jax(lambda *xs: self.by_jax(*xs, axes=axes, **params), *operands)[0]
        except NameError:
            raise unbound(self.name, axes) from None

    def by_jax(self, x: Any, *, axes: Any, groups: Groups, **params: Any) -> Any:
        """Apply JAX's collective of the same name to values of JAX."""
        return getattr(jax.lax, self.name)(x, axes, axis_index_groups=groups, **params)

    def batch(
        self, t: Any, args: Any, dims: Any, *, axes: Any, sizes: Any, groups: Groups, **params: Any
    ) -> Any:
        (x,), (d,) = args, dims
        if t.axis_name is None or t.axis_name not in axes:
            return self.beside(x, d, Names(axes, sizes), groups, **params)
        if groups is not None:
            return self._in_groups(t, x, d, Names(axes, sizes), groups, params)
        i = axes.index(t.axis_name)
        major, minor = Names(axes[:i], sizes[:i]), Names(axes[i + 1 :], sizes[i + 1 :])
        return self.along(t, x, d, major, minor, **params)

    def beside(self, x: Any, d: Any, names: Names, groups: Groups = None, **params: Any) -> Any:
        """Return (the result over other axes than the batch axis d, its batch axis)."""
        if not names.axes:
            return x, d
        moved = params if d is None else past_batch_axis(self, d, params)
        return self(x, axes=names.axes, sizes=names.sizes, groups=groups, **moved), d

    def along(self, t: Any, x: Any, d: int | None, major: Names, minor: Names, **params: Any) -> Any:
        """Apply the operation over the batch axis and the axes major and minor to it."""
        raise self.missing("along")

    def _in_groups(self, t: Any, x: Any, d: int | None, names: Names, groups: Any, params: Any) -> Any:
        """Groups of one size are the examples of one vmap, and their members the examples of
        another: rows of x -> [group, member, ...] -> rows."""
        if len(names.axes) > 1:
            raise errors.MissingRule(
                f"{self.name}: axis_index_groups over several axes, {names.axes}, under vmap, {here()}\n"
                "Under vmap, groups must be of a single axis."
            )
        x = t.at(x, d, 0)
        rest = typeof(x).update(shape=typeof(x).shape[1:])
        pieces, order = [], []
        for size in sorted({len(g) for g in groups}):
            chosen = [g for g in groups if len(g) == size]
            rows = [i for g in chosen for i in g]
            how = {"axes": names.axes, "sizes": (size,), "groups": None, **params}
            program = stage(lambda v, how=how: [self(v, **how)], [rest], self.name)
            for mapped in (type(t)(size, t.axis_name), type(t)(len(chosen))):
                program, _ = mapped.program(program, (0,), (True,))
            apart = reshape(take_rows(x, 0, rows), shape=(len(chosen), size, *rest.shape))
            pieces.append(fold(evaluate(program, [apart])[0], 0, 2))
            order += rows
        y = concatenate(*pieces, dimension=0) if len(pieces) > 1 else pieces[0]
        return take_rows(y, 0, [order.index(i) for i in range(len(order))]), 0


# --- reductions over the examples -----------------------------------------------------------------


class PSum(Collective):
    """The sum over the examples."""

    name = "psum"
    flops: float = 1
    takes: tuple[str, ...] = ew.NUMBERS
    symmetric = True  # each x contributes to every sum

    def along(self, t: Any, x: Any, d: Any, major: Names, minor: Names) -> Any:
        return self.beside(total(t, x, d), None, joined(major, minor))


class Extreme(Collective):
    """The maximum or minimum over the examples."""

    linear_in: tuple[int, ...] = ()

    def __init__(self, name: str, fold: Reduction):
        self.fold: Reduction = fold
        self.takes: tuple[str, ...] = fold.takes
        super().__init__(name)

    def jvp(self, primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        """Ties share the tangent equally, as elements do in reduce_max."""
        (x,), (dx,) = primals, tangents
        t = typeof(x).strong()
        where = PRIMITIVES["select_n"](ew.eq(x, out), literal(0, t), literal(1, t))
        return ew.div(psum(ew.mul(dx, where), **params), psum(where, **params))

    def along(self, t: Any, x: Any, d: Any, major: Names, minor: Names) -> Any:
        y = x if d is None else self.fold(x, axes=(d,))
        return self.beside(y, None, joined(major, minor))


# --- moving between the examples ------------------------------------------------------------------


class AllGather(Collective):
    """The x of all examples, concatenated along `dimension`."""

    name = "all_gather"
    axis_params: tuple[str, ...] = ("dimension",)

    def result(self, x: ArrayType, n: int, *, dimension: int) -> ArrayType:
        return resized(x, dimension, x.shape[dimension] * n)

    def transpose(self, ct: Any, x: Any, **params: Any) -> Any:
        return (psum_scatter(ct, **params),)

    def along(self, t: Any, x: Any, d: Any, major: Names, minor: Names, *, dimension: int) -> Any:
        x, d = self.beside(x, d, minor, dimension=dimension)
        y = fold(t.at(x, d, dimension), dimension, 2)
        return self.beside(y, None, major, dimension=dimension)

    def by_jax(self, x: Any, *, axes: Any, groups: Groups, dimension: int) -> Any:
        return super().by_jax(x, axes=axes, groups=groups, axis=dimension, tiled=True)


class PSumScatter(Collective):
    """Each example gets its own part, along `dimension`, of the sum over the examples."""

    name = "psum_scatter"
    axis_params: tuple[str, ...] = ("dimension",)
    takes: tuple[str, ...] = ew.NUMBERS

    def result(self, x: ArrayType, n: int, *, dimension: int) -> ArrayType:
        return resized(x, dimension, part(self, x, dimension, n))

    def transpose(self, ct: Any, x: Any, **params: Any) -> Any:
        return (all_gather(ct, **params),)

    def along(self, t: Any, x: Any, d: Any, major: Names, minor: Names, *, dimension: int) -> Any:
        x, d = self.beside(x, d, major, dimension=dimension)
        parts = unfold(total(t, x, d), dimension, (t.size,))
        return self.beside(parts, dimension, minor, dimension=dimension)

    def by_jax(self, x: Any, *, axes: Any, groups: Groups, dimension: int) -> Any:
        return super().by_jax(x, axes=axes, groups=groups, scatter_dimension=dimension, tiled=True)


class AllToAll(Collective):
    """Part k of the axis `split` goes to example k; received parts are concatenated along `concat`."""

    name = "all_to_all"
    axis_params: tuple[str, ...] = ("split", "concat")

    def result(self, x: ArrayType, n: int, *, split: int, concat: int) -> ArrayType:
        y = resized(x, split, part(self, x, split, n))
        return resized(y, concat, y.shape[concat] * n)

    def transpose(self, ct: Any, x: Any, *, split: int, concat: int, **params: Any) -> Any:
        return (self(ct, split=concat, concat=split, **params),)

    def along(self, t: Any, x: Any, d: Any, major: Names, minor: Names, *, split: int, concat: int) -> Any:
        """The parts are numbered by the names as the examples are, so each name exchanges its own
        axis of the parts:

            [from, ..., a, to, b, split', ...]  ->  [to, ..., a, from, b, concat, ...]

        where a and b, of the major and the minor names, are exchanged separately."""
        sizes = (prod(major.sizes), t.size, prod(minor.sizes))
        x = unfold(t.at(x, d, 0), 1 + split, sizes)
        x, _ = self.beside(x, 0, major, split=split, concat=split)
        x, _ = self.beside(x, 0, minor, split=split + 2, concat=split + 2)
        a, to, b = split + 1, split + 2, split + 3
        rest = [i for i in range(1, typeof(x).ndim) if i not in (a, to, b)]
        y = transpose(x, permutation=(to, *rest[:concat], a, 0, b, *rest[concat:]))
        return fold(y, 1 + concat, 4), 0

    def by_jax(self, x: Any, *, axes: Any, groups: Groups, split: int, concat: int) -> Any:
        return jax.lax.all_to_all(x, axes, split, concat, axis_index_groups=groups, tiled=True)


class PPermute(Collective):
    """Example `to` gets the x of example `from` for `(from, to)` in `perm`; others get zeros."""

    name = "ppermute"

    def result(self, x: ArrayType, n: int, *, perm: Any) -> ArrayType:
        for what, ends in (("source", [a for a, _ in perm]), ("destination", [b for _, b in perm])):
            if len(set(ends)) != len(ends):
                raise self.mismatch((x,), f"perm {perm} names a {what} twice")
            if any([not 0 <= i < n for i in ends]):
                raise self.mismatch((x,), f"perm {perm} names a {what} that is not in 0..{n - 1}")
        return x

    def transpose(self, ct: Any, x: Any, *, perm: Any, **params: Any) -> Any:
        return (self(ct, perm=tuple([(b, a) for a, b in perm]), **params),)

    def along(self, t: Any, x: Any, d: Any, major: Names, minor: Names, *, perm: Any) -> Any:
        names = Names((*major.axes, t.axis_name, *minor.axes), (*major.sizes, t.size, *minor.sizes))
        source: list[int | None] = [None] * prod(names.sizes)
        for a, b in perm:
            source[b] = a
        if len(names.axes) == 1:
            if d is None and None not in source:
                return x, None
            return take_rows(t.at(x, d, 0), 0, source), 0

        def by_index(x: Any) -> list[Any]:
            """Gather all and select one: a permutation of pairs of indices is not one of either."""
            params = {"axes": names.axes, "sizes": names.sizes, "groups": None}
            rows = reshape(x, shape=(1, *typeof(x).shape))
            rows = take_rows(all_gather(rows, dimension=0, **params), 0, source)
            starts = [index_of(names), *[literal(0, _INDEX)] * (typeof(rows).ndim - 1)]
            mine = dynamic_slice(rows, *starts, sizes=(1, *typeof(x).shape))
            return [reshape(mine, shape=typeof(x).shape)]

        shape = typeof(x).shape if d is None else without(typeof(x).shape, d)
        program = stage(by_index, [typeof(x).update(shape=shape)], self.name)
        (y,), (d,) = t.run(program, [x], [d])
        return y, d

    def by_jax(self, x: Any, *, axes: Any, groups: Groups, perm: Any) -> Any:
        return jax.lax.ppermute(x, axes, perm)


_INDEX = ArrayType((), "int32")


class AxisIndex(Collective):
    """The index of this example. No operands; one name."""

    name = "axis_index"
    linear_in: tuple[int, ...] = ()

    def abstract_eval(self, *, axes: Any, sizes: Any) -> ArrayType:
        return _INDEX

    def by_jax(self, *, axes: Any) -> Any:
        return jax.lax.axis_index(axes)

    def batch(self, t: Any, args: Any, dims: Any, *, axes: Any, sizes: Any) -> Any:
        return iota(dtype=_INDEX.dtype, shape=(t.size,), dimension=0), 0


def index_of(names: Names) -> Any:
    """Return the index of this example over several axes."""
    index = None
    for name, n in zip(names.axes, names.sizes, strict=True):
        here = axis_index(axes=(name,), sizes=(n,))
        index = here if index is None else ew.add(ew.mul(index, literal(n, _INDEX)), here)
    return index


psum: PSum = PSum()
pmax: Extreme = Extreme("pmax", reduce_max)
pmin: Extreme = Extreme("pmin", reduce_min)
all_gather: AllGather = AllGather()
psum_scatter: PSumScatter = PSumScatter()
all_to_all: AllToAll = AllToAll()
ppermute: PPermute = PPermute()
axis_index: AxisIndex = AxisIndex()


# --- helpers --------------------------------------------------------------------------------------


def count(sizes: Sequence[int], groups: Groups) -> int:
    """Return the number of examples that communicate."""
    return prod(sizes) if groups is None else len(groups[0])


def joined(major: Names, minor: Names) -> Names:
    return Names(major.axes + minor.axes, major.sizes + minor.sizes)


def total(t: Any, x: Any, d: int | None) -> Any:
    """Sum over the batch axis; for an unbatched value, multiply by the batch size."""
    return ew.mul(x, literal(t.size, typeof(x))) if d is None else reduce_sum(x, axes=(d,))


def part(primitive: Primitive, x: ArrayType, axis: int, n: int) -> int:
    """Return the size of one of n equal parts of an axis."""
    if n == 0 or x.shape[axis] % n:
        raise primitive.mismatch(
            (x,), f"axis {axis} of size {x.shape[axis]} cannot be split into {n} equal parts, one per example"
        )
    return x.shape[axis] // n


def resized(x: ArrayType, axis: int, size: int) -> ArrayType:
    return x.update(shape=(*x.shape[:axis], size, *x.shape[axis + 1 :]))


def fold(x: Any, axis: int, n: int) -> Any:
    """Merge n adjacent axes into one."""
    shape = typeof(x).shape
    size = prod(shape[axis : axis + n])
    return reshape(x, shape=(*shape[:axis], size, *shape[axis + n :]))


def unfold(x: Any, axis: int, sizes: Sequence[int]) -> Any:
    """Split one axis into several, of the given sizes and the remainder."""
    shape = typeof(x).shape
    left = shape[axis] // prod(sizes)
    return reshape(x, shape=(*shape[:axis], *sizes, left, *shape[axis + 1 :]))


def take_rows(x: Any, axis: int, rows: Sequence[int | None]) -> Any:
    """Return x with the elements along an axis permuted; None: zeros. Each run of consecutive rows
    is one slice, so a rotation takes two."""
    runs: list[list[Any]] = []  # [first place, how many]
    for i in rows:
        if runs and (i is None if runs[-1][0] is None else i == sum(runs[-1])):
            runs[-1][1] += 1
        else:
            runs.append([i, 1])
    pieces = [
        literal(0, resized(typeof(x), axis, n)) if i is None else slice_axis(x, axis, i, i + n)
        for i, n in runs
    ]
    return concatenate(*pieces, dimension=axis) if len(pieces) > 1 else pieces[0]
