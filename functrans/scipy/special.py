"""Special functions: the names of `jax.scipy.special`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import hand_on as _hand_on

if _TYPE_CHECKING:
    from jax.scipy.special import *

_hand_on(__name__)
