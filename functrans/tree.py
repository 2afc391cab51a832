"""Pytrees: the names of `jax.tree`. JAX's functions, with errors at the user's line."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jax import tree as _jax

from functrans.loading import hand_on as _hand_on
from functrans.pytrees.checks import checked as _checked

if _TYPE_CHECKING:
    from jax.tree import *
else:
    _CHECKED = (
        "all broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path reduce "
        "reduce_associative structure transpose unflatten"
    )
    for _name in _CHECKED.split():
        globals()[_name] = _checked(getattr(_jax, _name), __name__)

_hand_on(__name__)
