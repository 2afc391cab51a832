"""Vector quantisation, by JAX's own program."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.scipy.arguments import imported

vq = imported(
    "vq", "The nearest code of each observation, and its distance.", "obs, code_book",
    (), "cluster.vq",
)  # fmt: skip

_guard(_sys.modules[__name__])

_hand_on(__name__)
