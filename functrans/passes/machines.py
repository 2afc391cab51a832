"""What work costs on the kind of device that a program is optimized for.

Only ratios matter, and a rewrite must win by a wide margin. The numbers of a CPU were fitted on
XLA:CPU, those of a GPU are those of an H200 (TF32 products); a TPU was not measured. An accelerator
starts an operation for the price of megabytes written, a CPU for that of kilobytes: loops with small
steps are slow there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

from functrans.records import NamedTuple


class Machine(NamedTuple):
    """Costs in nanoseconds.

    operation : the start of an operation
    flop      : an operation on float32 in a product of matrices
    wide      : how many times that in float64
    read      : a byte
    written   : a byte
    batched   : an element of a batch of products
    worth     : what a rewrite must save at least
    by_example: loops over the examples of a batch can be faster than the whole batch
    by_columns: sums over leading axes are slow
    """

    name: str
    operation: float
    flop: float
    wide: float
    read: float
    written: float
    batched: float
    worth: float
    by_example: bool = False
    by_columns: bool = False

    def per_flop(self, dtype: np.dtype) -> float:
        """Return the cost of an operation in arithmetic of that dtype."""
        return self.flop * (self.wide if dtype.itemsize == 8 else 1)


CPU = Machine("cpu", 1500.0, 0.006, 4, 0.06, 0.35, 100.0, 20_000.0, by_example=True, by_columns=True)
GPU = Machine("gpu", 3000.0, 1e-5, 16, 4e-4, 4e-4, 0.0, 5_000.0)
TPU = GPU._replace(name="tpu", wide=1000)  # which has no float64
# Numbers from which vector code pays on a CPU outside of kernels.
LARGE = 2**14
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MACHINES = {m.name: m for m in (CPU, GPU, TPU)}


class _Local(threading.local):
    machine: Machine | None = None


_local = _Local()


def machine() -> Machine:
    """Return what programs are optimized for in this thread: JAX's default platform, unless
    `optimized_for` says otherwise."""
    return _local.machine or MACHINES.get(jax.default_backend(), GPU)


@contextmanager
def optimized_for(platform: str) -> Iterator[None]:
    """Optimize for a platform, as JAX names it."""
    outer, _local.machine = _local.machine, MACHINES.get(platform, GPU)
    try:
        yield
    finally:
        _local.machine = outer
