"""Misuse, and what the user is told.

Each function of the two tables beside this file does something wrong, with functrans or with JAX;
what people do most often stands in the tables of tests/pages/.
It says which class of error functrans raises and which words the message holds; the message must
also name the line that is marked `# <-`. JAX is made to do the same: its error must be of a class
that ours derives from, so that `except` clauses go on working. After each error the next call must
work.
"""

from __future__ import annotations

import builtins
import os
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.lax
import functrans.numpy
from functrans import errors
from functrans.trace import state
from tests.pages import misuses
from tests.unit import wrong_transformations as wrong_transformations
from tests.unit import wrong_values
from tests.unit.error_table import TABLE, X, caught, marked_line

pytestmark = pytest.mark.smoke

# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def bare():
    """The operation exists while these tests run: the table of operations stays as it is."""
    wrong_values.BARE = wrong_values.Bare()
    yield
    del ft.ir.PRIMITIVES[wrong_values.Bare.name]


def good_calls():
    np.testing.assert_allclose(ft.jit(lambda x: ft.numpy.sin(x) * 2)(X), np.sin(X) * 2, rtol=1e-6)
    np.testing.assert_allclose(ft.grad(lambda x: ft.numpy.sum(x * x))(X), 2 * X, rtol=1e-6)
    np.testing.assert_allclose(ft.vmap(lambda x: x * x)(X), X * X, rtol=1e-6)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.run.__name__)
def test_misuse(row):
    error = caught(row.run, ft, ft.numpy)
    assert type(error) is row.error
    message = str(error)
    for word in row.words:
        assert word in message
    line = marked_line(row.run)
    if line is not None:
        assert f"{os.path.basename(row.run.__code__.co_filename)}:{line}" in message
    assert state.trace is None
    assert state.provenance is None
    good_calls()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.run.__name__)
def test_misuse_is_of_the_class_that_jax_raises(row):
    if not row.jax:
        return
    theirs = caught(row.run, jax, jax.numpy)
    assert issubclass(row.error, errors.FunctransError)
    assert issubclass(row.error, common_class(type(theirs)))


def common_class(theirs: type[Exception]) -> type[Exception]:
    """The class a script names in `except`: JAX's public one, or the built-in it derives from."""
    for base in theirs.__mro__:
        if base.__module__ == "builtins" or getattr(jax.errors, base.__name__, None) is base:
            return base
    raise AssertionError(theirs)


def classes() -> list[type[Exception]]:
    """Those of ours; JAX's are handed on in the same module."""
    found = [e for e in vars(errors).values() if isinstance(e, type)]
    return [e for e in found if e.__module__ == errors.__name__]


def test_every_class_of_error_is_in_a_table_or_in_another_test():
    ours = set(classes())
    elsewhere = {errors.FunctransError, errors.ParseError, errors.CheckError}
    elsewhere |= {errors.BatchRuleMismatch, errors.ClosedOverTracer, errors.CotangentMismatch}
    elsewhere |= {errors.UnsupportedDtype, errors.NegativeSize}  # wrong_calls_*.txt
    elsewhere |= {errors.TruncatedDtype}  # test_misuses.py
    elsewhere |= {errors.NotMeasured}  # test_profile.py
    elsewhere |= {errors.OutsideReference}  # test_references.py
    elsewhere |= {errors.ImplicitPromotion, errors.NotFinite}  # test_flags.py
    elsewhere |= {  # test_callbacks.py
        errors.CallbackResult,
        errors.InvalidFormat,
        errors.OpaqueCallback,
    }
    assert ours - elsewhere == {row.error for row in [*TABLE, *misuses.TABLE]} - elsewhere


def test_errors_derive_from_a_built_in_class():
    for error in classes():
        if error is not errors.FunctransError:
            assert any(
                getattr(builtins, base.__name__, None) is base
                for base in error.__mro__
                if base not in (Exception, BaseException, object)
            ), error


@pytest.mark.parametrize("lib", [ft.numpy, jax.numpy], ids=["ours", "JAX's"])
def test_negative_sizes_in_a_program_are_named_as_such(lib: Any):
    for f in (lambda x: lib.broadcast_to(x, (-2, 6)), lambda x: x + lib.zeros((-2, 6))):
        with pytest.raises(errors.NegativeSize, match=r"(?s)\(-2, 6\).*negative.*test_errors.py"):
            ft.jit(f)(np.ones(6, "float32"))


def test_the_gradient_of_a_variance_without_degrees_of_freedom_is_zero():
    for degrees in (2, 3, np.int32(2)):
        found = ft.grad(lambda x, degrees=degrees: ft.numpy.var(x, ddof=degrees))(np.ones(2, "float32"))
        np.testing.assert_array_equal(found, [0, 0])


def test_functions_of_shapes_return_integers():
    layout = ("NCHW", "OIHW", "NCHW")
    assert ft.lax.conv_general_permutations(layout) == jax.lax.conv_general_permutations(layout)
    assert ft.lax.reduce_window_shape_tuple((8, 8), (2, 2), (1, 1), ((0, 0), (0, 0))) == (7, 7)
