"""Structures of pytrees: containers, their keys, and where two structures differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import tree_util as _tree

__all__ = [
    "Structure", "flatten_with_path", "is_leaf", "opened", "path_names", "path_text", "spelled",
    "transpose", "unflatten", "where_differing",
]  # fmt: skip

Structure = _tree.PyTreeDef
unflatten = _tree.tree_unflatten
transpose = _tree.tree_transpose
flatten_with_path = _tree.tree_flatten_with_path
flatten = _tree.default_registry.flatten  # what JAX's functions call
structure = _tree.tree_structure


def spelled(structure: Any) -> str:
    """Return a structure for messages: `{'w': *, 'b': (*, *)}`, each leaf a star."""
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


path_text: Callable[..., str] = _tree.keystr


def path_names(tree: Any, prefix: str = "") -> list[str]:
    """Return a name per leaf for messages: `args[0]['w']`."""
    return [prefix + path_text(path) for path, _ in flatten_with_path(tree)[0]]


def opened(x: Any) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """Return the children of a container with their keys, and its structure as if they were leaves.
    A leaf is its own only child."""
    return flatten_with_path(x, lambda part: part is not x)


def is_leaf(x: Any) -> bool:
    """Return whether a value is a leaf. None is not: it is a container without children."""
    return _tree.all_leaves([x])


def where_differing(
    x: Any, y: Any, stop: Callable[[tuple[Any, ...], Any], bool] | None = None, path: tuple[Any, ...] = ()
) -> tuple[tuple[Any, ...], Any, Any] | None:
    """Return the first place where `x` is not a prefix of `y`: its key path from the root, and the
    two subtrees. None if `x` is a prefix, down to its leaves and to nodes for which `stop(path,
    node)` holds.

    Example:
      >>> path, was, now = where_differing({"a": 1, "b": [(2, 3)]}, {"a": (), "b": [(4,)]})
      >>> path_text(path), was, now
      ("['b'][0]", (2, 3), (4,))
    """
    if is_leaf(x) or (stop is not None and stop(path, x)):
        return None
    (parts, head), (others, other) = opened(x), opened(y)
    if head != other:
        return path, x, y
    for (key, part), (_, counterpart) in zip(parts, others, strict=True):
        found = where_differing(part, counterpart, stop, (*path, *key))
        if found is not None:
            return found
    return None
