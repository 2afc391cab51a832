"""`jax.debug`: looking at values from within transformed functions."""

from functrans.api.callbacks import debug_callback as callback
from functrans.api.callbacks import debug_log as log
from functrans.api.callbacks import debug_print as print

__all__ = ["callback", "log", "print"]
