"""`jax.typing`: names for annotations. A traced value is one of `ArrayLike` too, also in
`isinstance`."""

import numpy as np
from jax.typing import DTypeLike as DTypeLike

from functrans.loading import hand_on as _hand_on
from functrans.numpy import ndarray

__all__ = ["ArrayLike", "DTypeLike"]

ArrayLike = ndarray | np.ndarray | np.bool_ | np.number | bool | int | float | complex

_hand_on(__name__)
