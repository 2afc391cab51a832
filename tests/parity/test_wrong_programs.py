"""Wrong programs, `tables/wrong_programs.txt`, un-jitted and jitted: an error is of a class that JAX's
is of, says what is wrong, and names the line; and nothing of the program is left."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import functrans as ft
from functrans import errors
from functrans.trace import state
from tests.parity import collective_functions
from tests.parity.collective_functions import X
from tests.support.tables import TABLES, Row, rows
from tests.support.wide import each

pytestmark = pytest.mark.smoke


def system(**changes: Any) -> dict[str, Any]:
    given = {"matvec": lambda x: 2 * x, "b": X[0, 0], "solve": lambda mv, b: b / 2}
    return {**given, "transpose_solve": lambda vm, b: b / 2, **changes}


def root(**changes: Any) -> dict[str, Any]:
    given = {"f": lambda x: x - 1, "initial_guess": X[0, 0], "solve": lambda f, x: x * 0 + 1}
    return {**given, "tangent_solve": lambda g, y: y, **changes}


@pytest.mark.parametrize("section", ["axis names", "loops", "solvers", "indices", "arguments"])
def test_wrong_programs(section: str):
    def check(row: Row) -> None:
        _, kind, words, *jax_differs = row.fields

        def raised(m: Any, call: Any) -> Exception:
            try:
                call(m)
            except eval(kind) as error:
                return error
            raise AssertionError(f"{m.__name__} does it")

        def program(m: Any, A: Any) -> Any:
            names = {"ft": m, "lax": m.lax, "jnp": m.numpy, "jit": m.jit, "system": system, "root": root}
            return row.function("A", {**vars(collective_functions), **names}, 0)(A)

        def jitted(m: Any) -> Any:
            return m.jit(lambda A: program(m, A))(X)

        if not jax_differs:
            raised(jax, jitted)
        # what stands outside of programs is an array of JAX's
        for call in [jitted] if section == "indices" else [jitted, lambda m: program(m, X)]:
            error = raised(ft, call)
            assert isinstance(error, errors.FunctransError)
            for word in [*words.split(" | "), f"wrong_programs.txt:{row.number}"]:
                assert word in str(error), error
            assert state.axes == ()

    each(rows(TABLES / "wrong_programs.txt", section), check)
    assert ft.jit(lambda x: x + 1)(1) == 2
