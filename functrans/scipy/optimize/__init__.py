"""Minima of functions of vectors."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.scipy.optimize.minimize import OptimizeResults as OptimizeResults
from functrans.scipy.optimize.minimize import minimize as minimize

_guard(_sys.modules[__name__])

_hand_on(__name__)
