"""`vmap`: trace a function on one example, rewrite the program for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans import errors
from functrans import pytrees as tree
from functrans.api.checks import check_callable
from functrans.api.flat import FlatFunction, as_arrays, function_name
from functrans.api.jit import wraps
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import boundary
from functrans.primitives.reduction import reduce_sum
from functrans.trace import Trace, materialize, naming, state, tracing, typeof
from functrans.transforms.batch import Batching


@boundary
def vmap(
    fun: Callable[..., Any],
    in_axes: int | Sequence[Any] | None = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[..., Any]:
    """Make a function that does to every slice along an axis what `fun` does to one.

    Arguments:
      fun: function of pytrees of arrays.
      in_axes: axis of each argument to map over, None for the same value in all; an int for all
        arguments, or a tuple with a pytree prefix per argument. Keyword arguments map over axis 0.
      out_axes: where the mapped axis goes in the results; a pytree prefix of the result.
      axis_name: a name for the axis, by which `lax.psum`, `lax.all_gather` and the other
        collectives inside `fun` speak of it; hashable. It hides an outer axis of the same name.
      axis_size: its size; needed where no argument has the axis.
      spmd_axis_name: the axis, or a tuple of axes, of a device mesh over which the axis is laid
        out, for sharding constraints inside; the results are the same.
      sum_match: where `out_axes` is None and the examples differ, sum over them.

    Returns:
      The vectorised function.

    Raises:
      InvalidArgument: an axis out of range, or an `in_axes` that does not fit the arguments.
      BatchSizeMismatch: mapped axes of different sizes.

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
    check_callable(fun, "vmap")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple))):
        raise errors.NotAnArray(
            f"vmap: in_axes must be an int, None or a tuple with one entry per argument, got "
            f"{in_axes!r}, at\n    {describe(user_source())}"
        )
    for d in tree.leaves((in_axes, out_axes)):
        if not isinstance(d, int):
            raise errors.NotAnArray(
                f"vmap: in_axes and out_axes must be ints or None, or pytrees of them, got {d!r}, "
                f"at\n    {describe(user_source())}"
            )

    try:
        hash(axis_name)
    except TypeError:
        raise errors.NotAnArray(
            f"vmap: axis_name must be hashable, got {axis_name!r:.80}, at\n"
            f"    {describe(user_source())}\nOne vmap names one axis: nest vmaps for several."
        ) from None
    spmd = spmd_axis_name if isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
    spmd = () if spmd_axis_name is None else spmd

    @boundary
    @wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise errors.InvalidArgument(
                f"vmap of {function_name(fun)}: in_axes={in_axes} has {len(in_axes)} entries for "
                f"{len(args)} positional arguments, at\n    {describe(user_source())}\n"
                "Give one entry per argument (None for those that are not mapped); arguments by "
                "keyword have none, they are mapped along axis 0."
            )
        leaves, in_tree = tree.flatten((args, kwargs))
        leaves = as_arrays(leaves, lambda: _argument_names((args, kwargs)))
        dims = _prefix((in_axes, 0), (args, kwargs), "in_axes", fun)
        dims, size = _sizes(fun, (args, kwargs), leaves, dims, axis_size)

        flat = FlatFunction(fun, in_tree)
        trace = Trace(state.trace, axis_name=axis_name)
        inputs = [
            trace.new_input(_without(typeof(x), d)) if d is not None else None
            for x, d in zip(leaves, dims, strict=True)
        ]
        with tracing(trace), naming(axis_name, size):
            outs = flat(*[x if t is None else t for x, t in zip(leaves, inputs, strict=True)])
            program = trace.close([t for t in inputs if t is not None], outs)
        values = [x for x, d in zip(leaves, dims, strict=True) if d is not None]
        t = Batching(size, axis_name, spmd)
        results, found = t.run(program, values, [d for d in dims if d is not None])

        result = tree.unflatten(flat.out_tree, results)
        wanted = _prefix(out_axes, result, "out_axes", fun)
        placed = [
            _place(t, y, d, to, fun, sum_match)
            for y, d, to in zip(results, found, wanted, strict=True)
        ]
        return tree.unflatten(flat.out_tree, placed)

    return mapped


def _without(t: Any, d: int) -> Any:
    return t.update(shape=(*t.shape[:d], *t.shape[d + 1 :]))


def _prefix(axes: Any, given: Any, what: str, fun: Any) -> list[int | None]:
    """One axis per leaf, from a pytree prefix. None is a leaf of `axes`, but not of `given`."""
    full: list[int | None] = []
    try:
        tree.map(
            lambda d, part: full.extend([d] * len(tree.leaves(part))),
            axes, given, is_leaf=lambda x: x is None,
        )  # fmt: skip
    except ValueError:
        out = what == "out_axes"
        shown, have = (axes, given) if out else (axes[0], given[0])
        raise errors.InvalidArgument(
            f"vmap of {function_name(fun)}: {what}={shown} is not a pytree prefix of the "
            f"{'result' if out else 'arguments'} {tree.spelled(tree.structure(have))}, at\n"
            f"    {describe(user_source())}\n"
            "Give one axis (or None) for all, or a tree of the same containers, keys and lengths."
        ) from None
    return full


def _sizes(
    fun: Any, given: Any, leaves: Sequence[Any], dims: Sequence[int | None], axis_size: int | None
) -> tuple[list[int | None], int]:
    """Axes counted from the front, and the one size of all mapped axes."""
    names = None
    front: list[int | None] = []
    sizes: dict[int, int] = {}
    for i, (x, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            front.append(None)
            continue
        t = typeof(x)
        if not -t.ndim <= d < t.ndim:
            names = _argument_names(given)
            raise errors.InvalidArgument(
                f"vmap of {function_name(fun)}: axis {d} of in_axes is out of range for {names[i]} "
                f"of type {t}, which has {t.ndim} axes, at\n    {describe(user_source())}\n"
                "Use None for an argument that is not mapped."
            )
        front.append(d % t.ndim)
        sizes[i] = t.shape[d]
    distinct = set(sizes.values()) | ({axis_size} if axis_size is not None else set())
    if not distinct:
        raise errors.InvalidArgument(
            f"vmap of {function_name(fun)} has no mapped argument, so the size of the axis is "
            f"unknown, at\n    {describe(user_source())}\n"
            "Map at least one argument, or pass axis_size=."
        )
    if len(distinct) > 1:
        names = _argument_names(given)
        shown = "\n".join(
            f"    {names[i]}: axis {front[i]} of {typeof(leaves[i])} has size {n}"
            for i, n in sizes.items()
        )
        given_size = f"\n    axis_size={axis_size}" if axis_size is not None else ""
        raise errors.BatchSizeMismatch(
            f"vmap of {function_name(fun)}: the mapped axes must have one size, got\n"
            f"{shown}{given_size}\nat\n    {describe(user_source())}\n"
            "Give the axis that the examples are on, and None for what they share, in in_axes."
        )
    return front, distinct.pop()


def _argument_names(given: Any) -> list[str]:
    args, kwargs = given
    return [*tree.path_names(args, "args"), *tree.path_names(kwargs, "kwargs")]


def _place(t: Batching, y: Any, d: int | None, to: int | None, fun: Any, sum_match: bool) -> Any:
    """A result with its batch axis where out_axes wants it."""
    if to is None:
        if d is not None and sum_match:
            return materialize(reduce_sum(y, axes=(d,)))
        if d is not None:
            raise errors.InvalidArgument(
                f"vmap of {function_name(fun)}: out_axes is None for a result {typeof(y)} that "
                f"differs between the examples, at\n    {describe(user_source())}\n"
                "Give the axis, or reduce over it."
            )
        return materialize(y)
    ndim = typeof(y).ndim + (d is None)
    if not -ndim <= to < ndim:
        raise errors.InvalidArgument(
            f"vmap of {function_name(fun)}: out_axes={to} is out of range for a result with {ndim} "
            f"axes (the mapped one among them), at\n    {describe(user_source())}"
        )
    return materialize(t.at(y, d, to % ndim))
