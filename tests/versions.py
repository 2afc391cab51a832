"""Where JAX's versions differ. The tests hold for 0.10 and for 0.11."""

from __future__ import annotations

import jax

NEWER = jax.__version_info__ >= (0, 11)

# Expressions of jax.numpy whose results are other ones from 0.11 on.
EXPRESSIONS = {"jnp.sinc(inf)", "jnp.log2(0.5)"} if NEWER else set()


def has_no_order(primitive: str, dtype: str) -> bool:
    """Is it an extreme of complex numbers, of which JAX has no derivative from 0.11 on?"""
    extremes = ("max", "min", "cummax", "cummin")
    return NEWER and dtype.startswith("complex") and primitive in extremes
