"""Sharding functions of `jax.lax`."""

from __future__ import annotations

import jax

from functrans import pytrees as tree
from functrans.lax.arguments import as_array
from functrans.primitives.distributed.sharding import (
    sharding_constraint,
)
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
    return tree.map(lambda leaf, s: sharding_constraint(as_array(leaf), sharding=s), x, filled)
