"""Wrong programs, `tables/wrong_programs.txt`, un-jitted and jitted: an error is of a class that JAX's
is of, says what is wrong, and names the line; and nothing of the program is left."""

from typing import Any

import jax
import pytest

import functrans as ft
from functrans import errors
from functrans.experimental.jet import jet
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


def by_jvp(m: Any, rule: Any, fun: Any = lambda x: (x, x)) -> Any:
    f = m.custom_jvp(fun)
    f.defjvp(rule)
    return f


def fwd(x: Any, y: Any) -> Any:
    return x["a"] * y, (x, y)


def by_vjp(m: Any, forward: Any, backward: Any) -> Any:
    f = m.custom_vjp(lambda x, y: x["a"] * y)
    f.defvjp(forward, backward)
    return lambda x: f({"a": x}, 2.0)


def by_vmap(m: Any, rule: Any) -> Any:
    f = m.custom_batching.custom_vmap(lambda x: x)
    f.def_vmap(rule)
    return f


HELPERS = {f.__name__: f for f in (system, root, by_jvp, fwd, by_vjp, by_vmap)}
SECTIONS = ["axis names", "loops", "solvers", "indices", "arguments", "rules", "Taylor mode"]


@pytest.mark.parametrize("section", SECTIONS)
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
            names = {"ft": m, "lax": m.lax, "jnp": m.numpy, "jit": m.jit, "jet": jet, **HELPERS}
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
