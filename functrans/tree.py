"""Pytrees: JAX's, under short names, and paths for messages."""

from __future__ import annotations

from typing import Any

from jax import tree as _short
from jax import tree_util as _tree

flatten = _tree.tree_flatten
unflatten = _tree.tree_unflatten
leaves = _tree.tree_leaves
structure = _tree.tree_structure
map = _tree.tree_map
all = _tree.tree_all
reduce = _tree.tree_reduce
reduce_associative = _tree.tree_reduce_associative
broadcast = _tree.tree_broadcast
static = _short.static
transpose = _tree.tree_transpose
flatten_with_path = _tree.tree_flatten_with_path
leaves_with_path = _tree.tree_leaves_with_path
map_with_path = _tree.tree_map_with_path


def spelled(structure: Any) -> str:
    """A structure for messages: `{'w': *, 'b': (*, *)}`, each leaf a star."""
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


path_text = _tree.keystr


def path_names(tree: Any, prefix: str = "") -> list[str]:
    """A name per leaf for messages: `args[0]['w']`."""
    return [prefix + path_text(path) for path, _ in flatten_with_path(tree)[0]]
