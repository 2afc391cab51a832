"""The contraction pass: what it makes. What it leaves alone: rewrites.txt."""

from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.backends import reference
from functrans.ir import Program, show
from functrans.passes import machines
from tests.unit.contraction_searches import Everything, Grams, Loops, chosen, close, summed_squares

pytestmark = pytest.mark.smoke


def gradient_of_rows(e: Any, i: Any, u: Any) -> Any:
    """What the gradient of a table of embeddings is, squared and summed for each example."""
    g = ft.vmap(lambda i, u: ft.grad(lambda e: fnp.sum(e.at[i].get(mode="clip") * u))(e))(i, u)
    return fnp.sum(g**2, axis=(1, 2))


def lines(program: Program) -> list[str]:
    return [line.strip() for line in show(program).splitlines()[1:-1]]


def operations(program: Program) -> list[str]:
    return [e.primitive.name for e in program.equations]


def test_products_of_sums_are_multiplied_out_in_float64(monkeypatch):
    chosen(monkeypatch, Grams)
    shapes = (8, 4, 30), (8, 4, 20)
    program = ft.make_ir(lambda x, d: summed_squares(fnp.einsum("bti,btj->bij", x, d)))(
        *[np.ones(s, np.float32) for s in shapes]
    )
    assert lines(ft.passes.contract(program)) == [
        "c: f64[8,4,20] = convert_element_type[dtype=f64, weak_type=False] b",
        'd: f64[8,4,4] = dot_general["ilk,imk->ilm"] c c',
        "e: f64[8,4,30] = convert_element_type[dtype=f64, weak_type=False] a",
        'f: f64[8,4,4] = dot_general["ijl,ikl->ijk"] e e',
        'g: f64[8] = dot_general["ijk,ijk->i"] d f',
        "h: f32[8] = convert_element_type[dtype=f32, weak_type=False] g",
        "i: f32[8] = max h 0.0:f32[8]",
        "return i",
    ]
    chosen(monkeypatch, Loops)
    made = ft.passes.contract(ft.passes.simplify(program))
    (loop,) = made.equations
    assert made.children == [loop.params["program"]]
    assert operations(loop.params["program"]) == ["dot_general", "mul", "reduce_sum"]


def test_rows_that_are_added_become_a_comparison_of_indices(monkeypatch):
    chosen(monkeypatch, Grams)
    args = np.ones((50, 20), "f4"), np.ones((8, 4), "i4"), np.ones((8, 4, 20), "f4")
    program = ft.passes.optimize(ft.make_ir(gradient_of_rows)(*args))
    assert "scatter_add" not in operations(program)
    assert operations(program).count("eq") == 1
    assert all([v.type.size <= 8 * 4 * 20 for e in program.equations for v in e.outputs])


def merged(a: Any, b: Any) -> Any:
    """Values of attention, the axes of heads and features merged."""
    return fnp.einsum("bhtk,bkhd->bthd", a, b).reshape(a.shape[0], a.shape[2], -1)


MERGED = {"btn,bti->ni": "bti", "btn,bti->bni": "bti", "btn,ni->bti": "ni"}


@pytest.mark.parametrize("read", MERGED)
def test_products_with_merged_axes_in_another_order(read, monkeypatch):
    chosen(monkeypatch, Everything)
    rng = np.random.default_rng(0)
    for _ in range(10):
        size = {name: int(rng.choice([1, 2, 3, 8])) for name in "bhtkdi"}
        size["n"] = size["h"] * size["d"]
        args = [rng.normal(size=[size[n] for n in names]) for names in ("bhtk", "bkhd", MERGED[read])]
        args = [x.astype("float32") for x in args]
        program = ft.make_ir(lambda a, b, c: fnp.einsum(read, merged(a, b), c))(*args)
        close(reference.run(ft.passes.contract(program), args), reference.run(program, args), 1e-4)


@pytest.mark.parametrize(("platform", "loops"), [("cpu", 1), ("gpu", 0), ("tpu", 0)])
def test_loops_over_examples_are_for_cpus(platform, loops):
    """The norms of the gradients of a matrix that reads sequences, from which nothing else reads."""

    def norms(x, d):
        return summed_squares(fnp.einsum("bti,btj->bij", x, d))

    shapes = [jax.ShapeDtypeStruct((64, 32, n), "float32") for n in (128, 512)]
    program = ft.make_ir(norms)(*shapes)
    with machines.optimized_for(platform):
        made = ft.passes.optimize(program)
    assert [e.primitive.name for e in made.equations].count("scan") == loops


def test_gradients_of_long_examples_stay_out_of_memory():
    """A private step of two layers over long sequences: loops by Gram matrices, a sixth of the memory."""

    def loss(params: Any, x: Any) -> Any:
        return fnp.mean((fnp.tanh(x @ params[0]) @ params[1]) ** 2)

    def step(params: Any, xs: Any) -> Any:
        grads = ft.vmap(ft.grad(loss), (None, 0))(params, xs)
        c = fnp.minimum(1.0, 1 / fnp.sqrt(sum([fnp.sum(g**2, (1, 2)) for g in grads])))
        return [(g * c[:, None, None]).sum(0) for g in grads]

    params, xs = [(1024, 1024), (1024, 1024)], (16, 128, 1024)
    types = [[ft.ShapeDtypeStruct(s, "float32") for s in params], ft.ShapeDtypeStruct(xs, "float32")]
    with machines.optimized_for("cpu"):
        program = ft.passes.optimize(ft.make_ir(step)(*types))
    assert operations(program).count("scan") == 2
    assert max([v.type.size for e in program.equations for v in e.outputs]) == 16 * 128 * 1024


def test_integers_added_to_zeros_are_divided_as_integers(monkeypatch):
    chosen(monkeypatch, Everything)

    def f(u: Any, i: Any) -> Any:
        return fnp.sum(ft.lax.div(fnp.zeros(5, "int32").at[i].add(u), fnp.full(5, 2, "int32")))

    u, i = np.arange(6, dtype="int32"), np.array([0, 0, 1, 2, 4, 4], "int32")
    assert ft.jit(lambda *xs: f(*xs))(u, i) == sum([1 // 2, 2 // 2, 3 // 2, 9 // 2])


def test_indices_of_two_axes_that_no_factor_has(monkeypatch):
    """The ones of an identity count, also where nothing else has its axes."""
    chosen(monkeypatch, Everything)
    a, b = np.random.default_rng(0).normal(size=(2, 4, 4)).astype("float32")
    f = lambda a, b, s: fnp.sum(fnp.eye(4) * (s - a @ b))  # noqa: E731
    program = ft.make_ir(f)(a, b, np.float32(3))
    made = ft.passes.contract(program)
    assert made is not program
    (x,) = reference.run(made, [a, b, np.float32(3)])
    np.testing.assert_allclose(x, 12 - np.trace(a @ b), rtol=1e-5)
