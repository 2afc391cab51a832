"""`jax.debug`: looking at values from within transformed functions."""

from functrans.api.callbacks import debug_callback as callback
from functrans.api.callbacks import debug_log as log
from functrans.api.callbacks import debug_print as print
from functrans.api.jit import disable_jit
from functrans.inspect.step import step

__all__ = ["callback", "disable_jit", "log", "print", "step"]
