"""Random numbers: the names of `jax.random`."""

from functrans.loading import lazily as _lazily

with _lazily(__name__):
    from jax.random import *
