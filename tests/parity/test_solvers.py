"""custom_linear_solve and custom_root against JAX's, through the same solvers."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import lax
from functrans.primitives.control_flow.cond import with_common_captures
from tests.support.closeness import assert_close

MINE = (ft, lax, ft_numpy)
JAX = (jax, jax.lax, jax_numpy)

rng = np.random.default_rng(0)
W = 0.4 * rng.normal(size=(3, 3))
X = rng.normal(size=(3, 3))


# --- solvers, over JAX's names --------------------------------------------------------------------


def iterated(lax, steps=60):
    """x <- x + b - A x, for A near one."""
    return lambda matvec, b: lax.fori_loop(0, steps, lambda _, x: x + b - matvec(x), b)


def newton(ft, lax, np_):
    def solve(f, guess):
        def step(c):
            x, i = c
            y, dy = ft.jvp(f, (x,), (np_.ones_like(x),))
            return x - y / dy, i + 1.0  # JAX takes floating point aux only

        return lax.while_loop(lambda c: (abs(f(c[0])) > 1e-12) & (c[1] < 50), step, (guess, 0.0))

    return solve


# --- programs of (w, x) ---------------------------------------------------------------------------


def symmetric(ft, lax, np_, w, x):
    def matvec(v):
        return v + 0.2 * (w @ v + w.T @ v)

    y = lax.custom_linear_solve(matvec, x[0], iterated(lax), symmetric=True)
    return (y * x[1]).sum()


def unsymmetric(ft, lax, np_, w, x):
    def matvec(v):
        return v + 0.3 * (w @ v)

    y = lax.custom_linear_solve(matvec, np_.sin(x[0]), iterated(lax), iterated(lax))
    return (y**2).sum()


def of_pytrees(ft, lax, np_, w, x):
    def matvec(v):
        return {"p": v["p"] + 0.2 * w[0] * v["q"], "q": v["q"] + 0.1 * v["p"].sum()}

    def solve(matvec, b):
        def step(_, v):
            av = matvec(v)
            return {k: v[k] + b[k] - av[k] for k in b}

        return lax.fori_loop(0, 50, step, b), {"steps": 50}

    b = {"p": x[0], "q": w[1, 1]}
    y, aux = lax.custom_linear_solve(matvec, b, solve, solve, has_aux=True)
    return (y["p"] ** 2).sum() * y["q"] + aux["steps"]


def scalar_root(ft, lax, np_, w, x):
    a, b = w[0, 0] ** 2 + 1.0, x[0, 0]
    y, steps = lax.custom_root(
        lambda y: y * y * y + a * y - b, 0.5, newton(ft, lax, np_), lambda g, z: z / g(1.0), has_aux=True
    )
    return y * np_.cos(y) + (steps < 50.0) * 1.0


def in_a_scan(ft, lax, np_, w, x):
    def step(c, row):
        def matvec(v):
            return v + 0.2 * (w @ v) * c.sum() / (1.0 + (c * c).sum())

        c = lax.custom_linear_solve(matvec, row, iterated(lax), iterated(lax))
        y = lax.custom_root(
            lambda y: y**3 + y - c[0] * w[0, 0],
            0.0,
            lambda f, g: newton(ft, lax, np_)(f, g)[0],
            lambda g, z: z / g(1.0),
        )
        return c, y

    c, ys = lax.scan(step, x[0], x)
    return c.sum() + (ys**2).sum()


PROGRAMS = [symmetric, unsymmetric, of_pytrees, scalar_root, in_a_scan]


def _jvp(ft, f):
    return lambda w, x: ft.jvp(f, (w, x), (np.cos(W), np.sin(X)))


TRANSFORMED = {
    "value": lambda ft, f: f,
    "grad": lambda ft, f: ft.value_and_grad(f, (0, 1)),
    "jvp": _jvp,
    "vmap(grad)": lambda ft, f: (
        lambda w, x: ft.vmap(ft.grad(f, (0, 1)), (0, 2))(w * x[:, :1, None], x[:, :, None] * w[0])
    ),
    "grad(vmap)": lambda ft, f: ft.grad(
        lambda w, x: (ft.vmap(f, (0, None))(w * x[:2, :1, None], x) ** 2).sum(), (0, 1)
    ),
    "jvp(grad)": lambda ft, f: _jvp(ft, ft.grad(f, (0, 1))),
    "grad(jvp)": lambda ft, f: ft.grad(lambda w, x: _jvp(ft, f)(w, x)[1], (0, 1)),
}


def _forward_over_reverse(ft, f):
    """grad(jvp) as a product of the Hessian with the direction."""
    return lambda w, x: ft.jvp(ft.grad(f, (0, 1)), (w, x), (np.cos(W), np.sin(X)))[1]


# Where JAX fails by itself (b known in part) it computes the same numbers in this way.
INSTEAD = {("of_pytrees", "grad(jvp)"): _forward_over_reverse}


SMOKE = (unsymmetric, scalar_root)
MARKED = [pytest.param(p, id=p.__name__, marks=[pytest.mark.smoke] * (p in SMOKE)) for p in PROGRAMS]


@pytest.mark.parametrize("program", MARKED)
def test_equals_jax(program):
    def every(m, *names):
        f = functools.partial(program, m, *names)
        made = {how: transform(m, f) for how, transform in TRANSFORMED.items()}
        if m is jax:
            made |= {how: t(m, f) for (name, how), t in INSTEAD.items() if name == program.__name__}
        return lambda w, x: {how: g(w, x) for how, g in made.items()}

    with jax.enable_x64(True):
        w, x = jax_numpy.asarray(W), jax_numpy.asarray(X)
        want = jax.jit(every(*JAX))(w, x)
        assert_close(ft.jit(every(*MINE))(w, x), want, 1e-8)
        f = functools.partial(program, *MINE)
        made = ft.make_ir(ft.value_and_grad(f, (0, 1)))(w, x)
        ft.ir.check(made)
        assert ft.ir.equal(ft.ir.parse(ft.ir.show(made), made.values), made)
        assert_close(ft.interpret(made, w, x), jax.tree.leaves(want["grad"]), 1e-8)
        if program in (of_pytrees, scalar_root):
            assert_close(f(w, x), want["value"], 1e-8)
            assert_close(ft.value_and_grad(f, (0, 1))(w, x), want["grad"], 1e-8)


# --- what is solved, and how often ----------------------------------------------------------------


def test_the_solver_itself_is_not_differentiated():
    def by_numpy(matrix):
        def solve(_, b):
            return ft.pure_callback(
                lambda a, b: np.linalg.solve(a, b), ft.ShapeDtypeStruct(b.shape, b.dtype), matrix, b
            )

        return solve

    def f(a, b):
        return lax.custom_linear_solve(lambda x: a @ x, b, by_numpy(a), by_numpy(a.T)).sum()

    a, b = (X + 3 * np.eye(3)).astype("float32"), W[0].astype("float32")
    for g in (ft.grad(f, (0, 1)), ft.jit(ft.grad(f, (0, 1)))):
        da, db = g(a, b)
        lam = np.linalg.solve(a.T, np.ones(3))
        np.testing.assert_allclose(db, lam, rtol=1e-5)
        np.testing.assert_allclose(da, -np.outer(lam, np.linalg.solve(a, b)), rtol=1e-4, atol=1e-6)


def test_gradient_solves_twice():
    calls = []

    def solve(matvec, b):
        ft.debug.callback(lambda: calls.append(1))
        return b / matvec(1.0)

    def f(a, b):
        return lax.custom_linear_solve(lambda x: a * x, b, solve, symmetric=True)

    ft.jit(ft.grad(f, (0, 1)))(2.0, 3.0)
    ft.effects_barrier()
    assert len(calls) == 2


@pytest.mark.smoke
def test_the_guess_has_no_derivative_and_types_are_those_of_jax():
    def f(lax, a, guess):
        return lax.custom_root(lambda x: x * x - a, guess, lambda f, x: x * 0 + 3.0, lambda g, y: y / g(1.0))

    a = np.float32(9.0)
    g = ft.grad(lambda a, guess: f(lax, a, guess), (0, 1))(a, 1.0)
    np.testing.assert_allclose(g, (1 / 6, 0.0), rtol=1e-6)
    for given in ((a, 1.0), (9.0, 1.0), (a, np.float32(1.0))):
        mine, theirs = f(lax, *given), f(jax.lax, *given)
        assert (mine.dtype, mine.weak_type) == (theirs.dtype, theirs.weak_type)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32"])
def test_integers_are_solved_for_in_floats(dtype):
    def solved(lax, b):
        return lax.custom_linear_solve(lambda x: 2 * x, b, lambda f, b: b / 2, symmetric=True)

    b = jax.numpy.arange(3).astype(dtype)
    ours, theirs = solved(lax, b), solved(jax.lax, b)
    np.testing.assert_array_equal(ours, theirs)
    assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
    np.testing.assert_array_equal(ft.jit(lambda b: solved(lax, b))(b), theirs)  # JAX has no code


def test_programs_with_values_in_common():
    """Each is used once, unless one program takes it twice."""
    program = ft.make_ir(lambda a, b, x: a * x - b)(1.0, 2.0, 3.0)
    a, b, x = map(np.float32, (2, 5, 7))
    captured, (of_a, of_both) = with_common_captures([(program, [a, a]), (program, [b, a])])
    assert len(captured) == 3
    assert ft.interpret(of_a, *captured, x) == [2 * 7 - 2]
    assert ft.interpret(of_both, *captured, x) == [5 * 7 - 2]
