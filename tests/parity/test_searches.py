"""What searches for an answer, interpreted by NumPy beside the answer that is known: equations of
sparse matrices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.sparse import BCOO, BCSR

import functrans as ft
import functrans.numpy as jnp
from functrans.scipy.sparse import linalg
from tests.support.wide import each

N = 6
_rng = np.random.default_rng(0)
GENERAL = 0.3 * _rng.normal(size=(N, N)) + np.diag(np.linspace(1.0, 4.0, N))
DEFINITE = GENERAL @ GENERAL.T
B, GUESS = _rng.normal(size=(2, N))
SOLVERS: dict[str, tuple[Any, dict[str, Any], np.ndarray]] = {
    "cg": (linalg.cg, {}, DEFINITE),
    "bicgstab": (linalg.bicgstab, {}, GENERAL),
    "gmres": (linalg.gmres, {}, GENERAL),
    "incremental gmres": (linalg.gmres, {"solve_method": "incremental"}, GENERAL),
}


def forms(a: np.ndarray) -> dict[str, tuple[Any, dict[str, Any]]]:
    """A matrix as users write one, and the options of the search: all of them, for symmetric ones."""
    few = {
        "function": (lambda x: jnp.asarray(a) @ x, {"x0": GUESS}),
        "preconditioned": (a, {"M": lambda x: x / np.diag(a)}),
    }
    if a is not DEFINITE:
        return few
    return few | {
        "array": (a, {}),
        "of JAX": (BCOO.fromdense(a), {}),
        "of JAX by rows": (BCSR.fromdense(a), {}),
        "preconditioned roughly": (a, {"M": np.diag(1 / np.diag(a)).astype(np.float32)}),
    }


@pytest.mark.parametrize("name", SOLVERS)
def test_equations(name: str):
    solver, how, a = SOLVERS[name]

    def check(form: str) -> None:
        given, options = forms(a)[form]

        def solve(b: Any) -> Any:
            return solver(given, b, tol=1e-12, **options, **how)[0]

        (x,) = ft.interpret(ft.make_ir(solve)(B), B)
        np.testing.assert_allclose(x, np.linalg.solve(a, B), rtol=1e-8)
        slope = ft.make_ir(ft.grad(lambda b: jnp.sum(jnp.sin(solve(b)))))(B)
        wanted = np.linalg.solve(a.T, np.cos(x))
        np.testing.assert_allclose(ft.interpret(slope, B)[0], wanted, rtol=1e-7)

    with jax.enable_x64(True):
        each(forms(a), check)


@pytest.mark.parametrize("name", SOLVERS)
def test_numbers_as_the_right_hand_side(name: str):
    """Of a weak type: the result is of the matrix's."""
    solver, how, _ = SOLVERS[name]
    program = ft.make_ir(lambda: solver(lambda x: np.float32(4) * x, 2.0, **how)[0])()
    (x,) = ft.interpret(program)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, 0.5, rtol=1e-6)
