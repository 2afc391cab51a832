"""Derivatives where functions have ties, borders, poles and cancellations, beside JAX's.

Every elementwise function that a row of `tables/` calls by its arrays alone is differentiated at
all special points (of two arguments: at all pairs). JAX's derivatives are one compiled program,
ours are interpreted by NumPy. Where JAX has a finite derivative ours is the same; where JAX has an
infinite one or NaN, ours may be better.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from tests.matrix.test_numpy import read_table
from tests.support.libraries import functions
from tests.support.versions import NEWER, NEWEST, QUICK
from tests.support.wide import each

POINTS = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1e-9, -1e-9, 2.0, 3.0, -3.5, 6.0, 30.0, -30.0, 1e10], np.float32
)
PAIRS = [a.ravel() for a in np.meshgrid(POINTS, POINTS)]
# Their derivatives are loops or long series.
LONG = {"igamma", "igammac", "polygamma", "zeta"}
# Where they differ, and why.
OTHERWISE = {r"jnp\.logaddexp2?, \d at 1e\+10, 1e\+10$": "1/2 is the derivative, JAX has 1"}
if not NEWEST:
    OTHERWISE[r"nn\.elu, 0 at -30, 1e\+10$"] = "exp(-30) * 1e10, JAX had 0"
if not NEWER:
    OTHERWISE[r"\w+\.a(rc)?cosh, 0 at -"] = "NaN, as its value, JAX had a number"


def called(arity: int) -> list[str]:
    """The functions that the tables call with so many arrays and nothing else."""
    arrays = ", ".join([r"[a-z]+"] * arity)
    pattern = re.compile(rf"((?:jnp|lax|nn)\.\w+)\({arrays}\)")
    rows = [r for lib in ("numpy", "library") for g in read_table(lib).values() for r in g]
    found = {match[1] for match in map(pattern.fullmatch, rows) if match}
    return sorted([name for name in found if name.split(".")[1] not in LONG])


def is_elementwise(name: str, arity: int) -> bool:
    """Does JAX have a float of floats, and a derivative?"""
    try:
        f = function(name, "jax")
        y, *_ = jax.eval_shape(jax.value_and_grad(f), *[np.float32(1)] * arity)
    except Exception:
        return False
    return y.shape == () and y.dtype == np.float32


def function(name: str, root: str) -> Callable[..., Any]:
    module, _, short = name.partition(".")
    return getattr(functions(root)[module], short)


@pytest.mark.smoke
@pytest.mark.parametrize("arity", [1, 2])
def test_derivatives(arity: int):
    names = [n for n in called(arity) if is_elementwise(n, arity)]
    assert len(names) > {1: 140, 2: 35}[arity]
    points = [POINTS] if arity == 1 else PAIRS

    def slopes(library: Any, name: str) -> Callable[..., Any]:
        root = "functrans" if library is ft else "jax"
        return library.vmap(library.grad(function(name, root), tuple(range(arity))))

    theirs = jax.jit(lambda *xs: {n: slopes(jax, n)(*xs) for n in names}, compiler_options=QUICK)(*points)

    def check(name: str) -> None:
        program = ft.make_ir(slopes(ft, name))(*points)
        with np.errstate(all="ignore"):
            ours = ft.interpret(program, *points)
        told = []
        for i, (x, y) in enumerate(zip(ours, map(np.asarray, theirs[name]), strict=True)):
            for k in np.flatnonzero(np.isfinite(y) & ~np.isclose(x, y, rtol=1e-4, atol=1e-6)):
                where = f"{name}, {i} at {', '.join([f'{p[k]:g}' for p in points])}"
                if not any(re.match(pattern, where) for pattern in OTHERWISE):
                    told.append(f"argument {where}: {x[k]}, JAX: {y[k]}")
        assert not told, "\n".join(told[:9])

    each(names, check)


# Their derivatives of first and second order far out, also where x^2 is infinite.
FAR = np.float32([1e18, 1e30, 3e38, np.inf])
SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "erf": np.zeros_like,
    "erfc": np.zeros_like,
    "asinh": lambda x: 1 / np.abs(x),
    "acosh": lambda x: 1 / np.abs(x),
}


@pytest.mark.parametrize("name", SLOPES)
def test_far_out(name: str):
    f, x = getattr(ft.lax, name), FAR if name == "acosh" else np.concatenate([FAR, -FAR])
    np.testing.assert_allclose(ft.vmap(ft.grad(f))(x), SLOPES[name](x), rtol=1e-6, atol=1e-37)
    x = x[np.isfinite(x)] if name == "asinh" else x
    np.testing.assert_allclose(ft.vmap(ft.grad(ft.grad(f)))(x), 0, atol=1e-35)
    assert np.isnan(ft.grad(ft.grad(f))(np.nan))


def test_the_slope_of_asinh_on_its_cut():
    slope = ft.grad(ft.lax.asinh, holomorphic=True)
    for sign in (1.0, -1.0):
        for z in (complex(0.0, sign * 2), complex(-0.0, sign * 2)):
            beside = z + np.copysign(1e-9, z.real)
            np.testing.assert_allclose(slope(z), 1 / (np.sqrt(1 + beside**2)), rtol=1e-6, atol=1e-6)
    assert abs(slope(1e30 + 1e30j) * (1e30 + 1e30j) - 1) < 1e-6


def test_sinc_at_integers():
    x = np.float32([0, 1, -1, 2, 7, 1e6, np.inf])
    np.testing.assert_array_equal(ft.numpy.sinc(x), x == 0)
    slopes = ft.vmap(ft.grad(ft.numpy.sinc))(x[1:6])
    np.testing.assert_allclose(slopes, [-1, 1, 1 / 2, -1 / 7, 1e-6], rtol=1e-6)
    near = np.float32(0.01)  # where cos(z) / z - sin(z) / z^2 cancels
    slope = -(np.pi**2) / 3 * 0.01 + np.pi**4 / 30 * 1e-6
    np.testing.assert_allclose(ft.grad(ft.numpy.sinc)(near), slope, rtol=1e-6)
