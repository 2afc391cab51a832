"""Integrals of samples: the names of `jax.scipy.integrate`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import hand_on as _hand_on

if _TYPE_CHECKING:
    from jax.scipy.integrate import *

_hand_on(__name__)
