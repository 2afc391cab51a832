"""`jax.lax` names over primitives/control_flow/scan.py, and functions built on them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.flags import flags
from functrans.ir.source import brief, here
from functrans.lax import staging
from functrans.lax.arguments import axis_index, integer, invalid
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.scan import scan as _scan
from functrans.primitives.elementwise.conversion import strong
from functrans.primitives.reductions.cumulative import associative_scan as prefix_results
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import reshape, rev, slice_axis
from functrans.trace import typeof
from functrans.transforms.batch import Batching
from functrans.typing import PyTree

__all__ = ["associative_scan", "map", "scan"]


@staging.or_by_jax(jax.lax.scan)
def scan(
    f: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[PyTree, PyTree]:
    """Scan a function over the leading axis of arrays, with a carry.

    Arguments:
      f: (carry, x) -> (carry, y); x is a slice of xs along axis 0; the carry keeps its types.
      init: the initial carry, a pytree of arrays.
      xs: pytree of arrays with equal leading axes, or None.
      length: number of steps; required if xs is None.
      reverse: run from the last slice to the first; each y keeps the index of its x.
      unroll: unroll factor of the compiled loop (True or 0: all steps).

    Returns:
      `(carry, ys)`: the final carry, and the ys stacked along a new axis 0.

    Raises:
      TypeMismatch: the carry changes its types, or f does not return a pair.
      InvalidArgument: the lengths disagree or are negative.

    Source: `jax.lax.scan`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> total, sums = lax.scan(lambda c, x: (c + x, c + x), 0.0, jnp.arange(4.0))
      >>> print(total, sums)
      6.0 [0. 1. 3. 6.]
    """
    staging.check_function(f, "scan", "f")
    name = staging.operation_of(f, "scan")
    carry, state_tree = staging.array_leaves(init, "init" if name == "scan" else "(i, init_val)")
    arrays, _ = staging.array_leaves(xs, "xs")
    n = _length(name, xs, arrays, length)
    unroll = _unroll(unroll, n)
    if n and flags.jax_disable_jit:
        return jax.lax.scan(f, init, xs, n, reverse)  # as a Python loop: f sees concrete values
    rows = [t.update(shape=t.shape[1:]) for t in [typeof(x) for x in arrays]]
    in_tree = tree.structure(((init, xs), {}))
    m = len(carry)
    made, carry = staging.stable(lambda types: staging.staged(f, in_tree, [*types, *rows], "scan"), carry)
    types = [typeof(x) for x in carry]
    pair = made.out_tree.children()
    if len(pair) != 2:
        raise errors.TypeMismatch(
            f"scan: f must return a pair (carry, y), got "
            f"({', '.join([str(t) for t in made.program.out_types])}) in the structure "
            f"{tree.spelled(made.out_tree)}, {staging.given_to('scan', f)}\n"
            "If there are no per-step results, return carry, None."
        )
    carry_tree = pair[0]
    outs = made.program.out_types
    k = carry_tree.num_leaves
    staging.check_carry(name, "f", f, state_tree, types, carry_tree, outs[:k])
    params: dict[str, Any] = {"program": made.program, "length": n, "consts": len(made.captured), "carry": m}
    params |= {"reverse": True} if reverse else {}
    params |= {"unroll": unroll} if unroll > 1 else {}
    return tree.unflatten(made.out_tree, _scan(*made.captured, *carry, *arrays, **params))


def _length(name: str, xs: Any, arrays: list[Any], length: Any) -> int:
    """Return the number of steps."""
    types = [typeof(x) for x in arrays]
    for i, t in enumerate(types):
        if not t.shape:
            path = tree.path_names(xs, "xs")[i]
            raise invalid(name, f"{path} must have a leading axis to loop over, got {t}")
    if length is not None:
        try:
            length = int(length) if isinstance(length, float) else operator.index(length)
        except TypeError as error:
            if isinstance(error, errors.AbstractIndexError):
                raise
            raise errors.TypeMismatch(
                f"{name}: length must be a Python int, got {brief(length)}, {here()}"
            ) from None
        if length < 0:
            raise invalid(name, f"length must be >= 0, got {length}")
    sizes = {t.shape[0] for t in types} | ({length} if length is not None else set())
    if len(sizes) > 1:
        paths = tree.path_names(xs, "xs")
        shown = ", ".join([f"{p}: {t.shape[0]}" for p, t in zip(paths, types, strict=True)])
        wanted = "equal" if length is None else f"equal, and equal to length ({length})"
        raise invalid(name, f"leading axes must be {wanted}; got {shown}")
    if not sizes:
        raise invalid(name, "there is nothing to loop over: pass arrays in xs, or length")
    return sizes.pop()


def _unroll(unroll: Any, n: int) -> int:
    steps = 1 if unroll is False else operator.index(unroll)
    if steps < 0:
        raise invalid("scan", f"unroll must be a bool or an int >= 0, got {unroll}")
    return max(n, 1) if unroll is True or steps == 0 else steps


def map(f: Callable[[PyTree], PyTree], xs: PyTree, *, batch_size: int | None = None) -> PyTree:
    """Apply a function to each slice of arrays sequentially.

    Arguments:
      f: function of slices along axis 0.
      xs: pytree of arrays with equal leading axes.
      batch_size: process this many slices at a time with `vmap` (0: all).

    Returns:
      The results, stacked along a new axis 0.

    Source: `jax.lax.map`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.map(lambda x: x ** 2, jnp.arange(3)))
      [0 1 4]
    """
    staging.check_function(f, "map", "f")
    if batch_size is None:
        return scan(staging.made_of(f, _row, "map"), (), xs)[1]
    arrays, structure = staging.array_leaves(xs, "xs")
    n = _length("map", xs, arrays, None)
    size = integer(batch_size, "map", "batch_size")
    if size < 0:
        raise invalid("map", f"batch_size must be >= 0, got {batch_size}")
    end = n - n % size if size else 0

    def rows(x: Any) -> Any:
        return reshape(slice_axis(x, 0, 0, end), shape=(end // size, size, *typeof(x).shape[1:]))

    parts = []
    if end:
        done = scan(
            staging.made_of(f, _rows, "map"), (), tree.unflatten(structure, [rows(x) for x in arrays])
        )[1]
        parts.append(tree.map(lambda y: reshape(y, shape=(end, *typeof(y).shape[2:])), done))
    if end < n or not n:
        parts.append(_batched(f, tree.unflatten(structure, [slice_axis(x, 0, end, n) for x in arrays])))
    return parts[0] if len(parts) == 1 else tree.map(lambda x, y: concatenate(x, y, dimension=0), *parts)


def _row(f: Any, _: Any, x: Any) -> tuple[Any, Any]:
    return (), f(x)


def _rows(f: Any, _: Any, xs: Any) -> tuple[Any, Any]:
    return (), _batched(f, xs)


def _batched(f: Any, rows: Any) -> Any:
    leaves, structure = staging.array_leaves(rows, "xs")
    size = typeof(leaves[0]).shape[0]
    types = [t.update(shape=t.shape[1:]) for t in [typeof(x) for x in leaves]]
    in_tree = tree.structure(((tree.unflatten(structure, leaves),), {}))
    made = staging.staged(f, in_tree, types, "map")
    dims = (*[None] * len(made.captured), *[0] * len(leaves))
    every = [True] * len(made.program.outputs)
    program, _ = Batching(size).program(made.program, dims, every)
    return tree.unflatten(made.out_tree, jit(*made.captured, *leaves, program=program))


def associative_scan(
    fn: Callable[[PyTree, PyTree], PyTree], elems: PyTree, reverse: bool = False, axis: int = 0
) -> PyTree:
    """Compute all prefix results of an associative operation, in logarithmic depth.

    Arguments:
      fn: (a, b) -> c, associative, on pytrees of arrays; applied to many elements at once along
        `axis`.
      elems: pytree of arrays with equal sizes along `axis`.
      reverse: start from the last element.
      axis: the axis to scan.

    Returns:
      A pytree like `elems`: element i is `fn` of elements 0 ... i.

    Source: `jax.lax.associative_scan` (Blelloch, Prefix sums and their applications, 1990).

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans import lax
      >>> print(lax.associative_scan(jnp.add, jnp.arange(1, 5)))
      [ 1  3  6 10]
    """
    staging.check_function(fn, "associative_scan", "fn")
    leaves, structure = staging.array_leaves(elems, "elems")
    if not leaves:
        return elems
    axis = axis_index(axis, typeof(leaves[0]).ndim, "associative_scan")
    sizes = {t.shape[axis] if t.ndim > axis else None for t in [typeof(x) for x in leaves]}
    if len(sizes) > 1:
        raise invalid("associative_scan", f"sizes along axis {axis} must be equal, got {sizes}")
    if reverse:
        leaves = [rev(x, dimensions=(axis,)) for x in leaves]

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        out = fn(tree.unflatten(structure, a), tree.unflatten(structure, b))
        found, found_tree = tree.flatten(out)
        if found_tree != structure:
            raise errors.TypeMismatch(
                f"associative_scan: fn must return the structure {structure}, got {found_tree}, {here()}"
            )
        return found

    outs = prefix_results(combine, leaves, axis)
    if typeof(leaves[0]).shape[axis] > 1:
        outs = [strong(x) for x in outs]  # as in JAX
    if reverse:
        outs = [rev(x, dimensions=(axis,)) for x in outs]
    return tree.unflatten(structure, outs)
