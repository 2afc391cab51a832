"""`jax.lax` names over primitives/distributed/collective.py: reductions over the examples of a
mapped axis, and the index of each example.

Inside a function mapped with `vmap(f, axis_name="i")` they take an axis name, or a tuple of names
of nested maps (the first one varies slowest), and pytrees of arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from functrans import pytrees as tree
from functrans.ir.types import dtype_class
from functrans.lax.arguments import as_array, invalid
from functrans.lax.arguments import axis_index as place
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.distributed import collective as prims
from functrans.primitives.elementwise.conversion import cast
from functrans.trace import AnyTracer, full, literal, typeof
from functrans.typing import Array, PyTree

__all__ = ["axis_index", "axis_size", "pmean", "psum"]

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
