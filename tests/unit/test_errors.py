"""The classes of errors; operations without a rule. What is said of wrong calls: wrong_calls_*.txt, and
the tables of tests/pages/."""

import builtins
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans.primitives.base import Primitive
from tests.pages import misuses

pytestmark = pytest.mark.smoke


def classes() -> list[type[Exception]]:
    """Those of ours; JAX's are handed on in the same module."""
    found = [e for e in vars(errors).values() if isinstance(e, type)]
    return [e for e in found if e.__module__ == errors.__name__]


def test_every_class_of_error_is_in_a_table_or_in_another_test():
    tests = Path(__file__).parents[1]
    met = "".join([p.read_text() for p in (*tests.rglob("test_*.py"), *tests.rglob("wrong_calls_*.txt"))])
    in_tables = {row.error for row in misuses.TABLE}
    assert {e for e in classes() if e.__name__ not in met} <= in_tables


def test_errors_derive_from_a_built_in_class():
    for error in classes():
        if error is not errors.FunctransError:
            assert any(
                getattr(builtins, base.__name__, None) is base
                for base in error.__mro__
                if base not in (Exception, BaseException, object)
            ), error


class Bare(Primitive):
    """An operation with the mandatory rules alone."""

    name = "bare_operation_of_the_tests"

    def abstract_eval(self, x):
        return x

    def reference(self, x):
        return x

    def lower(self, ctx, x):
        return x


def test_operations_that_lack_a_rule():
    try:
        bare = Bare()
        for rule, run in (("jvp", lambda: ft.grad(bare)(1.0)), ("batch", lambda: ft.vmap(bare)(np.ones(3)))):
            with pytest.raises(errors.MissingRule, match=rf"(?s){bare.name}.*`{rule}`") as caught:
                run()
            assert "test_errors.py" in str(caught.value)
    finally:
        del ft.ir.PRIMITIVES[Bare.name]


@pytest.mark.parametrize("lib", [ft.numpy, jax.numpy], ids=["ours", "JAX's"])
def test_negative_sizes_in_a_program_are_named_as_such(lib: Any):
    for f in (lambda x: lib.broadcast_to(x, (-2, 6)), lambda x: x + lib.zeros((-2, 6))):
        with pytest.raises(errors.NegativeSize, match=r"(?s)\(-2, 6\).*negative.*test_errors.py"):
            ft.jit(f)(np.ones(6, "float32"))


def test_the_gradient_of_a_variance_without_degrees_of_freedom_is_zero():
    for degrees in (2, 3, np.int32(2)):
        found = ft.grad(lambda x, degrees=degrees: ft.numpy.var(x, ddof=degrees))(np.ones(2, "float32"))
        np.testing.assert_array_equal(found, [0, 0])


def test_a_value_of_several_lines_is_shown_on_one():
    class Module:
        def __repr__(self):
            return "Module(\n    size = 5\n)"

    with pytest.raises(errors.NotAnArray, match=r"Module\( size = 5 \) of type"):
        ft.jit(lambda m: m)(Module())
