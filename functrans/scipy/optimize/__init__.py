"""Minima of functions of vectors.

Ours, for JAX's line search gives up where it need not: of 200 starts in [-2, 2]^2 its BFGS comes to
the minimum of Rosenbrock's function from 66, this one from all. And this one has reverse mode.
"""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.scipy.optimize.minimize import OptimizeResults as OptimizeResults
from functrans.scipy.optimize.minimize import minimize as minimize

_guard(_sys.modules[__name__])

_hand_on(__name__)
