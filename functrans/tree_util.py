"""Pytrees: the names of `jax.tree_util`. The registry is JAX's, so the containers are the same."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jax import tree_util as _jax

from functrans import tree as _tree
from functrans.loading import hand_on as _hand_on
from functrans.pytrees import checks as _checks
from functrans.pytrees.checks import checked as _checked

if _TYPE_CHECKING:
    from jax.tree_util import *
else:
    tree_all = _tree.all
    tree_broadcast = _tree.broadcast
    tree_flatten = _tree.flatten
    tree_flatten_with_path = _tree.flatten_with_path
    tree_leaves = _tree.leaves
    tree_leaves_with_path = _tree.leaves_with_path
    tree_map = _tree.map
    tree_map_with_path = _tree.map_with_path
    tree_reduce = _tree.reduce
    tree_reduce_associative = _tree.reduce_associative
    tree_structure = _tree.structure
    tree_transpose = _tree.transpose
    tree_unflatten = _tree.unflatten

    _container = _checks.of_container
    flatten_one_level = _checked(_jax.flatten_one_level, _container, __name__)
    flatten_one_level_with_keys = _checked(_jax.flatten_one_level_with_keys, _container, __name__)
    treedef_children = _checked(_jax.treedef_children, _checks.of_structure, __name__)
    treedef_is_leaf = _checked(_jax.treedef_is_leaf, _checks.of_structure, __name__)
    treedef_tuple = _checked(_jax.treedef_tuple, _checks.of_structures, __name__)

_hand_on(__name__)
