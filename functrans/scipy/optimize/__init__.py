"""Minima of functions of vectors."""

from functrans.scipy.optimize.minimize import OptimizeResults as OptimizeResults
from functrans.scipy.optimize.minimize import minimize as minimize
