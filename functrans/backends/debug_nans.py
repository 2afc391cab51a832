"""What JAX asks when `jax_debug_nans` or `jax_debug_infs` is set and it has found what they forbid
in the results of a compiled function: it calls that function again, with the arrays themselves.

In JAX the operations then run one by one until one of them makes a NaN. Here a compiled function is
a whole program, so whatever is given to `jax.jit` asks `is_asked` first and answers with
`say_where`, which looks through the program as `find_nan` does.
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
    """Is the running function called while JAX looks for a NaN or an infinity?"""
    if not (flags.jax_debug_nans or flags.jax_debug_infs):
        return False
    return type(sys.exc_info()[1]).__name__ == "InternalFloatingPointError"


def say_where(program: Program, args: Sequence[Any]) -> None:
    """Raise NotFinite for the first equation that makes one. Where a transformation of JAX's stands
    around, that runs programs on arrays, and these are asked."""
    if any(isinstance(x, AnyTracer) for x in args):
        return
    runtime.stop_at_first(program, args)
