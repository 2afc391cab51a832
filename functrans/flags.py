"""JAX's configuration flags, which are ours too: `flags.jax_enable_x64`.

JAX adds them to its `config` object while it is imported, so type checkers do not know them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

flags: Any = jax.config

# What a function records depends on these, beside the types of its arguments.
DECISIVE = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
)  # fmt: skip


@contextmanager
def unchecked() -> Iterator[None]:
    """Let NaNs and infinities pass, in this thread: what looks for them runs the program itself."""
    with jax.debug_nans(False), jax.debug_infs(False):
        yield


@contextmanager
def deciding(values: tuple[Any, ...]) -> Iterator[None]:
    """Give them these values, in this thread."""
    x64, precision, dtypes, ranks = values
    with (
        jax.enable_x64(x64), jax.default_matmul_precision(precision),
        jax.numpy_dtype_promotion(dtypes), jax.numpy_rank_promotion(ranks),
    ):  # fmt: skip
        yield


def decisive() -> tuple[Any, ...]:
    """Their values now, in this thread."""
    return (
        flags.jax_enable_x64, flags.jax_default_matmul_precision, flags.jax_numpy_dtype_promotion,
        flags.jax_numpy_rank_promotion,
    )  # fmt: skip
