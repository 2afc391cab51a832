"""Sharding constraints: hints to XLA's partitioner how an array is laid out on a device mesh.

    sharding_constraint[sharding=...] x -> x

With `typed=True` it is not asked for: it keeps the sharding that the type of a result has in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import ArrayType
from functrans.jax_trace import is_checked_map
from functrans.primitives.base import Cost, Primitive, bytes_of
from functrans.trace import bind, state


class ShardingConstraint(Primitive):
    """The operand, sharded as a `jax.sharding.Sharding` specifies."""

    name: str = "sharding_constraint"
    linear_in: tuple[int, ...] = (0,)

    def abstract_eval(self, x: ArrayType, *, sharding: Any, typed: bool = False) -> ArrayType:
        return x

    def reference(self, x: Any, *, sharding: Any, typed: bool = False) -> Any:
        return x

    def lower(self, ctx: Any, x: Any, *, sharding: Any, typed: bool = False) -> Any:
        if isinstance(sharding, jax.sharding.NamedSharding):
            mesh, spec = sharding.mesh, sharding.spec
            if mesh.explicit_axes and not mesh.are_all_axes_explicit:  # the others are left to XLA
                spec = jax.P(*[jax.P.UNCONSTRAINED if part is None else part for part in spec])
            mesh = left_to_xla(mesh)
            sharding = jax.sharding.NamedSharding(mesh, spec, memory_kind=sharding.memory_kind)
        return ctx.via_jax(lambda v: jax.lax.with_sharding_constraint(v, sharding), x)[0]

    def transpose(self, ct: Any, x: Any, **how: Any) -> Any:
        return (bind(self, (ct,), how),)

    def batch(self, t: Any, args: Any, dims: Any, *, sharding: Any, **how: Any) -> Any:
        d = dims[0]
        if isinstance(sharding, jax.sharding.NamedSharding):
            spec = list(sharding.spec) + [None] * (len(args[0].shape) - 1 - len(sharding.spec))
            _check_free(t.spmd_axis_name, sharding)
            spec.insert(d, t.spmd_axis_name or jax.P.UNCONSTRAINED)
            mesh = sharding.mesh if t.spmd_axis_name else left_to_xla(sharding.mesh)
            sharding = jax.sharding.NamedSharding(mesh, jax.P(*spec))
        return bind(self, args, {"sharding": sharding, **how}), d

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(0, bytes_of(*in_types))


_EXPLICIT = jax.sharding.AxisType.Explicit


def laid_out_by_type(values: Sequence[Any] = ()) -> bool:
    """Return whether a mesh with explicit axes is set, or one of the values is sharded over such
    axes: then the types of JAX's arrays have shardings."""
    if _EXPLICIT in jax.sharding.get_abstract_mesh().axis_types:
        return True
    return any([mesh_of_type(x) is not None for x in values])


def mesh_of_type(x: Any) -> Any:
    """Return the mesh with explicit axes over which an array is sharded, or None."""
    sharding = getattr(getattr(x, "aval", x), "sharding", None)
    if not isinstance(sharding, jax.sharding.NamedSharding) or not any(sharding.spec):
        return None
    return sharding.mesh.abstract_mesh if _EXPLICIT in sharding.mesh.axis_types else None


def typed_by_jax(values: Sequence[Any] = ()) -> bool:
    """Return whether the types of JAX's arrays say more than ours: their shardings over explicit
    axes, or, in a `jax.shard_map` that checks it, the axes over which a value varies."""
    return is_checked_map() or laid_out_by_type(values)


def traced_by_jax() -> bool:
    """Return whether to leave a transformation to JAX: the types of its arrays say more than ours,
    and functrans itself is not tracing."""
    return typed_by_jax() and state.trace is None


def of_type(sharding: Any, ndim: int) -> Any:
    """Return a sharding over explicit axes as in the type of an array of JAX, else None."""
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return None
    mesh, spec = sharding.mesh.abstract_mesh, [*sharding.spec, *[None] * (ndim - len(sharding.spec))]
    names = {n for part in spec for n in (part if isinstance(part, tuple) else (part,))}
    if not mesh.explicit_axes or not names <= {None, *mesh.explicit_axes}:
        return None
    return jax.sharding.NamedSharding(mesh, jax.P(*spec))


def left_to_xla(mesh: Any) -> Any:
    """Return a mesh with its explicit axes as automatic ones, along which XLA decides the layouts."""
    kind = jax.sharding.AxisType
    types = tuple([kind.Auto if t == kind.Explicit else t for t in mesh.axis_types])
    if types == mesh.axis_types:
        return mesh
    if isinstance(mesh, jax.sharding.Mesh):
        return jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=types)
    return mesh.update_axis_types(dict(zip(mesh.axis_names, types, strict=True)))


def automatic_axes() -> AbstractContextManager[Any]:
    """Let JAX see the explicit axes of the mesh that is set as automatic ones."""
    return jax.sharding.use_abstract_mesh(left_to_xla(jax.sharding.get_abstract_mesh()))


def _check_free(axes: Sequence[str], sharding: Any) -> None:
    """Raise unless the mesh has these axes and the spec does not use them."""
    used = [n for part in sharding.spec for n in (part if isinstance(part, tuple) else (part,))]
    for name in axes:
        if name in used or name not in sharding.mesh.axis_names:
            raise errors.InvalidArgument(
                f"{sharding} inside a function mapped over devices along {name!r}: the mesh must "
                f"have that axis, and the spec must not name it, {here()}"
            )


sharding_constraint: ShardingConstraint = ShardingConstraint()
