"""Sharding constraints: hints to XLA's partitioner how an array is laid out on a device mesh.

sharding_constraint[sharding=...] x -> x
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType
from functrans.primitives.base import Cost, Primitive, bytes_of
from functrans.trace import bind


class ShardingConstraint(Primitive):
    """The operand, sharded as a `jax.sharding.Sharding` specifies."""

    name: str = "sharding_constraint"
    linear_in: tuple[int, ...] = (0,)

    def abstract_eval(self, x: ArrayType, *, sharding: Any) -> ArrayType:
        return x

    def reference(self, x: Any, *, sharding: Any) -> Any:
        return x

    def lower(self, ctx: Any, x: Any, *, sharding: Any) -> Any:
        if isinstance(sharding, jax.sharding.NamedSharding):
            mesh = left_to_xla(sharding.mesh)
            sharding = jax.sharding.NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
        return ctx.via_jax(lambda v: jax.lax.with_sharding_constraint(v, sharding), x)[0]

    def transpose(self, ct: Any, x: Any, *, sharding: Any) -> Any:
        return (bind(self, (ct,), {"sharding": sharding}),)

    def batch(self, t: Any, args: Any, dims: Any, *, sharding: Any) -> Any:
        d = dims[0]
        if isinstance(sharding, jax.sharding.NamedSharding):
            spec = list(sharding.spec) + [None] * (len(args[0].shape) - 1 - len(sharding.spec))
            _check_free(t.spmd_axis_name, sharding)
            spec.insert(d, t.spmd_axis_name or jax.P.UNCONSTRAINED)
            sharding = jax.sharding.NamedSharding(left_to_xla(sharding.mesh), jax.P(*spec))
        return bind(self, args, {"sharding": sharding}), d

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(0, bytes_of(*in_types))


def laid_out_by_type() -> bool:
    """Return whether a mesh with explicit axes is set, under which the types of JAX's arrays have
    shardings."""
    return jax.sharding.AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types


def left_to_xla(mesh: Any) -> Any:
    """Return a mesh with its explicit axes as automatic ones: XLA decides the layouts along them,
    since our types have none."""
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


def unknown_layout(what: str) -> errors.NotSupported:
    return errors.NotSupported(
        f"shard_map: {what} inside a functrans transformation, whose types do not record how "
        f"arrays are sharded, at\n    {describe(user_source())}\n"
        "Pass in_specs=, or transform with jax.jit, jax.grad, ... there."
    )


def _check_free(axes: Sequence[str], sharding: Any) -> None:
    """Raise unless the mesh has these axes and the spec does not use them."""
    used = [n for part in sharding.spec for n in (part if isinstance(part, tuple) else (part,))]
    for name in axes:
        if name in used or name not in sharding.mesh.axis_names:
            raise errors.InvalidArgument(
                f"{sharding} inside a function mapped over devices along {name!r}: the mesh must "
                f"have that axis, and the spec must not name it, at\n"
                f"    {describe(user_source())}\n"
                "A pmap has its own mesh: use vmap inside it, or one shard_map for all axes."
            )


sharding_constraint: ShardingConstraint = ShardingConstraint()
