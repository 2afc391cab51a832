"""Pytrees: the names of `jax.tree`. JAX's functions, with errors at the user's line."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jax import tree as _jax

from functrans.loading import hand_on as _hand_on
from functrans.pytrees import checks as _checks
from functrans.pytrees.checks import checked as _checked

if _TYPE_CHECKING:
    from jax.tree import *
else:
    all = _checked(_jax.all, _checks.of_all, __name__)
    broadcast = _checked(_jax.broadcast, _checks.of_broadcast, __name__)
    flatten = _checked(_jax.flatten, _checks.of_walk, __name__)
    flatten_with_path = _checked(_jax.flatten_with_path, _checks.of_walk, __name__)
    leaves = _checked(_jax.leaves, _checks.of_walk, __name__)
    leaves_with_path = _checked(_jax.leaves_with_path, _checks.of_walk, __name__)
    map = _checked(_jax.map, _checks.of_map, __name__)
    map_with_path = _checked(_jax.map_with_path, _checks.of_map, __name__)
    reduce = _checked(_jax.reduce, _checks.of_reduce, __name__)
    reduce_associative = _checked(_jax.reduce_associative, _checks.of_reduce_associative, __name__)
    structure = _checked(_jax.structure, _checks.of_walk, __name__)
    transpose = _checked(_jax.transpose, _checks.of_transpose, __name__)
    unflatten = _checked(_jax.unflatten, _checks.of_unflatten, __name__)

_hand_on(__name__)
