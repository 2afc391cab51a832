"""Random numbers with the names, signatures and bits of `jax.random`."""

from functrans.random.continuous import *
from functrans.random.counts import *
from functrans.random.discrete import *
from functrans.random.gamma import *
from functrans.random.keys import *
from functrans.random.matrices import *
from functrans.random.uniform import *
