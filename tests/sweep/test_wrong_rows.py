"""The rows of the tables with wrong arguments: an error says which call it is about, as the user
wrote it, and where.

One array of a row becomes a text, nothing, an array of another shape; a number becomes another one.
What is raised, if anything, is an error of ours that holds the function's name and the user's line;
what Python or an array of JAX says about the rest of an expression is theirs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans import errors
from tests.matrix import test_numpy
from tests.support.libraries import ARRAYS, function_of
from tests.support.versions import EXPRESSIONS
from tests.sweep.test_every_dtype import GROUPS, result

HIDDEN = "frames of functrans and JAX are hidden"  # the note of an error that we let through


def shapes(x: np.ndarray) -> dict[str, Any]:
    return {
        "text": "a",
        "None": None,
        "object": object(),
        "dict": {"a": 1},
        "ragged list": [[1.0], [2.0, 3.0]],
        "no axes": jnp.zeros((), x.dtype),
        "five axes": jnp.zeros((1, 2, 1, 2, 1), x.dtype),
        "five rows": jnp.zeros((5, 3), x.dtype),
        "seven": jnp.zeros(7, x.dtype),
        "no elements": jnp.zeros(0, x.dtype),
        "complex": jnp.zeros(x.shape, "complex64"),
        "float": jnp.zeros(x.shape, "float32"),
        "bool": jnp.zeros(x.shape, bool),
    }


def with_a_wrong_array(row: str, kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, str, Any]]:
    """What is wrong, the expression, and its arrays."""
    arrays = {n: jnp.asarray(ARRAYS[n]) for n in test_numpy.names_in(row, ARRAYS)}
    for name in arrays:
        for kind, wrong in shapes(ARRAYS[name]).items():
            if not kinds or kind in kinds:
                yield f"{name} = {kind}", row, {**arrays, name: wrong}


def with_a_wrong_literal(row: str) -> Iterator[tuple[str, str, Any]]:
    arrays = {n: jnp.asarray(ARRAYS[n]) for n in test_numpy.names_in(row, ARRAYS)}
    tree = ast.parse(row, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value is not None:
            old, number = node.value, type(node.value) in (int, float)
            for node.value in (99, -99, 1.5, None) if number else ("bad",):
                yield f"{node.value} for {old}", ast.unparse(tree), arrays
            node.value = old


def called(row: str) -> set[str]:
    """What a row reads of modules and arrays: the functions that it calls, `mgrid`, `r_`."""
    return {n.attr for n in ast.walk(ast.parse(row, mode="eval")) if isinstance(n, ast.Attribute)}


def unclear(rows: list[str], wrongs: Any) -> list[str]:
    """Calls whose errors do not say what they are about."""
    found = []
    for k, row in enumerate(rows):
        if row in EXPRESSIONS or any(loop in row for loop in ("while_loop", "fori_loop")):
            continue
        if k % 32 == 31:
            ft.clear_caches()
        for what, expression, arrays in wrongs(row):
            error = result(function_of(expression, "functrans", [*arrays]), [*arrays.values()])
            if not isinstance(error, Exception):
                continue
            text = str(error)
            if "(<lambda>)" in text:  # the user's own function is called with it
                good = True
            elif not isinstance(error, errors.FunctransError):
                good = not any(HIDDEN in note for note in getattr(error, "__notes__", ()))
            else:
                place = f"{expression}:1"
                rest = text.replace(expression, "")
                good = place in text and any(name in rest for name in called(row))
            if not good:
                found.append(f"{expression} [{what}]: {type(error).__name__}: {text[:200]}")
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_a_text_for_an_array(group):
    assert not unclear(GROUPS[group][::6], lambda row: with_a_wrong_array(row, ("text",)))


@pytest.mark.heavy
@pytest.mark.parametrize("wrongs", [with_a_wrong_array, with_a_wrong_literal])
@pytest.mark.parametrize("group", GROUPS)
def test_wrong_arguments(group, wrongs):
    assert not unclear(GROUPS[group], wrongs)
