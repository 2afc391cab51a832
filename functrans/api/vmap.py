"""`vmap`: a function of one example becomes a function of many."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import as_arrays, check_callable, counted
from functrans.ir.source import brief, here
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.jax_trace import is_vmappable, vmappables
from functrans.lax.staging import or_by_jax
from functrans.primitives.reductions.folds import reduce_sum
from functrans.pytrees.functions import FlatFunction, argument_names, function_name, named_after
from functrans.runtime import F
from functrans.trace import Recording, materialize, naming, state, tracing, typeof
from functrans.transforms.batch import Batching
from functrans.typing import PyTree

# --- in_axes and out_axes -------------------------------------------------------------------------


class _MappedAxes:
    """The axes over which `vmap` maps `fun`; checked on construction."""

    def __init__(self, fun: Any, in_axes: Any, out_axes: Any, axis_name: Any):
        check_callable(fun, "vmap")
        self.fun = fun
        self.in_axes: Any = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        self.out_axes = out_axes
        if not (self.in_axes is None or isinstance(self.in_axes, (int, tuple))):
            raise errors.NotAnArray(
                f"vmap: in_axes must be an int, None or a tuple with one entry per argument, got "
                f"{in_axes!r}, {here()}"
            )
        for d in tree.leaves((in_axes, out_axes)):
            if d.__class__ is not int:  # nor a bool
                raise errors.NotAnArray(
                    f"vmap: in_axes and out_axes must be ints or None, or pytrees of them, got "
                    f"{d!r}, {here()}"
                )
        try:
            hash(axis_name)
        except TypeError:
            raise errors.NotAnArray(
                f"vmap: axis_name must be hashable, got {brief(axis_name)}, {here()}\n"
                "One vmap names one axis: for several, nest vmaps."
            ) from None

    def __str__(self) -> str:
        return f"vmap of {function_name(self.fun)}"

    def of_arguments(self, args: tuple[Any, ...], kwargs: Any) -> list[int | None]:
        """Return one axis per leaf of the arguments."""
        in_axes = self.in_axes
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise errors.InvalidArgument(
                f"{self}: in_axes={in_axes} has {counted(len(in_axes), 'entry', 'entries')} "
                f"for {counted(len(args), 'positional argument')}, {here()}\n"
                "Pass one entry per positional argument (None: not mapped). Keyword arguments "
                "have no entry: they are mapped along axis 0."
            )
        return self._spread((in_axes, 0), (args, kwargs), "in_axes", in_axes, args)

    def of_result(self, result: Any) -> list[int | None]:
        """Return one axis per leaf of the result."""
        return self._spread(self.out_axes, result, "out_axes", self.out_axes, result)

    def _spread(self, axes: Any, given: Any, what: str, shown: Any, of: Any) -> list[int | None]:
        """Expand a pytree prefix to one axis per leaf. None is a leaf of `axes`, not of `given`."""
        try:
            return tree.spread(axes, given, lambda x: x is None)
        except ValueError:
            raise errors.InvalidArgument(
                f"{self}: {what}={shown} is not a pytree prefix of the "
                f"{'result' if what == 'out_axes' else 'arguments'} "
                f"{tree.spelled(tree.structure(of))}, {here()}\n"
                "Pass one axis (or None) for all, or a pytree with the same containers, keys and "
                "lengths."
            ) from None

    def sizes(
        self, types: Sequence[ArrayType], dims: Sequence[int | None], names: Any, axis_size: int | None
    ) -> tuple[list[int | None], int]:
        """Return the nonnegative axes, and the size of the mapped ones; `names()`: those of the leaves."""
        front: list[int | None] = []
        sizes: dict[int, int] = {}
        for i, (t, d) in enumerate(zip(types, dims, strict=True)):
            if d is not None and not -t.ndim <= d < t.ndim:
                raise errors.InvalidArgument(
                    f"{self}: axis {d} of in_axes is out of range for {names()[i]} of type {t}, "
                    f"which has {counted(t.ndim, 'axis', 'axes')}, {here()}\n"
                    "Use None for an argument that is not mapped."
                )
            front.append(None if d is None else d % t.ndim)
            if d is not None:
                sizes[i] = t.shape[d]
        distinct = set(sizes.values()) | ({int(axis_size)} if axis_size is not None else set())
        if not distinct:
            raise errors.InvalidArgument(
                f"{self} has no mapped argument, so the size of the axis is unknown, {here()}\n"
                "Map at least one argument, or pass axis_size=."
            )
        if len(distinct) > 1:
            known = names()
            rows = [f"{known[i]}: axis {front[i]} of {types[i]} has size {n}" for i, n in sizes.items()]
            rows += [] if axis_size is None else [f"axis_size={axis_size}"]
            shown = "".join([f"    {row}\n" for row in rows])
            raise errors.BatchSizeMismatch(
                f"{self}: the mapped axes must have equal sizes, got\n{shown}{here()}\n"
                "In in_axes, give the batch axis of each argument, or None if it is not mapped."
            )
        return front, distinct.pop()

    def place(self, t: Batching, y: Any, d: int | None, to: int | None, sum_match: bool) -> Any:
        """Move the batch axis of a result to where `out_axes` puts it."""
        if to is not None:
            ndim = typeof(y).ndim + (d is None)
            if not -ndim <= to < ndim:
                raise errors.InvalidArgument(
                    f"{self}: out_axes={to} is out of range for a result with "
                    f"{counted(ndim, 'axis', 'axes')} (including the mapped one), {here()}\n"
                    "Axes are numbered from 0, including the mapped axis."
                )
            y = t.at(y, d, to % ndim)
        elif d is not None:
            if not sum_match:
                raise errors.InvalidArgument(
                    f"{self}: out_axes is None for a result {typeof(y)} that differs between examples, "
                    f"{here()}\nGive an output axis, or reduce over the mapped axis."
                )
            y = reduce_sum(y, axes=(d,))
        return materialize(y)


# --- vmap -----------------------------------------------------------------------------------------


@boundary
def vmap(
    fun: F,
    in_axes: int | Sequence[PyTree] | None = 0,
    out_axes: PyTree = 0,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable = None,
    sum_match: bool = False,
) -> F:
    """Vectorize a function: map it over an axis of its arguments.

    Arguments:
      fun: function of pytrees of arrays.
      in_axes: axis of each argument to map over, or None to broadcast it; an int for all arguments,
        or a tuple with a pytree prefix per argument. Keyword arguments are mapped over axis 0.
      out_axes: position of the mapped axis in the results; a pytree prefix of the result.
      axis_name: a hashable name for the axis, used by `lax.psum`, `lax.all_gather` and the other
        collectives inside `fun`. It shadows an outer axis of the same name.
      axis_size: size of the axis; required if no argument is mapped.
      spmd_axis_name: the mesh axis, or tuple of mesh axes, over which the mapped axis is sharded.
        It only affects sharding constraints inside `fun`, not the values.
      sum_match: if `out_axes` is None and a result is batched, sum it over the mapped axis.

    Returns:
      The vectorized function.

    Raises:
      InvalidArgument: an axis is out of range, or `in_axes` does not match the arguments.
      BatchSizeMismatch: the mapped axes have different sizes.

    Source: `jax.vmap`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> dot = ft.vmap(jnp.dot, in_axes=(0, None))
      >>> print(dot(jnp.ones((3, 2)), jnp.ones(2)))
      [2. 2. 2.]
      >>> softmax = ft.vmap(lambda x: jnp.exp(x) / ft.lax.psum(jnp.exp(x), "i"), axis_name="i")
      >>> print(softmax(jnp.zeros(4)))
      [0.25 0.25 0.25 0.25]
    """
    axes = _MappedAxes(fun, in_axes, out_axes, axis_name)
    spmd = spmd_axis_name if isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
    spmd = () if spmd_axis_name is None else spmd

    def by_jax(*args: Any, **kwargs: Any) -> Any:
        run = jax.vmap(fun, in_axes, out_axes, axis_name, axis_size, spmd_axis_name, sum_match)
        return run(*args, **kwargs)

    @named_after(fun)
    @or_by_jax(by_jax)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if _hold_sparse((args, kwargs)):
            return by_jax(*args, **kwargs)
        dims = axes.of_arguments(args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))

        def names() -> list[str]:
            return argument_names(fun, enumerate(args), kwargs)

        # what is not mapped may be anything
        kept = [d is None and not hasattr(x, "__jax_array__") for x, d in zip(leaves, dims, strict=True)]
        try:
            mapped = [x for x, k in zip(leaves, kept, strict=True) if not k]
            arrays = iter(as_arrays(mapped, lambda: [n for n, k in zip(names(), kept, strict=True) if not k]))
        except errors.NotAnArray:
            if any([isinstance(x, jax.Ref) for x in leaves]):
                return by_values(leaves, dims, in_tree)
            raise
        leaves = [x if k else next(arrays) for x, k in zip(leaves, kept, strict=True)]
        types: list[Any] = [None if d is None else typeof(x) for x, d in zip(leaves, dims, strict=True)]
        dims, size = axes.sizes(types, dims, names, axis_size)

        flat = FlatFunction(fun, in_tree)
        t, results, found = map_examples(flat, leaves, dims, size, axis_name, spmd)

        out = tree.unflatten(flat.out_tree, results)
        if _hold_sparse(out):
            return by_jax(*args, **kwargs)
        wanted = axes.of_result(out)
        rows = zip(results, found, wanted, strict=True)
        return tree.unflatten(flat.out_tree, [axes.place(t, y, d, to, sum_match) for y, d, to in rows])

    def by_values(leaves: Sequence[Any], dims: Sequence[int | None], in_tree: Any) -> Any:
        """Run `mapped` for leaves that are references (`new_ref`). For each mapped reference, make
        one per example inside, and write the final values back to the outer reference."""
        references = {i: x for i, x in enumerate(leaves) if isinstance(x, jax.Ref)}
        own = [i for i in references if dims[i] is not None]
        arrays = [x if i not in references else x[...] if i in own else 0 for i, x in enumerate(leaves)]

        def one(*values: Any) -> Any:
            made = {**references, **{i: jax.new_ref(values[i]) for i in own}}
            args, kwargs = tree.unflatten(in_tree, [made.get(i, x) for i, x in enumerate(values)])
            return fun(*args, **kwargs), [made[i][...] for i in own]

        one.__qualname__ = function_name(fun)
        places = (out_axes, [dims[i] for i in own])
        run = vmap(one, tuple(dims), places, axis_name, axis_size, spmd_axis_name, sum_match)
        out, left = run(*arrays)
        for i, y in zip(own, left, strict=True):
            references[i][...] = y
        return out

    return mapped  # type: ignore[return-value]


def map_examples(
    flat: Callable[..., Sequence[Any]],
    leaves: Sequence[Any],
    dims: Sequence[int | None],
    size: int,
    axis_name: Any = None,
    spmd_axis_name: tuple[Any, ...] = (),
) -> tuple[Batching, list[Any], list[int | None]]:
    """Trace a function of flat lists on one example, then run the batched program. Returns the
    batching, the results, and the batch axis of each (None: not batched). Axes are nonnegative; leaves
    that are not mapped may be numbers."""
    trace = Recording(state.trace, axis_name=axis_name)
    inputs = [
        trace.new_input(typeof(x).without_axis(d)) if d is not None else None
        for x, d in zip(leaves, dims, strict=True)
    ]
    with tracing(trace), naming(axis_name, size):
        outs = flat(*[x if t is None else t for x, t in zip(leaves, inputs, strict=True)])
        program = trace.close([t for t in inputs if t is not None], outs)
    values = [x for x, d in zip(leaves, dims, strict=True) if d is not None]
    t = Batching(size, axis_name, spmd_axis_name)
    results, found = t.run(program, values, [d for d in dims if d is not None])
    return t, results, found


def _hold_sparse(values: PyTree) -> bool:
    """Return whether a pytree holds sparse arrays, whose shapes vmap changes too: only JAX's can."""
    return bool(vmappables) and any(map(is_vmappable, tree.leaves(values, is_vmappable)))
