"""Pytrees: the names of `jax.tree_util`. The registry is JAX's, so the containers are the same."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jax import tree_util as _jax
from jax.tree_util import DictKey as DictKey
from jax.tree_util import FlattenedIndexKey as FlattenedIndexKey
from jax.tree_util import GetAttrKey as GetAttrKey
from jax.tree_util import KeyEntry as KeyEntry
from jax.tree_util import KeyPath as KeyPath
from jax.tree_util import Partial as Partial
from jax.tree_util import PyTreeDef as PyTreeDef
from jax.tree_util import SequenceKey as SequenceKey
from jax.tree_util import all_leaves as all_leaves
from jax.tree_util import default_registry as default_registry
from jax.tree_util import is_tree_node as is_tree_node
from jax.tree_util import keystr as keystr
from jax.tree_util import register_dataclass as register_dataclass
from jax.tree_util import register_pytree_node as register_pytree_node
from jax.tree_util import register_pytree_node_class as register_pytree_node_class
from jax.tree_util import register_pytree_with_keys as register_pytree_with_keys
from jax.tree_util import register_pytree_with_keys_class as register_pytree_with_keys_class
from jax.tree_util import register_static as register_static

from functrans import tree as _tree
from functrans.loading import hand_on as _hand_on
from functrans.pytrees import checks as _checks
from functrans.pytrees.checks import checked as _checked

if _TYPE_CHECKING:
    from jax.tree_util import flatten_one_level as flatten_one_level
    from jax.tree_util import flatten_one_level_with_keys as flatten_one_level_with_keys
    from jax.tree_util import tree_all as tree_all
    from jax.tree_util import tree_broadcast as tree_broadcast
    from jax.tree_util import tree_flatten as tree_flatten
    from jax.tree_util import tree_flatten_with_path as tree_flatten_with_path
    from jax.tree_util import tree_leaves as tree_leaves
    from jax.tree_util import tree_leaves_with_path as tree_leaves_with_path
    from jax.tree_util import tree_map as tree_map
    from jax.tree_util import tree_map_with_path as tree_map_with_path
    from jax.tree_util import tree_reduce as tree_reduce
    from jax.tree_util import tree_reduce_associative as tree_reduce_associative
    from jax.tree_util import tree_structure as tree_structure
    from jax.tree_util import tree_transpose as tree_transpose
    from jax.tree_util import tree_unflatten as tree_unflatten
    from jax.tree_util import treedef_children as treedef_children
    from jax.tree_util import treedef_is_leaf as treedef_is_leaf
    from jax.tree_util import treedef_tuple as treedef_tuple
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
