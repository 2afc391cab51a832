"""NumPy functions of arrays and traced arrays, with the names and signatures of `jax.numpy`."""

from functrans.numpy import operators as operators
from functrans.numpy.arithmetic import *
from functrans.numpy.linear import *
from functrans.numpy.ufuncs import *
