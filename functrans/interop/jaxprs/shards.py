"""What a `jax.shard_map` computes, as a function of whole arrays, whose program tools can look into.

In: an equation of JAX. Out: a function in which the function of one part is mapped, as by `vmap`, over
the parts of the arrays. It says nothing of devices.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from functrans.api.vmap import map_examples
from functrans.interop.jaxprs.walk import exactly, run
from functrans.primitives.shape.moving import index_axis, reshape, transpose
from functrans.trace import typeof

Spec = tuple[tuple[str, ...], ...]  # for each axis of an array, the axes of the mesh that divide it


def whole_of(eqn: Any) -> Callable[..., list[Any]]:
    """Return what a map over all axes of a mesh computes, a function of whole arrays."""
    params, sizes = eqn.params, dict(eqn.params["mesh"].shape)
    jaxpr = params["jaxpr"]
    ins, outs = ([_axes(s) for s in params[of]] for of in ("in_specs", "out_specs"))

    def of_part(*values: Any) -> list[Any]:
        return exactly(run(jaxpr, (), values), [v.aval for v in jaxpr.outvars])

    def along(axis: str, fun: Any) -> Callable[..., list[Any]]:
        """Map a function over an axis of the mesh. Of a result that it does not divide: the first part's."""

        def mapped(*values: Any) -> list[Any]:
            dims = [0 if _divides(axis, spec) else None for spec in ins]
            t, results, found = map_examples(fun, values, dims, sizes[axis], axis)
            rows = zip(results, found, [_divides(axis, spec) for spec in outs], strict=True)
            return [t.at(y, d, 0) if f else y if d is None else index_axis(y, d, 0) for y, d, f in rows]

        return mapped

    part: Callable[..., list[Any]] = of_part
    for axis in reversed(sizes):
        part = along(axis, part)

    def whole(*values: Any) -> list[Any]:
        stacks = [_divided(x, spec, sizes) for x, spec in zip(values, ins, strict=True)]
        return [_joined(y, spec, sizes) for y, spec in zip(part(*stacks), outs, strict=True)]

    return whole


def _axes(spec: Any) -> Spec:
    return tuple([() if n is None else n if isinstance(n, tuple) else (n,) for n in spec])


def _divides(axis: str, spec: Spec) -> bool:
    return any(axis in names for names in spec)


def _divided(x: Any, spec: Spec, sizes: dict[str, int]) -> Any:
    """Return the parts of an array, stacked along a leading axis per axis of the mesh that divides it."""
    shape: list[int] = []
    place: dict[str, int] = {}
    inner = []
    for n, names in zip(typeof(x).shape, (*spec, *[()] * typeof(x).ndim), strict=False):
        for axis in names:
            place[axis] = len(shape)
            shape.append(sizes[axis])
        inner.append(len(shape))
        shape.append(n // prod([sizes[axis] for axis in names]))
    moves = (*[place[axis] for axis in sizes if axis in place], *inner)
    return transpose(reshape(x, shape=tuple(shape)), permutation=moves) if place else x


def _joined(x: Any, spec: Spec, sizes: dict[str, int]) -> Any:
    """Return the array whose parts are stacked: inverse of `_divided`."""
    used = [axis for axis in sizes if _divides(axis, spec)]
    if not used:
        return x
    moves, shape = [], []
    for i, n in enumerate(typeof(x).shape[len(used) :]):
        names = spec[i] if i < len(spec) else ()
        moves += [*[used.index(axis) for axis in names], len(used) + i]
        shape.append(n * prod([sizes[axis] for axis in names]))
    return reshape(transpose(x, permutation=tuple(moves)), shape=tuple(shape))
