"""NumPy functions of arrays and traced arrays, with the names and signatures of `jax.numpy`."""

import sys as _sys

from jax import numpy as _jax_numpy

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.numpy import fft as fft
from functrans.numpy import linalg as linalg
from functrans.numpy import methods as methods
from functrans.numpy import operators as operators
from functrans.numpy import ufunc_methods as ufunc_methods
from functrans.numpy.arithmetic import *
from functrans.numpy.array_api import *
from functrans.numpy.at_once import run_at_once as _run_at_once
from functrans.numpy.creation import *
from functrans.numpy.dtypes import *
from functrans.numpy.einsums import *
from functrans.numpy.files import *
from functrans.numpy.floating import *
from functrans.numpy.grids import *
from functrans.numpy.index_tricks import *
from functrans.numpy.indexing import *
from functrans.numpy.integers import *
from functrans.numpy.joining import *
from functrans.numpy.linear import *
from functrans.numpy.moments import *
from functrans.numpy.partitions import *
from functrans.numpy.placing import *
from functrans.numpy.ranges import *
from functrans.numpy.reductions import *
from functrans.numpy.repeating import *
from functrans.numpy.running import *
from functrans.numpy.selecting import *
from functrans.numpy.shaping import *
from functrans.numpy.sorting import *
from functrans.numpy.ufunc_objects import *
from functrans.numpy.ufuncs import *
from functrans.numpy.vectorizing import *

pi: float = _jax_numpy.pi
e: float = _jax_numpy.e
euler_gamma: float = _jax_numpy.euler_gamma
inf: float = _jax_numpy.inf
nan: float = _jax_numpy.nan
newaxis: None = _jax_numpy.newaxis

_run_at_once(globals())
_guard(_sys.modules[__name__])

_hand_on(__name__)
