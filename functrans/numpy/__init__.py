"""NumPy functions of arrays and traced arrays, with the names and signatures of `jax.numpy`."""

from jax import numpy as _jax_numpy

from functrans.numpy import linalg as linalg
from functrans.numpy import methods as methods
from functrans.numpy import operators as operators
from functrans.numpy.arithmetic import *
from functrans.numpy.creation import *
from functrans.numpy.differences import *
from functrans.numpy.dtypes import *
from functrans.numpy.einsums import *
from functrans.numpy.floating import *
from functrans.numpy.grids import *
from functrans.numpy.indexing import *
from functrans.numpy.joining import *
from functrans.numpy.linear import *
from functrans.numpy.nan_reductions import *
from functrans.numpy.quantiles import *
from functrans.numpy.ranges import *
from functrans.numpy.reductions import *
from functrans.numpy.repeating import *
from functrans.numpy.running import *
from functrans.numpy.selecting import *
from functrans.numpy.sets import *
from functrans.numpy.shaping import *
from functrans.numpy.signals import *
from functrans.numpy.sorting import *
from functrans.numpy.statistics import *
from functrans.numpy.ufuncs import *

pi = _jax_numpy.pi
e = _jax_numpy.e
euler_gamma = _jax_numpy.euler_gamma
inf = _jax_numpy.inf
nan = _jax_numpy.nan
newaxis = _jax_numpy.newaxis
