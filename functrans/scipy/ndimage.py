"""Images read at places between their elements, by JAX's own program."""

import sys as _sys

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.scipy.arguments import imported

map_coordinates = imported(
    "map_coordinates", "The elements of an array at real coordinates, interpolated.",
    "np.eye(2), [np.array([0.5]), np.array([0.5])], order=1 -> [0.5]", (), "ndimage",
)  # fmt: skip

_guard(_sys.modules[__name__])

_hand_on(__name__)
