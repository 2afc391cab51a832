"""`jax.grad` and `jax.vmap` inside of functrans are ours: what they give, and what stays JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

import functrans as ft
from tests.support.closeness import assert_close
from tests.support.matrices import alternately

pytestmark = pytest.mark.smoke

X = jnp.arange(1.0, 7.0).reshape(2, 3) / 4


def loss(x):
    return jnp.sum(jnp.tanh(x) ** 2 * x)


@jax.custom_vjp
def fivefold(x):
    return jnp.sin(x)


fivefold.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (5.0 * ct,))

# name -> function of a matrix
ROWS = {
    "value_and_grad": jax.value_and_grad(loss),
    "has_aux": jax.value_and_grad(lambda x: (loss(x), {"aux": x + 1}), has_aux=True),
    "argnums": lambda x: jax.grad(lambda a, b, *, c: loss(a * b) + c.sum(), (0, 1))(x, x, c=x),
    "of a gradient": jax.grad(lambda x: jnp.sum(jax.grad(loss)(x) ** 2)),
    "three times": lambda x: jax.grad(jax.grad(jax.grad(lambda t: loss(t * x))))(1.0),
    "jacrev": jax.jacrev(lambda x: jnp.sin(x) @ x.T),
    "hessian": jax.hessian(loss),
    "under vmap": jax.vmap(jax.grad(lambda r: loss(r))),
    "a vmap inside": jax.grad(lambda x: jnp.sum(jax.vmap(loss)(x))),
    "a scan inside": jax.grad(lambda x: jax.lax.scan(lambda c, r: (c * loss(r), c), 1.0, x)[0]),
    "a custom rule": jax.grad(lambda x: jnp.sum(fivefold(x))),
    "checkpoint": jax.grad(jax.checkpoint(loss, policy=jax.checkpoint_policies.dots_saveable)),
    "integers": lambda x: jax.grad(lambda t: loss(t[0] * t[1]), allow_int=True)((x, 2))[0],
    "complex": jax.grad(lambda z: jnp.sum(jnp.sin(z) * z), holomorphic=True),
    "a closure": lambda x: jax.grad(lambda y: loss(y * x))(x + 1),
    "of numbers": lambda x: jax.grad(lambda y: y**3)(2.0) * x,
    # mapped functions
    "axes": lambda x: jax.vmap(lambda a, b: jnp.outer(a, b["k"]), (1, {"k": -2}), -1)(x.T, {"k": x}),
    "not mapped": lambda x: jax.vmap(lambda a, b: (a * b, b), (0, None), (1, None))(x, 3.0),
    "by keyword": lambda x: jax.vmap(lambda a, *, b: a @ b)(x, b=x),
    "a size": lambda x: jax.vmap(lambda: x[0], axis_size=4)(),
    "no examples": lambda x: jax.vmap(jnp.sin)(x[:0]),
    "constants": lambda x: jax.vmap(lambda a: (2.0, np.arange(2), a))(x),
    "a named axis": lambda x: jax.vmap(
        lambda a: a / jax.lax.psum(a, "i") + jax.lax.axis_index("i"), axis_name="i"
    )(x),
    "two named axes": lambda x: jax.vmap(
        jax.vmap(lambda a: jax.lax.psum(a, ("i", "j")) * a, axis_name="j"), axis_name="i"
    )(x),
    "three deep": lambda x: jax.vmap(jax.vmap(jax.vmap(jnp.sin)), in_axes=1)(x[..., None] * x[0]),
    "a gradient of a vmap of a gradient": jax.grad(
        lambda x: jnp.sum(jax.vmap(jax.value_and_grad(loss))(x)[1] ** 2)
    ),
    "keys": lambda x: (
        jax.vmap(lambda k: jax.random.normal(k, (2,)))(jax.random.split(jax.random.key(0), 3)) + x.sum()
    ),
    "numpy's": lambda x: jax.vmap(jnp.dot)(np.ones((2, 3), np.float32), x),
    "jacfwd": jax.jacfwd(lambda x: jnp.sin(x) @ x.T),
    "sparse arrays": lambda x: jax.vmap(lambda m: m @ jnp.ones(3))(
        sparse.BCOO.fromdense(x[None] * x[:, None], nse=6, n_batch=1)
    ),
    # einsum
    "einsum": lambda x: jnp.einsum("ij,kj->ik", x, x),
    "einsum without a result": lambda x: jnp.einsum("ij,jk", x, x.T),
    "einsum of lists": lambda x: jnp.einsum(x, [0, 1], x, [2, 1], [2, 0]),
    "einsum of three": lambda x: jnp.einsum("...i,ij,kj->...k", x[None], x.T, x.T, optimize="greedy"),
    "einsum in its order": lambda x: jnp.einsum("ij,jk,kl->il", x, x.T, x, optimize=False),
    "einsum in the best order": lambda x: jnp.einsum("ij,jk,kl->il", x, x.T, x, optimize=True),
    "einsum in this order": lambda x: jnp.einsum("ij,jk,kl->il", x, x.T, x, optimize=[(1, 2), (0, 1)]),
    "einsum of a diagonal": lambda x: jnp.einsum("ii->i", x @ x.T),
    "einsum of integers": lambda x: jnp.einsum("ij,j", x, np.arange(3)),
    "einsum in another type": lambda x: jnp.einsum(
        "ij,kj->ik",
        x.astype("bfloat16"),
        x.astype("bfloat16"),
        preferred_element_type="float32",
        precision="highest",
    ),
    "einsum by a product of the caller's": lambda x: jnp.einsum(
        "ij,kj->ik", x, x, _dot_general=lambda *a, **k: 2 * jax.lax.dot_general(*a, **k)
    ),
    "einsum mapped": jax.vmap(lambda r: jnp.einsum("i,j", r, r)),
    "a control flow": lambda x: jax.vmap(
        lambda r: jax.lax.cond(r[0] > 1, jnp.sin, lambda a: jax.lax.fori_loop(0, 3, jnp.add, a), r)
    )(x),
}


@pytest.mark.long
@pytest.mark.parametrize("name", alternately(ROWS))
def test_values(name):
    x = X + 1j if name == "complex" else X
    f = ROWS[name]

    def total(x):
        return sum([jnp.sum(leaf) for leaf in jax.tree.leaves(f(x))])

    slope = jax.grad(total, holomorphic=name == "complex")

    def both(x):
        return f(x), slope(x)

    value, gradient = jax.jit(both)(x)
    assert_close(ft.jit(both)(x), (value, gradient))
    if name != "complex":
        assert_close(ft.grad(total)(x), gradient)  # un-jitted


def test_the_program_is_that_of_our_gradient():
    for ours, theirs in (
        (ft.grad(loss), jax.grad(loss)),
        (ft.vmap(ft.grad(loss)), jax.vmap(jax.grad(loss))),
        (ft.grad(lambda x: ft.vmap(loss)(x).sum()), jax.grad(lambda x: jax.vmap(loss)(x).sum())),
    ):
        assert str(ft.make_ir(ours)(X)) == str(ft.make_ir(theirs)(X))


def test_a_pullback_by_name_is_jaxs():
    def residuals(x):
        _, pullback = jax.vjp(loss, x)
        assert type(pullback).__module__.startswith("jax.")
        return pullback(2.0)[0]

    assert_close(ft.jit(residuals)(X), residuals(X))


def test_integers_get_gradients_without_values():
    made = ft.jit(lambda x: (jax.grad(lambda n: loss(n * X), allow_int=True)(x), X)[1])(3)
    assert_close(made, X)

    def kind(n):
        g = jax.grad(lambda n: loss(n * X), allow_int=True)(n)
        assert g.dtype == jax.dtypes.float0
        return n

    ft.jit(kind)(3)


@pytest.mark.parametrize(
    ("f", "error", "words"),
    [
        (lambda x: jax.grad(jnp.sin)(x), TypeError, "scalar-output"),
        (lambda x: jax.grad(loss)(x.astype(int)), TypeError, "int32"),
        (lambda x: jax.grad(loss, argnums=1)(x), TypeError, "argnums=1"),
        (lambda x: jax.grad(lambda x: loss(x) * 1j)(x), TypeError, "complex"),
        (lambda x: jax.value_and_grad(loss, has_aux=True)(x), TypeError, "aux"),
        (lambda x: jax.vmap(lambda a: a, out_axes=None)(x), ValueError, "axis spec None"),
        (lambda x: jax.vmap(lambda a: a, out_axes=3)(x), ValueError, "out of bounds"),
        (lambda x: jax.vmap(lambda a: "text")(x), TypeError, "text"),
        (lambda x: jax.vmap(lambda a, b: a)(x, x.T), ValueError, "inconsistent sizes"),
        (lambda x: jax.vmap(lambda a: a, in_axes=2)(x), ValueError, "rank"),
        (lambda x: jnp.einsum("ij,jk", x, x), ValueError, "j"),
        (lambda x: jnp.einsum("ij,ij->k", x, x), ValueError, "k"),
        (lambda x: jnp.einsum("ij", x, out=x), NotImplementedError, "out"),
    ],
)
def test_misuse(f, error, words):
    with pytest.raises(error, match=words):
        f(X)
    for how in (ft.jit, ft.make_ir):
        with pytest.raises(error, match=words):
            how(f)(X)
    assert_close(ft.jit(jax.grad(loss))(X), jax.grad(loss)(X))


def test_outside_it_is_jaxs():
    before = jax.make_jaxpr(jax.grad(loss))(X)
    ft.jit(jax.grad(loss))(X)
    assert "functrans" not in str(before)
    assert str(jax.make_jaxpr(jax.grad(loss))(X)) == str(before)
    inside = jax.make_jaxpr(lambda x: ft.jit(lambda y: y * 2)(jax.grad(loss)(x)))(X)
    assert str(inside).count("functrans") == 1


def test_sparse_arrays_are_mapped_by_jax():
    x = jnp.arange(6.0).reshape(2, 3)

    def made(row):
        return sparse.BCOO.fromdense(row, nse=3)

    def read(m):
        return m.todense() * m.shape[0]

    want = jax.vmap(made)(x)
    for vmap in (jax.vmap, ft.vmap):
        for call in (lambda f: f, ft.jit):
            m = call(vmap(made))(x)
            assert (m.shape, m.n_batch) == (want.shape, want.n_batch) == ((2, 3), 1)
            np.testing.assert_array_equal(call(vmap(read))(m), 3 * x)


@pytest.mark.parametrize("value", [3, np.int32(3), np.float64(3), np.arange(3)], ids=repr)
def test_what_is_not_mapped_stays_a_number_or_an_array_of_numpy(value):
    kinds = []

    def scaled(x, n):
        kinds.append(type(n))
        (places,) = np.nonzero(np.arange(4) == np.max(n))  # as MuJoCo's `ray` chooses its geometries
        return x * (places[0] if np.max(n) > 1 else 0)

    want = jax.vmap(scaled, in_axes=(0, None))(X, value)
    for vmap in (jax.vmap, ft.vmap):
        for call in (lambda f: f, ft.jit):
            mapped = call(lambda x, vmap=vmap: vmap(scaled, in_axes=(0, None))(x, value))
            np.testing.assert_array_equal(mapped(X), want)
    assert set(kinds) == {type(value)}
