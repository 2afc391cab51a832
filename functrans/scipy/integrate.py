"""Integrals of samples."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.numpy import trapezoid as trapezoid

_guard(_sys.modules[__name__])

_hand_on(__name__)
