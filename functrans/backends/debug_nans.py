"""Support for `jax_debug_nans` and `jax_debug_infs`. When JAX finds a NaN or an infinity in the
results of a compiled function, it calls that function again without jit, on concrete arrays.

In JAX the operations then run one by one until one of them produces a NaN. Here a compiled function
is a whole program, so each function given to `jax.jit` first checks `is_asked` and then calls
`say_where`, which searches the program as `find_nan` does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from functrans import runtime
from functrans.flags import flags
from functrans.ir.program import Program
from functrans.trace import AnyTracer


def is_asked() -> bool:
    """Return whether JAX is calling the function again to find a NaN or an infinity."""
    if not (flags.jax_debug_nans or flags.jax_debug_infs):
        return False
    return type(sys.exc_info()[1]).__name__ == "InternalFloatingPointError"


def say_where(program: Program, args: Sequence[Any]) -> None:
    """Raise NotFinite for the first equation that produces a NaN or an infinity. Do nothing on
    tracers: the JAX transformation around this runs programs on arrays, and those are searched."""
    if any(isinstance(x, AnyTracer) for x in args):
        return
    runtime.stop_at_first(program, args)
