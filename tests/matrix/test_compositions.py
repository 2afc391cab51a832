"""Transformations and operations composed in pairs and triples, against JAX.

Each row of `TABLE` makes of a function of a vector another one: (library, f) -> f. A composition is
a product of rows over one small function. It is run at once, and its recorded program by the NumPy
interpreter. Where JAX refuses (reverse mode through `while_loop`, forward mode through a
`custom_vjp` function) it is asked for the same function written with the rows of `ALLOWED`.

`pytest -m heavy` runs all the triples; else every twenty-ninth is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy

Function = Callable[[Any], Any]


class Library(NamedTuple):
    """functrans or JAX."""

    api: Any
    np: Any


OURS, JAX = Library(ft, ft_numpy), Library(jax, jax_numpy)

X = np.array([0.3, -0.8, 1.1], "float64")
SEED = np.array([1.0, -0.5, 2.0], "float64")  # a tangent, or the weights of a sum
ROWS = np.array([[1.0], [-0.6]], "float64")  # what a vector is multiplied by in a batch of two
W = np.array([[0.2, -0.5, 0.1], [0.4, 0.3, -0.2], [-0.1, 0.6, 0.5]], "float64")


def base(lib: Library) -> Function:
    """Of bounded derivatives: nested loops apply it up to 27 times, and amplify roundings."""
    return lambda x: lib.np.sin(x) * lib.np.cos(x[::-1]) + lib.np.dot(W, x) / 2


# --- the table ------------------------------------------------------------------------------------


def grad(lib: Library, f: Function) -> Function:
    return lib.api.grad(lambda x: (f(x) * SEED).sum())


def jvp(lib: Library, f: Function) -> Function:
    def pushed(x):
        y, dy = lib.api.jvp(f, (x,), (lib.np.asarray(SEED),))
        return dy + 0.1 * y

    return pushed


def vmap(lib: Library, f: Function) -> Function:
    return lambda x: (lib.api.vmap(f)(x * ROWS) * ROWS).sum(0)


def jit(lib: Library, f: Function) -> Function:
    return lib.api.jit(f)


def linearize(lib: Library, f: Function) -> Function:
    def pushed(x):
        y, push = lib.api.linearize(f, x)
        return push(lib.np.asarray(SEED)) + 0.1 * y

    return pushed


def checkpoint(lib: Library, f: Function) -> Function:
    return lib.api.checkpoint(f)


def custom_vjp(lib: Library, f: Function) -> Function:
    """A rule that gives twice the cotangent, so that it shows."""
    g = lib.api.custom_vjp(lambda x: f(x))
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * lib.api.vjp(f, x)[1](ct)[0],))
    return lambda x: g(x)


def scan(lib: Library, f: Function) -> Function:
    def scanned(x):
        last, sums = lib.api.lax.scan(lambda c, s: (f(c) * s + x, c.sum()), x, SEED / 3)
        return last + sums

    return scanned


def cond(lib: Library, f: Function) -> Function:
    return lambda x: lib.api.lax.cond(x.sum() > 0.3, f, lambda v: v * x[0], x)


def while_loop(lib: Library, f: Function) -> Function:
    """Two or three steps, as x says."""

    def looped(x):
        n = 2 + (x.sum() > 0)
        step = lambda c: (c[0] + 1, f(c[1]) * 0.5 + x)  # noqa: E731
        return lib.api.lax.while_loop(lambda c: c[0] < n, step, (0, x))[1]

    return looped


TABLE = (grad, jvp, vmap, jit, linearize, checkpoint, custom_vjp, scan, cond, while_loop)


# --- what JAX does instead where it refuses -------------------------------------------------------


def custom_jvp_of_the_same_rule(lib: Library, f: Function) -> Function:
    g = lib.api.custom_jvp(lambda x: f(x))

    @g.defjvp
    def rule(primals, tangents):
        y, dy = lib.api.jvp(f, primals, tangents)
        return y, 2 * dy

    return lambda x: g(x)


def steps_written_out(lib: Library, f: Function) -> Function:
    def looped(x):
        n, c = 2 + (x.sum() > 0), x
        for i in range(3):
            c = lib.np.where(i < n, f(c) * 0.5 + x, c)
        return c

    return looped


ALLOWED = {custom_vjp: custom_jvp_of_the_same_rule, while_loop: steps_written_out}


# --- compositions ---------------------------------------------------------------------------------


def composed(lib: Library, rows: Sequence[Callable[..., Function]]) -> Function:
    """rows[0] of rows[1] of ... of the base function."""
    f = base(lib)
    for row in reversed(rows):
        f = row(lib, f)
    return f


def wanted(rows: Sequence[Callable[..., Function]]) -> Any:
    """JAX's answer."""
    refusals = (
        "Reverse-mode differentiation does not work for lax.while_loop",
        "can't apply forward-mode autodiff (jvp) to a custom_vjp",
        "Differentiation rule for 'custom_lin' not implemented",
    )
    try:
        return composed(JAX, rows)(X)
    except (TypeError, ValueError, NotImplementedError) as error:
        if not str(error).startswith(refusals):
            raise
    return composed(JAX, [ALLOWED.get(row, row) for row in rows])(X)


@jax.enable_x64(True)
def agree(rows: Sequence[Callable[..., Function]]) -> None:
    want = wanted(rows)
    f = composed(OURS, rows)
    program = ft.make_ir(f)(X)
    ft.ir.check(program)
    for got in (f(jax_numpy.asarray(X)), ft.interpret(program, X)[0]):
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9)
        assert got.dtype == want.dtype


def named(rows: Sequence[Callable[..., Function]]) -> str:
    return " of ".join([row.__name__ for row in rows])


PAIRS = list(product(TABLE, repeat=2))
TRIPLES = list(product(TABLE, repeat=3))


@pytest.mark.parametrize("rows", PAIRS[::3], ids=named)
def test_pairs(rows):
    agree(rows)


@pytest.mark.sweep
@pytest.mark.parametrize("rows", sorted({*PAIRS} - {*PAIRS[::3]}, key=PAIRS.index), ids=named)
def test_more_pairs(rows):
    agree(rows)


@pytest.mark.parametrize("rows", TRIPLES[::43], ids=named)
def test_some_triples(rows):
    agree(rows)


@pytest.mark.heavy
@pytest.mark.parametrize("rows", TRIPLES, ids=named)
def test_all_triples(rows):
    agree(rows)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.__name__)
@jax.enable_x64(True)
def test_compiled_and_as_text(row):
    """The same by XLA, in one program, under the gradient; its text can be read back."""
    rows = (grad, row)
    f = composed(OURS, rows)
    np.testing.assert_allclose(ft.jit(f)(X), wanted(rows), rtol=1e-7, atol=1e-9)
    program = ft.make_ir(f)(X)
    assert ft.ir.equal(ft.ir.parse(ft.ir.show(program), program.values), program)
