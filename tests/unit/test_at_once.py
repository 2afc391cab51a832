"""Un-jitted derivatives: operations are linearized as they run, composites run as one."""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import caching, runtime
from functrans.ir.source import equation_source
from functrans.primitives.calls.jit import composite
from tests.support.closeness import assert_close

X = jax_numpy.linspace(-1.0, 2.0, 6).reshape(2, 3)
B = jax_numpy.array([0.5, -0.25, 2.0])


@pytest.fixture
def dispatches(monkeypatch):
    """The names of the operations that run one by one."""
    ft.numpy.add(X, X)  # loads what runs operations
    ran = []
    run = runtime.run_operation

    def spy(primitive, args, params):
        ran.append(primitive.name)
        return run(primitive, args, params)

    monkeypatch.setattr(runtime, "run_operation", spy)
    return ran


def test_dispatches(dispatches):
    """A nonlinear operation costs two; one that needs nothing more runs as itself."""
    y, pullback = ft.vjp(jnp.sin, X)
    pullback(y)
    ft.vjp(jnp.multiply, X, X)
    _, pullback = ft.vjp(lambda x, b: x + b, X, B)  # of two shapes
    pullback(X)
    _, pullback = ft.vjp(ft.jit(lambda x: x * x), X)  # without copies of its arguments
    pullback(X)
    assert dispatches == ["jit", "mul", "mul", "jit", "jit", "jit", "jit"]


def test_the_linear_program_is_written_out_and_knows_its_origin():
    _, f_jvp = ft.linearize(lambda x: jnp.sin(x) * x, 2.0)
    names = [e.primitive.name for e in f_jvp.program.equations]
    assert names == ["mul", "mul", "mul", "add"]
    ft.ir.check(f_jvp.program)
    for eqn in f_jvp.program.equations:
        assert eqn.origin.how == "jvp of"
        assert eqn.origin.equation.primitive.name in ("sin", "mul")
        assert "jnp.sin(x) * x" in equation_source(eqn)
    np.testing.assert_allclose(f_jvp(1.0), 2 * np.cos(2.0) + np.sin(2.0), rtol=1e-6)


def test_composites_take_options_that_are_not_hashable_and_return_pytrees():
    @composite
    def both(x, axes):
        return {"sum": x.sum(tuple(axes)), "x": x}

    out = both(X, [0, 1])
    np.testing.assert_allclose(out["sum"], X.sum(), rtol=1e-6)
    np.testing.assert_array_equal(both(X, (0, 1))["x"], X)


def test_a_failing_composite_leaves_nothing_behind():
    for _ in range(2):
        with pytest.raises(ValueError, match="axis 5"):
            jnp.mean(X, axis=5)
    with pytest.raises((TypeError, ValueError), match=r"2,\s?3.*4"):
        ft.grad(lambda x: jnp.sum(x + jax_numpy.ones(4)))(X)
    np.testing.assert_allclose(jnp.mean(X, axis=1), X.mean(1), rtol=1e-6)


def test_a_signature_met_before_is_written_down_without_running_the_function():
    ran = []

    @composite
    def scaled(x, y, by=2.0):
        ran.append(by)
        return {"sum": x * by + y, "x": x, "two": jnp.full((), 2)}

    def program(f, *args):
        return str(ft.make_ir(f)(*args))

    def twice(x, y):
        return scaled(x, y), scaled(y, x, 3.0)

    first = program(twice, X, X)
    assert ran == [2.0, 3.0]
    assert program(twice, X, X) == first
    assert ran == [2.0, 3.0]
    for by in (True, 1):
        ft.make_ir(lambda x, y, by=by: scaled(x, y, by=by))(X, X + 1)
    assert len(ran) == 4
    out = ft.jit(twice)(X, 2 * X)
    np.testing.assert_allclose(out[1]["sum"], 7 * X)
    np.testing.assert_array_equal(out[0]["x"], X)
    assert out[0]["two"] == 2


def test_what_is_written_down_knows_its_own_line():
    def one(x):
        return jnp.std(x)

    def other(x):
        return jnp.std(x) + 1

    for f in (one, other, one, other):
        lines = {equation_source(e) for e in ft.make_ir(f)(X).equations}
        assert len(lines) == 1 + (f is other)
        assert all(f"{f.__name__})" in line for line in lines)


def test_equal_operands_and_literals_are_not_remembered():
    @composite
    def difference(x, y):
        return jnp.zeros_like(x) if x is y else x - y

    np.testing.assert_array_equal(ft.jit(lambda x: difference(x, x))(X), 0 * X)
    for _ in range(2):
        np.testing.assert_array_equal(ft.jit(difference)(2 * X, X), X)
        np.testing.assert_array_equal(ft.jit(lambda x: difference(x, jnp.ones_like(x)))(X), X - 1)
        np.testing.assert_array_equal(ft.jit(lambda x: difference(x, B))(X), X - B)


def test_an_operand_that_is_a_constant_is_recorded_as_an_operand():
    edges = (np.arange(3.0, dtype="float32"), np.arange(5.0, dtype="float32"))
    values = jnp.array([0.5, 1.5])

    def found(x):
        return [jnp.searchsorted(e, x) for table in (edges, edges) for e in map(jnp.asarray, table)]

    for i, y in enumerate(ft.jit(found)(values)):
        np.testing.assert_array_equal(y, np.searchsorted(edges[i % 2], values))


# What is kept of Python numbers: that they were operands.
NUMBERS = ("numbers as arrays", "numbers as operands", "numbers of rules")


@pytest.mark.parametrize("np_", [jnp, jax_numpy], ids=["ours", "jax.numpy"])
def test_numbers_that_change_compile_nothing(np_):
    def gradient(c):
        return ft.grad(lambda x: np_.sum(np_.sin(x) * (1.0 + c) + np_.cos(x) * c))(X)

    for c in (1, 2):
        gradient(c)
    kept = {row.name: row.entries for row in caching.report() if row.name not in NUMBERS}
    for c in range(3, 8):
        expected = jax_numpy.cos(X) * (1.0 + c) - jax_numpy.sin(X) * c
        assert_close(gradient(c), expected, 1e-5)
    for row in caching.report():  # what others left may be collected meanwhile
        assert row.name in NUMBERS or row.entries <= kept[row.name], row


LAMBDAS = {
    "scan": lambda k: ft.lax.scan(lambda c, x: (c + jnp.sin(x) * k, c), 0.0, B),
    "while_loop": lambda k: ft.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * k), (0, B)),
    "cond": lambda k: ft.lax.cond(B[0] > 0, lambda x: x * k, lambda x: x + k, B),
    "map": lambda k: ft.lax.map(lambda x: jnp.cos(x) + k, B),
    "checkpoint": lambda k: ft.grad(lambda x: ft.checkpoint(lambda x: jnp.sum(jnp.sin(x) * k))(x))(B),
    "gradient": lambda k: ft.grad(lambda x: ft.lax.scan(lambda c, x: (c * x + k, None), 1.0, x)[0])(B),
}


@pytest.mark.parametrize("name", LAMBDAS)
def test_a_new_function_of_equal_operations_is_not_compiled_again(name, caplog):
    run = LAMBDAS[name]
    run(2.0)
    with jax.log_compiles():
        for _ in range(3):
            first = run(2.0)
        assert not [r for r in caplog.records if "Finished XLA compilation" in r.getMessage()]
    for k in (3.0, 2, -0.0, True):  # numbers that differ in value or type
        got = run(k)
        caching.clear()
        want = run(k)
        for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert jax.typeof(x) == jax.typeof(y)
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    jax.tree.map(np.testing.assert_array_equal, run(2.0), first)


def test_callbacks_in_new_functions_are_those_of_each():
    def through(n):
        return ft.lax.map(lambda x: jax.pure_callback(lambda a: np.float32(n) * a, x, x), B)

    for n in (1, 2, 3):
        np.testing.assert_allclose(through(n), n * B)
