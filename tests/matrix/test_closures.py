"""Closures, perturbation confusion, Python that looks at values, nested jit, growth."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as onp
import pytest

import functrans as ft
import functrans.numpy as fnp
from tests.matrix.same_functions import CLOSURES, LOOKING, LOOKING_FURTHER, A, X, assert_same, check
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke


@pytest.mark.every(2)
@pytest.mark.parametrize("name", CLOSURES)
def test_closures(name: str):
    check(CLOSURES[name], onp.float32(1.5))
    if name != "linear function under vmap":  # a weak tangent becomes strong there by chance
        check(CLOSURES[name], 1.5, eager=False)


AROUND: dict[str, Callable[..., Any]] = {
    "grad": lambda L, f: L.grad(f),
    "vjp": lambda L, f: lambda x: L.vjp(f, x)[1](x),
    "jvp": lambda L, f: lambda x: L.jvp(f, (x,), (x,)),
    "linearize": lambda L, f: lambda x: L.linearize(f, x)[1](x),
    "grad(grad)": lambda L, f: L.grad(L.grad(f)),
    "jvp(grad)": lambda L, f: lambda x: L.jvp(L.grad(f), (x,), (x,)),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", [*LOOKING, *LOOKING_FURTHER])
def test_values_are_seen(name: str, around: str):
    if name in LOOKING:
        ours, theirs = LOOKING[name](ft, fnp), LOOKING[name](jax, jnp)
    else:
        ours, theirs = LOOKING_FURTHER[name]
    x = onp.float32(2.5)
    assert_same(AROUND[around](ft, ours)(x), AROUND[around](jax, theirs)(jnp.asarray(x)), 1e-5)


def test_aux_may_be_a_number():
    g, aux = ft.grad(lambda x: (fnp.sum(x * x), float(fnp.sum(x))), has_aux=True)(X)
    assert_close(g, 2 * X)
    assert aux == pytest.approx(float(X.sum()))


NESTING: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "jit": (lambda f: ft.jit(f), X),
    "grad": (lambda f: ft.grad(f), 0.5),
    "vmap": (lambda f: ft.vmap(f), X),
    "jit(vmap(grad))": (lambda f: ft.jit(ft.vmap(ft.grad(f))), X),
    "hessian": (lambda f: ft.hessian(f), 0.5),
    "make_ir": (lambda f: ft.make_ir(f), X),
}


@pytest.mark.parametrize("name", NESTING)
def test_nested_jit_is_traced_once(name: str):
    executed = 0

    @ft.jit
    def layer(x):
        nonlocal executed
        executed += 1
        return fnp.tanh(x) * 2

    def model(x):
        for _ in range(20):
            x = layer(x)
        return x

    transformation, argument = NESTING[name]
    transformation(model)(argument)
    assert executed == 1


def test_nested_jit_traces_anew_for_other_types():
    executed = 0

    @ft.jit
    def layer(x):
        nonlocal executed
        executed += 1
        return x * 2

    ft.make_ir(lambda x, y, n: (layer(x), layer(y), layer(n), layer(x)))(X, A, 2)
    assert executed == 3


def test_nested_jit_forgets_an_outer_tracer():
    """What a nested function closed over last time is not what it closes over now."""

    def scaled(x):
        inner = ft.jit(lambda y: y * x)
        return inner(2.0) + inner(3.0)

    assert ft.grad(scaled)(4.0) == 5.0
    assert ft.grad(scaled)(5.0) == 5.0
    box = []
    inner = ft.jit(lambda y: y * box[0])

    def through_a_box(x):
        box[:] = [x]
        return inner(3.0)

    assert ft.grad(through_a_box)(4.0) == 3.0
    assert ft.value_and_grad(through_a_box)(5.0) == (15.0, 3.0)
    assert ft.vmap(through_a_box)(X).tolist() == (3 * X).tolist()


LONG = 20_000


def chain(x: Any) -> Any:
    for _ in range(LONG):
        x = x * 1.0001
    return x


@pytest.mark.sweep
def test_a_long_program_has_no_recursion_limit():
    program = ft.make_ir(chain)(1.0)
    assert len(program.equations) == LONG
    derivative = ft.make_ir(ft.grad(chain))(1.0)
    assert len(derivative.equations) >= LONG
    (slope,) = ft.interpret(derivative, 1.0)
    assert abs(slope - 1.0001**LONG) < 0.01
    (rows,) = ft.interpret(ft.make_ir(ft.vmap(chain))(X), X)
    assert rows.shape == (3,)
    _, pushed = ft.interpret(ft.make_ir(lambda x: ft.jvp(chain, (x,), (x,)))(1.0), 1.0)
    assert abs(pushed - 1.0001**LONG) < 0.01
    transposed = ft.make_ir(lambda c: ft.linear_transpose(chain, 1.0)(c))(1.0)
    assert len(transposed.equations) >= LONG


def test_unjitted_chain_runs():
    assert abs(ft.grad(chain)(1.0) - 1.0001**LONG) < 0.01


@pytest.mark.parametrize("m", [ft, jax])
def test_a_jitted_function_that_calls_itself_without_end(m: Any):
    @m.jit
    def f(x: Any) -> Any:
        return f(x)

    with pytest.raises(RecursionError, match=r"return f\(x\)" if m is ft else "Recursively"):
        f(1.0)
    assert ft.jit(lambda x: x + 1)(1) == 2
