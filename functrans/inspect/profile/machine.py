"""What a machine can do at most, measured: floating point operations and bytes per second."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from functrans.caching import cached

_SECONDS = 0.15  # seconds of calls, of which the fastest counts


class Machine(NamedTuple):
    """platform; FLOP/s of a large product of float32 matrices; bytes per second read and written by
    a sum of large arrays, which do not fit into caches."""

    platform: str
    flops: float
    bytes: float


@cached("speeds of devices", 64, lasting=True)
def machine(device: Any) -> Machine:
    """What a device of `jax.devices()` can do; measured once per process, in under a second."""
    small = device.platform == "cpu"
    n, size = (1024, 2**24) if small else (4096, 2**27)
    with jax.default_device(device):
        product = _seconds(jax.jit(jnp.dot), jnp.ones((n, n), jnp.float32))
        add = jax.jit(lambda y, x: y + x, donate_argnums=0)  # in place: new memory is slow at first
        added = _seconds(add, jnp.ones(size, jnp.float32))
    return Machine(device.platform, 2 * n**3 / product, 12 * size / added)


def _seconds(f: Any, x: Any) -> float:
    """Of the fastest of some calls, of the last result and x, after the first call."""
    y = jax.block_until_ready(f(x + 0, x))
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < _SECONDS:
        start = time.perf_counter()
        y = jax.block_until_ready(f(y, x))
        taken.append(time.perf_counter() - start)
    return min(taken)
