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
    _check(x, device)
    if not any(isinstance(leaf, Tracer) for leaf in tree.leaves(x)):
        return jax.device_put(x, device, donate=donate, may_alias=may_alias)
    if not isinstance(device, (type(None), jax.Device, jax.sharding.Sharding)):
        device = jax.tree.broadcast(device, x)
        return tree.map(lambda leaf, d: _put(leaf, d, donate, may_alias), x, device)
    return tree.map(lambda leaf: _put(leaf, device, donate, may_alias), x)


def _check(x: Any, device: Any) -> None:
    """Raise an error for leaves that are not arrays, and for a device given by name."""
    for leaf in tree.leaves(x):
        typeof(leaf)
    names = [d for d in tree.leaves(device) if isinstance(d, str)]
    if names:
        raise errors.InvalidArgument(
            f"device_put: a device must be a jax.Device or a Sharding, got {names[0]!r}, {here()}\n"
            f"Write device_put(x, ft.devices({names[0]!r})[0])."
        )


def _put(x: Any, device: Any, donate: Any, may_alias: Any) -> Any:
    if isinstance(x, Tracer):
        return x
    return jax.device_put(x, device, donate=donate, may_alias=may_alias)
