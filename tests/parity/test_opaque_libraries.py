"""Libraries on top of JAX, by `from_jax`: their primitives stay JAX's. Beside JAX's own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as J
import pytest

import functrans as ft
from functrans.interop import from_jax
from tests.parity.test_opaque import MODES, SPD, V, held, total
from tests.support.closeness import assert_close
from tests.support.extras import library
from tests.support.wide import each

pytestmark = pytest.mark.sweep  # each traces a solver many times


def agrees(function: Any, args: tuple, some: str, modes: str, tolerance: float = 2e-5) -> None:
    """Of a function: it holds a primitive of the library's, and the modes are as JAX's."""
    scalar = total(function)

    def check(mode: str) -> None:
        run, given = MODES[mode], scalar if "grad" in mode else function
        assert_close(run(ft, from_jax(given), args), run(jax, given, args), tolerance, mode)

    program = ft.make_ir(from_jax(function))(*args)
    assert some in held(program)
    each(modes.split(", "), check)
    assert_close(ft.interpret(program, *args), jax.tree.leaves(function(*args)), tolerance)


# --- equinox --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
def test_loops_of_equinox(kind: str):
    internal = library("equinox.internal")
    options = {"checkpoints": 2} if kind == "checkpointed" else {}

    def powers(x: Any) -> Any:
        return internal.while_loop(
            lambda c: c[0] < 3,
            lambda c: (c[0] + 1, J.sin(c[1]) * x),
            (0, x),
            max_steps=None if kind == "lax" else 4,
            kind=kind,
            **options,
        )[1]

    agrees(powers, (V,), "nonbatchable", "vmap, jvp" if kind == "lax" else "grad, vmap of grad")


def test_small_operations_of_equinox():
    eqx, internal = library("equinox"), library("equinox.internal")
    agrees(lambda x: x * internal.unvmap_any(x > 0.4), (V,), "unvmap_any", "vmap of grad, jvp")
    agrees(
        lambda x: eqx.error_if(J.asarray(x), J.any(J.asarray(x) < 0), "below zero"),
        (V,),
        "unvmap_any",
        "grad, vmap",
    )
    agrees(internal.noinline(lambda x: J.sin(x) * 2), (V,), "noinline", "grad twice, vmap of grad")


def test_an_error_of_equinox_is_raised():
    eqx = library("equinox")
    f = ft.jit(from_jax(lambda x: eqx.error_if(x, J.any(x < 0), "below zero")))
    with pytest.raises(Exception, match="below zero"):
        jax.block_until_ready(f(-V))


# --- solvers --------------------------------------------------------------------------------------


def test_linear_solvers_of_lineax():
    lx = library("lineax")
    positive = lx.positive_semidefinite_tag

    def direct(a: Any, b: Any) -> Any:
        return lx.linear_solve(lx.MatrixLinearOperator(a), b, lx.LU()).value

    def iterated(b: Any) -> Any:
        solver = lx.CG(rtol=1e-6, atol=1e-6)
        return lx.linear_solve(lx.MatrixLinearOperator(SPD, positive), b, solver).value

    agrees(direct, (SPD, V), "linear_solve", "jvp, grad twice, vmap of grad")
    agrees(iterated, (V,), "linear_solve", "grad")


def test_solvers_of_optimistix():
    optx = library("optimistix")

    def root(a: Any) -> Any:
        solver = optx.Newton(rtol=1e-6, atol=1e-6)
        return optx.root_find(lambda y, a: y**3 - a, solver, J.ones(3), a).value

    agrees(root, (V + 1,), "linear_solve", "grad, vmap", 1e-4)


def test_differential_equations_of_diffrax():
    dfx = library("diffrax")

    def solved(y: Any) -> Any:
        return dfx.diffeqsolve(
            dfx.ODETerm(lambda t, y, args: -y * y),
            dfx.Tsit5(),
            0.0,
            1.0,
            0.1,
            y,
            max_steps=64,
            stepsize_controller=dfx.PIDController(rtol=1e-4, atol=1e-4),
        ).ys

    agrees(solved, (V,), "maybe_set", "grad", 1e-4)
