"""Searches of the contraction pass that take everything, and what their tests share."""

import importlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import functrans as ft
import functrans.numpy as fnp
from functrans.ir import Program
from functrans.passes import machines
from functrans.passes.example_loops import ByExample
from functrans.passes.sums_of_products import Expansion, NotSeparable

MODULE = importlib.import_module("functrans.passes.contractions")


class Everything(MODULE._Search):
    """Rewrites whatever can be rewritten, whatever it costs."""

    def cheaper(self, cluster: Any) -> Any:
        sinks = [MODULE.Sink(e, self.cheapest(e, cluster, np.inf)) for e in cluster.sinks]
        if not sinks or any([s.way is None for s in sinks]):
            return None
        return sinks


class Loops(Everything):
    """The same, one example after the other where that can be done."""

    gram = False

    def cheapest(self, e: Any, cluster: Any, limit: float) -> Any:
        through = {e.outputs[0], *cluster.values}
        try:
            return ByExample(Expansion(self.made_by, through), e, self.gram, self.readers)
        except NotSeparable:
            return super().cheapest(e, cluster, limit)


class GramLoops(Loops):
    """The same, with the squares multiplied out in the loop."""

    gram = True


class Grams(Everything):
    """The same, products of sums always multiplied out."""

    def cheapest(self, e: Any, cluster: Any, limit: float) -> Any:
        through = {e.outputs[0], *cluster.values}
        try:
            return MODULE.WholeBatch(Expansion(self.made_by, through), e, limit, self.scaled)
        except NotSeparable:
            return None


def outer(x: Any, d: Any) -> Any:
    return fnp.einsum("bi,bj->bij", x, d)


def summed_squares(x: Any) -> Any:
    return fnp.sum(x**2, axis=(1, 2))


def chosen(monkeypatch: Any, search: Any) -> None:
    monkeypatch.setattr(MODULE, "_Search", search)
    monkeypatch.setitem(machines.MACHINES, "cpu", machines.CPU._replace(worth=0.0))


NARROW: dict[str, Callable[[Any, Any], Any]] = {
    "squares": lambda x, d: summed_squares(outer(x, d)),
    "squares of wide products": lambda x, d: fnp.sum(
        fnp.matmul(x[:, :, None], d[:, None], preferred_element_type="float32") ** 2, axis=(1, 2)
    ),
    "widened": lambda x, d: summed_squares(outer(x, d).astype("float32")),
    "weighted": lambda x, d: fnp.sum(outer(x, d) * d[:, :1, None], axis=0),
    "a sum over steps": lambda x, d: summed_squares(
        fnp.einsum("bti,btj->bij", *[v[:, None] * fnp.ones((1, 3, 1), v.dtype) for v in (x, d)])
    ),
}


def close(after: Any, before: Any, tolerance: float, what: str = "") -> None:
    """Numbers up to a tolerance relative to the largest of an array."""
    after, before = jax.tree.leaves(after), jax.tree.leaves(before)
    assert len(after) == len(before)
    for x, y in zip(after, before, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype), what
        largest = float(np.max(np.abs(y), initial=1e-30))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * largest, err_msg=what)


Model = Callable[[np.random.Generator], tuple[Any, Any, Any, Any]]


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape) / (max(shape[0], 1) ** 0.5 if len(shape) > 1 else 2)


def mlp(rng: Any, n: int = 5, sizes: tuple[int, ...] = (7, 6, 3)) -> Any:
    p = [(normal(rng, i, j), normal(rng, j)) for i, j in itertools.pairwise(sizes)]

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        for w, b in p:
            x = lib.np.tanh(x @ w + b)
        return lib.np.mean((x - y) ** 2)

    return loss, p, normal(rng, n, sizes[0]), normal(rng, n, sizes[-1])


def gated(rng: Any, n: int = 5, size: int = 6) -> Any:
    p = [tuple([normal(rng, size, size) for _ in range(3)]) for _ in range(2)]

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        for u, g, w in p:
            x = ((x @ u) * lib.nn.sigmoid(x @ g)) @ w
        return lib.np.sum((x - y) ** 2)

    return loss, p, normal(rng, n, size), normal(rng, n, size)


def tied(rng: Any, n: int = 5, size: int = 6) -> Any:
    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        h = lib.np.tanh(lib.np.tanh(x @ p["w"] + p["b"]) @ p["w"])
        return lib.np.mean((h @ p["w"].T - y) ** 2)

    p = {"w": normal(rng, size, size), "b": normal(rng, size)}
    return loss, p, normal(rng, n, size), normal(rng, n, size)


def embedding(sequence: bool, **how: Any) -> Model:
    def make(rng: Any) -> Any:
        p = {"e": normal(rng, 9, 4), "w": normal(rng, 4, 3)}
        low, high = (-12, 14) if how else (0, 9)
        shape = (5, 6) if sequence else (5,)

        def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
            h = lib.np.tanh(p["e"].at[x].get(**how) if how else p["e"][x])
            return lib.np.sum(((h.mean(0) if sequence else h) @ p["w"] - y) ** 2)

        return loss, p, rng.integers(low, high, shape).astype("int32"), normal(rng, 5, 3)

    return make


def sequence(rng: Any, n: int = 5, steps: int = 4, sizes: tuple[int, ...] = (6, 8, 3)) -> Any:
    i, j, k = sizes
    p = [normal(rng, i, j), normal(rng, j), normal(rng, j, k)]

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        return lib.np.mean((lib.np.tanh(x @ p[0] + p[1]) @ p[2] - y) ** 2)

    return loss, p, normal(rng, n, steps, i), normal(rng, n, steps, k)


def per_example(lib: Any, loss: Any) -> Any:
    return lib.ft.vmap(lib.ft.grad(partial(loss, lib)), (None, 0, 0))


def factors(lib: Any, g: Any) -> Any:
    """What clips the norm of each example's gradient to a half."""
    norms = [lib.np.sum(x.reshape(len(x), -1) ** 2, axis=1) for x in jax.tree.leaves(g)]
    return lib.np.minimum(1.0, 0.5 / lib.np.sqrt(sum(norms)))


def by_tensordot(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    g = per_example(lib, loss)(p, x, y)
    c = factors(lib, g)
    return jax.tree.map(lambda a: lib.np.tensordot(c, a, 1), g)


def by_product(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    g = per_example(lib, loss)(p, x, y)
    c = factors(lib, g)
    return jax.tree.map(lambda a: (a * c.reshape(-1, *[1] * (a.ndim - 1))).sum(0) / len(x), g)


def flat(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    def one(p: Any, x: Any, y: Any) -> Any:
        g = jax.tree.leaves(lib.ft.grad(partial(loss, lib))(p, x, y))
        g = lib.np.concatenate([a.reshape(-1) for a in g])
        return g * lib.np.minimum(1.0, 0.5 / lib.np.sqrt(lib.np.vdot(g, g)))

    return lib.np.sum(lib.ft.vmap(one, (None, 0, 0))(p, x, y), axis=0)


def scanned(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    """Microbatches of two (the last ones left out), summed in a loop."""
    n = len(x) // 2

    def step(total: Any, xy: Any) -> Any:
        return jax.tree.map(lambda a, b: a + b, total, by_tensordot(lib, loss, p, *xy)), None

    parts = [a[: 2 * n].reshape(n, 2, *a.shape[1:]) for a in (x, y)]
    return lib.lax.scan(step, jax.tree.map(lib.np.zeros_like, p), tuple(parts))[0]


def noise(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    """Mean and variance of the gradients of single examples."""
    g = per_example(lib, loss)(p, x, y)
    m = jax.tree.map(lambda a: lib.np.mean(a, axis=0), g)
    v = [lib.np.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (g, m)), strict=True)]
    return m, sum(v)


# Others, as users write them, are in test_existing_code.py.
WAYS = {f.__name__: f for f in (by_tensordot, by_product, flat, scanned, noise)}


def large_embedding(rng: Any) -> Any:
    p = {"e": normal(rng, 900, 50), "w": normal(rng, 50, 3)}
    x = rng.integers(0, 900, (60, 5)).astype("int32")
    return embedding(True)(rng)[0], p, x, normal(rng, 60, 3)


LARGE = {
    "mlp": partial(mlp, n=60, sizes=(90, 80, 70)),
    "gated": partial(gated, n=60, size=80),
    "tied": partial(tied, n=60, size=80),
    "embedding": large_embedding,
    "sequence": partial(sequence, n=40, steps=3, sizes=(200, 220, 210)),
}


def chain(n: int, step: Any, end: Any) -> Program:
    """x @ w, n steps of some operations, and what is made of it."""

    def f(x: Any, w: Any) -> Any:
        z = x @ w
        for i in range(n):
            z = step(z, x, w, i)
        return end(z)

    return ft.make_ir(f)(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
