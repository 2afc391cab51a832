"""custom_vjp and what a rule may close over, against JAX's."""

import functools

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from tests.matrix.custom_functions import WAYS, X, Y, as_in_jax, both

pytestmark = pytest.mark.smoke

# --- custom_vjp -----------------------------------------------------------------------------------


@as_in_jax(0.7, ways=[w for w in WAYS if w != "jvp"])
def test_pytrees_and_none_through_custom_vjp(m, np_):
    @m.custom_vjp
    def f(tree, n, unused):
        return {"a": tree["x"] * tree["y"][0], "n": n}, tree["x"] * 2.0

    def fwd(tree, n, unused):
        return f(tree, n, unused), {"tree": tree, "n": n}

    def bwd(res, ct):
        a = ct[0]["a"]
        assert ct[0]["n"].dtype == jax.dtypes.float0
        return {"x": 3.0 * a * res["n"], "y": [None]}, None, None

    f.defvjp(fwd, bwd)

    def call(x):
        out, twice = f({"x": x, "y": [x * 2.0]}, 3, {"w": x})
        return out["a"] + twice

    return call


@as_in_jax(0.7, ways=["grad", "jit of grad"])
def test_symbolic_zeros_of_custom_vjp(m, np_):
    zero = m.custom_derivatives.SymbolicZero

    @m.custom_vjp
    def f(x, y):
        return x * y, x + y

    def fwd(x, y):
        assert [a.perturbed for a in (x, y)] == [True, False]
        return f(x.value, y.value), (x.value, y.value)

    def bwd(res, cts):
        assert [type(ct) is zero for ct in cts] == [False, True]
        return 3.0 * cts[0] * res[1], None

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    return lambda x: f(x, np_.float32(3.0))[0]


def test_a_bwd_rule_that_is_not_linear_works_in_reverse_everywhere():
    def make(m, np_):
        @m.custom_vjp
        def clip(x):
            return x

        clip.defvjp(lambda x: (x, None), lambda _, ct: (np_.clip(ct, -1.0, 1.0),))
        return lambda x: np_.sum(clip(x) ** 2)

    for transform in (
        lambda m, f: m.grad(f),
        lambda m, f: m.grad(m.jit(f)),
        lambda m, f: m.grad(lambda x: m.jit(m.vmap(m.jit(f)))(x).sum()),
        lambda m, f: m.jit(m.vmap(m.grad(m.jit(f)))),
    ):
        both(make, X, transform=transform)


def test_residuals_that_are_not_batched_stay_so():
    """A weight among the residuals is not repeated for every example."""
    w = np.ones((64, 64), np.float32)

    @ft.custom_vjp
    def f(w, x):
        return w @ x

    f.defvjp(lambda w, x: (f(w, x), (w, x)), lambda res, ct: (jnp.outer(ct, res[1]), res[0].T @ ct))
    loss = lambda w, xs: ft.vmap(f, (None, 0))(w, xs).sum()  # noqa: E731
    program = ft.make_ir(ft.grad(loss, 1))(w, np.ones((10, 64), np.float32))
    assert "f32[10,64,64]" not in str(program)


def test_cotangents_of_another_precision_are_cast():
    f = ft.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct.astype("float16"),))
    found = ft.grad(f)(jnp.float32(2.0))
    assert found == 1.0
    assert found.dtype == np.float32


@pytest.mark.parametrize("closed_over", [False, True])
def test_keys(closed_over):
    key = jax.random.key(0)

    def make(m, np_):
        noise = lambda k, x: m.random.normal(k, x.shape)  # noqa: E731
        f = m.custom_vjp(lambda k, x: x * noise(k, x))
        f.defvjp(
            lambda k, x: (f(k, x), (k, x)),
            lambda r, ct: (None, ct * noise(key if closed_over else r[0], r[1])),
        )
        return lambda x: f(key, x).sum()

    for how in ("grad", "jit of grad", "grad of jit"):
        both(make, X, transform=WAYS[how])


def test_arrays_that_a_rule_brings_along():
    """Constants of a rule inside a nested program, in every transformation of it."""
    weights = np.array([1.0, 2.0, 4.0], np.float32)
    many = np.arange(300, dtype=np.float32).reshape(100, 3)

    def make(m, np_):
        @m.custom_jvp
        def f(x):
            return x * 2.0

        f.defjvp(lambda p, t: (f(*p), t[0] * np_.asarray(weights)))

        @m.custom_vjp
        def g(x):
            return x * 2.0

        g.defvjp(
            lambda x: (g(x), x * np_.asarray(weights)),
            lambda r, ct: (ct * r * np_.sum(np_.asarray(many), 0),),
        )
        return m.jit(lambda x: np_.sum(m.jit(lambda y: f(y) * g(y))(x) ** 2))

    rows = np.stack([X, Y])
    for x, transform in (
        (X, lambda m, f: m.grad(f)),
        (X, lambda m, f: m.jit(m.grad(f))),
        (rows, lambda m, f: m.vmap(m.grad(f))),
        (rows, lambda m, f: m.grad(lambda z: m.vmap(f)(z).sum())),
        (X, lambda m, f: m.grad(lambda z: m.grad(f)(z).sum())),
    ):
        both(make, x, transform=transform)


# --- closures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0, 0), (None, 0)])
@pytest.mark.parametrize("inside", [False, True], ids=["ours", "JAX's, inside"])
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_values_of_a_vmap_may_be_closed_over_where_it_is_differentiated(kind, inside, axes):
    def make(m, np_):
        def outer(x, y):
            if kind == "custom_jvp":
                f = m.custom_jvp(lambda x: np_.sin(x) * y)
                f.defjvp(lambda p, t: (f(*p), 3.0 * t[0] * y))
            else:
                f = m.custom_vjp(lambda x: np_.sin(x) * y)
                f.defvjp(lambda x: (f(x), y), lambda y, ct: (3.0 * ct * y,))
            return f(x)

        return lambda x, y: m.vmap(outer, axes)(x, y).sum()

    x = X if axes[0] == 0 else X[0]
    want = jax.value_and_grad(make(jax, jax_numpy))(x, Y)
    f = make(jax, jax_numpy) if inside else make(ft, jnp)
    m = jax if inside else ft
    for g in (m.value_and_grad(f), lambda *a: ft.jit(m.value_and_grad(f))(*a)):
        jax.tree.map(np.testing.assert_allclose, g(x, Y), want)


@pytest.mark.parametrize("wrap", [lambda f: f, ft.jit], ids=["dynamic", "jit"])
@pytest.mark.parametrize("mode", ["grad", "jvp"])
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_closed_over_values_that_are_differentiated(kind, mode, wrap):
    def outer(y):
        if kind == "custom_jvp":
            f = ft.custom_jvp(lambda x: x * y)
            f.defjvp(lambda p, t: (f(*p), t[0]))
        else:
            f = ft.custom_vjp(lambda x: x * y)
            f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
        return f(2.0)

    derive = ft.grad(wrap(outer)) if mode == "grad" else lambda y: ft.jvp(wrap(outer), (y,), (y,))
    with pytest.raises(ft.errors.ClosedOverTracer, match="closes over") as caught:
        derive(3.0)
    assert isinstance(caught.value, jax.errors.UnexpectedTracerError)


def test_closure_convert():
    def make(m, np_):
        def minimize(g, x):
            converted, values = m.closure_convert(g, x)
            return solve(converted, x, *values)

        @functools.partial(m.custom_vjp, nondiff_argnums=(0,))
        def solve(g, x, *values):
            return g(x, *values)

        def bwd(g, res, ct):
            _, values = res
            return (2.0 * ct, *[3.0 * ct * v for v in values])

        solve.defvjp(lambda g, x, *v: (solve(g, x, *v), (x, v)), bwd)
        return lambda y: minimize(lambda x: np_.sin(x) * y + 1.0, y * 2.0)

    for how in ("grad", "jit of grad", "grad of jit"):
        both(make, 0.7, transform=WAYS[how])
    _, values = ft.closure_convert(lambda x: x * X, X)
    assert values == []


def test_custom_gradient():
    def make(m, np_):
        @m.custom_gradient
        def f(x, y):
            s = np_.sin(x)
            return s * y, lambda ct: (2.0 * ct * s, ct * y)

        @m.custom_gradient
        def g(x):
            return {"a": x}, lambda ct: 5.0 * ct["a"]

        return lambda x: f(x, x) + g(x)["a"]

    for how in WAYS:
        if how != "jvp":
            both(make, 0.7, transform=WAYS[how])
    assert ft.jvp(make(ft, jnp), (0.7,), (1.0,))[1] == ft.grad(make(ft, jnp))(0.7)


# --- rules that return more than multiples of their cotangents ------------------------------------


def meter(m):
    """A function whose gradient holds what its rule says, whatever the cotangent; one that stops it."""

    @m.custom_vjp
    def f(x):
        return jax.numpy.sin(x), x * 2

    f.defvjp(lambda x: (f(x), x), lambda x, g: (7 + g[0] + 0 * x,))
    stop = m.custom_vjp(lambda x: x + 1)
    stop.defvjp(lambda x: (x + 1, None), lambda _, g: (None,))
    return f, stop


def steps(f, x):
    return jax.lax.fori_loop(0, 3, lambda _, c: f(c), x)


METERS = {
    "its result is not used": lambda f, stop: lambda x: (f(x), x * 2)[1],
    "it is stopped by a rule": lambda f, stop: lambda x: stop(f(x)[0]) + x,
    "it is stopped later": lambda f, stop: lambda x: stop(jax.numpy.sin(f(x)[0]) * x) + x,
    "it is stopped twice": lambda f, stop: lambda x: stop(f(stop(f(x)[0]))[0]) + x,
    "it is constant": lambda f, stop: lambda x: jax.lax.stop_gradient(f(x)[0]) + x,
    "it is an integer": lambda f, stop: lambda x: f(x)[0].astype(int) + x,
    "it is multiplied by zero": lambda f, stop: lambda x: 0.0 * f(x)[0] + x,
    "it is a carry": lambda f, stop: lambda x: stop(steps(lambda c: f(c)[0], x)) + x,
    "it is in two loops": lambda f, stop: lambda x: stop(steps(lambda c: steps(lambda c: f(c)[0], c), x)) + x,
    "it is in a branch of a loop": lambda f, stop: (
        lambda x: stop(steps(lambda c: jax.lax.cond(c < 1, lambda c: f(c)[0], lambda c: c, c), x)) + x
    ),
}


@pytest.mark.parametrize("rules", [ft, jax], ids=["ft", "jax"])
@pytest.mark.parametrize("name", METERS)
def test_a_rule_is_called_with_zeros_where_jax_calls_it(name, rules):
    """As fp8 layers need it, which return their new scales as gradients."""
    want = jax.grad(METERS[name](*meter(jax)))(0.5)
    for how in (lambda g: g, ft.jit, jax.jit, lambda g: lambda x: ft.vmap(g)(x[None])[0]):
        for grad in (ft.grad, *[jax.grad] * (rules is ft)):
            got = how(grad(METERS[name](*meter(rules))))(jax.numpy.float32(0.5))
            np.testing.assert_allclose(got, want)
