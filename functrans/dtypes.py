"""Dtypes and dtype promotion: the names of `jax.dtypes`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import hand_on as _hand_on

if _TYPE_CHECKING:
    from jax.dtypes import *


_hand_on(__name__)
