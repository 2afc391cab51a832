"""The contraction pass on per-example gradients: values, ways of clipping, what is never made."""

import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.backends import reference
from functrans.ir import Program, check, show
from tests.unit.contraction_searches import (
    LARGE,
    WAYS,
    Everything,
    Model,
    chain,
    chosen,
    close,
    embedding,
    gated,
    mlp,
    normal,
    sequence,
    summed_squares,
    tied,
)

OURS = SimpleNamespace(ft=ft, np=fnp, lax=ft.lax, nn=ft.nn)


def convolution(rng: Any) -> Any:
    p = {"k": normal(rng, 3, 3, 2, 4), "w": normal(rng, 36, 3)}

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        h = lib.lax.conv_general_dilated(
            x[None], p["k"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return lib.np.sum((lib.np.tanh(h).reshape(-1) @ p["w"] - y) ** 2)

    return loss, p, normal(rng, 4, 6, 6, 2), normal(rng, 4, 3)


def transformer(rng: Any) -> Any:
    d, heads = 6, 2
    p = {name: normal(rng, d, d) for name in ("q", "k", "v", "o", "down")}
    p |= {"up": normal(rng, d, 2 * d), "back": normal(rng, 2 * d, d), "scale": 1 + normal(rng, d)}
    p["e"] = normal(rng, 7, d)

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        n = lib.np
        h = p["e"][x]
        z = h * p["scale"] / n.sqrt(n.mean(h**2, axis=-1, keepdims=True) + 1e-3)
        q, k, v = [(z @ p[a]).reshape(-1, heads, d // heads) for a in "qkv"]
        weights = lib.nn.softmax(n.einsum("thc,shc->hts", q, k), axis=-1)
        h = h + n.einsum("hts,shc->thc", weights, v).reshape(-1, d) @ p["o"]
        h = h + n.tanh(h @ p["up"]) @ p["back"]
        logits = (h @ p["down"]) @ p["e"].T
        return n.mean(lib.nn.logsumexp(logits, axis=-1) - logits[n.arange(4), y])

    x, y = [rng.integers(0, 7, (3, 4)).astype("int32") for _ in range(2)]
    return loss, p, x, y


MODELS: dict[str, Model] = {
    "mlp": mlp,
    "gated": gated,
    "tied": tied,
    "embedding": embedding(False),
    "embeddings": embedding(True),
    "clip": embedding(True, mode="clip"),
    "fill": embedding(True, mode="fill", fill_value=0.5),
    "fill one": embedding(False, mode="fill", fill_value=0.0),
    "sequence": sequence,
    "convolution": convolution,
    "transformer": transformer,
}


def cast(x: Any, dtype: str) -> Any:
    return jax.tree.map(lambda a: jnp.asarray(a, dtype if a.dtype.kind == "f" else None), x)


def try_model(model: str, way: str, dtype: str, seed: int = 3) -> None:
    """The optimized step against the step as written."""
    with jax.enable_x64(dtype == "float64"):
        loss, *args = MODELS[model](np.random.default_rng(seed))
        args = cast(args, dtype)
        step = partial(WAYS[way], OURS, loss)
        program = ft.make_ir(step)(*args)
        made = ft.passes.optimize(program)
        check(made)
        if dtype == "float32" and way != "flat":  # no looking through a concatenation yet
            assert "contract of" in show(made, sources=True)
        leaves = [np.asarray(a) for a in jax.tree.leaves(args)]
        tolerance = 1e-12 if dtype == "float64" else 1e-5
        close(reference.run(made, leaves), reference.run(program, leaves), tolerance, f"{model} {way}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", MODELS)
def test_per_example_gradients(model, dtype, monkeypatch):
    chosen(monkeypatch, Everything)
    ways = list(WAYS)
    at = list(MODELS).index(model)
    for way in (ways[at % len(ways)], ways[(at + 4) % len(ways)]):
        try_model(model, way, dtype)


def shapes_made(program: Program) -> list[tuple[int, ...]]:
    inner = [s for p in program.children for s in shapes_made(p)]
    return inner + [v.type.shape for e in program.equations for v in e.outputs]


@pytest.mark.parametrize(
    ("model", "way"),
    [*zip(LARGE, itertools.cycle(["by_tensordot", "by_product"]), strict=False), ("mlp", "scanned")],
)
def test_no_gradient_of_an_example_is_made(model, way):
    loss, *args = LARGE[model](np.random.default_rng(0))
    args = cast(args, "float32")
    program = ft.jit(partial(WAYS[way], OURS, loss)).program(*args)
    n = len(args[1])
    large = {(n, *a.shape) for a in jax.tree.leaves(args[0]) if a.size > 1000}
    made = [s for s in shapes_made(program) if sorted(s) in [sorted(t) for t in large]]
    assert not made


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (1, 1, 1, 1)])
def test_axes_of_no_and_of_one_element(sizes, monkeypatch):
    chosen(monkeypatch, Everything)
    b, t, i, j = sizes
    args = [np.ones((b, t, i), "f4"), np.full((b, t, j), 2, "f4")]

    def f(x, d):
        g = fnp.einsum("bti,btj->bij", x, d)
        n = summed_squares(g.reshape(b, j, i)) if i * j else summed_squares(g)
        return n, fnp.tensordot(n, g, 1), fnp.sum(g.reshape(-1))

    program = ft.make_ir(f)(*args)
    close(reference.run(ft.passes.contract(program), args), reference.run(program, args), 1e-6)


STEPS: dict[str, Any] = {
    "negated": lambda z, x, w, i: -z,
    "squared": lambda z, x, w, i: z * z,
    "doubled": lambda z, x, w, i: z + z,
    "reshaped": lambda z, x, w, i: z.reshape(2, 8) if i % 2 else z.reshape(4, 4),
    "added": lambda z, x, w, i: z.reshape(4, 4) + x @ w,
}


@pytest.mark.parametrize("end", [fnp.sum, lambda z: z])
@pytest.mark.parametrize("step", STEPS)
def test_long_chains(step, end, monkeypatch):
    chosen(monkeypatch, Everything)
    program = chain(2000, STEPS[step], end)
    check(ft.passes.contract(program))
