"""Random numbers with the names, signatures and bits of `jax.random`."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.random.continuous import *
from functrans.random.counts import *
from functrans.random.discrete import *
from functrans.random.gamma import *
from functrans.random.keys import *
from functrans.random.matrices import *
from functrans.random.uniform import *

_guard(_sys.modules[__name__])

_hand_on(__name__)
