"""Transformations against `jax.*` on the same functions: values, dtypes, weak types, structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as onp
import pytest

import functrans as ft
import functrans.numpy as fnp
from tests.matrix.same_functions import ROWS, XS, A, V, X, assert_same, check
from tests.support.matrices import spread

# --- functions of a vector of three to a number ---------------------------------------------------

FUNCTIONS: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "layers": lambda L, np: lambda x: np.sum(np.tanh(A @ np.tanh(A @ x)) ** 2),
    "index": lambda L, np: lambda x: x[0] * x[-1] ** 2 + np.sum(x[::-1] * x) + x[1:].prod(),
    "where": lambda L, np: lambda x: np.where(x > 0, np.cos(x), np.exp(x)).sum() + np.max(x * x),
    "jit in jit": lambda L, np: (
        lambda x: L.jit(lambda y: L.jit(lambda z, w: np.sum(np.sin(z) * w))(y * x, x))(x)
    ),
    "vmap": lambda L, np: lambda x: np.sum(L.vmap(lambda a, b: np.sin(a) * b, (0, None))(x, x)),
    "grad": lambda L, np: lambda x: np.sum(L.grad(lambda y: np.sum(np.sin(y) * x * y))(x)),
    "constant": lambda L, np: lambda x: np.float32(3.0) + 0.0 * x[0],
}

SHALLOW: dict[str, Callable[..., Any]] = {
    "grad": lambda L, np, f: L.grad(f),
    "value_and_grad": lambda L, np, f: L.value_and_grad(f),
    "jvp": lambda L, np, f: lambda x: L.jvp(f, (x,), (V,)),
    "vmap": lambda L, np, f: lambda x: L.vmap(f)(XS * x),
    "linearize": lambda L, np, f: lambda x: L.linearize(f, x)[1](V),
}

DEEP: dict[str, Callable[..., Any]] = {
    "hessian": lambda L, np, f: L.hessian(f),
    "jacrev(grad)": lambda L, np, f: L.jacrev(L.grad(f)),
    "jacfwd(jacfwd)": lambda L, np, f: L.jacfwd(L.jacfwd(f)),
    "third": lambda L, np, f: L.jacfwd(L.jacrev(L.grad(f))),
    "grad(grad)": lambda L, np, f: L.grad(lambda x: np.sum(np.sin(L.grad(f)(x)))),
    "grad(jit(grad(jit)))": lambda L, np, f: L.grad(lambda x: np.sum(L.jit(L.grad(L.jit(f)))(x) ** 2)),
    "jit(vmap(grad(jit)))": lambda L, np, f: lambda x: L.jit(L.vmap(L.grad(L.jit(f))))(XS * x),
    "grad(vmap(grad))": lambda L, np, f: L.grad(lambda x: np.sum(L.vmap(L.grad(f))(XS * x) ** 2)),
    "vmap(hessian)": lambda L, np, f: lambda x: L.vmap(L.hessian(f), 1, 1)((XS * x).T),
    "vmap(vmap(grad))": lambda L, np, f: (
        lambda x: L.vmap(L.vmap(L.grad(f), 0, 1), 1, -1)(np.stack([XS * x, XS + x], 1))
    ),
    "jvp(grad)": lambda L, np, f: lambda x: L.jvp(L.grad(f), (x,), (V,)),
    "grad(jvp)": lambda L, np, f: L.grad(lambda x: L.jvp(f, (x,), (x * V,))[1]),
    "vjp(vjp)": lambda L, np, f: lambda x: L.vjp(lambda y: L.vjp(f, y)[1](np.sum(y))[0], x)[1](V),
    "vmap(vjp)": lambda L, np, f: (
        lambda x: L.vmap(lambda c: L.vjp(f, x)[1](c)[0])(np.arange(4, dtype="float32"))
    ),
    "linear_transpose(linearize)": lambda L, np, f: (
        lambda x: L.linear_transpose(L.linearize(f, x)[1], x)(np.sum(x))
    ),
    "jit(linearize(grad))": lambda L, np, f: lambda x: L.vmap(L.jit(L.linearize(L.grad(f), x)[1]))(XS),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("transformation", SHALLOW)
def test_one_transformation(transformation: str, function: str):
    check(lambda L, np: SHALLOW[transformation](L, np, FUNCTIONS[function](L, np)), X)


@pytest.mark.parametrize(("transformation", "function"), spread(DEEP, list(FUNCTIONS), every=3))
def test_composition(transformation: str, function: str):
    check(
        lambda L, np: DEEP[transformation](L, np, FUNCTIONS[function](L, np)), X, eager=False, tolerance=5e-5
    )


@pytest.mark.parametrize("name", ROWS)
def test_api(name: str):
    build, args = ROWS[name]
    check(build, *args)


@pytest.mark.parametrize("name", [n for n in ROWS if "holomorphic" in n or n.startswith("weak")])
def test_api_in_double_precision(name: str):
    build, args = ROWS[name]
    with jax.enable_x64(True):
        wide = [
            x.astype(x.dtype.str[:2] + str(2 * x.itemsize)) if isinstance(x, onp.ndarray) else x for x in args
        ]
        check(build, *wide, eager=False, tolerance=1e-12)


# float0 and results that jax.jit does not take

UNJITTED: dict[str, Callable[[Any, Any], Any]] = {
    "grad allow_int": lambda L, np: L.grad(lambda x, n: np.sum(x) * n, (0, 1), allow_int=True)(
        X, onp.int32(2)
    ),
    "jvp of an integer": lambda L, np: L.jvp(
        lambda x, n: (x * n, n), (X, 2), (V, onp.zeros((), jax.dtypes.float0))
    ),
    "vjp of an integer": lambda L, np: L.vjp(lambda x, n: x * n, X, onp.int32(2))[1](V),
    "vjp to an integer": lambda L, np: L.vjp(lambda x: (x * 2, 3), X)[1](
        (V, onp.zeros((), jax.dtypes.float0))
    ),
    "linearize of an integer": lambda L, np: L.linearize(lambda x, n: (x * n, n), X, 2)[1](
        V, onp.zeros((), jax.dtypes.float0)
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", UNJITTED)
def test_results_that_jit_does_not_take(name: str):
    assert_same(UNJITTED[name](ft, fnp), UNJITTED[name](jax, jnp), 1e-5)
