"""Integrals of samples."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.numpy import trapezoid as trapezoid

_guard(_sys.modules[__name__])
