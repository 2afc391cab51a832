"""Minima of functions of vectors."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.scipy.optimize.minimize import OptimizeResults as OptimizeResults
from functrans.scipy.optimize.minimize import minimize as minimize

_guard(_sys.modules[__name__])
