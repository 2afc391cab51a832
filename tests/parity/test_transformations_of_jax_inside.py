"""`jax.grad` and `jax.vmap` inside of functrans are ours: what they give, and what stays JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

import functrans as ft
from tests.support.closeness import assert_close
from tests.support.tables import TABLES, functions, rows

pytestmark = pytest.mark.smoke

X = jnp.arange(1.0, 7.0).reshape(2, 3) / 4


def loss(x):
    return jnp.sum(jnp.tanh(x) ** 2 * x)


ROWS = functions(TABLES / "jax_inside.txt", "transformations of JAX", "x", globals())


@pytest.mark.rest
@pytest.mark.long
def test_values():
    def every(how):
        """Values and gradients."""

        def run(x):
            made = {}
            for name, f in ROWS.items():
                z = x + 1j if name == "complex" else x
                total = lambda x, f=f: sum([jnp.sum(leaf) for leaf in jax.tree.leaves(f(x))])  # noqa: E731
                made[name] = f(z), jax.grad(total, holomorphic=name == "complex")(z)
            return made

        return how(run)(X)

    want = every(jax.jit)
    found = every(ft.jit)
    for name in ROWS:
        assert_close(found[name], want[name], what=name)
        if name in ("has_aux", "axes", "keys", "einsum of three"):
            total = lambda x, f=ROWS[name]: sum([jnp.sum(y) for y in jax.tree.leaves(f(x))])  # noqa: E731
            assert_close(ft.grad(total)(X), want[name][1], what=name)  # un-jitted


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


@pytest.mark.parametrize("row", rows(TABLES / "jax_inside.txt", "wrong transformations"))
def test_misuse(row):
    f, error, words = row.function("x", globals()), eval(row.fields[0]), row.fields[1]
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
