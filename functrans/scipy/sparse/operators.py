"""Reading what the solvers are given: vectors and linear maps.

In: b and x0, pytrees; A and M, which are functions, matrices or objects with `@`. Out: b and x0 of
the same types, and functions whose results are checked to be like their arguments.
"""

from __future__ import annotations

import operator
import sys
from functools import partial
from typing import Any

import jax
import numpy as np

import functrans.numpy as jnp
from functrans import errors, lax
from functrans import pytrees as tree
from functrans.api.derivatives import linear_transpose
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class, is_inexact
from functrans.lax.staging import array_leaves, given_to
from functrans.numpy.promotion import array_of, invalid, mismatch, promote_alike, promote_inexact
from functrans.scipy.sparse.recurrences import Map
from functrans.trace import Tracer, typeof

# --- vectors --------------------------------------------------------------------------------------


def vectors(name: str, b: Any, x0: Any) -> tuple[Any, Any]:
    """b and the guess, if there is one: each pair of arrays of one inexact dtype."""
    leaves, structure = array_leaves(b)
    if not leaves:
        raise invalid(name, f"b holds no arrays: {b!r:.60}")
    guess = leaves
    if x0 is not None:
        guess, given = array_leaves(x0)
        problem = _difference("b", structure, leaves, "x0", given, guess, shapes_only=True)
        if problem:
            raise errors.ShapeMismatch(
                f"{name}: x0 must have the structure and shapes of b:\n{problem}\nat\n"
                f"    {describe(user_source())}"
            )
    pairs = [promote_inexact(pair, name) for pair in zip(leaves, guess, strict=True)]
    if len({dtype_class(typeof(x).dtype) for x, _ in pairs}) > 1:
        raise mismatch(
            name, "b holds real and complex arrays", "Cast all of them: b.astype(complex)."
        )
    first, second = (
        tree.unflatten(structure, [array_of(x, name) for x in xs])
        for xs in zip(*pairs, strict=True)
    )
    return first, None if x0 is None else second


def _difference(
    what: str, structure: Any, leaves: list[Any], which: str, given: Any, found: list[Any],
    shapes_only: bool = False,
) -> str:  # fmt: skip
    """Where two vectors are not of one structure and of the same types; "" if they are."""
    if structure != given:
        was, now = tree.spelled(structure), tree.spelled(given)
        return f"    {what} has the structure {was}, {which} {now}"
    names = tree.path_names(tree.unflatten(structure, leaves))
    return "\n".join([
        f"    {what}{path} is {typeof(x)}, {which}{path} is {typeof(y)}"
        for path, x, y in zip(names, leaves, found, strict=True)
        if typeof(x).shape != typeof(y).shape
        or not (shapes_only or typeof(x).dtype == typeof(y).dtype)
    ])  # fmt: skip


def real(name: str, which: str, x: Any) -> Any:
    """A real number, which may be traced."""
    x = array_of(x, f"{name}: {which}")
    t = typeof(x)
    if t.ndim or dtype_class(t.dtype) == "complex":
        raise mismatch(name, f"{which} must be a real number, got {t}")
    return x


# --- linear maps ----------------------------------------------------------------------------------


def is_array(given: Any) -> bool:
    return isinstance(given, (Tracer, jax.Array, np.ndarray))


def linear_map(name: str, which: str, given: Any) -> Map:
    """A or M as a function that raises unless its result is like its argument."""
    run, shown = _function(name, which, given)

    def checked(x: Any) -> Any:
        leaves, structure = tree.flatten(x)
        found, out = array_leaves(run(x))
        if which == "M" and structure == out:  # a preconditioner may be of less precision
            found = [_cast(y, typeof(x).dtype) for x, y in zip(leaves, found, strict=True)]
        problem = _difference("b", structure, leaves, shown, out, found)
        if problem:
            shapes = structure == out and any(
                typeof(x).shape != typeof(y).shape for x, y in zip(leaves, found, strict=True)
            )
            place = f"at\n    {describe(user_source())}"
            if callable(given):
                place = f"{which} is {given_to(name, given)}"
            raise (errors.ShapeMismatch if shapes else errors.TypeMismatch)(
                f"{name}: {shown} must have the structure and types of b:\n{problem}\n{place}"
            )
        return tree.unflatten(structure, found)

    return checked


def as_made(name: str, A: Any, b: Any) -> Any:
    """b, what is of a weak type in it promoted with what A makes of it."""
    leaves, structure = tree.flatten(b)
    found, out = array_leaves(_function(name, "A", A)[0](b))
    if structure != out:
        return b
    pairs = [promote_alike(pair, name) for pair in zip(leaves, found, strict=True)]
    strong = [y if typeof(x).weak_type else x for x, (y, _) in zip(leaves, pairs, strict=True)]
    return tree.unflatten(structure, strong)


def _cast(y: Any, dtype: Any) -> Any:
    t = typeof(y)
    same_kind = is_inexact(t.dtype) and dtype_class(t.dtype) == dtype_class(dtype)
    return y.astype(dtype) if same_kind and t.dtype != dtype else y


def _function(name: str, which: str, given: Any) -> tuple[Map, str]:
    """What it does to a vector, and how that is written."""
    if callable(given):
        return given, f"{which}(b)"
    if not is_array(given) and not hasattr(given, "__matmul__"):
        raise errors.NotAnArray(
            f"{name}: {which} must be a function, a matrix or an object with `@`, got "
            f"{given!r:.60} of type {type(given).__qualname__}, at\n    {describe(user_source())}"
        )
    shape = getattr(given, "shape", None)
    if shape is not None and (len(shape) != 2 or shape[0] != shape[1]):
        raise invalid(name, f"{which} must be a square matrix, got the shape {tuple(shape)}")
    entries = _entries(given)
    if entries is not None:
        times = partial(_times_sparse, *entries)
    else:
        times = partial(_times if is_array(given) else operator.matmul, given)

    def run(x: Any) -> Any:
        if shape is not None and (not is_array(x) or typeof(x).shape[:1] != tuple(shape[1:])):
            got = typeof(x) if is_array(x) else f"the structure {tree.spelled(tree.structure(x))}"
            raise errors.ShapeMismatch(
                f"{name}: {which} is a matrix of shape {tuple(shape)}, so b must be an array of "
                f"{shape[0]} rows, got {got}, at\n    {describe(user_source())}"
            )
        return times(x)

    return run, f"{which} @ b"


def _times(matrix: Any, x: Any) -> Any:
    return jnp.dot(matrix, x, precision=lax.Precision.HIGHEST)


def _entries(given: Any) -> tuple[Any, Any, Any] | None:
    """The rows, columns and values of a sparse matrix of SciPy's or JAX's, whose own product takes
    no traced vector."""
    if hasattr(given, "tocoo"):
        coo = given.tocoo()
        return coo.row, coo.col, coo.data
    sparse = sys.modules.get("jax.experimental.sparse")  # loaded if there is a matrix of its own
    if sparse is not None and isinstance(given, sparse.BCSR):
        given = given.to_bcoo()
    if sparse is None or not isinstance(given, sparse.BCOO) or given.n_batch or given.n_dense:
        return None
    return given.indices[:, 0], given.indices[:, 1], given.data


def _times_sparse(rows: Any, columns: Any, values: Any, x: Any) -> Any:
    """Entries beyond the matrix, with which JAX fills up, are left out."""
    found = x.at[columns].get(mode="fill", fill_value=0)
    terms = jnp.reshape(values, (-1, *[1] * (x.ndim - 1))) * found
    return jnp.zeros(x.shape, terms.dtype).at[rows].add(terms, mode="drop")


def transposed(run: Map) -> Map:
    """The transpose of a preconditioner, for the transposed equation. One that has none (a
    while_loop, a callback) serves both: it decides how soon a solver ends."""

    def run_transposed(x: Any) -> Any:
        try:
            return linear_transpose(run, x)(x)[0]
        except (errors.NotLinear, errors.MissingRule, errors.OpaqueCallback):
            return run(x)

    return run_transposed
