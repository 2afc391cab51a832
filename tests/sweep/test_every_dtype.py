"""Every expression of the tables at every dtype, beside JAX: value, dtype, shape and weak type.

The arrays that an expression reads are cast: the first, the last, all of them; they are given as
JAX's arrays, as weakly typed ones and as NumPy's. What JAX refuses may have a value here; what JAX
computes must be computed here. The quick test takes one row of four of our own functions, and the
arrays as they stand, in one program, or un-jitted where JAX needs the values;
`pytest -m heavy tests/sweep/test_every_dtype.py` makes all 80,000 calls, with 64-bit types too.
"""

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from tests.matrix import test_numpy
from tests.matrix.test_libraries import IMPORTED, arrays_of
from tests.support.closeness import assert_close
from tests.support.libraries import ARRAYS, LIBRARIES, cast, differs_on_purpose, function_of, names_in
from tests.support.versions import EXPRESSIONS, QUICK

_SMALL = "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64"
SMALL = _SMALL.split()
WIDE = ["int64", "uint64", "float64", "complex128"]

GROUPS = {**LIBRARIES, **{f"numpy {group}": rows for group, rows in test_numpy.TABLE.items()}}


def calls(row: str, wide: bool) -> Iterator[tuple[str, list[Any]]]:
    """What the arrays are, and the arrays."""
    base = [ARRAYS[n] for n in names_in(row)]
    if not base:
        return
    for dtype in SMALL + WIDE * wide:
        ways = {
            f"first {dtype}": [cast(base[0], dtype), *base[1:]],
            f"last {dtype}": [*base[:-1], cast(base[-1], dtype)],
            f"all {dtype}": [cast(x, dtype) for x in base],
        }
        for how, arrays in list(ways.items())[: 1 if len(base) == 1 else None]:
            yield how, [jnp.asarray(x) for x in arrays]
    for number in (2.0, 2, 2 + 1j):
        weak = jnp.full(np.shape(base[0]), number)
        yield f"weak {weak.dtype}", [weak, *[jnp.asarray(x) for x in base[1:]]]
    for dtype in ("bool", "uint8", "int64", "float16", "float64", "complex128"):
        yield f"NumPy's {dtype}", [cast(base[0], dtype), *base[1:]]


def result(function: Callable[..., Any], arrays: list[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*arrays)
        except Exception as error:
            return error


TOLERANCES = {"bfloat16": 1e-1, "float16": 2e-2, "float32": 2e-4, "complex64": 2e-4}


def difference(mine: Any, other: Any, dtype: str = "") -> str | None:
    """What differs from JAX's result for operands of a dtype."""
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
            assert_close(a, b, TOLERANCES.get(dtype if "16" in dtype else str(b.dtype)))
        except AssertionError as found:
            return re.sub(r"\s+", " ", str(found))[:240]
    return None


def compare(rows: list[str], wide: bool) -> None:
    found = []
    for i, row in enumerate(rows):
        if row in EXPRESSIONS:
            continue
        if i % 16 == 15:
            ft.clear_caches()  # a process can map only so many executables
        ours, theirs = function_of(row, "functrans"), function_of(row, "jax")
        for how, arrays in calls(row, wide):
            if differs_on_purpose(row, how):
                continue
            differs = difference(result(ours, arrays), result(theirs, arrays), how.split()[-1])
            if differs:
                found.append(f"{row}, {how}: {differs}")
    assert not found, f"{len(found)}\n" + "\n".join(found)


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


@pytest.mark.heavy
@pytest.mark.parametrize("wide", [False, True], ids=["32", "64"])
@pytest.mark.parametrize("group", GROUPS)
def test_every_dtype(group, wide):
    with jax.enable_x64(wide):
        compare(GROUPS[group], wide)
