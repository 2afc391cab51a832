"""JAX's configuration flags, which functrans shares: `flags.jax_enable_x64`.

JAX adds them to its `config` object at import time, so type checkers do not see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

flags: Any = jax.config

# Of the settings that a traced program depends on (jax_trace.settings), those that users set most.
DECISIVE = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
)


@contextmanager
def unchecked() -> Iterator[None]:
    """Disable the checks for NaNs and infinities in this thread."""
    with jax.debug_nans(False), jax.debug_infs(False):
        yield
