"""Functions of neural networks with the names and signatures of `jax.nn`."""

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.nn.activations import *
from functrans.nn.normalizing import *

if _TYPE_CHECKING:
    from jax.nn import dot_product_attention as dot_product_attention
    from jax.nn import get_scaled_dot_general_config as get_scaled_dot_general_config
    from jax.nn import initializers as initializers
    from jax.nn import scaled_dot_general as scaled_dot_general
    from jax.nn import scaled_matmul as scaled_matmul

_guard(_sys.modules[__name__])

_hand_on(__name__)
