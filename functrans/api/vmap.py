"""`vmap`: trace a function on one example, then batch the program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.api.checks import here
from functrans.api.flat import FlatFunction, as_arrays
from functrans.api.mapped_axes import MappedAxes, argument_names
from functrans.ir.tracebacks import boundary
from functrans.primitives.reductions.folds import reduce_sum
from functrans.trace import Recording, materialize, naming, state, tracing, typeof
from functrans.transforms.batch import Batching
from functrans.typing import PyTree

# A TypeVar of the function's type: mypy does not infer a lambda's type through a ParamSpec here.
_F = TypeVar("_F", bound=Callable[..., Any])


@boundary
def vmap(
    fun: _F,
    in_axes: int | Sequence[PyTree] | None = 0,
    out_axes: PyTree = 0,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable = None,
    sum_match: bool = False,
) -> _F:
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
    axes = MappedAxes("vmap", fun, in_axes, out_axes, axis_name)
    spmd = spmd_axis_name if isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
    spmd = () if spmd_axis_name is None else spmd

    @boundary
    @wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        dims = axes.of_arguments(args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))
        names = partial(argument_names, args, kwargs)
        try:
            leaves = as_arrays(leaves, names)
        except errors.NotAnArray:
            if not any([isinstance(x, jax.Ref) for x in leaves]):
                raise
            return by_values(leaves, dims, in_tree)
        dims, size = axes.sizes([typeof(x) for x in leaves], dims, names, axis_size)

        flat = FlatFunction(fun, in_tree)
        t, results, found = map_examples(flat, leaves, dims, size, axis_name, spmd)

        wanted = axes.of_result(tree.unflatten(flat.out_tree, results))
        placed = [
            _place(t, y, d, to, axes, sum_match)
            for y, d, to in zip(results, found, wanted, strict=True)
        ]
        return tree.unflatten(flat.out_tree, placed)

    def by_values(leaves: Sequence[Any], dims: Sequence[int | None], in_tree: Any) -> Any:
        """Run `mapped` for leaves that are references (`new_ref`). For each mapped reference, make
        one per example inside, and write the final values back to the outer reference."""
        references = {i: x for i, x in enumerate(leaves) if isinstance(x, jax.Ref)}
        own = [i for i in references if dims[i] is not None]
        arrays = [x if i not in references else x[...] if i in own else 0
                  for i, x in enumerate(leaves)]  # fmt: skip

        def one(*values: Any) -> Any:
            made = {**references, **{i: jax.new_ref(values[i]) for i in own}}
            args, kwargs = tree.unflatten(in_tree, [made.get(i, x) for i, x in enumerate(values)])
            return fun(*args, **kwargs), [made[i][...] for i in own]

        places = (out_axes, [dims[i] for i in own])
        run = vmap(one, tuple(dims), places, axis_name, axis_size, spmd_axis_name, sum_match)
        out, left = run(*arrays)
        for i, y in zip(own, left, strict=True):
            references[i][...] = y
        return out

    return mapped  # type: ignore[return-value]


def map_examples(
    flat: Callable[..., Sequence[Any]], leaves: Sequence[Any], dims: Sequence[int | None],
    size: int, axis_name: Any = None, spmd_axis_name: tuple[Any, ...] = (),
) -> tuple[Batching, list[Any], list[int | None]]:  # fmt: skip
    """Trace a function of flat lists on one example, then run the batched program.

    Arguments:
      flat: function of one example of each leaf.
      leaves: arrays.
      dims: the batch axis of each leaf, nonnegative, or None.
      size: size of the batch axis.
      axis_name: name of the batch axis.
      spmd_axis_name: the mesh axes over which it is sharded.

    Returns:
      The batching, the results, and the batch axis of each result (None: not batched).
    """
    trace = Recording(state.trace, axis_name=axis_name)
    inputs = [
        trace.new_input(_without(typeof(x), d)) if d is not None else None
        for x, d in zip(leaves, dims, strict=True)
    ]
    with tracing(trace), naming(axis_name, size):
        outs = flat(*[x if t is None else t for x, t in zip(leaves, inputs, strict=True)])
        program = trace.close([t for t in inputs if t is not None], outs)
    values = [x for x, d in zip(leaves, dims, strict=True) if d is not None]
    t = Batching(size, axis_name, spmd_axis_name)
    results, found = t.run(program, values, [d for d in dims if d is not None])
    return t, results, found


def _without(t: Any, d: int) -> Any:
    return t.update(shape=(*t.shape[:d], *t.shape[d + 1 :]))


def _place(
    t: Batching, y: Any, d: int | None, to: int | None, axes: MappedAxes, sum_match: bool
) -> Any:
    """Move the batch axis of a result to where `out_axes` puts it."""
    if to is None:
        if d is not None and sum_match:
            return materialize(reduce_sum(y, axes=(d,)))
        if d is not None:
            raise errors.InvalidArgument(
                f"{axes}: out_axes is None for a result {typeof(y)} that differs between examples, "
                f"{here()}\nGive an output axis, or reduce over the mapped axis."
            )
        return materialize(y)
    return materialize(t.at(y, d, axes.placed(to, typeof(y).ndim + (d is None))))
