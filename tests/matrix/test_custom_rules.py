"""Custom derivative rules against JAX's, on the same functions."""

import functools

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from tests.matrix.custom_functions import OURS, PAIRS, THEIRS, X, Y, as_in_jax, both, composed, functions
from tests.support.closeness import assert_close
from tests.support.versions import NEWEST

pytestmark = pytest.mark.smoke


@functools.cache
def wanted(names):
    f = functions(jax, jax_numpy)["custom_jvp"]
    return np.asarray(jax.jit(composed(f, names, THEIRS))(X, Y))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("names", [p for p in PAIRS if p != ("vmap", "vmap")], ids=".".join)
def test_pairs(kind, names):
    """Also forward mode through custom_vjp, where the rule of custom_jvp says the same."""
    found = composed(functions(ft, jnp)[kind], names, OURS)(X, Y)
    np.testing.assert_allclose(found, wanted(names), rtol=2e-5, atol=1e-6)


@as_in_jax(0.7)
def test_defjvps(m, np_):
    @m.custom_jvp
    def f(x, y):
        return np_.sin(x) * y

    f.defjvps(lambda dx, out, x, y: 3.0 * dx * out, None)
    return lambda x: f(x, x)


@as_in_jax(0.7)
def test_nondiff_argnums_of_custom_jvp(m, np_):
    @functools.partial(m.custom_jvp, nondiff_argnums=(0, 2))
    def app(f, x, n):
        return f(x) * n

    @app.defjvp
    def _(f, n, primals, tangents):
        return app(f, primals[0], n), 2.0 * n * f(tangents[0])

    return lambda x: app(lambda y: 3.0 * y, x, 5)


def test_traced_nondiff_arguments_in_a_program():
    """JAX leaks a tracer here: the rule runs when the program is complete."""

    @functools.partial(ft.custom_jvp, nondiff_argnums=(1,))
    def f(x, scale):
        return x * scale

    f.defjvp(lambda scale, p, t: (f(*p, scale), 10.0 * t[0] * scale))
    assert ft.grad(ft.jit(lambda x: f(x, x * 2.0)))(0.5) == 10.0
    found = ft.grad(lambda x: ft.vmap(lambda s: f(x, s))(jnp.arange(3.0)).sum())(0.5)
    assert found == 30.0


@as_in_jax(1.5, ways=["grad"])
def test_nondiff_argnames(m, np_):
    @functools.partial(m.custom_jvp, nondiff_argnames=("n", "ignored"))
    def f(x, n):
        return x**n

    f.defjvp(lambda n, p, t: (f(*p, n), 7.0 * n * t[0]))

    @functools.partial(m.custom_vjp, nondiff_argnames=["n", "ignored"])
    def g(x, n):
        return x**n

    g.defvjp(lambda x, n: (g(x, n), x), lambda n, x, ct: (5.0 * n * ct,))
    return lambda x: f(x, n=2) + g(x, 3)


@as_in_jax(0.7)
def test_pytrees_through_custom_jvp(m, np_):
    @m.custom_jvp
    def f(tree, n):
        return {"a": tree["x"] * tree["y"][0], "n": n, "c": (tree["x"],)}

    @f.defjvp
    def _(primals, tangents):
        tree, n = primals
        dtree, dn = tangents
        out = f(tree, n)
        assert dn.dtype == jax.dtypes.float0
        tangent = {"a": 2.0 * dtree["x"] + dtree["y"][0], "n": dn, "c": (dtree["x"],)}
        return out, tangent

    def call(x):
        out = f({"x": x, "y": [x * 2.0]}, 3)
        return out["a"] + out["c"][0] * out["n"]

    return call


@as_in_jax(0.7)
def test_symbolic_zeros_of_custom_jvp(m, np_):
    zero = m.custom_derivatives.SymbolicZero

    @m.custom_jvp
    def f(x, y):
        return x * y

    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        assert [type(d) is zero for d in tangents] == [False, True]
        assert dy.shape == y.shape
        return f(x, y), 5.0 * dx * y

    f.defjvp(rule, symbolic_zeros=True)
    return lambda x: f(x, np_.float32(3.0))


def test_a_rule_may_return_a_symbolic_zero():
    f = ft.custom_jvp(lambda x: (x, 2.0 * x))
    zero = ft.custom_derivatives.SymbolicZero

    def rule(primals, tangents):
        out = f(*primals)
        return out, (zero.from_primal_value(out[0]), tangents[0])

    f.defjvp(rule, symbolic_zeros=True)
    assert ft.grad(lambda x: sum(f(x)))(1.0) == 1.0
    assert ft.grad(ft.jit(lambda x: sum(f(x))))(1.0) == 1.0


def test_un_jitted_rules_see_values():
    seen = []

    @ft.custom_jvp
    def f(x):
        return x if x > 0 else -x

    @f.defjvp
    def _(primals, tangents):
        seen.append(float(primals[0]))
        return f(*primals), tangents[0] if primals[0] > 0 else -tangents[0]

    @ft.custom_vjp
    def g(x):
        return x if x > 0 else -x

    g.defvjp(lambda x: (g(x), x), lambda x, ct: (ct if x > 0 and ct > 0 else -ct,))
    assert ft.grad(f)(-2.0) == -1.0
    assert ft.jvp(f, (-2.0,), (3.0,))[1] == -3.0
    assert ft.grad(ft.grad(lambda x: f(x) ** 3))(-2.0) == 12.0
    assert ft.grad(g)(-2.0) == -1.0
    assert -2.0 in seen


def test_a_rule_may_be_the_function_applied_to_the_tangent():
    """Of a linear function: its transpose is that of what it computes, as in JAX."""

    def derivatives(module, np_):
        @module.custom_jvp
        def tripled(x):
            return 3 * x

        tripled.defjvp(lambda primals, tangents: (tripled(*primals), tripled(*tangents)))

        def loss(x):
            return np_.sum(np_.sin(tripled(x)))

        return (
            module.grad(loss)(X),
            module.jit(module.hessian(loss))(X),
            module.jit(module.vmap(module.grad(loss)))(np.stack([X, X])),
            module.jvp(tripled, (X,), (X,)),
        )

    assert_close(derivatives(ft, jnp), derivatives(jax, jax_numpy), 2e-5)


def test_an_endless_chain_of_rules():
    """A rule is run only when it is asked for: it may be that of another function, and so on."""

    @functools.partial(ft.custom_jvp, nondiff_argnums=(0,))
    def derivative(n, x):
        return jnp.sin(x + n * np.pi / 2)

    @derivative.defjvp
    def _(n, primals, tangents):
        return derivative(n, *primals), derivative(n + 1, *primals) * tangents[0]

    f = functools.partial(derivative, 0)
    np.testing.assert_allclose(ft.jit(f)(0.3), np.sin(0.3), rtol=1e-5)
    third = ft.jit(ft.grad(ft.jit(ft.grad(ft.grad(f)))))
    np.testing.assert_allclose(third(0.3), -np.cos(0.3), rtol=1e-5)


@pytest.mark.parametrize("custom_vjp", [ft.custom_vjp, jax.custom_vjp])
@pytest.mark.parametrize("jit", [ft.jit, lambda f: f])
def test_a_cotangent_that_the_examples_of_a_vmap_share_counts_once(custom_vjp, jit):
    f = custom_vjp(lambda x, y: (x * 2, x * y))  # JAX raises an error since 0.12, and counted it thrice
    told = {"generic_batching": True} if custom_vjp is ft.custom_vjp or NEWEST else {}
    f.defvjp(
        lambda x, y: ((x * 2, x * y), (x, y)),
        lambda res, ct: (2 * ct[0] + ct[1] * res[1], ct[1] * res[0]),
        **told,
    )
    ys = np.float32([1, 2, 3])
    for batched in (ft.vmap(f, (None, 0)), jax.vmap(f, (None, 0))):
        by_x, by_y = jit(ft.grad(lambda x, ys, b=batched: sum(o.sum() for o in b(x, ys)), (0, 1)))(5.0, ys)
        np.testing.assert_array_equal(by_x, 12)
        np.testing.assert_array_equal(by_y, [5, 5, 5])


def test_linear_transpose_of_a_custom_function():
    def make(m, np_):
        f = m.custom_jvp(lambda x: 2 * x)
        f.defjvp(lambda p, t: (f(*p), 5 * t[0]))
        return f

    both(make, X, transform=lambda m, f: m.linear_transpose(f, X))
