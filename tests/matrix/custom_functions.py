"""Functions with rules of their own, and the transformations they are tried under."""

import itertools

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp

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


def composed(f, names, by):
    for name in names:
        f = by[name](f)
    return f


def both(make, *args, transform=lambda m, f: m.grad(f)):
    """What `make(module, numpy)` gives, transformed, by us and by JAX."""
    ours = transform(ft, make(ft, jnp))(*args)
    theirs = transform(jax, make(jax, jax_numpy))(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), ours, theirs)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    return ours


WAYS = {
    "grad": lambda m, f: m.grad(f),
    "jit of grad": lambda m, f: m.jit(m.grad(f)),
    "grad of jit": lambda m, f: m.grad(m.jit(f)),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x,)),
    "grad of sum of vmap": lambda m, f: (
        lambda x: m.grad(lambda x: m.vmap(f)(x * np.ones(3, np.float32)).sum())(x)
    ),
}


def as_in_jax(*args, ways=WAYS):
    """A test of a maker: what it makes of us gives what it makes of JAX gives, in each of the ways."""

    def test(make):
        @pytest.mark.parametrize("how", ways)
        def run(how):
            both(make, *args, transform=WAYS[how])

        run.__doc__ = make.__doc__
        return run

    return test
