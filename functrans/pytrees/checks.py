"""Checks of the arguments of pytree functions, with messages for the user.

In: a function of JAX. Out (`checked`): the function with better errors. Its arguments are checked only
after it has failed: those that several functions take by their names (`_by_name`), the others by the
function's entry in `CHECKS`. A check returns an error of ours if they are invalid. Otherwise the
original error passes unchanged, as does one raised by a user's function.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Sized
from typing import Any, NamedTuple, TypeVar

from functrans import errors, runtime
from functrans.ir.source import brief, brief_with_type, here, is_users
from functrans.ir.tracebacks import hide_frames, raised_at
from functrans.ir.types import ArrayType
from functrans.pytrees import structure as trees

_F = TypeVar("_F", bound=Callable[..., Any])
_LONGEST = 88  # a structure is shown up to this many characters


class Failed(NamedTuple):
    """A failed call and its error. The name is empty for an internal call inside another
    function."""

    name: str
    error: Exception

    def told(self, problem: str, fix: str, kind: type[Exception] = errors.TreeMismatch) -> Exception:
        name = f"{self.name}: " if self.name else ""
        return kind(f"{name}{problem}, {here()}\n{fix}")


@runtime.answers("checked")
def checked(function: _F, name: str, module: str) -> _F:
    """Wrap a function of JAX as one of our module."""
    shown = f"{module.rpartition('.')[2]}.{name}"

    def check(failed: Failed, *args: Any, **kwargs: Any) -> Exception | None:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        own = CHECKS.get(name)
        return _by_name(failed, given) or (own and own(failed, **given))

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


def _looked_at(
    check: Callable[..., Exception | None], failed: Failed, *args: Any, **kwargs: Any
) -> Exception | None:
    last = raised_at(failed.error)
    raised_by_user = last is not None and is_users(last.tb_frame.f_code)
    if raised_by_user or isinstance(failed.error, errors.FunctransError):
        return None
    with contextlib.suppress(Exception):  # missing arguments, errors in a user's functions
        return check(failed, *args, **kwargs)
    return None


def explained(error: Exception, is_leaf: Any, *trees: Any) -> Exception:
    """Return the error to raise when the library itself failed to flatten a user's tree."""

    def check(failed: Failed) -> Exception | None:
        found = (_unsorted(failed, x, _stop(is_leaf)) for x in trees)
        return next((e for e in found if e is not None), None)

    ours = _looked_at(check, Failed("", error))
    if ours is None:
        return error
    ours.__suppress_context__ = True
    return ours


# --- the checks -----------------------------------------------------------------------------------


def _by_name(failed: Failed, given: dict[str, Any]) -> Exception | None:
    """Check functions, structures and trees among the arguments: what JAX gives these names."""
    is_leaf = given.get("is_leaf")
    stop = _stop(is_leaf, given.get("is_leaf_takes_path", False))
    for name, x in given.items():
        wrong = None
        if name in ("f", "function", "operation"):
            wrong = _no_function(failed, x)
        elif name in ("treedef", "outer_treedef") or (name == "inner_treedef" and x is not None):
            wrong = _no_structure(failed, x)
        if wrong is not None:
            return wrong
    if is_leaf is not None and not callable(is_leaf):
        return failed.told(
            f"is_leaf must be a function, got {brief(is_leaf)}",
            "It is called on each subtree: is_leaf=lambda x: x is None.",
            errors.NotAnArray,
        )
    stops = {"tree": stop, "prefix_tree": stop, "full_tree": None, "pytree_to_transpose": None}
    found = (_unsorted(failed, given[name], stops[name]) for name in stops if name in given)
    return next((wrong for wrong in found if wrong is not None), None)


def _of_map(
    failed: Failed, f: Any, tree: Any, rest: Any = (), is_leaf: Any = None, is_leaf_takes_path: bool = False
) -> Exception | None:
    """Check trees that must have the first one as prefix."""
    wrong, stop = None, _stop(is_leaf, is_leaf_takes_path)
    for i, other in enumerate(rest, 2):
        wrong = wrong or _no_prefix(failed, ("tree 1", tree), (f"tree {i}", other), stop)
    return wrong


def _of_broadcast(failed: Failed, prefix_tree: Any, full_tree: Any, is_leaf: Any = None) -> Exception | None:
    """Check two trees; the first must be a prefix of the second."""
    return _no_prefix(failed, ("prefix_tree", prefix_tree), ("full_tree", full_tree), _stop(is_leaf))


def _of_all(failed: Failed, tree: Any, is_leaf: Any = None) -> Exception | None:
    """Check a tree whose leaves must be true or false."""
    for path, x in trees.flatten_with_path(tree, is_leaf)[0]:
        if getattr(x, "size", 1) != 1:
            return failed.told(
                f"the leaf {_at(path)}, {ArrayType(x.shape, x.dtype)}, has no single truth value",
                "Reduce each leaf first: tree.all(tree.map(jnp.all, x)).",
                errors.InvalidArgument,
            )
    return None


def _of_fold(first: str, failed: Failed, tree: Any, is_leaf: Any = None, **_: Any) -> Exception | None:
    """Check a tree that needs leaves, or the option `first`."""
    found, structure = trees.flatten(tree, is_leaf)
    if found:
        return None
    return failed.told(
        f"{_spelled(structure)} has no leaves, and no {first} was passed",
        f"Pass {first}=0, or treat None as a leaf: is_leaf=lambda x: x is None.",
    )


def _of_unflatten(failed: Failed, treedef: Any, leaves: Any) -> Exception | None:
    """Check the number of leaves."""
    n = treedef.num_leaves
    shown = f"{_spelled(treedef)} has {n} lea{'f' if n == 1 else 'ves'}"
    fix = "Pass one leaf for each *, in the order of tree.leaves."
    if not isinstance(leaves, Iterable):
        return failed.told(f"{shown}, got {brief(leaves)}, which is not a list of leaves", fix)
    if isinstance(leaves, Sized):
        given = len(leaves)
        count = str(given)
    else:  # an exhausted iterator: only JAX's message tells
        fewer, more = [str(failed.error).startswith(f"Too {x} leaves") for x in ("few", "many")]
        given = n + more - fewer
        count = "more" if more else "fewer"
    if given == n:
        return None
    without = ""
    if given < n and isinstance(leaves, Sized):
        path = trees.flatten_with_path(_skeleton(treedef))[0][given][0]
        without = f"; the first missing one is {_at(path)}"
    return failed.told(f"{shown}, got {count}{without}", fix)


def _of_transpose(
    failed: Failed, outer_treedef: Any, inner_treedef: Any, pytree_to_transpose: Any
) -> Exception | None:
    """Check a tree of the outer structure whose leaves are trees of the inner one."""
    given = "pytree_to_transpose", pytree_to_transpose
    fix = "It must have the structure outer_treedef, with a tree of the structure inner_treedef at each leaf."
    if inner_treedef is None:
        outer = "outer_treedef", _skeleton(outer_treedef)
        wrong = _no_prefix(failed, outer, given, fix=fix)
        if wrong is not None:
            return wrong
        inner_treedef = trees.structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    both = "outer of inner", _skeleton(outer_treedef.compose(inner_treedef))
    return _no_prefix(failed, both, given, fix=fix) or _no_prefix(failed, given, both, fix=fix)


def _of_container(failed: Failed, tree: Any) -> Exception | None:
    """Check that a tree is a container, whose children are requested."""
    if not trees.is_leaf(tree):
        return None
    return failed.told(
        f"{brief_with_type(tree)} is a leaf and has no children",
        "Containers are lists, tuples, dicts, None and registered classes.",
    )


def _of_structures(failed: Failed, treedefs: Any) -> Exception | None:
    return next((wrong for wrong in [_no_structure(failed, x) for x in treedefs] if wrong), None)


# Function of JAX -> check of the arguments that it alone takes.
CHECKS: dict[str, Callable[..., Exception | None]] = {
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
    "treedef_tuple": _of_structures,
}


# --- what may be wrong ----------------------------------------------------------------------------

_Stop = Callable[[tuple[Any, ...], Any], bool]


def _no_function(failed: Failed, f: Any) -> Exception | None:
    if callable(f):
        return None
    return failed.told(
        f"the first argument must be a function, got {brief_with_type(f)}",
        f"Write {failed.name}(f, x): first the function, then the tree.",
        errors.NotAnArray,
    )


def _no_structure(failed: Failed, x: Any) -> Exception | None:
    if isinstance(x, trees.Structure):
        return None
    return failed.told(
        f"expected the structure of a pytree, got {brief_with_type(x)}",
        "tree.structure(x) is the structure of x. Structures come first, then leaves or trees.",
        errors.NotAStructure,
    )


def _unsorted(
    failed: Failed, x: Any, stop: _Stop | None = None, path: tuple[Any, ...] = ()
) -> Exception | None:
    """Return the error for a dict whose keys cannot be sorted."""
    if stop is not None and stop(path, x):
        return None
    if type(x) in (dict, defaultdict):
        try:
            sorted(x)
        except TypeError:
            return failed.told(
                f"the keys of {f'the dict {_at(path)}' if failed.name else 'a dict'} cannot be "
                f"sorted: {_some_keys(x)}",
                "The leaves of a dict are sorted by its keys: use only str, or only int.",
            )
    if trees.is_leaf(x):
        return None
    found = [_unsorted(failed, part, stop, (*path, *key)) for key, part in trees.opened(x)[0]]
    return next((error for error in found if error is not None), None)


def _no_prefix(
    failed: Failed, first: tuple[str, Any], other: tuple[str, Any], stop: _Stop | None = None, fix: str = ""
) -> Exception | None:
    """Return the error for two named trees if the first is not a prefix of the second."""
    try:
        found = trees.where_differing(first[1], other[1], stop)
    except (TypeError, ValueError):
        return _unsorted(failed, other[1])
    if found is None:
        return None
    path, x, y = found
    return failed.told(
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
    """Return a tree of a structure."""
    return trees.unflatten(structure, [object()] * structure.num_leaves)
