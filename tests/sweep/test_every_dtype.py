"""Expressions of the tables compiled, beside JAX: value, dtype, shape and weak type. (Types at other
dtypes: matrix/test_libraries.py.)

What JAX refuses may have a value here; what JAX computes must be computed here. One row of four of our
own functions, in one program, or un-jitted where JAX needs the values.
"""

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import pytest

import functrans as ft
from tests.matrix import test_numpy
from tests.matrix.test_libraries import IMPORTED, arrays_of
from tests.support.closeness import assert_close
from tests.support.libraries import LIBRARIES, function_of
from tests.support.versions import EXPRESSIONS, QUICK

GROUPS = {**LIBRARIES, **{f"numpy {group}": rows for group, rows in test_numpy.TABLE.items()}}


def result(function: Callable[..., Any], arrays: list[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*arrays)
        except Exception as error:
            return error


def difference(mine: Any, other: Any) -> str | None:
    """What differs from JAX's result."""
    if isinstance(other, Exception):
        return None
    if isinstance(mine, Exception):
        return f"{type(mine).__name__}: {mine}"
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        if not isinstance(b, jax.Array):
            continue
        if not isinstance(a, jax.Array):
            return f"{type(a)}, JAX has an array"
        weak = [getattr(x, "weak_type", False) for x in (a, b)]
        if weak[0] != weak[1] and a.dtype == b.dtype != bool:  # that of booleans has no meaning
            return f"weak_type {weak[0]}, JAX has {weak[1]}"
        try:
            assert_close(a, b, {"float32": 2e-4, "complex64": 2e-4}.get(str(b.dtype)))
        except AssertionError as found:
            return re.sub(r"\s+", " ", str(found))[:240]
    return None


@pytest.mark.parametrize("group", [*IMPORTED, "options of numpy"])
def test_as_it_stands(group):
    rows = [row for row in LIBRARIES[group][::4] if row not in EXPRESSIONS]
    theirs = together(rows, "jax", functools.partial(jax.jit, compiler_options=QUICK))
    unread = "lambda c, t: (c, t), 1"  # an integer of Python's that JAX hands through
    traced = [row for row in rows if not isinstance(theirs[row], Exception) and unread not in row]
    ours = together(traced, "functrans", ft.jit)
    for row in rows:
        if row not in traced:
            theirs[row], ours[row] = (
                result(function_of(row, root), arrays_of(row)) for root in ("jax", "functrans")
            )
    found = {row: difference(ours[row], theirs[row]) for row in rows}
    assert not any(found.values()), "\n".join(f"{row}: {said}" for row, said in found.items() if said)


def together(rows: list[str], root: str, jit: Callable[..., Any]) -> dict[str, Any]:
    """The results of rows as one program; of those that cannot be traced, the errors."""
    failed: dict[str, Any] = {}

    def everything(arrays: dict[str, Any]) -> dict[str, Any]:
        made = {row: result(function_of(row, root), arrays[row]) for row in rows}
        failed.update({row: y for row, y in made.items() if isinstance(y, Exception)})
        return {row: arrays_in(y) for row, y in made.items() if row not in failed}

    return {**jit(everything)({row: arrays_of(row) for row in rows}), **failed}


def arrays_in(results: Any) -> list[Any]:
    return [y for y in jax.tree.leaves(results) if hasattr(y, "dtype")]
