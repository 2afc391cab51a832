"""Pytree functions for internal use: JAX's, under short names. Errors about a user's tree point to
the user's line (checks.py). Users have them as `tree` and `tree_util`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import tree_util as _tree

from functrans.pytrees.checks import explained
from functrans.pytrees.structure import *
from functrans.pytrees.structure import flatten as _flatten


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    try:
        return _flatten(tree, is_leaf)
    except (TypeError, ValueError) as error:
        raise explained(error, is_leaf, tree)  # noqa: B904  # it may be the same
    except SystemError as error:  # in Python 3.11 JAX's C++ loses an error at the end of the stack
        raise (error.__cause__ if isinstance(error.__cause__, RecursionError) else error) from None


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Apply a function to each leaf, or to the corresponding leaves of several trees."""
    try:
        return _tree.tree_map(f, tree, *rest, is_leaf=is_leaf)
    except (TypeError, ValueError) as error:
        raise explained(error, is_leaf, tree, *rest)  # noqa: B904  # it may be the same


def spread(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """For each leaf of a tree, return the corresponding leaf of its prefix; ValueError if it is no
    prefix. `is_leaf` applies to the prefix. No tree is built: a class may refuse what is no array."""
    given, outer = flatten(prefix, is_leaf)
    try:
        parts = outer.flatten_up_to(tree)
    except (TypeError, ValueError) as error:
        raise explained(error, is_leaf, prefix, tree)  # noqa: B904  # it may be the same
    return [x for x, part in zip(given, parts, strict=True) for _ in leaves(part)]
