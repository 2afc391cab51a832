"""Pytrees: the names of `jax.tree`. JAX's functions, with errors at the user's line (pytrees/checks.py)."""

from functrans.loading import lazily as _lazily

with _lazily(__name__):
    from jax.tree import *
