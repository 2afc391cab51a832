"""Every row of the tables, un-jitted inside of JAX's transformations.

Traced there it has the types that it has in a program of ours; one in four is differentiated and
mapped, wherever ours do that, but for what is JAX's own function and what JAX does not do with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from tests.matrix import test_numpy
from tests.support import libraries

GROUPS = [
    *[("numpy", group) for group in test_numpy.TABLE],
    *[("library", group) for group in libraries.LIBRARIES],
]


Function = Callable[..., Any]


def rows(table: str, group: str) -> list[tuple[str, Function, Function, list[Any]]]:
    """Of those that take arrays: the row, its function, that of JAX, its arguments."""
    made: list[tuple[str, Function, Function, list[Any]]] = []
    if table == "numpy":
        for row in test_numpy.TABLE[group]:
            ours, theirs = (test_numpy.function_of(row, xp) for xp in (ft.numpy, jnp))
            made.append((row, ours, theirs, test_numpy.arguments(row)))
    else:
        for row in libraries.LIBRARIES[group]:
            arrays = [libraries.ARRAYS[name] for name in libraries.names_in(row)]
            ours, theirs = (libraries.function_of(row, root) for root in ("functrans", "jax"))
            made.append((row, ours, theirs, arrays))
    return [(row, f, g, [*map(jnp.asarray, arrays)]) for row, f, g, arrays in made if arrays]


def only(f: Callable[..., Any], kind: Any) -> Callable[..., list[Any]]:
    """The arrays of one kind among the results."""

    def chosen(*args: Any) -> list[Any]:
        found = [y for y in jax.tree.leaves(f(*args)) if hasattr(y, "dtype")]
        return [y for y in found if jnp.issubdtype(y.dtype, kind)]

    return chosen


def traced(run: Callable[..., Any], args: list[Any]) -> Any:
    """The program of a function; None where a row needs a value, or an operation lacks a rule."""
    try:
        return ft.make_ir(run)(*args)
    except (TypeError, ValueError, IndexError, NotImplementedError):
        return None


def check(f: Callable[..., Any], args: list[Any], transformed: bool) -> int:
    """Trace, and differentiate and map, a row; how many of the three there was to do."""
    whole, floats = only(f, np.generic), only(f, np.floating)
    program = traced(whole, args)
    if program is None:
        return 0
    inside = jax.make_jaxpr(whole)(*args).jaxpr.outvars
    wanted = [jax.core.ShapedArray(t.shape, t.dtype, weak_type=t.weak_type) for t in program.out_types]
    assert [v.aval for v in inside] == wanted
    if not transformed or not all(jnp.issubdtype(x.dtype, np.floating) for x in args):
        return 1
    if traced(lambda *xs: ft.jvp(floats, xs, xs)[1], args) is None:
        return 1
    jax.make_jaxpr(lambda *xs: jax.jvp(floats, xs, xs))(*args)
    jax.eval_shape(lambda *xs: jax.vjp(floats, *xs)[1](floats(*xs)), *args)
    jax.eval_shape(jax.vmap(whole), *[jnp.stack([x, x]) for x in args])
    return 3


def is_refused_by_jax(f: Function, args: list[Any]) -> bool:
    """Does JAX not differentiate or map its own function?"""
    whole, floats = only(f, np.generic), only(f, np.floating)
    try:
        jax.make_jaxpr(lambda *xs: jax.jvp(floats, xs, xs))(*args)
        jax.eval_shape(lambda *xs: jax.vjp(floats, *xs)[1](floats(*xs)), *args)
        jax.eval_shape(jax.vmap(whole), *[jnp.stack([x, x]) for x in args])
    except (TypeError, ValueError, NotImplementedError):
        return True
    return False


@pytest.mark.parametrize(("table", "group"), GROUPS)
def test_rows(table, group):
    wrong, done = [], 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for i, (row, f, theirs, args) in enumerate(rows(table, group)):
            try:
                done += check(f, args, transformed=i % 4 == 0)
            except Exception as error:  # of all rows, to see them together
                if not is_refused_by_jax(theirs, args):
                    wrong.append(f"{row}: {type(error).__name__}: {error}"[:300])
    assert not wrong, "\n".join(wrong)
    assert done or len(rows(table, group)) < 3
