"""`jax.debug`: inspect values inside transformed functions."""

from jax import disable_jit

from functrans.api.callbacks import debug_callback as callback
from functrans.api.callbacks import debug_log as log
from functrans.api.callbacks import debug_print as print
from functrans.inspect.step import step
from functrans.loading import hand_on as _hand_on

__all__ = ["callback", "disable_jit", "log", "print", "step"]

_hand_on(__name__)
