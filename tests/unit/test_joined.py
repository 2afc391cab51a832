"""Values that a concatenate made are taken apart again, and gradients flattened into a vector cost
what gradients in a tree do. The programs before and after: rewrites.txt."""

from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import functrans as ft
import functrans.numpy as jnp
from tests.unit.contraction_searches import mlp

pytestmark = pytest.mark.smoke

LIBRARIES = SimpleNamespace(ft=ft, np=jnp), SimpleNamespace(ft=jax, np=jax.numpy)


def arguments(dtype="float32"):
    loss, *args = mlp(np.random.default_rng(0))
    return loss, jax.tree.map(lambda x: x.astype(dtype), args)


def rows_of(lib, loss, params, x, y):
    """Gradients of examples as rows of one matrix."""

    def one(p, x, y):
        return ravel_pytree(lib.ft.grad(partial(loss, lib))(p, x, y))[0]

    return lib.ft.vmap(one, (None, 0, 0))(params, x, y)


def along(np_, rows, params):
    return rows @ ravel_pytree(params)[0], rows[:, 2:5].sum(), np_.max(rows, axis=1)


USES = {
    "product": lambda np_, rows, params: np_.sqrt(np_.sum(rows * rows, axis=1)) @ rows,
    "kernel": lambda np_, rows, params: rows @ rows.T,
    "along": along,
}


def used(lib, name, loss):
    return lambda params, x, y: USES[name](lib.np, rows_of(lib, loss, params, x, y), params)


@pytest.mark.parametrize(
    ("name", "dtype"), [("product", "float32"), ("kernel", "float64"), ("along", "float32")]
)
def test_flat_gradients_have_jax_values(name, dtype):
    with jax.enable_x64(dtype == "float64"):
        loss, args = arguments(dtype)
        ours, peer = (lib.ft.jit(used(lib, name, loss))(*args) for lib in LIBRARIES)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(peer), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["product", "kernel"])
def test_no_matrix_of_gradients_is_made(name):
    loss, args = arguments()
    program = ft.make_ir(used(LIBRARIES[0], name, loss))(*args)
    matrix = len(args[1]), sum(v.size for v in jax.tree.leaves(args[0]))
    inlined = ft.passes.optimize(program, ("resolve", "inline_calls"))
    assert matrix in shapes_of(inlined)
    assert matrix not in shapes_of(ft.passes.optimize(program))


def shapes_of(program):
    return [v.type.shape for e in program.equations for v in e.outputs]
