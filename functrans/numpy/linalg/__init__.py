"""Linear algebra under the names of `jax.numpy.linalg`."""

from functrans.numpy.linalg.factors import *
from functrans.numpy.linalg.norms import *
from functrans.numpy.linalg.products import *
from functrans.numpy.linalg.systems import *
from functrans.numpy.linear import matmul as matmul
from functrans.numpy.linear import tensordot as tensordot
from functrans.numpy.linear import vecdot as vecdot
from functrans.numpy.shaping import matrix_transpose as matrix_transpose
