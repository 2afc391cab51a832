"""`jax_debug_key_reuse`: keys that are used twice are found where JAX finds them."""

from __future__ import annotations

import jax
import jax.numpy as J
import pytest

import functrans as ft

ERROR = jax.errors.KeyReuseError
# name -> function of (library, random) -> function of a key; is a key used twice?
INSIDE = {
    "once": (lambda m, r: lambda k: r.normal(k, (2,)), False),
    "twice": (lambda m, r: lambda k: r.normal(k) + r.uniform(k), True),
    "split": (lambda m, r: lambda k: sum(r.normal(s) for s in r.split(k)), False),
    "split and used": (lambda m, r: lambda k: r.normal(r.split(k)[0]) + r.normal(k), True),
    "split twice": (lambda m, r: lambda k: (r.split(k), r.split(k)), True),
    "one of two": (lambda m, r: lambda k: (lambda s: r.normal(s[0]) + r.normal(s[1]))(r.split(k)), False),
    "the same of two": (lambda m, r: lambda k: (lambda s: r.normal(s[0]) + r.normal(s[0]))(r.split(k)), True),
    "fold_in": (lambda m, r: lambda k: r.normal(r.fold_in(k, 1)) + r.normal(r.fold_in(k, 2)), False),
    "fold_in, used twice": (
        lambda m, r: lambda k: (lambda f: r.normal(f) + r.normal(f))(r.fold_in(k, 1)),
        True,
    ),
    "clone": (lambda m, r: lambda k: r.normal(k) + r.normal(r.clone(k)), False),
    "gamma": (lambda m, r: lambda k: r.gamma(k, 2.0) + r.gamma(k, 3.0), True),
    "permutation": (lambda m, r: lambda k: r.permutation(k, 4) + r.randint(k, (4,), 0, 9), True),
    "data": (lambda m, r: lambda k: r.key_data(k)[0] + r.bits(k), False),
    "made inside": (lambda m, r: lambda k: (lambda k: r.normal(k) + r.normal(k))(r.key(0)), True),
    "old keys": (lambda m, r: lambda k: (lambda k: r.normal(k) + r.normal(k))(r.PRNGKey(0)), False),
    "jit": (lambda m, r: lambda k: (lambda f: f(k) + f(k))(m.jit(r.normal)), True),
    "vmap": (lambda m, r: lambda k: m.vmap(r.normal)(r.split(k, 3)), False),
    "vmap twice": (
        lambda m, r: lambda k: (lambda s: m.vmap(r.normal)(s) + m.vmap(r.normal)(s))(r.split(k, 3)),
        True,
    ),
    "scan": (lambda m, r: lambda k: m.lax.scan(lambda c, _: (c, r.normal(k)), 0.0, None, length=3), True),
    "scan of the key": (
        lambda m, r: (
            lambda k: m.lax.scan(
                lambda k, _: (lambda s: (s[0], r.normal(s[1])))(r.split(k)), k, None, length=3
            )
        ),
        False,
    ),
    "scan over keys": (
        lambda m, r: lambda k: m.lax.scan(lambda c, k: (c + r.normal(k), 0), 0.0, r.split(k, 3)),
        False,
    ),
    "scan over keys, used again": (
        lambda m, r: (
            lambda k: (lambda s: m.lax.scan(lambda c, k: (c + r.normal(k), 0), 0.0, s)[0] + r.normal(s[0]))(
                r.split(k, 3)
            )
        ),
        True,
    ),
    "while": (
        lambda m, r: lambda k: m.lax.while_loop(lambda x: x < 3.0, lambda x: x + r.uniform(k), 0.0),
        True,
    ),
    "cond": (lambda m, r: lambda k: m.lax.cond(r.key_data(k)[0] > 3, r.normal, r.uniform, k), False),
    "cond, and used": (lambda m, r: lambda k: m.lax.cond(True, r.normal, r.uniform, k) + r.normal(k), True),
    "grad": (lambda m, r: lambda k: m.grad(lambda x: (x * r.normal(k)).sum())(2.0), False),
    "checkpoint": (lambda m, r: lambda k: m.grad(m.checkpoint(lambda x: J.sin(x * r.normal(k))))(2.0), False),
}
LIBRARIES = {"JAX": (jax, jax.random), "jax.random": (ft, jax.random), "ours": (ft, ft.random)}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", INSIDE)
def test_in_a_jitted_function(name: str, library: str):
    (make, twice), (m, r) = INSIDE[name], LIBRARIES[library]
    f = m.jit(make(m, r))
    with jax.debug_key_reuse(True):
        key = r.key(0)
        if twice:
            with pytest.raises(ERROR):
                f(key)
        else:
            f(key)
    if twice and m is ft:
        f(r.key(0))  # nothing is looked for


OUTSIDE = {
    "twice": (lambda m, r, f, k: (f(k), f(k)), True),
    "once, and used": (lambda m, r, f, k: (f(k), r.uniform(k)), True),
    "used, and once": (lambda m, r, f, k: (r.uniform(k), f(k)), True),
    "given back": (lambda m, r, f, k: f(m.jit(lambda k: k)(k)), False),
    "given back, used": (lambda m, r, f, k: (f(k), f(m.jit(lambda k: k)(k))), True),
    "split inside": (lambda m, r, f, k: [f(s) for s in m.jit(r.split)(k)], False),
    "data": (lambda m, r, f, k: (m.jit(r.key_data)(k), f(k)), False),
    "fold_in": (lambda m, r, f, k: (f(m.jit(r.fold_in)(k, 1)), f(m.jit(r.fold_in)(k, 2))), False),
    "un-jitted": (lambda m, r, f, k: (r.fold_in(k, 1), r.key_data(k), r.normal(k)), False),
    "un-jitted, twice": (lambda m, r, f, k: (r.normal(k), r.split(k)), True),
    "clone": (lambda m, r, f, k: (f(k), f(r.clone(k))), False),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", OUTSIDE)
def test_from_call_to_call(name: str, library: str):
    (run, twice), (m, r) = OUTSIDE[name], LIBRARIES[library]
    with jax.debug_key_reuse(True):
        key, f = r.key(0), m.jit(r.normal)
        if twice:
            with pytest.raises(ERROR):
                run(m, r, f, key)
        else:
            run(m, r, f, key)
