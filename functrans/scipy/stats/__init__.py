"""Distributions, one module each, and summaries of samples: the names of `jax.scipy.stats`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import hand_on as _hand_on

if _TYPE_CHECKING:
    from jax.scipy.stats import *

_hand_on(__name__)
