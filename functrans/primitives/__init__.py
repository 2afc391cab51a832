"""The operations: importing this package makes all of them known to `PRIMITIVES`."""

from functrans.primitives import arithmetic as arithmetic
from functrans.primitives import bitwise as bitwise
from functrans.primitives import call as call
from functrans.primitives import complex_numbers as complex_numbers
from functrans.primitives import contraction as contraction
from functrans.primitives import conversion as conversion
from functrans.primitives import convolution as convolution
from functrans.primitives import cumulative as cumulative
from functrans.primitives import dynamic_slice as dynamic_slice
from functrans.primitives import elementwise as elementwise
from functrans.primitives import indexing as indexing
from functrans.primitives import joining as joining
from functrans.primitives import random_bits as random_bits
from functrans.primitives import reduction as reduction
from functrans.primitives import scatter as scatter
from functrans.primitives import selection as selection
from functrans.primitives import shape as shape
from functrans.primitives import sorting as sorting
from functrans.primitives import special as special
from functrans.primitives import transcendental as transcendental
