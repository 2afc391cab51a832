"""Operations with the names and signatures of `jax.lax`."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.lax import linalg as linalg
from functrans.lax.collective import *
from functrans.lax.contraction import *
from functrans.lax.control_flow import *
from functrans.lax.convolution import *
from functrans.lax.creation import *
from functrans.lax.elementwise import *
from functrans.lax.exchange import *
from functrans.lax.fourier import *
from functrans.lax.indexing import *
from functrans.lax.loops import *
from functrans.lax.patches import *
from functrans.lax.platforms import *
from functrans.lax.ragged import *
from functrans.lax.ragged_exchange import *
from functrans.lax.reduction import *
from functrans.lax.scaled import *
from functrans.lax.shape import *
from functrans.lax.sharding import *
from functrans.lax.solvers import *
from functrans.lax.sorting import *
from functrans.lax.special import *
from functrans.lax.stacking import *
from functrans.lax.tokens import *
from functrans.lax.windows import *
from functrans.loading import hand_on as _hand_on

for _package in (linalg, _sys.modules[__name__]):
    _guard(_package)

_hand_on(__name__, linalg.__name__)
