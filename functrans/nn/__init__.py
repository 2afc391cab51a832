"""Functions of neural networks with the names and signatures of `jax.nn`."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.nn import initializers as initializers
from functrans.nn.activations import *
from functrans.nn.attention import *
from functrans.nn.normalizing import *
from functrans.nn.quantizing import *
from functrans.nn.scaled import *

for _package in (initializers, _sys.modules[__name__]):
    _guard(_package)

_hand_on(__name__, initializers.__name__)
