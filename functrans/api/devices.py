"""Placement of arrays on devices."""

from __future__ import annotations

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.source import here
from functrans.trace import typeof
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
      The same pytree of committed `jax.Array`s. Tracers get the sharding, if one is given.

    Source: `jax.device_put`.

    Example:
      >>> import functrans as ft
      >>> ft.device_put([1.0, 2.0])
      [Array(1., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True)]
    """
    for leaf in tree.leaves(x):
        typeof(leaf)  # raises an error unless it is an array
    names = [d for d in tree.leaves(device) if isinstance(d, str)]
    if names:
        raise errors.InvalidArgument(
            f"device_put: a device must be a jax.Device or a Sharding, got {names[0]!r}, {here()}\n"
            f"Write device_put(x, ft.devices({names[0]!r})[0])."
        )
    return jax.device_put(x, device, donate=donate, may_alias=may_alias)
