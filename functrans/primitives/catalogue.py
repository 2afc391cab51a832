"""Import all modules that define primitives, which adds these to `PRIMITIVES`."""

from functrans.primitives.calls import callback, captured, checkpoint, jax_call, jit
from functrans.primitives.contractions import convolution, dot_general, fft
from functrans.primitives.control_flow import cond, scan, while_loop
from functrans.primitives.custom import calls, implicit
from functrans.primitives.distributed import collective, platforms, sharding
from functrans.primitives.elementwise import (
    arithmetic,
    bitwise,
    complex_numbers,
    conversion,
    families,
    selection,
    special,
    transcendental,
)
from functrans.primitives.indexing import dynamic_slice, gather, scatter, sorting
from functrans.primitives.linalg import factors, spectral, triangular
from functrans.primitives.random import bits, gamma
from functrans.primitives.reductions import cumulative, folds, windows, windows_general
from functrans.primitives.shape import joining, moving
