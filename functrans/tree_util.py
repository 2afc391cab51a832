"""Pytrees: the names of `jax.tree_util`. The registry is JAX's, so the containers are the same."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jax import tree_util as _jax

from functrans import tree as _tree
from functrans.loading import hand_on as _hand_on
from functrans.pytrees.checks import checked as _checked

if _TYPE_CHECKING:
    from jax.tree_util import *
else:
    for _name in dir(_tree):
        if hasattr(_jax, f"tree_{_name}"):
            globals()[f"tree_{_name}"] = getattr(_tree, _name)
    _CHECKED = "flatten_one_level flatten_one_level_with_keys treedef_children treedef_is_leaf treedef_tuple"
    for _name in _CHECKED.split():
        globals()[_name] = _checked(getattr(_jax, _name), _name, __name__)

_hand_on(__name__)
