"""`jax.experimental.jet`: Taylor mode."""

from functrans.api.jet import jet as jet

__all__ = ["jet"]
