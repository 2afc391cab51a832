"""Values that a concatenate made are taken apart again, and gradients flattened into a vector cost
what gradients in a tree do."""

import itertools

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import functrans as ft
import functrans.numpy as jnp

pytestmark = pytest.mark.smoke

BATCH, SIZES = 6, (5, 4, 3)


def parameters(seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    return [
        {"w": rng.normal(size=(m, n)).astype(dtype), "b": rng.normal(size=n).astype(dtype)}
        for m, n in itertools.pairwise(SIZES)
    ]


def batch(dtype="float32"):
    rng = np.random.default_rng(1)
    return (
        rng.normal(size=(BATCH, SIZES[0])).astype(dtype),
        rng.normal(size=(BATCH, SIZES[-1])).astype(dtype),
    )


def loss_of(np_):
    def loss(params, x, y):
        for layer in params:
            x = np_.tanh(x @ layer["w"] + layer["b"])
        return np_.sum((x - y) ** 2)

    return loss


def flattened(library, np_, ravel):
    """Gradients of examples as rows of one matrix."""

    def rows(params, x, y):
        def one(p, x, y):
            return ravel(library.grad(loss_of(np_))(p, x, y))[0]

        return library.vmap(one, (None, 0, 0))(params, x, y)

    return rows


def clipped(library, np_, ravel):
    def step(params, x, y):
        rows = flattened(library, np_, ravel)(params, x, y)
        scale = np_.minimum(1.0, 0.5 / np_.linalg.norm(rows, axis=1))
        vector, unravel = ravel(params)
        total = np_.sum(rows * scale[:, None], axis=0) / len(x)
        return unravel(vector - 0.1 * total)

    return step


def by_product(library, np_, ravel):
    def total(params, x, y):
        rows = flattened(library, np_, ravel)(params, x, y)
        return np_.sqrt(np_.sum(rows * rows, axis=1)) @ rows

    return total


def kernel(library, np_, ravel):
    def between(params, x, y):
        rows = flattened(library, np_, ravel)(params, x, y)
        return rows @ rows.T

    return between


def along(library, np_, ravel):
    def slopes(params, x, y):
        rows = flattened(library, np_, ravel)(params, x, y)
        return rows @ ravel(params)[0], rows[:, 2:5].sum(), np_.max(rows, axis=1)

    return slopes


USES = {"clipped": clipped, "product": by_product, "kernel": kernel, "along": along}


@pytest.mark.parametrize(("name", "dtype"), list(zip(USES, ["float32", "float64"] * 2, strict=True)))
def test_flat_gradients_have_jax_values(name, dtype):
    with jax.enable_x64(dtype == "float64"):
        args = parameters(dtype=dtype), *batch(dtype)
        ours = ft.jit(USES[name](ft, jnp, ravel_pytree))(*args)
        peer = jax.jit(USES[name](jax, jax.numpy, ravel_pytree))(*args)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(peer), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["clipped", "product", "kernel"])
def test_no_matrix_of_gradients_is_made(name):
    program = ft.make_ir(USES[name](ft, jnp, ravel_pytree))(parameters(), *batch())
    n = sum(v.size for v in jax.tree.leaves(parameters()))
    inlined = ft.passes.optimize(program, ("resolve", "inline_calls"))
    assert (BATCH, n) in shapes_of(inlined)
    assert (BATCH, n) not in shapes_of(ft.passes.optimize(program))


def shapes_of(program):
    return [v.type.shape for e in program.equations for v in e.outputs]


# --- text before and after ------------------------------------------------------------------------

OUTER = (
    "program (x: f32[2,3], d: f32[2,4], e: f32[2,5], z: f32[17], k: f32[2]) {"
    ' a: f32[2,3,4] = dot_general["ij,ik->ijk"] x d;'
    " b: f32[2,12] = reshape[shape=(2, 12)] a;"
    " c: f32[2,17] = concatenate[dimension=1] b e;"
)
REWRITTEN = {
    "a sum over the joined axis": (
        " f: f32[2,17] = mul c c; g: f32[2] = reduce_sum[axes=(1,)] f; return g",
        ["mul", "mul", "reduce_sum", "reduce_sum", "add"],
    ),
    "a sum over another axis": (
        " f: f32[2,17] = broadcast_in_dim[shape=(2, 17), dimensions=(0,)] k;"
        " g: f32[2,17] = mul c f; h: f32[17] = reduce_sum[axes=(0,)] g; return h",
        ["broadcast_in_dim", "broadcast_in_dim", "mul", "mul", "reduce_sum", "reduce_sum", "concatenate"],
    ),
    "a contraction over the joined axis": (
        ' f: f32[2] = dot_general["ij,j->i"] c z; return f',
        ["slice", "slice", "dot_general", "dot_general", "add"],
    ),
    "a contraction over another axis": (
        ' f: f32[17] = dot_general["i,ij->j"] k c; return f',
        ["dot_general", "dot_general", "concatenate"],
    ),
    "a part of an elementwise result": (
        " f: f32[2,17] = mul c 3.0:f32[2,17];"
        " g: f32[2,5] = slice[start=(0, 12), limit=(2, 17), strides=(1, 1)] f; return g",
        ["mul"],
    ),
}


def rewritten(before, **options):
    program = ft.ir.parse(before.replace(";", "\n").replace("{", "{\n") + "\n}")
    made = ft.passes.simplify(program, **options)
    ft.ir.check(made)
    return program, made


@pytest.mark.parametrize("name", REWRITTEN)
def test_what_is_done_to_all_is_done_to_the_parts(name):
    before, names = REWRITTEN[name]
    program, made = rewritten(OUTER + before)
    skipped = ("dot_general", "reshape") if "contraction" not in name else ("reshape",)
    found = [e.primitive.name for e in made.equations]
    if "contraction" in name:
        found.remove("dot_general")  # the outer product itself
    assert [n for n in found if n not in skipped] == names
    rng = np.random.default_rng(0)
    args = [rng.normal(size=t.shape).astype("float32") for t in program.in_types]
    np.testing.assert_allclose(ft.interpret(made, *args), ft.interpret(program, *args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["a sum over the joined axis", "a contraction over another axis"])
def test_sums_keep_their_order_where_they_must(name):
    program, made = rewritten(OUTER + REWRITTEN[name][0], exact=True)
    assert made is program
