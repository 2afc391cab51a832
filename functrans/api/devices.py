"""Placement of arrays on devices."""

from __future__ import annotations

from typing import Any

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.source import here
from functrans.trace import Tracer, typeof
from functrans.typing import PyTree


def device_put(
    x: PyTree,
    device: PyTree = None,
    *,
    src: PyTree = None,
    donate: bool = False,
    may_alias: bool | None = None,
) -> PyTree:
    """Transfer arrays to a device or sharding.

    Arguments:
      x: pytree of arrays and scalars.
      device: a `jax.Device`, a `Sharding`, or a pytree prefix of these; None: the default device.
      src: accepted and ignored: arrays know where they are.
      donate: donate the buffers of `x`.
      may_alias: allow results to share the buffers of `x`.

    Returns:
      The same pytree of committed `jax.Array`s. Tracers are returned unchanged.

    Source: `jax.device_put`.

    Example:
      >>> import functrans as ft
      >>> ft.device_put([1.0, 2.0])
      [Array(1., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True)]
    """
    leaves = tree.leaves(x)
    for leaf in leaves:
        typeof(leaf)  # raises an error unless it is an array
    names = [d for d in tree.leaves(device) if isinstance(d, str)]
    if names:
        raise errors.InvalidArgument(
            f"device_put: a device must be a jax.Device or a Sharding, got {names[0]!r}, {here()}\n"
            f"Write device_put(x, ft.devices({names[0]!r})[0])."
        )
    if not any(isinstance(leaf, Tracer) for leaf in leaves):
        return jax.device_put(x, device, donate=donate, may_alias=may_alias)

    def put(leaf: Any, to: Any) -> Any:
        if isinstance(leaf, Tracer):
            return leaf
        return jax.device_put(leaf, to, donate=donate, may_alias=may_alias)

    if isinstance(device, (type(None), jax.Device, jax.sharding.Sharding)):
        return tree.map(lambda leaf: put(leaf, device), x)
    return tree.map(put, x, jax.tree.broadcast(device, x))
