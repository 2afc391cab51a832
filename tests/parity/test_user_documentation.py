"""What programs of JAX's documentation and of its libraries do: as there."""

import functools
import warnings

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest
from jax.extend import core
from jax.interpreters import ad, batching

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from tests.support.tables import TABLES, functions

pytestmark = pytest.mark.smoke

ROWS = np.arange(5)
CUBE = np.arange(24.0, dtype=np.float32).reshape(2, 4, 3)
WINDOWS = functions(TABLES / "transformations.txt", "windows at computed starts", "rows, cube, i", globals())


def test_windows_at_computed_starts():
    def every(rows, cube, i):
        return {name: f(rows, cube, i) for name, f in WINDOWS.items()}

    def of(m):
        one = lambda f, *axes: lambda *args: m.vmap(f, axes)(*args)  # noqa: E731

        def run(rows, cube, i):
            batch = m.numpy.stack([cube, -cube])
            slope = m.grad(lambda x: sum((y**2.0).sum() for y in every(rows, x, i).values()))(cube)
            indices = m.numpy.stack([i, i - 1])
            mapped = one(every, None, None, 0)(rows, cube, indices)
            return every(rows, cube, i), slope, mapped, one(every, None, 0, 0)(rows, batch, indices)

        return m.jit(run)

    rows, cube = map(jax_numpy.asarray, (ROWS, CUBE))
    ours, theirs = of(ft), of(jax)
    for i in (0, 2, 5, -1, -7):
        found, want = ours(rows, cube, i), theirs(rows, cube, i)
        jax.tree.map(np.testing.assert_array_equal, found, want)
        assert [y.dtype for y in jax.tree.leaves(found)] == [y.dtype for y in jax.tree.leaves(want)]


def test_a_rule_with_a_loop_that_its_cotangent_ends():
    @ft.custom_vjp
    def f(a):
        return 2 * a

    def bwd(_, ct):
        return (lax.while_loop(lambda u: u < 10.0, lambda u: u + ct, ct),)

    f.defvjp(lambda a: (f(a), None), bwd)
    assert ft.grad(f)(2.0) == 10.0
    with pytest.raises(TypeError, match="condition of a while loop depends on what is to be transposed"):
        ft.jvp(f, (2.0,), (1.0,))


def test_a_composite_keeps_its_name():
    @functools.partial(jax.lax.composite, name="my.sine")
    def sine(x):
        return jax_numpy.sin(x)

    f = ft.jit(lambda x: sine(x) * 2)
    assert "my.sine" in f.lower(1.0).as_text()
    np.testing.assert_allclose(f(1.0), 2 * np.sin(1.0), rtol=1e-6)


def test_one_hot_of_a_mapped_axis_and_of_an_array_of_classes():
    mapped = ft.vmap(lambda x: ft.nn.one_hot(x, 2, axis="classes"), axis_name="classes")
    np.testing.assert_array_equal(mapped(np.arange(2)), [1, 1])
    np.testing.assert_array_equal(ft.nn.one_hot(np.arange(3), jnp.array(3)), np.eye(3))


def test_a_primitive_that_has_only_an_implementation():
    p = core.Primitive("sine_of_numpy")
    p.def_impl(lambda x: np.sin(x))
    p.def_abstract_eval(lambda x: x)
    ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), tangents[0])
    batching.primitive_batchers[p] = lambda args, dims: (p.bind(*args), dims[0])
    np.testing.assert_allclose(ft.vmap(p.bind)(np.ones(2)), np.sin(np.ones(2)), rtol=1e-6)
    np.testing.assert_allclose(ft.jvp(p.bind, (1.0,), (3.0,)), [np.sin(1.0), 3], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="sine_of_numpy"):
        ft.jit(p.bind)(1.0)


def test_classes_of_errors():
    with pytest.raises(jax.errors.JaxRuntimeError, match="nonsense does not exist"):
        ft.jit(lambda x: x, compiler_options={"nonsense": True})(1)
    with pytest.raises(NotImplementedError, match="no branch for the platform"):
        ft.jit(lambda x: lax.platform_dependent(x, other=jnp.sin))(1.0)
    with pytest.raises(NotImplementedError, match="integer np"):
        jnp.round(jnp.array(1234), -2)


def test_scopes_in_loops_warn_of_nothing():
    """Of `bool(NotImplemented)`, as some of the equations have a line and others none."""

    def f(d):
        def body(c):
            with jax.named_scope("step"):
                return c[0] + 1, d * c[1] + c[1]

        return jax.lax.while_loop(lambda c: c[0] < 3, body, (0, jax_numpy.ones(5)))[1]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(ft.jit(f)(1.5), np.full(5, 2.5**3))


def test_jacobians_of_integers_are_zeros():
    def f(x):
        return jnp.argmax(x), x * 2, jnp.sum(x > 0).astype("uint8")

    want = jax.jacfwd(f)(jnp.ones(3))
    for g in (ft.jacfwd(f), ft.jit(ft.jacfwd(f)), jax.jacfwd(ft.jit(f)), ft.jit(lambda x: jax.jacfwd(f)(x))):
        found = g(jnp.ones(3))
        assert [(y.dtype, y.shape) for y in found] == [(y.dtype, y.shape) for y in want]
        jax.tree.map(np.testing.assert_array_equal, found, want)


def test_forward_mode_of_rules_that_are_not_linear():
    """JAX asks one equation for values and tangents together; only `linearize` and reverse mode need a
    linear part."""

    @jax.custom_jvp
    def clipped(x):
        return jnp.sin(x)

    @jax.custom_jvp
    def outside(x):
        return jnp.sin(x)

    @clipped.defjvp
    def _(primals, tangents):
        return clipped(*primals), jnp.clip(tangents[0], -0.5, 0.5)

    def moved(x, dx):
        return np.cos(np.asarray(x)) * np.asarray(dx)

    @outside.defjvp
    def _(primals, tangents):
        kind = jax.ShapeDtypeStruct(jnp.shape(primals[0]), jnp.float32)
        dy = jax.pure_callback(moved, kind, *primals, *tangents, vmap_method="expand_dims")
        return outside(*primals), dy

    x = jnp.array([0.1, 0.2])
    for f in (clipped, outside):
        for jitted in (lambda g: g, ft.jit, jax.jit):
            run = jitted(lambda x, t, f=f: jax.jvp(ft.jit(f), (x,), (t,)))
            jax.tree.map(np.testing.assert_allclose, run(x, 2 * x), jax.jvp(jax.jit(f), (x,), (2 * x,)))
        np.testing.assert_allclose(jax.jacfwd(ft.jit(f))(x), jax.jacfwd(f)(x))
    with pytest.raises(ft.errors.NotLinear, match="not linear in the tangents"):
        jax.grad(lambda x: ft.jit(clipped)(x).sum())(x)


def test_partials_have_the_names_of_their_functions():
    assert ft.jit(lambda x: x).func.__name__.endswith("<lambda>")  # a jitted function is a partial

    def scaled(x, n):
        return x * n

    class Called:
        def __call__(self, x):
            return x

    for fun in (functools.partial(functools.partial(scaled), n=3), functools.partial(Called())):
        ours, theirs = ft.jit(fun), jax.jit(fun)
        assert (ours.__name__, ours.__qualname__) == (theirs.__name__, theirs.__qualname__)
    assert "@jit_scaled" in ft.jit(functools.partial(scaled, n=3)).lower(2.0).as_text()
