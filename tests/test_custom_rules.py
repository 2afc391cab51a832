"""Custom derivative and batching rules against JAX's, on the same functions."""

from __future__ import annotations

import functools
import itertools
import re

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans.backends.xla import run_program
from functrans.primitives.constants import closed
from functrans.transforms.jvp import jvp_program

X = np.array([0.5, 1.0, 1.5], np.float32)
Y = np.array([2.0, 3.0, 4.0], np.float32)


def functions(m, np_):
    """Functions of two arrays with rules that differ from the true derivative, so that it shows
    whether the rule was used."""

    @m.custom_jvp
    def by_jvp(x, y):
        return np_.sin(x) * y

    @by_jvp.defjvp
    def _(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return by_jvp(x, y), 2.0 * np_.cos(x) * dx * y + np_.sin(x) * dy

    @m.custom_vjp
    def by_vjp(x, y):
        return np_.sin(x) * y

    def fwd(x, y):
        return by_vjp(x, y), (np_.cos(x), x, y)

    def bwd(res, ct):
        cos_x, x, y = res
        return 2.0 * cos_x * ct * y, np_.sin(x) * ct

    by_vjp.defvjp(fwd, bwd)
    return {"custom_jvp": by_jvp, "custom_vjp": by_vjp}


def transformations(m, np_):
    def total(f):
        return lambda *xs: np_.sum(f(*xs))

    return {
        "grad": lambda f: m.grad(total(f)),
        "jvp": lambda f: lambda *xs: m.jvp(f, xs, xs)[1],
        "vmap": lambda f: m.vmap(f),
        "jit": m.jit,
        "linearize": lambda f: lambda *xs: m.linearize(f, *xs)[1](*xs),
        "vjp": lambda f: lambda *xs: m.vjp(total(f), *xs)[1](np_.ones(()))[1],
        "jacfwd": lambda f: m.jacfwd(total(f)),
        "jacrev": lambda f: m.jacrev(total(f), 1),
        "hessian": lambda f: lambda *xs: np_.atleast_1d(m.hessian(total(f))(*xs)).sum(-1),
    }


OURS, THEIRS = transformations(ft, jnp), transformations(jax, jax_numpy)
PAIRS = [(a,) for a in OURS] + list(itertools.product(OURS, repeat=2))
TRIPLES = [
    t
    for t in itertools.product(("grad", "jvp", "vmap", "jit", "linearize"), repeat=3)
    if len(set(t)) == 3
]


def composed(f, names, by):
    for name in names:
        f = by[name](f)
    return f


@functools.cache
def wanted(names):
    f = functions(jax, jax_numpy)["custom_jvp"]
    return np.asarray(jax.jit(composed(f, names, THEIRS))(X, Y))


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("names", [p for p in PAIRS if p != ("vmap", "vmap")], ids=".".join)
def test_pairs(kind, names):
    """Also forward mode through custom_vjp, where the rule of custom_jvp says the same."""
    found = composed(functions(ft, jnp)[kind], names, OURS)(X, Y)
    np.testing.assert_allclose(found, wanted(names), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize(
    "names",
    [pytest.param(t, marks=[pytest.mark.heavy] * (i % 3 > 0)) for i, t in enumerate(TRIPLES)],
    ids=".".join,
)
def test_triples(kind, names):
    f = composed(functions(ft, jnp)[kind], names, OURS)
    np.testing.assert_allclose(f(X, Y), wanted(names), rtol=2e-5, atol=1e-6)


def both(make, *args, transform=lambda m, f: m.grad(f)):
    """What `make(module, numpy)` gives, transformed, by us and by JAX."""
    ours = transform(ft, make(ft, jnp))(*args)
    theirs = transform(jax, make(jax, jax_numpy))(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), ours, theirs)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    return ours


# --- custom_jvp -----------------------------------------------------------------------------------


WAYS = {
    "grad": lambda m, f: m.grad(f),
    "jit of grad": lambda m, f: m.jit(m.grad(f)),
    "grad of jit": lambda m, f: m.grad(m.jit(f)),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x,)),
    "grad of sum of vmap": lambda m, f: (
        lambda x: m.grad(lambda x: m.vmap(f)(x * np.ones(3, np.float32)).sum())(x)
    ),
}


@pytest.mark.parametrize("how", WAYS)
def test_defjvps(how):
    def make(m, np_):
        @m.custom_jvp
        def f(x, y):
            return np_.sin(x) * y

        f.defjvps(lambda dx, out, x, y: 3.0 * dx * out, None)
        return lambda x: f(x, x)

    both(make, 0.7, transform=WAYS[how])


@pytest.mark.parametrize("how", WAYS)
def test_nondiff_argnums_of_custom_jvp(how):
    def make(m, np_):
        @functools.partial(m.custom_jvp, nondiff_argnums=(0, 2))
        def app(f, x, n):
            return f(x) * n

        @app.defjvp
        def _(f, n, primals, tangents):
            return app(f, primals[0], n), 2.0 * n * f(tangents[0])

        return lambda x: app(lambda y: 3.0 * y, x, 5)

    both(make, 0.7, transform=WAYS[how])


@pytest.mark.parametrize("how", ["grad", "jit of grad", "jvp"])
def test_traced_nondiff_arguments_of_custom_jvp(how):
    def make(m, np_):
        @functools.partial(m.custom_jvp, nondiff_argnums=(1,))
        def f(x, scale):
            return x * scale

        @f.defjvp
        def _(scale, primals, tangents):
            return f(*primals, scale), 10.0 * tangents[0] * scale

        return lambda x: f(x, x * 2.0)

    both(make, 0.7, transform=WAYS[how])


def test_traced_nondiff_arguments_in_a_program():
    """JAX leaks a tracer here: the rule runs when the program is complete."""

    @functools.partial(ft.custom_jvp, nondiff_argnums=(1,))
    def f(x, scale):
        return x * scale

    f.defjvp(lambda scale, p, t: (f(*p, scale), 10.0 * t[0] * scale))
    assert ft.grad(ft.jit(lambda x: f(x, x * 2.0)))(0.5) == 10.0
    found = ft.grad(lambda x: ft.vmap(lambda s: f(x, s))(jnp.arange(3.0)).sum())(0.5)
    assert found == 30.0


def test_nondiff_argnames():
    def make(m, np_):
        @functools.partial(m.custom_jvp, nondiff_argnames=("n",))
        def f(x, n):
            return x**n

        f.defjvp(lambda n, p, t: (f(*p, n), 7.0 * n * t[0]))

        @functools.partial(m.custom_vjp, nondiff_argnames=("n",))
        def g(x, n):
            return x**n

        g.defvjp(lambda x, n: (g(x, n), x), lambda n, x, ct: (5.0 * n * ct,))
        return lambda x: f(x, n=2) + g(x, 3)

    both(make, 1.5)


@pytest.mark.parametrize("how", WAYS)
def test_pytrees_through_custom_jvp(how):
    def make(m, np_):
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

    both(make, 0.7, transform=WAYS[how])


@pytest.mark.parametrize("how", WAYS)
def test_symbolic_zeros_of_custom_jvp(how):
    def make(m, np_):
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

    both(make, 0.7, transform=WAYS[how])


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


def test_a_rule_that_calls_jitted_and_differentiated_functions():
    def make(m, np_):
        inner = m.jit(lambda x: np_.sin(x) * x)

        @m.custom_jvp
        def f(x):
            return inner(x)

        @f.defjvp
        @m.jit
        def _(primals, tangents):
            y, dy = m.jvp(inner, primals, tangents)
            return y, 2.0 * y * dy + m.grad(inner)(primals[0]) * tangents[0]

        return f

    for how in WAYS.values():
        both(make, 0.7, transform=how)


def test_a_rule_of_many_operations():
    def make(m, np_):
        @m.custom_jvp
        def f(x):
            return np_.linalg.norm(x)

        @f.defjvp
        def _(primals, tangents):
            (x,), (dx,) = primals, tangents
            products = m.vmap(lambda a, b: a * b * 2)(x, dx)
            signed = m.jit(lambda u: np_.where(x > 0, u, -u))(dx)
            more = np_.concatenate([signed, dx[::-1]]).sum() + np_.einsum("i,i->", x, dx)
            return f(x), products.sum() / f(x) + more + np_.var(x) * np_.mean(dx)

        return f

    for transform in (
        lambda m, f: m.grad(f),
        lambda m, f: m.jit(m.grad(m.jit(f))),
        lambda m, f: m.hessian(f),
    ):
        both(make, X, transform=transform)
    both(make, np.stack([X, Y]), transform=lambda m, f: m.vmap(m.grad(f)))


def test_linear_transpose_of_a_custom_function():
    def make(m, np_):
        f = m.custom_jvp(lambda x: 2 * x)
        f.defjvp(lambda p, t: (f(*p), 5 * t[0]))
        return f

    both(make, X, transform=lambda m, f: lambda ct: m.linear_transpose(f, X)(ct))


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


# --- custom_vjp -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [w for w in WAYS if w != "jvp"])
def test_pytrees_and_none_through_custom_vjp(how):
    def make(m, np_):
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

    both(make, 0.7, transform=WAYS[how])


@pytest.mark.parametrize("how", [w for w in WAYS if w != "jvp"])
def test_nondiff_argnums_of_custom_vjp(how):
    def make(m, np_):
        @functools.partial(m.custom_vjp, nondiff_argnums=(0, 2))
        def app(f, x, n):
            return f(x) * n

        app.defvjp(lambda f, x, n: (app(f, x, n), x), lambda f, n, x, ct: (2.0 * n * f(x) * ct,))
        return lambda x: app(lambda y: 3.0 * y, x, n=5)

    both(make, 0.7, transform=WAYS[how])


@pytest.mark.parametrize("how", ["grad", "jit of grad"])
def test_symbolic_zeros_of_custom_vjp(how):
    def make(m, np_):
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

    both(make, 0.7, transform=WAYS[how])


def test_a_bwd_rule_that_is_not_linear_works_in_reverse_everywhere():
    def make(m, np_):
        @m.custom_vjp
        def clip(x):
            return x

        clip.defvjp(lambda x: (x, None), lambda _, ct: (np_.clip(ct, -1.0, 1.0),))
        return lambda x: np_.sum(clip(x) ** 2)

    for transform in (
        lambda m, f: m.grad(f),
        lambda m, f: m.jit(m.grad(f)),
        lambda m, f: m.grad(m.jit(f)),
        lambda m, f: m.vmap(m.grad(f)),
        lambda m, f: m.grad(lambda x: m.vmap(f)(x).sum()),
        lambda m, f: m.grad(lambda x: m.jit(m.vmap(m.jit(f)))(x).sum()),
        lambda m, f: m.jit(m.vmap(m.grad(m.jit(f)))),
    ):
        both(make, X, transform=transform)


def test_vmap_sums_the_cotangents_of_what_is_not_batched():
    def make(m, np_):
        f = functions(m, np_)["custom_vjp"]

        def loss(xy):
            x, y = xy
            rows = m.vmap(f, (None, 0))(x, y[:, None] * np_.ones((3, 3)))
            columns = m.vmap(f, (1, None), 1)(np_.outer(x, x), y)
            return np_.sum(rows**2) + np_.sum(columns**3)

        return loss

    both(make, (X, Y))
    both(make, (X, Y), transform=lambda m, f: m.jit(m.grad(m.jit(f))))
    both(make, (X, Y), transform=lambda m, f: lambda a: m.jacrev(m.grad(f))(a))


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


def test_the_linear_function_of_a_custom_vjp_is_a_program():
    f = functions(ft, jnp)["custom_vjp"]
    _, f_jvp = ft.linearize(f, X, Y)
    assert "custom_lin" in str(f_jvp.program)
    np.testing.assert_allclose(f_jvp(X, Y), ft.jvp(f, (X, Y), (X, Y))[1], rtol=1e-6)
    batched = ft.vmap(f_jvp)(np.stack([X, Y]), np.stack([Y, X]))
    np.testing.assert_allclose(batched[0], f_jvp(X, Y), rtol=1e-6)
    np.testing.assert_allclose(batched[1], f_jvp(Y, X), rtol=1e-6)
    transposed = ft.linear_transpose(f_jvp, X, Y)(Y)
    pulled = ft.vjp(f, X, Y)[1](Y)
    np.testing.assert_allclose(transposed, pulled, rtol=1e-6)
    both_ways = ft.jit(lambda ct: ft.linear_transpose(ft.vmap(f_jvp), batched, batched)(ct))
    np.testing.assert_allclose(both_ways(np.stack([X, Y]))[0][1], pulled[0], rtol=1e-6)


def test_forward_mode_in_double_precision_by_finite_differences():
    with jax.enable_x64(True):

        @ft.custom_vjp
        def f(x, y):
            return jnp.tanh(x @ y), {"s": jnp.sum(x)}

        def bwd(res, ct):
            x, y, out = res
            d = ct[0] * (1 - out**2)
            return d @ y.T + ct[1]["s"], x.T @ d

        f.defvjp(lambda x, y: (f(x, y), (x, y, f(x, y)[0])), bwd)
        h, rng = 1e-6, np.random.default_rng(0)
        for one, shape in ((f, (3, 3)), (ft.jit(f), (3, 3)), (ft.vmap(f), (2, 3, 3))):
            x, y, dx, dy = (rng.normal(size=shape) for _ in range(4))
            moved = ft.jvp(one, (x, y), (dx, dy))[1]
            plus, minus = one(x + h * dx, y + h * dy), one(x - h * dx, y - h * dy)
            jax.tree.map(
                lambda p, m, d: np.testing.assert_allclose((p - m) / (2 * h), d, atol=1e-7),
                plus, minus, moved,
            )  # fmt: skip


@pytest.mark.parametrize("order", list(itertools.product(("jacfwd", "jacrev"), repeat=2)))
def test_second_derivatives_of_a_custom_vjp(order):
    f, want = (functions(ft, jnp)[k] for k in ("custom_vjp", "custom_jvp"))
    outer, inner = (getattr(ft, name) for name in order)
    for one in (lambda g: g, ft.jit):
        found = one(outer(one(inner(one(f)))))(X, Y)
        np.testing.assert_allclose(found, outer(inner(want))(X, Y), rtol=1e-5, atol=1e-6)


def test_complex_numbers():
    def make(m, np_):
        f = m.custom_vjp(lambda z: z * z)
        f.defvjp(lambda z: (z * z, z), lambda z, ct: (2 * z * ct,))
        return f

    z = np.complex64(1 + 2j)
    both(make, z, transform=lambda m, f: m.grad(f, holomorphic=True))
    found = ft.jvp(make(ft, jnp), (z,), (1j * z,))[1]
    np.testing.assert_allclose(found, 2j * z * z, rtol=1e-6)


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


def test_collectives_in_a_bwd_rule():
    """Also where the rule runs after the vmap has ended, which JAX refuses."""

    def make(m, np_):
        f = m.custom_vjp(lambda x: x)
        f.defvjp(
            lambda x: (x, m.lax.axis_index("i") + 1.0),
            lambda r, ct: (m.lax.pmean(ct, "i") * r,),
        )
        return f

    both(make, X, transform=lambda m, f: m.vmap(m.grad(lambda x: f(x) ** 2), axis_name="i"))
    f = make(ft, jnp)
    for one in (f, ft.jit(f)):
        loss = lambda x: (ft.vmap(one, axis_name="i")(x) ** 2).sum()  # noqa: B023, E731
        wanted_here = np.mean(2 * X) * np.arange(1.0, 4.0)
        np.testing.assert_allclose(ft.grad(loss)(X), wanted_here, rtol=1e-6)


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


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_values_of_enclosing_transformations_may_be_closed_over(kind):
    """As long as they are not differentiated."""

    def make(m, np_):
        def outer(x, y):
            if kind == "custom_jvp":
                f = m.custom_jvp(lambda x: x * y)
                f.defjvp(lambda p, t: (f(*p), 3.0 * t[0] * y))
            else:
                f = m.custom_vjp(lambda x: x * y)
                f.defvjp(lambda x: (f(x), None), lambda _, ct: (3.0 * ct * y,))
            return f(x)

        return outer

    two = np.float32(2.0)
    for args, transform in (
        ((two, two), lambda m, f: m.jit(m.grad(f))),
        ((two, X), lambda m, f: m.vmap(f, (None, 0))),
        ((two, X), lambda m, f: m.vmap(m.grad(f), (None, 0))),
        ((X, two), lambda m, f: m.jit(m.vmap(m.grad(f), (0, None)))),
        (
            (X, two),
            lambda m, f: m.jit(
                lambda x, y: m.grad(lambda x: m.vmap(lambda z: f(z, y))(x).sum())(x)
            ),
        ),
    ):
        both(make, *args, transform=transform)


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


def test_a_rule_in_a_nested_program_that_closes_over_a_tracer():
    def outer(y):
        f = ft.custom_vjp(lambda x: x)
        f.defvjp(lambda x: (x, None), lambda _, ct: (ct * y,))
        return ft.grad(ft.jit(f))(2.0)

    with pytest.raises(ft.errors.ClosedOverTracer, match="without being given it"):
        ft.jit(outer)(3.0)


def test_closure_convert():
    def make(m, np_):
        def minimise(g, x):
            converted, values = m.closure_convert(g, x)
            return solve(converted, x, *values)

        @functools.partial(m.custom_vjp, nondiff_argnums=(0,))
        def solve(g, x, *values):
            return g(x, *values)

        def bwd(g, res, ct):
            _, values = res
            return (2.0 * ct, *[3.0 * ct * v for v in values])

        solve.defvjp(lambda g, x, *v: (solve(g, x, *v), (x, v)), bwd)
        return lambda y: minimise(lambda x: np_.sin(x) * y + 1.0, y * 2.0)

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


# --- custom_vmap ----------------------------------------------------------------------------------


def batched_twice(m, np_):
    @m.custom_batching.custom_vmap
    def f(x, y):
        return np_.sin(x) * y, x

    @f.def_vmap
    def _(axis_size, in_batched, x, y):
        xs, ys = in_batched
        out = 2.0 * np_.sin(x) * y
        return (out, x), (xs or ys, xs)

    return f


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_custom_vmap(axes):
    for transform in (
        lambda m, f: m.vmap(f, axes),
        lambda m, f: m.jit(m.vmap(f, axes)),
        lambda m, f: m.vmap(m.jit(f), axes),
        lambda m, f: lambda *a: m.jvp(m.vmap(f, axes), a, a),
        lambda m, f: m.vmap(lambda *a: m.jvp(f, a, a), axes),
        lambda m, f: lambda *a: m.grad(lambda *b: m.vmap(f, axes)(*b)[0].sum())(*a),
        lambda m, f: f,
    ):
        args = [x if d == 0 else x[0] for x, d in zip((X, Y), axes, strict=True)]
        both(batched_twice, *args, transform=transform)


def test_a_primal_that_is_batched_with_a_tangent_that_is_not():
    """JAX gives an array of shape (3, 3) here."""
    f = batched_twice(ft, jnp)
    found = ft.vmap(lambda x, y: ft.jvp(lambda x: f(x, y)[0], (x,), (1.0,))[1])(X, Y)
    np.testing.assert_allclose(found, 2 * np.cos(X) * Y, rtol=1e-5)


def test_reverse_mode_of_custom_vmap_is_that_of_the_function():
    f = batched_twice(ft, jnp)
    found = ft.vmap(ft.grad(lambda x, y: f(x, y)[0]))(X, Y)
    np.testing.assert_allclose(found, np.cos(X) * Y, rtol=1e-5)


def test_sequential_vmap():
    def make(m, np_):
        return m.custom_batching.sequential_vmap(lambda x, y: (np_.sin(x) * y, x))

    for axes in ((0, 0), (0, None), (None, 0)):
        both(make, X, Y, transform=lambda m, f, axes=axes: m.vmap(f, axes))


def test_custom_vjp_of_a_custom_vmap():
    def make(m, np_):
        @m.custom_vjp
        @m.custom_batching.custom_vmap
        def f(x, y):
            return np_.sin(x) * y

        @f.def_vmap
        def _(axis_size, in_batched, xs, ys):
            return np_.cos(xs) * ys, True

        f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (5.0 * ct * r[1], ct))
        return f

    both(make, X, Y, transform=lambda m, f: m.vmap(f))
    both(make, X, Y, transform=lambda m, f: m.vmap(m.grad(f)))
    both(make, X, Y, transform=lambda m, f: lambda *a: m.grad(lambda *b: m.vmap(f)(*b).sum())(*a))


# --- control flow ---------------------------------------------------------------------------------


def in_control_flow(f, lax, np_):
    """Functions of two arrays that call `f` inside a body."""

    def scan(x, y):
        def body(c, row):
            out = f(c, y)
            return np_.tanh(out), f(out, c) * row

        c, outs = lax.scan(body, x, np_.arange(3.0))
        return c + outs.sum(0)

    def cond(x, y):
        return lax.cond(np_.sum(x) > 0, lambda a: f(a, y), lambda a: a * 2, x)

    def fori(x, y):
        return lax.fori_loop(0, 3, lambda i, c: np_.tanh(f(c, y)), x)

    def mapped(x, y):
        return lax.map(lambda a: f(*a), (x, y))

    return {"scan": scan, "cond": cond, "fori": fori, "map": mapped}


def in_python(f, np_):
    """The same without control flow. JAX's scan forgets the rules of functions that rules call, so
    its second derivatives differ from those of a Python loop."""

    def scan(x, y):
        total = 0.0
        for row in range(3):
            out = f(x, y)
            x, total = np_.tanh(out), total + f(out, x) * row
        return x + total

    def fori(x, y):
        for _ in range(3):
            x = np_.tanh(f(x, y))
        return x

    return {"scan": scan, "cond": f, "fori": fori, "map": f}


@pytest.mark.parametrize(
    "names",
    [("grad",), ("jvp",), ("jit", "grad"), ("grad", "jit"), ("vmap", "grad"), ("jvp", "grad"),
     ("grad", "grad"), ("grad", "jvp"), ("jit", "linearize")],
    ids=".".join,
)  # fmt: skip
@pytest.mark.parametrize("body", ["scan", "cond", "fori", "map"])
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_bodies(kind, body, names):
    if body in ("scan", "cond", "fori") and "vmap" in names:
        pairs = (np.stack([X, Y]), np.stack([Y, X]))
    else:
        pairs = (X, Y)
    if body == "map" and "vmap" in names:
        pairs = (X[:, None], Y[:, None])
    ours = in_control_flow(functions(ft, jnp)[kind], ft.lax, jnp)[body]
    theirs = in_python(functions(jax, jax_numpy)["custom_jvp"], jax_numpy)[body]
    np.testing.assert_allclose(
        composed(ours, names, OURS)(*pairs),
        jax.jit(composed(theirs, names, THEIRS))(*pairs),
        rtol=5e-5,
        atol=1e-5,
    )


def test_a_rule_that_differentiates_control_flow():
    def make(m, np_):
        def step(x):
            c = m.lax.scan(lambda c, _: (np_.tanh(c) * x, None), x, None, length=3)[0]
            return m.lax.cond(x > 0, lambda a: np_.sin(a), lambda a: a * 2, c)

        @m.custom_jvp
        def f(x):
            return step(x)

        @f.defjvp
        def _(primals, tangents):
            y, dy = m.jvp(step, primals, tangents)
            return y, 2.0 * dy + y * tangents[0]

        return f

    for how in ("grad", "jit of grad", "grad of jit", "jvp"):
        both(make, np.float32(0.7), transform=WAYS[how])


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_programs_are_well_formed(kind):
    f = functions(ft, jnp)[kind]
    for one in (f, ft.vmap(f), ft.vmap(ft.vmap(f)), ft.grad(lambda *a: ft.jit(f)(*a).sum())):
        args = [np.ones((2, 2, 3), np.float32)] * 2
        if one is ft.grad:
            args = [X, Y]
        program = ft.make_ir(one)(*args)
        assert ft.ir.check(program) is program
        np.testing.assert_allclose(
            ft.interpret(program, *args)[0], ft.jit(one)(*args), rtol=1e-5, atol=1e-6
        )


def test_a_custom_function_that_nobody_needs_is_dead_code():
    f = functions(ft, jnp)["custom_vjp"]
    program = ft.jit(lambda x, y: (f(x, y), x)[1]).program(X, Y)
    assert not program.equations


@pytest.mark.parametrize("array", [
    np.array([[1.0, -0.0], [2.5, np.float32(1) / 3]], np.float32),
    np.array([True, False]),
    np.array(2 + 3j, np.complex64),
    np.arange(100, dtype=np.int32),
    jnp.asarray(1.0),
], ids=str)  # fmt: skip
def test_arrays_written_in_programs(array):
    array = jnp.asarray(array)
    held = ft.make_ir(lambda: array + array)()
    program = closed(held)
    assert not program.constants
    ft.ir.check(program)
    assert program.out_types == held.out_types
    for run in (program, closed(jvp_program(program, ())[0])):
        np.testing.assert_array_equal(ft.interpret(run)[0], array + array)
        compiled = jax.jit(lambda run=run: run_program(run, []))
        np.testing.assert_array_equal(compiled()[0], array + array)
    if array.size < 64:
        assert ft.ir.equal(ft.ir.parse(str(program)), program)


def test_text_names_the_rule():
    f = functions(ft, jnp)["custom_jvp"]
    assert "custom_jvp_call[rule=<jvp rule of" in str(ft.make_ir(f)(X, Y))


# --- misuse ---------------------------------------------------------------------------------------


def jvp_rule(rule):
    f = ft.custom_jvp(lambda x: (x, x))
    f.defjvp(rule)
    return f


def vjp_rule(fwd, bwd):
    f = ft.custom_vjp(lambda x, y: x["a"] * y)
    f.defvjp(fwd, bwd)
    return lambda x: f({"a": x}, 2.0)


def good_fwd(x, y):
    return x["a"] * y, (x, y)


MISUSE = {
    "no pair": (lambda: jvp_rule(lambda p, t: p[0]), "must return a pair"),
    "trees of a jvp rule differ": (
        lambda: jvp_rule(lambda p, t: ((p[0], p[0]), t[0])), "structure of its primal output"),
    "tangent of another dtype": (
        lambda: jvp_rule(lambda p, t: ((p[0], p[0]), (t[0].astype("float16"), t[0]))),
        r"tangent output of type f32\[\], got f16\[\]"),
    "tangent of another shape": (
        lambda: jvp_rule(lambda p, t: ((p[0], p[0]), (t[0], jnp.stack([t[0]] * 2)))),
        r"tangent output of type f32\[\], got f32\[2\]"),
    "primal output depends on tangents": (
        lambda: jvp_rule(lambda p, t: (t * 2, t * 2)), "depends on the tangents"),
    "jvp rule not linear": (
        lambda: jvp_rule(lambda p, t: (p * 2, (t[0] * t[0], t[0]))), "not linear in the tangents"),
    "fwd returns no pair": (lambda: vjp_rule(lambda x, y: x["a"], good_fwd), "must return a pair"),
    "residuals are no arrays": (
        lambda: vjp_rule(lambda x, y: (y, {"r": "word"}), lambda r, ct: ()),
        r"returned 'word' of type str at residuals\['r'\]"),
    "bwd returns no tuple": (
        lambda: vjp_rule(good_fwd, lambda r, ct: ct), "must return a tuple with a cotangent"),
    "bwd returns too few": (
        lambda: vjp_rule(good_fwd, lambda r, ct: (ct,)), "must return a tuple with a cotangent"),
    "bwd returns another tree": (
        lambda: vjp_rule(good_fwd, lambda r, ct: ({"b": ct}, ct)), "must return a tuple with"),
    "cotangent of another shape": (
        lambda: vjp_rule(good_fwd, lambda r, ct: ({"a": jnp.stack([ct, ct])}, ct)),
        r"returned for args\[0\]\['a'\] of type f32\[\] a cotangent of type f32\[2\]"),
}  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda f: f, ft.jit], ids=["dynamic", "jit"])
@pytest.mark.parametrize("name", MISUSE)
def test_misuse(name, wrap):
    make, message = MISUSE[name]
    f = make()

    def loss(x):
        out = f(x)
        return out[0] + out[1] if isinstance(out, tuple) else out

    with pytest.raises(TypeError if "linear" not in name else NotImplementedError) as caught:
        ft.grad(wrap(loss))(jnp.float32(1.0))
    assert isinstance(caught.value, ft.errors.FunctransError)
    text = str(caught.value)
    assert re.search(message, text), text
    assert "test_custom_rules.py" in text


def test_a_rule_whose_output_differs_from_the_function():
    f = jvp_rule(lambda p, t: ((p[0], jnp.stack([p[0]] * 2)), (t[0], jnp.stack([t[0]] * 2))))
    with pytest.raises(ft.errors.RuleMismatch, match=r"gave results \(f32\[\], f32\[2\]\), but"):
        ft.grad(ft.jit(lambda x: f(x)[0]))(jnp.float32(1.0))
    f = jvp_rule(lambda p, t: ([p[0], p[0]], [t[0], t[0]]))
    with pytest.raises(ft.errors.RuleMismatch, match="returned an output of structure"):
        ft.grad(ft.jit(lambda x: f(x)[0]))(jnp.float32(1.0))


def test_no_rule_defined():
    for make in (ft.custom_jvp, ft.custom_vjp, ft.custom_batching.custom_vmap):
        with pytest.raises(AttributeError, match="before its rule was defined"):
            make(lambda x: x)(1.0)


def test_keyword_only_arguments():
    f = ft.custom_jvp(lambda x, *, n: x)
    f.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(TypeError, match="cannot be given by position"):
        ft.grad(f)(1.0, n=2)


def test_defjvps_with_nondiff_arguments():
    with pytest.raises(TypeError, match="Use defjvp"):
        ft.custom_jvp(lambda n, x: x, nondiff_argnums=(0,)).defjvps(None)


def test_traced_nondiff_arguments_of_custom_vjp():
    f = ft.custom_vjp(lambda n, x: n * x, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (f(n, x), None), lambda n, _, ct: (ct,))
    with pytest.raises(jax.errors.UnexpectedTracerError, match="nondiff_argnums"):
        ft.grad(lambda x: f(x, x))(1.0)


def test_forward_mode_with_a_bwd_rule_that_is_not_linear():
    f = ft.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))
    with pytest.raises(ft.errors.NotLinear, match="forward mode through the custom_vjp function"):
        ft.jvp(f, (1.0,), (1.0,))


def test_a_vmap_rule_that_does_not_fit():
    f = ft.custom_batching.custom_vmap(lambda x: x)
    for rule, message in (
        (lambda n, b, x: x, "must return a pair"),
        (lambda n, b, x: ((x, x), (True, True)), "of the structure of the function's output"),
        (lambda n, b, x: (x, (True,)), "out_batched of the structure"),
        (lambda n, b, x: (x[:1], True), r"must return f32\[3\]"),
    ):
        f.def_vmap(rule)
        with pytest.raises(ValueError, match=message):
            ft.vmap(f)(X)


def test_leaked_tangents_of_a_rule():
    kept = []
    f = ft.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (kept.append(t[0]) or p[0], t[0]))
    ft.grad(f)(1.0)
    with pytest.raises(ft.errors.LeakedTracer):
        kept[0] + 1.0


def test_a_rule_whose_loop_looks_at_the_tangents_has_no_reverse_mode():
    @ft.custom_jvp
    def doubled(x):
        return 2.0 * x

    @doubled.defjvp
    def _(primals, tangents):
        (t,) = tangents
        y = ft.lax.while_loop(lambda c: abs(c / 2 - t) > 1e-6, lambda c: c + (t - c / 2), 0.0 * t)
        return doubled(*primals), y

    assert ft.jvp(doubled, (1.0,), (1.0,))[1] == pytest.approx(2.0, abs=1e-5)
    for g in (ft.grad(doubled), ft.jit(ft.grad(doubled))):
        with pytest.raises(ft.errors.NotLinear, match="decide when to stop"):
            g(1.0)
