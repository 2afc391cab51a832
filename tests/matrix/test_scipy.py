"""The functions of `jax.scipy` as functrans hands them on: value, derivative, batch, beside JAX.

By default a function of each module, and of each kind of argument; in the sweep one in six, and the
types of all. JAX's side is one compiled program for many rows; ours is interpreted by NumPy, as in
`test_libraries.py`.
"""

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from tests.matrix.test_libraries import TOLERANCE, arrays_of, by_jax, evaluation, silent, types
from tests.matrix.test_numpy import read_table
from tests.support.closeness import assert_close
from tests.support.libraries import MODULES, function_of
from tests.support.versions import NEWEST
from tests.support.wide import each

TABLE = read_table("scipy")
if NEWEST:
    next(iter(TABLE.values())).append("special.erfcinv(p)")
ROWS = [row for rows in TABLE.values() for row in rows]
FIRST = [rows[0] for rows in TABLE.values()]
# An option that a custom rule is given; a result of Python's, which goes into another function.
KINDS = [*FIRST, "special.expn(2, p)", "sla.cho_solve(sla.cho_factor(pd), v)"]
SCIPY = {short: name for short, name in MODULES.items() if name.startswith("scipy")}
# What has no row: a class that `minimize` returns.
WITHOUT = {"optimize.OptimizeResults"}


def beside_jax(rows: list[str], gradients: bool) -> None:
    """Values, and gradients or else values under vmap."""
    with silent():
        theirs = by_jax(rows, gradients)
        assert len(theirs) > 0.95 * len(rows)

        def check(row: str) -> None:
            arrays, (values, slopes) = arrays_of(row), theirs[row]
            run = evaluation(row, "functrans", bool(slopes))
            found = ft.interpret(ft.make_ir(run)(*arrays), *arrays)
            assert_close(found, [*values, *slopes], TOLERANCE)
            chosen = next((i for i, x in enumerate(arrays) if x.dtype == np.float32), None)
            if gradients or chosen is None:
                return
            axes = [0 if i == chosen else None for i in range(len(arrays))]
            arrays[chosen] = np.stack([arrays[chosen]] * 2)
            batched = ft.vmap(lambda *xs: run(*xs)[0], in_axes=axes)
            for y, value in zip(ft.interpret(ft.make_ir(batched)(*arrays), *arrays), values, strict=True):
                assert_close(y, np.stack([value, value]), TOLERANCE, "under vmap,")

        each([row for row in rows if row in theirs], check)


def test_values_and_batches():
    beside_jax(KINDS, False)


def test_gradients():
    beside_jax(KINDS, True)


@pytest.mark.sweep
def test_one_in_six():
    beside_jax(ROWS[::6], False)


@pytest.mark.sweep
def test_types():
    """Each can be traced: its body is that of JAX's, which JAX tests."""

    def check(row: str) -> None:
        assert types(row, "functrans", "float32", False) == types(row, "jax", "float32", False)

    with silent():
        each(ROWS, check)


@pytest.mark.rest
def test_unjitted_and_jitted():
    """One dispatch, or JAX's Python; types, weak ones too, are those of JAX's jitted function."""

    def check(row: str) -> None:
        f, theirs, arrays = function_of(row, "functrans"), function_of(row, "jax"), arrays_of(row)
        wanted = jax.jit(theirs)(*arrays)
        for made in (f(*arrays), ft.jit(f)(*arrays)):
            for x, y in zip(jax.tree.leaves(made), jax.tree.leaves(wanted), strict=True):
                assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
                assert_close(x, y, 1e-4)

    with silent():
        each(FIRST, check)


def test_functions_may_close_over_what_is_traced():
    b = np.arange(3, dtype=np.float32)

    def solved(scale: Any) -> Any:
        return ft.scipy.sparse.linalg.cg(lambda v: scale * v, b)[0].sum()

    for scale in (2.0, 4.0):
        np.testing.assert_allclose(ft.grad(solved)(scale), -3 / scale**2, rtol=1e-6)
    np.testing.assert_allclose(ft.jit(ft.vmap(solved))(np.float32([1, 2])), [3, 1.5], rtol=1e-6)


def test_functions_are_called_each_time():
    """What they read may be another value by then."""
    scales, b = [2.0], np.arange(3, dtype=np.float32)

    def times(v: Any) -> Any:
        return scales[-1] * v

    slope = ft.grad(lambda b: ft.scipy.sparse.linalg.cg(times, b)[0].sum())
    for scale in (2.0, 4.0):
        scales.append(scale)
        np.testing.assert_allclose(slope(b), np.full(3, 1 / scale), rtol=1e-6)


def test_each_function_has_a_row():
    text = "\n".join(ROWS)
    missing = []
    for short, name in SCIPY.items():
        for called in names_of(importlib.import_module(f"jax.{name}"), short):
            if not re.search(rf"\b{re.escape(called)}\b", text) and called not in WITHOUT:
                missing.append(called)
    assert not missing


def names_of(module: ModuleType, prefix: str) -> list[str]:
    found: list[str] = []
    for name in dir(module):
        value: Any = getattr(module, name)
        if name.startswith("_"):
            continue
        inside = inspect.ismodule(value)
        found += names_of(value, f"{prefix}.{name}") if inside else [f"{prefix}.{name}"]
    return found
