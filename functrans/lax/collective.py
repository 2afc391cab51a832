"""`jax.lax` names over primitives/distributed/collective.py: reductions over the examples of a mapped
axis, the index of each example, and what they send to each other, where that is called often or JAX's
function does not run.

Inside a function mapped with `vmap(f, axis_name="i")` they take an axis name, or a tuple of names
of nested maps (the first one varies slowest), and pytrees of arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from functrans import pytrees as tree
from functrans.ir.types import dtype_class
from functrans.lax.arguments import as_array, invalid, mismatch
from functrans.lax.arguments import axis_index as place
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.distributed import collective as prims
from functrans.primitives.elementwise.conversion import cast
from functrans.trace import AnyTracer, full, literal, typeof
from functrans.typing import Array, PyTree

__all__ = ["axis_index", "axis_size", "pcast", "pmean", "ppermute", "psum", "ragged_all_to_all"]

# --- names and groups -----------------------------------------------------------------------------


def names_of(axis_name: Any) -> tuple[Any, ...]:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def over(operation: str, axis_name: Any, axis_index_groups: Any = None) -> dict[str, Any]:
    """Return the parameters that all collectives have."""
    axes = names_of(axis_name)
    if len(set(axes)) != len(axes):
        raise invalid(operation, f"axis_name {axes} names an axis twice")
    sizes = tuple([prims.size_of_axis(operation, name) for name in axes])
    groups = None
    if axis_index_groups is not None:
        groups = tuple([tuple([operator.index(i) for i in g]) for g in axis_index_groups])
        n = prod(sizes)
        if sorted([i for g in groups for i in g]) != list(range(n)):
            raise invalid(
                operation,
                f"axis_index_groups {axis_index_groups} must cover the indices 0..{n - 1} of axis "
                f"{', '.join(map(repr, axes))} exactly once",
            )
    return {"axes": axes, "sizes": sizes, "groups": groups}


def members(operation: str, group: dict[str, Any]) -> int:
    """Return the number of examples per group."""
    if _uneven(group):
        raise invalid(operation, f"axis_index_groups {group['groups']} must have equal sizes")
    return prims.count(group["sizes"], group["groups"])


def _uneven(group: dict[str, Any]) -> bool:
    return group["groups"] is not None and len({len(g) for g in group["groups"]}) > 1


# --- reductions over the examples -----------------------------------------------------------------


def psum(
    x: PyTree, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> PyTree:
    """Sum over the examples of a mapped axis.

    Arguments:
      x: pytree of arrays of numbers or booleans. For Python numbers and concrete arrays the sum is
        a multiple, computed eagerly: `psum(1, "i")` is the size of the axis, an int.
      axis_name: one or several names; ints among them are axes of x that are summed as well.
      axis_index_groups: a partition of the examples into groups; each group is summed separately.

    Returns:
      A pytree like x, the same for all examples. As in JAX the cotangent of x is the sum of the
      cotangents of all examples.

    Raises:
      UnboundAxis: no enclosing map binds the axis name.
      InvalidArgument: the groups do not cover the axis.

    Source: `jax.lax.psum`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> share = ft.vmap(lambda x: x / psum(x, "i"), axis_name="i")
      >>> print(share(jnp.array([1.0, 1.0, 2.0])))
      [0.25 0.25 0.5 ]
    """
    if not names_of(axis_name):
        return x
    leaves, structure = tree.flatten(x)
    leaves = [_no_bool(v) for v in leaves]
    names, axes = _positions("psum", axis_name, axis_index_groups)
    group = over("psum", names, axis_index_groups)
    leaves = [_folded("reduce_sum", v, axes) for v in leaves]
    if any([isinstance(v, AnyTracer) for v in leaves]) or _uneven(group):
        sums = [prims.psum(as_array(v), **group) for v in leaves] if names else leaves
    else:
        sums = [_times(v, members("psum", group)) for v in leaves]
    return tree.unflatten(structure, sums)


def pmean(
    x: PyTree, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> PyTree:
    """Take the mean over the examples of a mapped axis.

    Arguments:
      x, axis_name, axis_index_groups: as in `psum`.

    Returns:
      A pytree like x; the mean of integers is a float. Groups may have different sizes (JAX divides by the
      size of the first).

    Raises:
      UnboundAxis: no enclosing map binds the axis name.

    Source: `jax.lax.pmean`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> centred = ft.vmap(lambda x: x - pmean(x, "i"), axis_name="i")
      >>> print(centred(jnp.array([1.0, 2.0, 6.0])))
      [-2. -1.  3.]
    """
    sums = psum(x, axis_name, axis_index_groups=axis_index_groups)
    n = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda v: v / n, sums)


def extreme(operation: str, x: Any, axis_name: Any, axis_index_groups: Any = None) -> Any:
    """Take the `pmax` or `pmin` over axes of the array, if any are given, and over the named axes. Tied
    examples share its tangent equally (JAX has no derivative of it)."""
    names, axes = _positions(operation, axis_name, axis_index_groups)
    x = _folded(f"reduce_{operation[1:]}", x, axes)
    return PRIMITIVES[operation](as_array(x), **over(operation, names, axis_index_groups)) if names else x


def _positions(operation: str, axis_name: Any, groups: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Split `axis_name` into names and axes of the operand itself (ints)."""
    given = names_of(axis_name)
    names = tuple([a for a in given if not isinstance(a, int)])
    axes = tuple([a for a in given if isinstance(a, int)])
    if axes and groups is not None:
        raise invalid(operation, f"axis_index_groups cannot be combined with operand axes {axes}")
    return names, axes


def _folded(how: str, x: Any, axes: tuple[int, ...]) -> Any:
    if not axes:
        return x
    x = as_array(x)
    return PRIMITIVES[how](x, axes=tuple([place(a, x.ndim, how) for a in axes]))


def _no_bool(x: Any) -> Any:
    t = typeof(x)
    return cast(as_array(x), np.int32) if dtype_class(t.dtype) == "bool" else x


def _times(x: Any, n: int) -> Any:
    """Return n * x for a value that is not a tracer; a Python number for a Python number."""
    if isinstance(x, (int, float, complex)) and not isinstance(x, np.generic):
        return x.__class__(n) * x
    return PRIMITIVES["mul"](as_array(x), literal(n, typeof(x)))


# --- index and size of an axis --------------------------------------------------------------------


def axis_index(axis_name: Hashable) -> Array:
    """Return the index of this example along a mapped axis.

    Arguments:
      axis_name: one or several names; for several, the index over all of them, where the last name
        varies fastest.

    Returns:
      A scalar int32.

    Raises:
      UnboundAxis: no enclosing map binds the axis name.

    Source: `jax.lax.axis_index`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.vmap(lambda x: x + axis_index("i"), axis_name="i")(jnp.array([5, 5, 5])))
      [5 6 7]
    """
    group = over("axis_index", axis_name)
    if not group["axes"]:
        return full(0, typeof(np.int32(0)))
    return prims.index_of(prims.Names(group["axes"], group["sizes"]))


def axis_size(axis_name: Hashable) -> int:
    """Return the size of a mapped axis.

    Arguments:
      axis_name: one or several names; for several, the product of their sizes.

    Returns:
      A Python int.

    Raises:
      UnboundAxis: no enclosing map binds the axis name.

    Source: `jax.lax.axis_size`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.vmap(lambda x: x / axis_size("i"), axis_name="i")(jnp.ones(4)))
      [0.25 0.25 0.25 0.25]
    """
    return prod(over("axis_size", axis_name)["sizes"])


# --- between the examples --------------------------------------------------------------------------


def ppermute(x: PyTree, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> PyTree:
    """Permute values between the examples of a mapped axis, by (source, destination) pairs.

    Arguments:
      x: pytree of arrays.
      axis_name: one or several names.
      perm: pairs (source, destination), each at most once. Examples that receive nothing get zeros.

    Returns:
      A pytree like x.

    Raises:
      UnboundAxis: no enclosing map binds the axis name.
      TypeMismatch: `perm` has a duplicate or an index out of range.

    Source: `jax.lax.ppermute`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> right = lambda x: ppermute(x, "i", [(0, 1), (1, 2), (2, 0)])
      >>> print(ft.vmap(right, axis_name="i")(jnp.array([1, 2, 3])))
      [3 1 2]
    """
    group = over("ppermute", axis_name)
    pairs = tuple([(operator.index(a), operator.index(b)) for a, b in perm])
    return tree.map(lambda v: prims.ppermute(as_array(v), **group, perm=pairs), x)


def pcast(x: PyTree, axis_name: Hashable, *, to: str) -> PyTree:
    """Mark values as varying over a mapped axis, for JAX's types under `shard_map`.

    Arguments:
      x: pytree of arrays.
      axis_name: one or several names.
      to: "varying" or "reduced". Values are unchanged; types here do not track varying axes.

    Returns:
      x.

    Raises:
      UnboundAxis: no enclosing map binds the axis name.
      InvalidArgument: another `to`. "unreduced" values, which are pending sums, exist only in JAX's
        explicitly sharded types.

    Source: `jax.lax.pcast`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.vmap(lambda x: pcast(x, "i", to="varying"), axis_name="i")(jnp.array([5, 6])))
      [5 6]
    """
    over("pcast", axis_name)
    if to not in ("varying", "reduced"):
        raise invalid(
            "pcast", f'to must be "varying" or "reduced", got {to!r}', "To sum over the axis, use psum."
        )
    return tree.map(as_array, x)


# --- slices of different lengths ------------------------------------------------------------------
# The operands of all examples are gathered, and each example reads its slices from them. So it runs
# on all devices and under every transformation, but needs memory for all operands on each device.

_PLACES = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
    axis_index_groups: Any = None,
) -> Any:
    """Send slices of rows, of different lengths, to the examples of a mapped axis.

    Arguments:
      operand: array of shape (N, ...), whose rows are sent.
      output: array of shape (M, ...), of the same dtype: the values of rows that are not received.
      input_offsets, send_sizes: integers of shape (K,): slice k begins at row `input_offsets[k]`
        and has `send_sizes[k]` rows. K is a multiple of the number of examples: each gets the next
        K / n slices.
      output_offsets: integers of shape (K,): the row of the receiver's output where slice k begins.
      recv_sizes: integers of shape (K,): the sizes of the slices that are received,
        `all_to_all(send_sizes, axis_name, 0, 0, tiled=True)`. Where slices overlap, the last slice
        of the last example wins.
      axis_name: one or several names.
      axis_index_groups: groups of examples, of equal size; each group exchanges separately.

    Returns:
      An array of the shape of `output`.

    Raises:
      UnboundAxis: no enclosing map binds the axis name.
      TypeMismatch: shapes or dtypes do not match.
      InvalidArgument: K is not a multiple of the number of examples.

    Source: `jax.lax.ragged_all_to_all`, which does not run on CPUs and not under vmap.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> from functrans import lax
      >>> rows = jnp.array([[1, 2, 2], [3, 4, 0]])
      >>> sizes = jnp.array([[1, 2], [1, 1]])  # [from, to]
      >>> starts = jnp.array([[0, 1], [0, 1]])
      >>> places = jnp.array([[0, 0], [1, 2]])
      >>> def f(x, start, size, place):
      ...     got = lax.all_to_all(size, "i", 0, 0, tiled=True)
      ...     out = jnp.zeros(4, x.dtype)
      ...     return lax.ragged_all_to_all(x, out, start, size, place, got, axis_name="i")
      >>> print(ft.vmap(f, axis_name="i")(rows, starts, sizes, places))
      [[1 3 0 0]
       [2 2 4 0]]
    """
    name = "ragged_all_to_all"
    group = over(name, axis_name, axis_index_groups)
    n = members(name, group)
    operand, output = as_array(operand), as_array(output)
    places = [as_array(v) for v in (input_offsets, send_sizes, output_offsets, recv_sizes)]
    slices = _checked(name, n, operand, output, places)

    starts, _, offsets, sizes = (cast(v, np.dtype("int32")) for v in places)
    starts, offsets = (prims.all_to_all(v, **group, split=0, concat=0) for v in (starts, offsets))
    rows = prims.all_gather(operand, **group, dimension=0)

    # For each output row the slice that it comes from: the last that covers it, -1 if none does; and
    # its index among the rows of all examples.
    row, number = jnp.arange(output.shape[0]), jnp.arange(slices)
    inside = (offsets <= row[:, None]) & (row[:, None] < offsets + sizes)
    chosen = jnp.max(jnp.where(inside, number, -1), axis=1)
    shift = number // (slices // n) * operand.shape[0] + starts - offsets
    found = rows.at[shift[jnp.maximum(chosen, 0)] + row].get(mode="clip")
    received = (chosen >= 0).reshape(-1, *[1] * (output.ndim - 1))
    return jnp.where(received, found, output)


def _checked(name: str, n: int, operand: Any, output: Any, places: list[Any]) -> int:
    """Check the arguments and return the number of slices."""
    x, y = typeof(operand), typeof(output)
    if x.ndim < 1 or y.ndim != x.ndim or x.shape[1:] != y.shape[1:] or x.dtype != y.dtype:
        raise mismatch(
            name, f"operand {x} and output {y} must have equal dtypes, and equal shapes but for axis 0"
        )
    types = [typeof(v) for v in places]
    for what, t in zip(_PLACES, types, strict=True):
        if dtype_class(t.dtype) not in ("int", "uint") or t.ndim != 1:
            raise mismatch(name, f"{what} must be integers of shape (K,), got {t}")
        if t.shape != types[0].shape:
            raise mismatch(name, f"{what} {t} must be as long as input_offsets {types[0]}")
    (k,) = types[0].shape
    if k == 0 or k % n:
        raise invalid(
            name,
            f"{k} slices cannot be divided evenly among {n} examples",
            f"The length of the offsets and sizes must be a multiple of {n}.",
        )
    return k
