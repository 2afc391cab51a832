"""What searches for an answer, interpreted by NumPy beside the answer that is known: equations of
sparse matrices, minima."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.sparse import BCOO, BCSR

import functrans as ft
import functrans.numpy as jnp
from functrans.scipy.optimize import minimize
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


# --- minima ---------------------------------------------------------------------------------------


def rosenbrock(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def bowl(x: Any) -> Any:
    return 3 * (x[0] - 1) ** 2 + (x[1] - 1) ** 2


@pytest.mark.parametrize("method", ["BFGS", "l-bfgs-experimental-do-not-rely-on-this"])
def test_minima(method: str):
    def search(f: Any, x0: list[float], **options: Any) -> Any:
        def run(x: Any) -> Any:
            return minimize(f, x, method=method, options=options)._asdict()

        structure = jax.tree.structure(ft.eval_shape(run, np.array(x0)))
        program = ft.make_ir(run)(np.array(x0))
        return structure.unflatten(ft.interpret(program, np.array(x0)))

    with jax.enable_x64(True):
        for f, start in ((bowl, [3.0, -7.0]), (rosenbrock, [-0.3, -0.7])):
            found = search(f, start)
            assert found["success"]
            np.testing.assert_allclose(found["x"], [1, 1], atol=1e-5)
            np.testing.assert_allclose(found["fun"], f(found["x"]), atol=1e-12)
            np.testing.assert_allclose(found["jac"], ft.grad(f)(found["x"]), atol=1e-6)
        stopped = search(rosenbrock, [-0.3, -0.7], maxiter=2)
        assert not stopped["success"]
        late = method != "BFGS"  # the count of moves comes one later, as in JAX
        assert (stopped["nit"], stopped["status"]) == (2 + late, 1)
        np.testing.assert_allclose(stopped["fun"], rosenbrock(stopped["x"]))
        assert stopped["fun"] < rosenbrock(np.array([-0.3, -0.7]))


def test_a_minimum_beside_what_is_not_defined():
    """The first steps go to where the logarithm is NaN."""

    def run(x: Any) -> Any:
        return minimize(lambda t: jnp.sum(t - jnp.log(t)), x, method="BFGS").x

    start = np.array([8.0, 0.1])
    with jax.enable_x64(True):
        (x,) = ft.interpret(ft.make_ir(run)(start), start)
    np.testing.assert_allclose(x, [1, 1], atol=1e-5)


def test_the_derivative_of_a_search_that_is_at_its_end():
    def run(c: Any) -> Any:
        return minimize(lambda t: jnp.sum((t - c) ** 2), c, method="BFGS").x[0]

    c = np.array([2.0, 3.0])
    with jax.enable_x64(True):
        (slope,) = ft.interpret(ft.make_ir(ft.grad(run))(c), c)
    np.testing.assert_allclose(slope, [1, 0])
