"""Pytrees as the library itself uses them: JAX's functions under short names, and paths for
messages. Users have them as `tree` and `tree_util`, where a mistake is told at their line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from jax import tree_util as _tree

Structure: TypeAlias = _tree.PyTreeDef
unflatten: Callable[[Structure, Iterable[Any]], Any] = _tree.tree_unflatten
transpose: Callable[[Structure, Structure | None, Any], Any] = _tree.tree_transpose
flatten_with_path: Callable[..., tuple[list[tuple[Any, Any]], Structure]] = (
    _tree.tree_flatten_with_path
)
_flatten = _tree.default_registry.flatten  # what JAX's three functions call, as ours do


def _as_it_is(error: Exception, is_leaf: Any, *trees: Any) -> Exception:
    return error


# What is raised for an error of JAX's about some trees: set by `tree_checks`, which can look into
# them and knows the user's line.
explained = _as_it_is


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves and the structure."""
    try:
        return _flatten(tree, is_leaf)
    except (TypeError, ValueError) as error:
        raise explained(error, is_leaf, tree)  # noqa: B904  # it may be the same


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves alone."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The structure alone."""
    return flatten(tree, is_leaf)[1]


def map(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """A function of each leaf, or of those at one place in several trees."""
    try:
        return _tree.tree_map(f, tree, *rest, is_leaf=is_leaf)
    except (TypeError, ValueError) as error:
        raise explained(error, is_leaf, tree, *rest)  # noqa: B904


def spread(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """For each leaf of a tree the leaf of its prefix that stands for it; ValueError if it is none.
    `is_leaf`: of the prefix."""
    found: list[Any] = []
    map(lambda x, part: found.extend([x] * len(leaves(part))), prefix, tree, is_leaf=is_leaf)
    return found


def spelled(structure: Any) -> str:
    """A structure for messages: `{'w': *, 'b': (*, *)}`, each leaf a star."""
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


path_text: Callable[..., str] = _tree.keystr


def path_names(tree: Any, prefix: str = "") -> list[str]:
    """A name per leaf for messages: `args[0]['w']`."""
    return [prefix + path_text(path) for path, _ in flatten_with_path(tree)[0]]


def opened(x: Any) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """The parts of one container, each with its key, and its structure as if they were leaves. A
    leaf is its own only part."""
    return flatten_with_path(x, lambda part: part is not x)


def is_leaf(x: Any) -> bool:
    """Is it no container? None is one, without parts."""
    head = opened(x)[1]
    return head.num_nodes == head.num_leaves == 1


def where_differing(
    x: Any,
    y: Any,
    stop: Callable[[tuple[Any, ...], Any], bool] | None = None,
    path: tuple[Any, ...] = (),
) -> tuple[tuple[Any, ...], Any, Any] | None:
    """The first place where `y` does not go on as `x` does: its keys from the root, and what stands
    there in each. None where `y` has the containers of `x`, down to its leaves and to what
    `stop(path, part)` takes for one.

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
