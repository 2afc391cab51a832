"""Dtypes and dtype promotion: the names of `jax.dtypes`."""

from functrans.loading import lazily as _lazily

with _lazily(__name__):
    from jax.dtypes import *
