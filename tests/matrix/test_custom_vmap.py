"""custom_vmap, rules in control flow and as programs, and their misuse, against JAX's."""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from tests.matrix.custom_functions import OURS, THEIRS, X, Y, both, composed, functions
from tests.support.matrices import spread


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


@pytest.mark.parametrize("inside", [False, True])
def test_a_rule_where_only_tangents_or_primals_are_batched(inside):
    """It sees operands that are not batched, as in JAX; of JAX's functions too."""

    def make(m, np_):
        f = m.custom_batching.custom_vmap(lambda x, y: (np_.sin(x) * y, y))
        f.def_vmap(lambda n, b, x, y: ((np_.cos(x) * y, 2 * y), (b[0] or b[1], b[1])))
        return f

    theirs = make(jax, jax_numpy)
    f = theirs if inside else make(ft, jnp)
    for m, jit in ((ft, lambda g: g), (jax, ft.jit))[: 1 + inside]:
        found, want = [[w.jacfwd(g, (0, 1))(X, Y)] for w, g in ((m, f), (jax, theirs))]
        found += [jit(m.jacfwd(f, (0, 1)))(X, Y)]
        want += want
        for axes, args in (((None, 0), (X[0], Y)), ((0, None), (X, Y[0]))):
            for w, g, outs in ((m, f, found), (jax, theirs, want)):
                outs.append(w.vmap(lambda x, t, w=w, g=g: w.jvp(g, (x, x), (t, t)), axes)(*args))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, want)


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


BODIES = {
    "scan": lambda lax, f: lambda x, y: lax.scan(lambda c, _: (f(c, y), f(y, c)), x, None, length=3),
    "cond": lambda lax, f: lambda x, y: lax.cond(x.sum() > 0, lambda a: f(a, y), lambda a: a * 2, x),
    "map": lambda lax, f: lambda x, y: lax.map(lambda a: f(*a), (x, y)),
}
THE_SAME = {  # JAX's scan forgets the rules of functions that rules call
    "scan": lambda f: lambda x, y: (f(f(f(x, y), y), y), (f(y, x), f(y, f(x, y)), f(y, f(f(x, y), y)))),
    "cond": lambda f: f,
    "map": lambda f: f,
}


@pytest.mark.parametrize(("body", "names"), spread(BODIES, ("grad", "jit.grad", "vmap.grad", "grad.jvp"), 2))
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_bodies(kind, body, names):
    def total(f):
        return lambda x, y: sum(jax_numpy.sum(out) for out in jax.tree.leaves(f(x, y)))

    pairs = (np.stack([X, Y]), np.stack([Y, X])) if "vmap" in names else (X, Y)
    ours = total(BODIES[body](ft.lax, functions(ft, jnp)[kind]))
    theirs = total(THE_SAME[body](functions(jax, jax_numpy)["custom_jvp"]))
    found = composed(ours, names.split("."), OURS)(*pairs)
    wanted = jax.jit(composed(theirs, names.split("."), THEIRS))(*pairs)
    np.testing.assert_allclose(found, wanted, rtol=5e-5, atol=1e-5)


def test_a_custom_function_that_nobody_needs_is_dead_code():
    f = functions(ft, jnp)["custom_vjp"]
    program = ft.jit(lambda x, y: (f(x, y), x)[1]).program(X, Y)
    assert not program.equations


def test_traced_nondiff_arguments_of_custom_vjp():
    f = ft.custom_vjp(lambda n, x: n * x, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (f(n, x), None), lambda n, _, ct: (ct,))
    with pytest.raises(jax.errors.UnexpectedTracerError, match="nondiff_argnums"):
        ft.grad(lambda x: f(x, x))(1.0)


def test_rules_of_what_is_inside():
    f = ft.custom_vjp(jax.custom_batching.custom_vmap(lambda x: jnp.sin(x)))
    f.def_vmap(lambda n, b, x: (x + 1, b[0]))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (3 * ct,))
    assert ft.vmap(f)(X).tolist() == (X + 1).tolist()
    assert float(ft.grad(f)(1.0)) == 3.0
    assert not hasattr(f, "defjvp")


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
        with pytest.raises(ft.errors.NotLinear, match="condition of a while loop depends"):
            g(1.0)
