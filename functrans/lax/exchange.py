"""`jax.lax` names over primitives/distributed/collective.py: communication between the examples of a
mapped axis, where it is called often or JAX's function does not run. Axis names are as in
`lax/collective.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from functrans import pytrees as tree
from functrans.ir.types import dtype_class
from functrans.lax.arguments import as_array, invalid, mismatch
from functrans.lax.collective import members, over
from functrans.primitives.distributed import collective as prims
from functrans.primitives.elementwise.conversion import cast
from functrans.trace import typeof
from functrans.typing import PyTree

__all__ = ["pcast", "ppermute", "ragged_all_to_all"]


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
