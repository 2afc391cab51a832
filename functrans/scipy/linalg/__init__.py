"""Linear algebra under the names of `jax.scipy.linalg`.

Arguments that only tell SciPy how to use its memory (`overwrite_a`, `check_finite`, ...) are taken
and not used.
"""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.scipy.linalg.factors import *
from functrans.scipy.linalg.functions import *
from functrans.scipy.linalg.patterns import *
from functrans.scipy.linalg.systems import *

_guard(_sys.modules[__name__])

_hand_on(__name__)
