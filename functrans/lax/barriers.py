"""Identity functions of `jax.lax`: `stop_gradient` and `with_sharding_constraint`."""

from __future__ import annotations

from typing import Any

import jax

from functrans import pytrees as tree
from functrans.ir.types import is_key_dtype
from functrans.lax.arguments import as_array
from functrans.lax.elementwise import operand as _operand
from functrans.primitives.distributed.sharding import sharding_constraint
from functrans.primitives.elementwise import selection
from functrans.trace import bind, typeof
from functrans.typing import PyTree

__all__ = ["stop_gradient", "with_sharding_constraint"]


def stop_gradient(x: PyTree) -> PyTree:
    """Return a pytree unchanged, but treat it as constant in differentiation.

    Source: `jax.lax.stop_gradient`.

    >>> import functrans as ft
    >>> from functrans import lax
    >>> print(ft.grad(lambda x: lax.mul(x, lax.stop_gradient(x)))(3.0))
    3.0
    """
    return tree.map(_stopped, x)


def _stopped(x: Any) -> Any:
    x = _operand(x)
    return x if is_key_dtype(typeof(x).dtype) else bind(selection.stop_gradient, (x,), {})


# --- sharding -------------------------------------------------------------------------------------


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
