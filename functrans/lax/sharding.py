"""Sharding functions of `jax.lax`."""

from __future__ import annotations

from typing import Any

import jax

from functrans import pytrees as tree
from functrans.lax.arguments import as_array
from functrans.primitives.distributed.sharding import laid_out_by_type, sharding_constraint
from functrans.typing import PyTree

__all__ = ["with_sharding_constraint"]


def with_sharding_constraint(x: PyTree, shardings: PyTree) -> PyTree:
    """Constrain the sharding of arrays.

    Arguments:
      x: pytree of arrays.
      shardings: a `jax.sharding.Sharding`, or a pytree (or prefix) of them.

    Returns:
      x, with these shardings.

    Source: `jax.lax.with_sharding_constraint`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> from functrans import lax
      >>> where = ft.NamedSharding(ft.make_mesh((1,), ("i",)), ft.P("i"))
      >>> print(lax.with_sharding_constraint(jnp.arange(3), where))
      [0 1 2]
    """
    filled = jax.tree.broadcast(shardings, x)
    return tree.map(
        lambda leaf, s: sharding_constraint(as_array(leaf), sharding=_auto(s)), x, filled
    )


def _auto(sharding: Any) -> Any:
    """Return the sharding with all mesh axes automatic, as a constraint requires; unchanged if
    shardings are part of the types."""
    if not isinstance(sharding, jax.sharding.NamedSharding) or laid_out_by_type():
        return sharding
    mesh = sharding.mesh
    if isinstance(mesh, jax.sharding.AbstractMesh):
        mesh = mesh.update_axis_types(dict.fromkeys(mesh.axis_names, jax.sharding.AxisType.Auto))
    else:
        mesh = jax.sharding.Mesh(mesh.devices, mesh.axis_names)
    return jax.sharding.NamedSharding(mesh, sharding.spec)
