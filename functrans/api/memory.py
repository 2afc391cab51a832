"""The memory that a CPU computes in."""

from __future__ import annotations

import ctypes
import sys
import warnings

from functrans.ir.source import here
from functrans.jax_trace import backends_are_initialized

# malloc.h: one heap for all threads, no block mapped by itself, up to 2 GB kept free at the heap's end
_M_ARENA_MAX, _M_MMAP_MAX, _M_TRIM_THRESHOLD = -8, -4, -1
_KEEPING = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1))


def keep_memory() -> bool:
    """Keep freed memory in the process instead of returning it to the system, on Linux.

    XLA:CPU allocates the temporaries and results of a program at each call. glibc, the C library of most
    Linux systems, returns large blocks at once, and the system hands out the pages anew in the next call:
    about a microsecond each, a third of many training steps. `ft.profile` counts these pages. Call this
    before the first computation: threads that XLA has started keep heaps of their own, whose blocks above
    64 MB are returned as before. The price: all threads allocate from one heap, which keeps up to 2 GB that
    is not used, and may grow by some more of the largest blocks until each finds its place again.

    Returns:
      True if the C library does so; False if it is not glibc.

    Raises:
      UserWarning: as a warning, if JAX has started its devices.

    Source: mallopt(3): M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD.

    Example:
      >>> import functrans as ft
      >>> ft.keep_memory()  # doctest: +SKIP
      True
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    if backends_are_initialized():
        warnings.warn(
            "keep_memory: JAX has started its devices, so blocks of more than 64 MB are still returned to "
            f"the system, {here()}\nCall ft.keep_memory() before the first computation.",
            stacklevel=2,
        )
    return all([mallopt(what, value) for what, value in _KEEPING])
