"""Images read at real coordinates: the names of `jax.scipy.ndimage`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import hand_on as _hand_on

if _TYPE_CHECKING:
    from jax.scipy.ndimage import *

_hand_on(__name__)
