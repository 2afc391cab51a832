"""Checks of the arguments of pytree functions, with messages for the user.

In: a function of JAX. Out (`checked`): the function with better errors. Its arguments are checked only
after it has failed: those that several functions take by their names (`_by_name`), the others by the
function's entry in `CHECKS`. A check raises an error of ours if they are invalid. Otherwise the
original error passes unchanged, as does one raised by a user's function.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Sized
from typing import Any, TypeVar

from functrans import errors, runtime
from functrans.ir.source import brief, brief_with_type, here, is_users
from functrans.ir.tracebacks import hide_frames, raised_at
from functrans.ir.types import ArrayType
from functrans.pytrees import structure as trees
from functrans.records import NamedTuple

_F = TypeVar("_F", bound=Callable[..., Any])
_LONGEST = 88  # a structure is shown up to this many characters


class Failed(NamedTuple):
    """A failed call and its error. The name is empty for an internal call inside another function."""

    name: str
    error: Exception

    def told(self, problem: str, fix: str, kind: type[Exception] = errors.TreeMismatch) -> Exception:
        name = f"{self.name}: " if self.name else ""
        return kind(f"{name}{problem}, {here()}\n{fix}")


@runtime.answers("checked")
def checked(function: _F, name: str, module: str) -> _F:
    """Wrap a function of JAX as one of our module."""
    shown = f"{module.rpartition('.')[2]}.{name}"

    def check(failed: Failed, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        _by_name(failed, given)
        if name in CHECKS:
            CHECKS[name](failed, **given)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            try:
                return function(*args, **kwargs)
            except (TypeError, ValueError, AttributeError, RuntimeError) as error:
                ours = _looked_at(check, Failed(shown, error), *args, **kwargs)
                if ours is None:
                    raise
                raise ours from None
        except Exception as error:
            hide_frames(error)
            raise

    call.__module__ = module  # for pickle
    return call  # type: ignore[return-value]


def _looked_at(check: Callable[..., None], failed: Failed, *args: Any, **kwargs: Any) -> Exception | None:
    """Return the error of ours that `check` raises."""
    last = raised_at(failed.error)
    raised_by_user = last is not None and is_users(last.tb_frame.f_code)
    if raised_by_user or isinstance(failed.error, errors.FunctransError):
        return None
    try:
        check(failed, *args, **kwargs)
    except Exception as found:  # others: of missing arguments, in a user's functions
        return found if isinstance(found, errors.FunctransError) else None
    return None


def explained(error: Exception, is_leaf: Any, *trees: Any) -> Exception:
    """Return the error to raise when the library itself failed to flatten a user's tree."""

    def check(failed: Failed) -> None:
        for x in trees:
            _sorted(failed, x, _stop(is_leaf))

    ours = _looked_at(check, Failed("", error))
    if ours is None:
        return error
    ours.__suppress_context__ = True
    return ours


# --- the checks -----------------------------------------------------------------------------------


def _by_name(failed: Failed, given: dict[str, Any]) -> None:
    """Check functions, structures and trees among the arguments: what JAX gives these names."""
    is_leaf = given.get("is_leaf")
    stop = _stop(is_leaf, given.get("is_leaf_takes_path", False))
    for name, x in given.items():
        if name in ("f", "function", "operation") and not callable(x):
            raise failed.told(
                f"the first argument must be a function, got {brief_with_type(x)}",
                f"Write {failed.name}(f, x): first the function, then the tree.",
                errors.NotAnArray,
            )
        if name in ("treedef", "outer_treedef") or (name == "inner_treedef" and x is not None):
            _structures(failed, [x])
    if is_leaf is not None and not callable(is_leaf):
        raise failed.told(
            f"is_leaf must be a function, got {brief(is_leaf)}",
            "It is called on each subtree: is_leaf=lambda x: x is None.",
            errors.NotAnArray,
        )
    stops = {"tree": stop, "prefix_tree": stop, "full_tree": None, "pytree_to_transpose": None}
    for name in [name for name in stops if name in given]:
        _sorted(failed, given[name], stops[name])


def _of_map(
    failed: Failed, f: Any, tree: Any, rest: Any = (), is_leaf: Any = None, is_leaf_takes_path: bool = False
) -> None:
    """Check trees that must have the first one as prefix."""
    for i, other in enumerate(rest, 2):
        _prefix(failed, ("tree 1", tree), (f"tree {i}", other), _stop(is_leaf, is_leaf_takes_path))


def _of_broadcast(failed: Failed, prefix_tree: Any, full_tree: Any, is_leaf: Any = None) -> None:
    _prefix(failed, ("prefix_tree", prefix_tree), ("full_tree", full_tree), _stop(is_leaf))


def _of_all(failed: Failed, tree: Any, is_leaf: Any = None) -> None:
    """Check a tree whose leaves must be true or false."""
    for path, x in trees.flatten_with_path(tree, is_leaf)[0]:
        if getattr(x, "size", 1) != 1:
            raise failed.told(
                f"the leaf {_at(path)}, {ArrayType(x.shape, x.dtype)}, has no single truth value",
                "Reduce each leaf first: tree.all(tree.map(jnp.all, x)).",
                errors.InvalidArgument,
            )


def _of_fold(first: str, failed: Failed, tree: Any, is_leaf: Any = None, **_: Any) -> None:
    """Check a tree that needs leaves, or the option `first`."""
    found, structure = trees.flatten(tree, is_leaf)
    if not found:
        raise failed.told(
            f"{_spelled(structure)} has no leaves, and no {first} was passed",
            f"Pass {first}=0, or treat None as a leaf: is_leaf=lambda x: x is None.",
        )


def _of_unflatten(failed: Failed, treedef: Any, leaves: Any) -> None:
    n = treedef.num_leaves
    shown = f"{_spelled(treedef)} has {n} lea{'f' if n == 1 else 'ves'}"
    fix = "Pass one leaf for each *, in the order of tree.leaves."
    if not isinstance(leaves, Iterable):
        raise failed.told(f"{shown}, got {brief(leaves)}, which is not a list of leaves", fix)
    if isinstance(leaves, Sized):
        given = len(leaves)
        count = str(given)
    else:  # an exhausted iterator: only JAX's message tells
        fewer, more = [str(failed.error).startswith(f"Too {x} leaves") for x in ("few", "many")]
        given = n + more - fewer
        count = "more" if more else "fewer"
    if given == n:
        return
    without = ""
    if given < n and isinstance(leaves, Sized):
        path = trees.flatten_with_path(_skeleton(treedef))[0][given][0]
        without = f"; the first missing one is {_at(path)}"
    raise failed.told(f"{shown}, got {count}{without}", fix)


def _of_transpose(failed: Failed, outer_treedef: Any, inner_treedef: Any, pytree_to_transpose: Any) -> None:
    """Check a tree of the outer structure whose leaves are trees of the inner one."""
    given = "pytree_to_transpose", pytree_to_transpose
    fix = "It must have the structure outer_treedef, with a tree of the structure inner_treedef at each leaf."
    if inner_treedef is None:
        _prefix(failed, ("outer_treedef", _skeleton(outer_treedef)), given, fix=fix)
        inner_treedef = trees.structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    both = "outer of inner", _skeleton(outer_treedef.compose(inner_treedef))
    _prefix(failed, both, given, fix=fix)
    _prefix(failed, given, both, fix=fix)


def _of_container(failed: Failed, tree: Any) -> None:
    """Check that a tree is a container, whose children are requested."""
    if trees.is_leaf(tree):
        raise failed.told(
            f"{brief_with_type(tree)} is a leaf and has no children",
            "Containers are lists, tuples, dicts, None and registered classes.",
        )


def _structures(failed: Failed, treedefs: Any) -> None:
    for x in treedefs:
        if not isinstance(x, trees.Structure):
            raise failed.told(
                f"expected the structure of a pytree, got {brief_with_type(x)}",
                "tree.structure(x) is the structure of x. Structures come first, then leaves or trees.",
                errors.NotAStructure,
            )


# Function of JAX -> check of the arguments that it alone takes.
CHECKS: dict[str, Callable[..., None]] = {
    "all": _of_all,
    "broadcast": _of_broadcast,
    "map": _of_map,
    "map_with_path": _of_map,
    "reduce": functools.partial(_of_fold, "initializer"),
    "reduce_associative": functools.partial(_of_fold, "identity"),
    "transpose": _of_transpose,
    "unflatten": _of_unflatten,
    "flatten_one_level": _of_container,
    "flatten_one_level_with_keys": _of_container,
    "treedef_tuple": _structures,
}


# --- checks of several functions ------------------------------------------------------------------

_Stop = Callable[[tuple[Any, ...], Any], bool]


def _sorted(failed: Failed, x: Any, stop: _Stop | None = None, path: tuple[Any, ...] = ()) -> None:
    """Check that the keys of dicts can be sorted."""
    if stop is not None and stop(path, x):
        return
    if type(x) in (dict, defaultdict):
        try:
            sorted(x)
        except TypeError:
            raise failed.told(
                f"the keys of {f'the dict {_at(path)}' if failed.name else 'a dict'} cannot be "
                f"sorted: {_some_keys(x)}",
                "The leaves of a dict are sorted by its keys: use only str, or only int.",
            ) from None
    if not trees.is_leaf(x):
        for key, part in trees.opened(x)[0]:
            _sorted(failed, part, stop, (*path, *key))


def _prefix(
    failed: Failed, first: tuple[str, Any], other: tuple[str, Any], stop: _Stop | None = None, fix: str = ""
) -> None:
    """Check that the first of two named trees is a prefix of the second."""
    try:
        found = trees.where_differing(first[1], other[1], stop)
    except (TypeError, ValueError):
        _sorted(failed, other[1])
        return
    if found is None:
        return
    path, x, y = found
    raise failed.told(
        f"{other[0]} does not match {first[0]} {_at(path)}: {_contrast(x, y, first[0], other[0])}",
        f"{first[0]}: {_spelled(trees.flatten_with_path(first[1], stop, True)[1])}\n"
        f"{other[0]}: {_spelled(trees.structure(other[1]))}\n" + (fix or _like(x, y, first[0], other[0])),
    )


# --- words ----------------------------------------------------------------------------------------


def _contrast(x: Any, y: Any, first: str, other: str) -> str:
    """Describe the difference between two containers, or a container and a leaf."""
    if type(x) is not type(y):
        return f"{_kind(x)} in {first}, {_kind(y)} in {other}"
    keys, others = ([trees.path_text(key) for key, _ in trees.opened(z)[0]] for z in (x, y))
    if keys == others:
        return f"a {type(x).__qualname__} with different static data"
    if isinstance(x, (list, tuple)):
        kind = type(x).__qualname__
        return f"a {kind} of length {len(x)} in {first}, of length {len(y)} in {other}"
    only = [
        (name, [key for key in mine if key not in theirs])
        for name, mine, theirs in ((first, keys, others), (other, others, keys))
    ]
    return ", ".join(
        [
            f"only {name} has {' '.join(extra[:5])}{' ...' if len(extra) > 5 else ''}"
            for name, extra in only
            if extra
        ]
    )


def _like(x: Any, y: Any, first: str, other: str) -> str:
    """Return the advice for trees with different containers."""
    if x is None:
        return "None is an empty container. To treat it as a leaf: is_leaf=lambda x: x is None."
    if trees.is_leaf(y) and other != "full_tree":
        return f"To use one leaf of {other} for a container: tree.broadcast({other}, {first})."
    return f"Where {first} has a container, {other} needs one of the same type, keys and length."


def _kind(x: Any) -> str:
    if x is None:
        return "None"
    return "a leaf" if trees.is_leaf(x) else f"a {type(x).__qualname__}"


def _at(path: tuple[Any, ...]) -> str:
    return f"at {trees.path_text(path)}" if path else "at the root"


def _some_keys(x: dict[Any, Any]) -> str:
    """Show some keys, one of each type first: `1 (int), 'a' (str), ...`."""
    of_each = list({type(key): key for key in reversed(x)}.values())[::-1]
    first = [*of_each, *[key for key in x if not any(key is shown for shown in of_each)]]
    named = [f"{brief(key)} ({type(key).__qualname__})" for key in first[:4]]
    return ", ".join(named) + (", ..." if len(first) > 4 else "")


def _spelled(structure: Any) -> str:
    text = trees.spelled(structure)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def _stop(is_leaf: Any, takes_path: bool = False) -> _Stop | None:
    """Return `is_leaf` as a function of a path and a node."""
    if is_leaf is None or takes_path:
        return is_leaf
    return lambda path, x: is_leaf(x)


def _skeleton(structure: Any) -> Any:
    return trees.unflatten(structure, [object()] * structure.num_leaves)
