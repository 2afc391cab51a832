"""The contraction pass: text before and after, per-example gradients, accuracy, random programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
from functrans.ir import PRIMITIVES, Program, check, show
from functrans.passes.by_example import ByExample
from functrans.passes.products import Expansion, NotSeparable

MODULE = sys.modules["functrans.passes.contract"]
P = PRIMITIVES


class Everything(MODULE._Search):
    """Rewrites whatever can be rewritten, whatever it costs."""

    def cheaper(self, cluster: Any) -> Any:
        sinks = [MODULE.Sink(e, self.cheapest(e, cluster, np.inf, np.inf)) for e in cluster.sinks]
        if not sinks or any([s.way is None for s in sinks]):
            return None
        as_written = [
            self.cost(e) for e in (*cluster.sinks, *map(self.made_by.get, cluster.values))
        ]
        least = min(sum(self.least(cluster).values()), 0.8 * sum(as_written))
        assert sum([s.way.cost for s in sinks]) >= least
        return sinks

    def _is_masked(self, e: Any, u: Any) -> bool:
        return False


class Loops(Everything):
    """The same, one example after the other where that can be done."""

    gram = False

    def cheapest(self, e: Any, cluster: Any, made: float, limit: float) -> Any:
        through = {e.outputs[0], *cluster.values}
        try:
            return ByExample(Expansion(self.made_by, through), e, self.gram)
        except NotSeparable:
            return super().cheapest(e, cluster, made, limit)


class GramLoops(Loops):
    """The same, with the squares multiplied out in the loop."""

    gram = True


class Grams(Everything):
    """The same, products of sums always multiplied out."""

    def cheapest(self, e: Any, cluster: Any, made: float, limit: float) -> Any:
        through = {e.outputs[0], *cluster.values}
        try:
            return MODULE.AtOnce(Expansion(self.made_by, through), e, made, limit)
        except NotSeparable:
            return None


# --- text before and after ------------------------------------------------------------------------


def outer(x: Any, d: Any) -> Any:
    return fnp.einsum("bi,bj->bij", x, d)


def summed_squares(x: Any) -> Any:
    return fnp.sum(x**2, axis=(1, 2))


def gradient_of_rows(e: Any, i: Any, u: Any) -> Any:
    """What the gradient of a table of embeddings is, squared and summed for each example."""
    g = ft.vmap(lambda i, u: ft.grad(lambda e: fnp.sum(e.at[i].get(mode="clip") * u))(e))(i, u)
    return fnp.sum(g**2, axis=(1, 2))


TEXTS: dict[str, tuple[Any, Any, list[str]]] = {
    "norms": (
        lambda x, d: summed_squares(outer(x, d)), ((8, 30), (8, 20)),
        [
            "c: f64[8,20] = convert_element_type[dtype=f64, weak_type=False] b",
            "d: f64[8,20] = mul c c",
            "e: f64[8] = reduce_sum[axes=(1,)] d",
            "f: f64[8,30] = convert_element_type[dtype=f64, weak_type=False] a",
            "g: f64[8,30] = mul f f",
            "h: f64[8] = reduce_sum[axes=(1,)] g",
            'i: f64[8] = dot_general["i,i->i"] e h',
            "j: f32[8] = convert_element_type[dtype=f32, weak_type=False] i",
            "return j",
        ],
    ),
    "clipped": (
        lambda c, x, d: fnp.sum(c[:, None, None] * outer(x, d), axis=0), ((8,), (8, 30), (8, 20)),
        [
            'd: f32[8,20] = dot_general["k,kj->kj"] a c',
            'e: f32[30,20] = dot_general["kj,ki->ij"] d b',
            "return e",
        ],
    ),
    "clipped by tensordot": (
        lambda c, x, d: fnp.tensordot(c, outer(x, d), 1), ((8,), (8, 30), (8, 20)),
        [
            'd: f32[8,20] = dot_general["k,kj->kj"] a c',
            'e: f32[30,20] = dot_general["kj,ki->ij"] d b',
            "return e",
        ],
    ),
    "clipped, of sequences": (  # XLA:CPU transposes the left one, and weighs as it does
        lambda c, x, d: fnp.tensordot(c, fnp.einsum("bti,btj->bij", x, d), 1),
        ((8,), (8, 5, 30), (8, 5, 20)),
        [
            'd: f32[8,5,30] = dot_general["kli,k->kli"] b a',
            'e: f32[30,20] = dot_general["kli,klj->ij"] d c',
            "return e",
        ],
    ),
    "matrix, matrix, vector": (
        lambda a, b, v: (a @ b) @ v, ((30, 40), (40, 50), (50,)),
        [
            'd: f32[40] = dot_general["jk,k->j"] b c',
            'e: f32[30] = dot_general["ij,j->i"] a d',
            "return e",
        ],
    ),
    "trace": (
        lambda a, b: fnp.trace(a @ b), ((30, 40), (40, 30)),
        [
            'c: f32[] = dot_general["ij,ji->"] a b',
            "return c",
        ],
    ),
    "diagonal": (
        lambda a, b: fnp.diag(a @ b), ((30, 40), (40, 30)),
        [
            'c: f32[30] = dot_general["ij,ji->i"] a b',
            "return c",
        ],
    ),
    "sum": (
        lambda a, b: fnp.sum(a @ b), ((30, 40), (40, 50)),
        [
            "c: f32[40] = reduce_sum[axes=(0,)] a",
            "d: f32[40] = reduce_sum[axes=(1,)] b",
            'e: f32[] = dot_general["k,k->"] c d',
            "return e",
        ],
    ),
    "by itself": (
        lambda x: fnp.sum(x @ x.T), ((8, 30),),
        [
            "b: f32[30] = reduce_sum[axes=(0,)] a",
            'c: f32[] = dot_general["k,k->"] b b',
            "return c",
        ],
    ),
}  # fmt: skip


def chosen(monkeypatch: Any, search: Any) -> None:
    monkeypatch.setattr(MODULE, "_Search", search)
    monkeypatch.setattr(MODULE, "WORTH", 0.0)


def lines(program: Program) -> list[str]:
    return [line.strip() for line in show(program).splitlines()[1:-1]]


def operations(program: Program) -> list[str]:
    return [e.primitive.name for e in program.equations]


@pytest.mark.parametrize("name", TEXTS)
def test_text(name, monkeypatch):
    chosen(monkeypatch, Everything)
    f, shapes, wanted = TEXTS[name]
    program = ft.passes.simplify(ft.make_ir(f)(*[np.ones(s, np.float32) for s in shapes]))
    made = ft.passes.contract(program)
    check(made)
    assert lines(made) == wanted


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


def precise(a: Any, b: Any) -> Any:
    return fnp.sum(fnp.matmul(a, b, precision="highest"))


SAME: dict[str, tuple[Any, str]] = {
    "also an output": (lambda a, b: (a @ b, fnp.sum(a @ b)), "float32"),
    "not linear": (lambda a, b: fnp.sum(fnp.tanh(a @ b)), "float32"),
    "largest": (lambda a, b: fnp.max(a @ b), "float32"),
    "cubed": (lambda a, b: fnp.sum((a @ b) ** 3), "float32"),
    "divided by": (lambda a, b: fnp.sum(a / (a @ b)), "float32"),
    "integers": (lambda a, b: fnp.sum(a @ b), "int32"),
    "float16": (lambda a, b: fnp.sum(a @ b), "float16"),
    "summed in bfloat16": (
        lambda a, b: ft.lax.reduce_sum((a @ b) ** 2, axes=(0, 1)), "bfloat16",
    ),
    "complex": (lambda a, b: fnp.sum(a @ b), "complex64"),
    "precision": (precise, "float32"),
    "Gram form of float64": (lambda a, b: fnp.sum((a @ b) ** 2), "float64"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_left_alone(name, monkeypatch):
    f, dtype = SAME[name]
    chosen(monkeypatch, Everything)
    with jax.enable_x64(dtype == "float64"):
        a = jnp.ones((40, 40), dtype)
        program = ft.passes.common_subexpressions(ft.make_ir(f)(a, a + 1))
        assert ft.passes.contract(program) is program


CHAINS = ("mk,kn,nl->ml", "mk,kn,mn->m", "mk,kn,ml->nl", "bmk,bkn,bnl->bml", "bmk,kn,bml->nl",
          "bmk,kn,bn->bm", "mk,kn,lm->ln")  # fmt: skip


@pytest.fixture
def bounds(monkeypatch):
    """The bounds of all clusters that are searched, each checked against what is found."""
    found: list[float] = []

    class Bounded(Everything):
        def cheaper(self, cluster: Any) -> Any:
            sinks = super().cheaper(cluster)
            found.append(sum(self.least(cluster).values()))
            return sinks

    chosen(monkeypatch, Bounded)
    return found


@pytest.mark.parametrize("chain", CHAINS)
def test_no_order_is_cheaper_than_the_least(chain, bounds):
    left, middle, rest = chain.split(",")
    right = rest.partition("->")[0]
    made = "".join([n for n in dict.fromkeys(left + middle) if n != "k"])
    rng = np.random.default_rng(0)
    for _ in range(40):
        size = {name: int(rng.choice([8, 32, 128, 512])) for name in "bmknl"}
        a, b, c = (np.ones([size[n] for n in names], np.float32) for names in (left, middle, right))

        def f(a: Any, b: Any, c: Any) -> Any:
            return fnp.einsum(f"{made},{rest}", fnp.einsum(f"{left},{middle}->{made}", a, b), c)

        ft.passes.contract(ft.make_ir(f)(a, b, c))
    assert max(bounds) > 0


RESIDUALS = {
    "difference": lambda made, w: (made - w) * 0.5,
    "of a product": lambda made, w: -(w * fnp.sum(w, 0) + made),
    "quotient": lambda made, w: (made + w) / 3,
    "of what is repeated": lambda made, w: made + w[0],
    "of a number": lambda made, w: made + 2,
    "masked": lambda made, w: made * w,
    "term masked": lambda made, w: (made - w) * w[0],
}


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("read", ["mn,mi->ni", "mn,ni->mi", "mn,n->m"])
def test_no_order_is_cheaper_than_the_least_of_a_residual(residual, read, bounds):
    rng = np.random.default_rng(0)
    for _ in range(40):
        size = {name: int(rng.choice([1, 8, 32, 128, 512])) for name in "mkni"}
        names = ("mk", "kn", "mn", read.split(",")[1].partition("->")[0])
        args = [np.ones([size[n] for n in one], np.float32) for one in names]

        def f(a: Any, b: Any, w: Any, c: Any) -> Any:
            return fnp.einsum(read, RESIDUALS[residual](a @ b, w), c)

        ft.passes.contract(ft.make_ir(f)(*args))
    assert max(bounds) > 0


def merged(a: Any, b: Any) -> Any:
    """Values of attention, the axes of heads and features merged."""
    return fnp.einsum("bhtk,bkhd->bthd", a, b).reshape(a.shape[0], a.shape[2], -1)


MERGED = {"btn,bti->ni": "bti", "btn,bti->bni": "bti", "btn,ni->bti": "ni"}


@pytest.mark.parametrize("read", MERGED)
def test_no_order_is_cheaper_than_the_least_of_merged_axes(read, bounds):
    rng = np.random.default_rng(0)
    for _ in range(60):
        size = {name: int(rng.choice([1, 2, 8, 32, 64])) for name in "bhtkdi"}
        size["n"] = size["h"] * size["d"]
        args = [
            np.ones([size[n] for n in names], np.float32)
            for names in ("bhtk", "bkhd", MERGED[read])
        ]
        ft.passes.contract(ft.make_ir(lambda a, b, c: fnp.einsum(read, merged(a, b), c))(*args))
    assert max(bounds) > 0


def test_exact_passes_keep_the_order():
    a = np.ones((300, 300), np.float32)
    f = lambda a, b, v: (a @ b) @ v  # noqa: E731
    sizes = [
        max([v.type.size for e in ft.jit(f, passes=passes).program(a, a, a[0]).equations
             for v in e.outputs])
        for passes in ("exact", "default")
    ]  # fmt: skip
    assert sizes == [300 * 300, 300]


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


@pytest.mark.parametrize("mode", ["clip", "drop", "promise_in_bounds"])
@pytest.mark.parametrize("search", [Everything, Grams, Loops, GramLoops])
def test_indices_outside(mode, search, monkeypatch):
    chosen(monkeypatch, search)
    rng = np.random.default_rng(0)
    i, u = rng.integers(-9, 9, (4, 6)).astype("int32"), rng.normal(size=(4, 6, 3)).astype("f4")

    def f(i: Any, u: Any) -> Any:
        def rows(i: Any, u: Any) -> Any:
            return fnp.zeros((5, 3)).at[i].add(u, mode=mode)

        g = ft.vmap(rows)(i, u)
        other = ft.vmap(lambda i, u: fnp.zeros((5, 3)).at[i].add(u, mode="clip"))(i[:, ::-1], u)
        return summed_squares(g), fnp.sum(g, axis=(0, 1)), fnp.sum(g * other, axis=(1, 2))

    program = ft.make_ir(f)(i, u)
    close(reference.run(ft.passes.contract(program), [i, u]), reference.run(program, [i, u]), 1e-5)


# --- accuracy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1e-2, 1e-3, 1e-4, 0.0])
@pytest.mark.parametrize("search", [Everything, Grams, Loops, GramLoops])
def test_squares_of_sums_that_cancel(left, search, monkeypatch):
    """The norm is `left` of what it would be if the terms of the sum had the same signs."""
    chosen(monkeypatch, search)
    rng = np.random.default_rng(1)
    x, d = rng.normal(size=(3, 16, 40)), rng.normal(size=(3, 16, 30))
    x[:, 8:], d[:, 8:] = x[:, :8], -d[:, :8] * (1 + left)
    x, d = x.astype("float32"), d.astype("float32")
    wide = np.einsum("bti,btj->bij", x.astype("f8"), d.astype("f8"))
    exact = np.sqrt(np.sum(wide**2, axis=(1, 2)))

    def norms(x: Any, d: Any) -> Any:
        return fnp.sqrt(summed_squares(fnp.einsum("bti,btj->bij", x, d)))

    assert ft.passes.contract(ft.make_ir(norms)(x, d)) is not None
    after = np.asarray(ft.jit(lambda *xs: norms(*xs))(x, d), "f8")
    before = np.asarray(ft.jit(norms, passes=())(x, d), "f8")
    assert np.all(after >= 0)
    error, allowed = np.abs(after - exact).max(), np.abs(before - exact).max()
    assert error <= 2 * allowed + 1e-6 * exact.max()


@pytest.mark.parametrize("wide", [False, True])
def test_small_differences_stay_exact(wide, monkeypatch):
    """`sum((a - b) * g)`: what a and b have in common must not enter the sum."""
    chosen(monkeypatch, Everything)
    rng = np.random.default_rng(2)
    a = (1 + 1e-6 * rng.normal(size=(40, 30) if wide else 40)).astype("float32")
    b = np.ones(a.shape if wide else 30, np.float32)
    x, d = rng.normal(size=(3, 40)).astype("f4"), rng.normal(size=(3, 30)).astype("f4")

    def f(a: Any, b: Any, x: Any, d: Any) -> Any:
        difference = a - b if wide else a[:, None] - b[None]
        return fnp.sum(difference * outer(x, d), axis=(1, 2))

    program = ft.make_ir(f)(a, b, x, d)
    made = ft.passes.contract(program)
    assert made is not program
    exact = np.einsum("ij,bi,bj->b", (a - b if wide else a[:, None] - b).astype("f8"), x, d)
    (y,) = reference.run(made, [a, b, x, d])
    close(y, exact.astype("f4"), 1e-5)


def test_squares_do_not_leave_the_range_of_their_dtype(monkeypatch):
    chosen(monkeypatch, Everything)
    for x, d in ((1e22, 1e-22), (1e-25, 1e25), (3e-23, 2e-3)):
        given = np.full((2, 4), x, np.float32), np.full((2, 4), d, np.float32)
        found = ft.jit(lambda x, d: summed_squares(outer(x, d)))(*given)
        wide = [v.astype(np.float64) for v in given]
        exact = np.einsum("bi,bj->b", wide[0] ** 2, wide[1] ** 2)
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-45)


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


@pytest.mark.parametrize("search", [Everything, Loops, Grams, GramLoops])
@pytest.mark.parametrize("name", NARROW)
def test_bfloat16_is_multiplied_in_float32(name, search, monkeypatch):
    chosen(monkeypatch, search)
    rng = np.random.default_rng(3)
    x, d = (jnp.asarray(rng.normal(size=s), "bfloat16") for s in ((4, 40), (4, 30)))
    f = lambda x, d: NARROW[name](x, d)  # noqa: E731
    made = ft.jit(f).program(x, d)
    large = [v for p in (made, *made.children) for e in p.equations for v in e.outputs]
    assert max([v.type.size for v in large if len(v.type.shape) == 3], default=0) < 4 * 30 * 40
    check(made)
    exact = NARROW[name](*[fnp.asarray(v, "float32") for v in (x, d)])
    close(np.asarray(ft.jit(f)(x, d), "f4"), np.asarray(exact), 4e-3)  # of the result
    assert ft.jit(f)(x, d).dtype == ft.eval_shape(f, x, d).dtype


# --- random programs ------------------------------------------------------------------------------

SIZES = [1, 2, 3, 4, 6]


class Maker:
    """Random einsum-like programs over some arrays."""

    def __init__(self, rng: np.random.Generator, zero: bool, linear: bool):
        self.rng = rng
        self.sizes = [0, *SIZES] if zero else SIZES
        self.kinds = [k for k in KINDS if not (linear and k in ("square", "twice", "pow"))]

    def pick(self, xs: Any) -> Any:
        return xs[int(self.rng.integers(len(xs)))]

    def shapes(self) -> list[tuple[int, ...]]:
        def one() -> tuple[int, ...]:
            return tuple([self.pick(self.sizes) for _ in range(self.rng.integers(1, 4))])

        return [one() for _ in range(3)]

    def trace(self, n: int, length: int) -> Any:
        def run(*given: Any) -> list[Any]:
            self.values = list(given[:n])
            self.index = list(given[n:])
            for _ in range(length):
                x = getattr(self, self.pick(self.kinds))(self.pick(self.values[-5:]))
                if x.size <= 3000:
                    self.values.append(x)
            made = self.values[n:][-3:]
            return [fnp.sum(made[0])] + [self.ended(x) for x in made[1:]] if made else []

        return run

    def ended(self, x: Any) -> Any:
        return self.total(self.pick([self.square, lambda y: y])(x))

    # one operation each

    def matched(self, x: Any) -> Any:
        same = [v for v in self.values if v.shape == x.shape]
        return self.pick(same) if same and self.rng.random() < 0.7 else self.fresh(x)

    def fresh(self, x: Any) -> Any:
        """Another value brought to the shape of x by broadcasting, as far as it can be."""
        for _ in range(8):
            y = self.pick(self.values)
            try:
                return fnp.broadcast_to(y, x.shape)
            except Exception:
                continue
        return fnp.broadcast_to(fnp.sum(self.pick(self.values)), x.shape)

    def dot(self, x: Any) -> Any:
        y = self.pick(self.values)
        lhs = list(range(x.ndim))
        rhs, free = [], x.ndim
        for d in y.shape:
            fits = [a for a in lhs if x.shape[a] == d and a not in rhs]
            if fits and self.rng.random() < 0.7:
                rhs.append(self.pick(fits))
            else:
                rhs.append(free)
                free += 1
        both = [a for a in lhs if a in rhs]
        dropped = [a for a in both if self.rng.random() < 0.6]
        out = [a for a in dict.fromkeys([*lhs, *rhs]) if a not in dropped]
        out = [out[i] for i in self.rng.permutation(len(out))]
        if len(out) > 5:
            return x
        return P["dot_general"](x, y, lhs=tuple(lhs), rhs=tuple(rhs), out=tuple(out))

    def mul(self, x: Any) -> Any:
        return x * self.matched(x)

    def add(self, x: Any) -> Any:
        return x + self.matched(x)

    def sub(self, x: Any) -> Any:
        return x - self.matched(x)

    def neg(self, x: Any) -> Any:
        return -x

    def square(self, x: Any) -> Any:
        return P["square"](x)

    def pow(self, x: Any) -> Any:
        return P["integer_pow"](x, y=int(self.pick([2, 2, 3])))

    def twice(self, x: Any) -> Any:
        return x * x

    def scaled(self, x: Any) -> Any:
        return x * self.pick([0.5, -1.5, 2.0])

    def divided(self, x: Any) -> Any:
        return x / self.pick([0.5, -3.0, 2.0])

    def over(self, x: Any) -> Any:
        return x / fnp.broadcast_to(self.below, x.shape)

    def transposed(self, x: Any) -> Any:
        return fnp.transpose(x, tuple([int(i) for i in self.rng.permutation(x.ndim)]))

    def outer(self, x: Any) -> Any:
        y = self.pick(self.values)
        if x.ndim + y.ndim > 5:
            return x
        names = list(range(x.ndim + y.ndim))
        left = P["broadcast_in_dim"](
            x, shape=(*x.shape, *y.shape), dimensions=tuple(names[: x.ndim])
        )
        right = P["broadcast_in_dim"](
            y, shape=(*x.shape, *y.shape), dimensions=tuple(names[x.ndim :])
        )
        return left * right

    def repeated(self, x: Any) -> Any:
        if x.ndim > 3:
            return x
        at = int(self.rng.integers(0, x.ndim + 1))
        shape = (*x.shape[:at], self.pick(self.sizes), *x.shape[at:])
        where = tuple([i for i in range(len(shape)) if i != at])
        return P["broadcast_in_dim"](x, shape=shape, dimensions=where)

    def merged(self, x: Any) -> Any:
        if x.ndim < 2:
            return x
        at = int(self.rng.integers(0, x.ndim - 1))
        return x.reshape(*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])

    def cut(self, x: Any) -> Any:
        if x.ndim > 4 or not x.ndim:
            return x
        at = int(self.rng.integers(0, x.ndim))
        n = x.shape[at]
        ways = [(k, n // k) for k in range(1, n + 1) if n % k == 0] or [(0, 3), (3, 0)]
        return x.reshape(*x.shape[:at], *self.pick(ways), *x.shape[at + 1 :])

    def unit(self, x: Any) -> Any:
        at = int(self.rng.integers(0, x.ndim + 1))
        return x.reshape(*x.shape[:at], 1, *x.shape[at:]) if x.ndim < 5 else x

    def total(self, x: Any) -> Any:
        over = tuple([i for i in range(x.ndim) if self.rng.random() < 0.5])
        return P["reduce_sum"](x, axes=over) if over else x

    def masked(self, x: Any) -> Any:
        if x.ndim != 2:
            return x
        if self.rng.random() < 0.5:
            return x * fnp.eye(*x.shape, dtype=x.dtype)
        return fnp.where(fnp.eye(*x.shape, dtype=bool), x, 0)

    def diagonal(self, x: Any) -> Any:
        return fnp.diagonal(x) if x.ndim == 2 and x.shape[0] == x.shape[1] else x

    def scattered(self, x: Any) -> Any:
        if not x.ndim or x.ndim > 3 or not 0 < x.shape[0] <= 6:
            return x
        mode = self.pick(["drop", "clip"])
        zeros = fnp.zeros((5, *x.shape[1:]), x.dtype)
        return zeros.at[self.pick(self.index)[: x.shape[0]]].add(x, mode=mode)


KINDS = [
    "dot", "dot", "dot", "mul", "mul", "add", "sub", "neg", "square", "twice", "pow", "scaled",
    "divided", "transposed", "outer", "outer", "repeated", "merged", "cut", "unit", "total",
    "masked", "diagonal", "scattered", "scattered",
]  # fmt: skip


def random_program(seed: int, dtype: str, length: int) -> tuple[Program, list[Any]]:
    rng = np.random.default_rng(seed)
    maker = Maker(rng, zero=seed % 5 == 0, linear=seed % 2 == 1)
    xs = [rng.normal(size=s).astype(dtype) for s in maker.shapes()]
    xs += [rng.integers(-2, 8, 6).astype("int32") for _ in range(2)]
    return ft.make_ir(maker.trace(len(xs) - 2, length))(*xs), xs


def close(after: Any, before: Any, tolerance: float, what: str = "") -> None:
    """Numbers up to a tolerance relative to the largest of an array."""
    after, before = jax.tree.leaves(after), jax.tree.leaves(before)
    assert len(after) == len(before)
    for x, y in zip(after, before, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype), what
        largest = float(np.max(np.abs(y), initial=1e-30))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * largest, err_msg=what)


def try_random(seed: int, length: int, search: Any, monkeypatch: Any) -> bool:
    chosen(monkeypatch, search)
    x64 = seed % 3 == 0
    with jax.enable_x64(x64), np.errstate(all="ignore"):
        program, xs = random_program(seed, "float64" if x64 else "float32", length)
        made = ft.passes.contract(program)
        if made is program:
            return False
        check(made)
        assert made.in_types == program.in_types
        assert made.out_types == program.out_types
        what = f"seed {seed}\n{program}\n{made}"
        after, before = reference.run(made, xs), reference.run(program, xs)
        for x, y, bound in zip(after, before, magnitudes(program, xs), strict=True):
            if not np.isfinite(np.asarray(bound)).all():
                continue
            limit = (1e-12 if x64 else 1e-4) * max(float(np.max(bound, initial=0.0)), 1e-30)
            np.testing.assert_allclose(x, y, rtol=0, atol=limit, err_msg=what)
    return True


def magnitudes(program: Program, xs: list[Any]) -> list[Any]:
    """The results without cancellation: absolute operands, and sums for differences; by these the
    rounding of any order of the sums is bounded."""
    values = dict(
        zip(program.inputs, [np.abs(x) if x.dtype.kind == "f" else x for x in xs], strict=True)
    )

    def get(v: Any) -> Any:
        return values[v] if v in values else reference_literal(v)

    for e in program.equations:
        args = [get(v) for v in e.inputs]
        if e.primitive is P["neg"]:
            out: Any = args[0]
        elif e.primitive is P["sub"] and e.outputs[0].type.dtype.kind == "f":
            out = args[0] + args[1]
        else:
            out = e.primitive.reference(*args, **e.params)
        outs = out if isinstance(out, (list, tuple)) else [out]
        for v, o in zip(e.outputs, outs, strict=True):
            o = np.asarray(o)
            values[v] = np.abs(o) if o.dtype.kind == "f" else o
    return [get(v) for v in program.outputs]


def reference_literal(v: Any) -> Any:
    value = np.full(v.type.shape, v.value, v.type.dtype)
    return np.abs(value) if value.dtype.kind == "f" else value


@pytest.mark.parametrize("search", [Everything, Loops, Grams, GramLoops])
def test_random_programs(search, monkeypatch):
    done = [try_random(seed, 10, search, monkeypatch) for seed in range(50)]
    assert sum(done) >= 15


@pytest.mark.heavy
@pytest.mark.parametrize("search", [Everything, Loops, Grams, GramLoops])
def test_many_random_programs(search, monkeypatch):
    for seed in range(1000, 6000):
        try_random(seed, 6 + seed % 12, search, monkeypatch)


# --- per-example gradients ------------------------------------------------------------------------

OURS = SimpleNamespace(ft=ft, np=fnp, lax=ft.lax, nn=ft.nn)
JAX = SimpleNamespace(ft=jax, np=jnp, lax=jax.lax, nn=jax.nn)
Model = Callable[[np.random.Generator], tuple[Any, Any, Any, Any]]


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape) / (max(shape[0], 1) ** 0.5 if len(shape) > 1 else 2)


def mlp(rng: Any) -> Any:
    p = [(normal(rng, 7, 6), normal(rng, 6)), (normal(rng, 6, 3), normal(rng, 3))]

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        for w, b in p:
            x = lib.np.tanh(x @ w + b)
        return lib.np.mean((x - y) ** 2)

    return loss, p, normal(rng, 5, 7), normal(rng, 5, 3)


def gated(rng: Any) -> Any:
    p = [tuple([normal(rng, 6, 6) for _ in range(3)]) for _ in range(2)]

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        for u, g, w in p:
            x = ((x @ u) * lib.nn.sigmoid(x @ g)) @ w
        return lib.np.sum((x - y) ** 2)

    return loss, p, normal(rng, 5, 6), normal(rng, 5, 6)


def tied(rng: Any) -> Any:
    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        h = lib.np.tanh(lib.np.tanh(x @ p["w"] + p["b"]) @ p["w"])
        return lib.np.mean((h @ p["w"].T - y) ** 2)

    return loss, {"w": normal(rng, 6, 6), "b": normal(rng, 6)}, normal(rng, 5, 6), normal(rng, 5, 6)


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


def tied_embedding(rng: Any) -> Any:
    """The table gives the inputs, and the weights of the outputs."""

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        h = lib.np.tanh(p["e"][x] @ p["w"])
        logits = h @ p["e"].T
        return lib.np.mean(lib.nn.logsumexp(logits, axis=-1) - logits[lib.np.arange(4), y])

    p = {"e": normal(rng, 9, 6), "w": normal(rng, 6, 6)}
    x, y = [rng.integers(0, 9, (5, 4)).astype("int32") for _ in range(2)]
    return loss, p, x, y


def sequence(rng: Any) -> Any:
    p = [normal(rng, 6, 8), normal(rng, 8), normal(rng, 8, 3)]

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        return lib.np.mean((lib.np.tanh(x @ p[0] + p[1]) @ p[2] - y) ** 2)

    return loss, p, normal(rng, 5, 4, 6), normal(rng, 5, 4, 3)


def layer_norm(rng: Any) -> Any:
    p = {"w": normal(rng, 6, 8), "scale": 1 + normal(rng, 8), "shift": normal(rng, 8)}

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        h = x @ p["w"]
        h = h - lib.np.mean(h, axis=-1, keepdims=True)
        h = h / lib.np.sqrt(lib.np.mean(h**2, axis=-1, keepdims=True) + 1e-3)
        return lib.np.mean((h * p["scale"] + p["shift"] - y) ** 2)

    return loss, p, normal(rng, 5, 4, 6), normal(rng, 5, 4, 8)


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
    "tied embedding": tied_embedding,
    "sequence": sequence,
    "layer norm": layer_norm,
    "convolution": convolution,
    "transformer": transformer,
}


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


def by_einsum(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    g = per_example(lib, loss)(p, x, y)
    n = sum([lib.np.einsum("b...,b...->b", a, a) for a in jax.tree.leaves(g)])
    c = 1 / lib.np.maximum(1.0, lib.np.sqrt(n) / 0.5)
    return jax.tree.map(lambda a: lib.np.einsum("b,b...->...", c, a), g)


def inside(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    def clipped(p: Any, x: Any, y: Any) -> Any:
        g = lib.ft.grad(partial(loss, lib))(p, x, y)
        n = lib.np.sqrt(sum([lib.np.sum(a**2) for a in jax.tree.leaves(g)]))
        return jax.tree.map(lambda a: a * lib.np.minimum(1.0, 0.5 / n), g)

    g = lib.ft.vmap(clipped, (None, 0, 0))(p, x, y)
    return jax.tree.map(lambda a: lib.np.mean(a, axis=0), g)


def flat(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    def one(p: Any, x: Any, y: Any) -> Any:
        g = jax.tree.leaves(lib.ft.grad(partial(loss, lib))(p, x, y))
        g = lib.np.concatenate([a.reshape(-1) for a in g])
        return g * lib.np.minimum(1.0, 0.5 / lib.np.sqrt(lib.np.vdot(g, g)))

    return lib.np.sum(lib.ft.vmap(one, (None, 0, 0))(p, x, y), axis=0)


def by_layer(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    g = per_example(lib, loss)(p, x, y)
    return jax.tree.map(lambda a: lib.np.tensordot(factors(lib, [a]), a, 1), g)


def scanned(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    """Microbatches of two (the last ones left out), summed in a loop."""
    n = len(x) // 2

    def step(total: Any, xy: Any) -> Any:
        return jax.tree.map(lambda a, b: a + b, total, by_tensordot(lib, loss, p, *xy)), None

    parts = [a[: 2 * n].reshape(n, 2, *a.shape[1:]) for a in (x, y)]
    return lib.lax.scan(step, jax.tree.map(lib.np.zeros_like, p), tuple(parts))[0]


def mapped(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    n = len(x) // 2
    parts = [a[: 2 * n].reshape(n, 2, *a.shape[1:]) for a in (x, y)]
    g = lib.lax.map(lambda xy: by_product(lib, loss, p, *xy), tuple(parts))
    return jax.tree.map(lambda a: a.sum(0), g)


def noise(lib: Any, loss: Any, p: Any, x: Any, y: Any) -> Any:
    """Mean and variance of the gradients of single examples."""
    g = per_example(lib, loss)(p, x, y)
    m = jax.tree.map(lambda a: lib.np.mean(a, axis=0), g)
    v = [lib.np.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (g, m)), strict=True)]
    return m, sum(v)


WAYS = {f.__name__: f for f in (
    by_tensordot, by_product, by_einsum, inside, flat, by_layer, scanned, mapped, noise,
)}  # fmt: skip


def cast(x: Any, dtype: str) -> Any:
    return jax.tree.map(lambda a: jnp.asarray(a, dtype if a.dtype.kind == "f" else None), x)


def try_model(model: str, way: str, dtype: str, compiled: bool, seed: int = 3) -> None:
    """The optimised step against the step as written, or against JAX's, compiled."""
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
        what = f"{model} {way}"
        close(reference.run(made, leaves), reference.run(program, leaves), tolerance, what)
        if compiled:
            wanted = jax.jit(partial(WAYS[way], JAX, loss))(*args)
            close(ft.jit(lambda *xs: step(*xs))(*args), wanted, tolerance, what)
            close(reference.run(made, leaves), wanted, tolerance, what)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", MODELS)
def test_per_example_gradients(model, dtype, monkeypatch):
    chosen(monkeypatch, Everything)
    ways = list(WAYS)
    at = list(MODELS).index(model)
    for way in (ways[at % len(ways)], ways[(at + 4) % len(ways)]):
        try_model(model, way, dtype, compiled=False)


@pytest.mark.parametrize(
    ("model", "way"), [("mlp", "by_einsum"), ("embeddings", "inside"), ("tied", "noise")]
)
def test_compiled(model, way, monkeypatch):
    chosen(monkeypatch, Everything)
    try_model(model, way, "float32", compiled=True)


@pytest.mark.heavy
@pytest.mark.parametrize("search", [Everything, Loops, Grams, GramLoops])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
def test_every_way_of_clipping(model, way, dtype, search, monkeypatch):
    chosen(monkeypatch, search)
    try_model(model, way, dtype, compiled=search is Everything)


# --- what it is worth -----------------------------------------------------------------------------


def shapes_made(program: Program) -> list[tuple[int, ...]]:
    inner = [s for p in program.children for s in shapes_made(p)]
    return inner + [v.type.shape for e in program.equations for v in e.outputs]


def large_mlp(rng: Any) -> Any:
    p = [(normal(rng, 90, 80), normal(rng, 80)), (normal(rng, 80, 70), normal(rng, 70))]
    return mlp(rng)[0], p, normal(rng, 60, 90), normal(rng, 60, 70)


def large_gated(rng: Any) -> Any:
    p = [tuple([normal(rng, 80, 80) for _ in range(3)]) for _ in range(2)]
    return gated(rng)[0], p, normal(rng, 60, 80), normal(rng, 60, 80)


def large_tied(rng: Any) -> Any:
    p = {"w": normal(rng, 80, 80), "b": normal(rng, 80)}
    return tied(rng)[0], p, normal(rng, 60, 80), normal(rng, 60, 80)


def large_embedding(rng: Any) -> Any:
    p = {"e": normal(rng, 900, 50), "w": normal(rng, 50, 3)}
    x = rng.integers(0, 900, (60, 5)).astype("int32")
    return embedding(True)(rng)[0], p, x, normal(rng, 60, 3)


def large_sequence(rng: Any) -> Any:
    p = [normal(rng, 200, 220), normal(rng, 220), normal(rng, 220, 210)]
    return sequence(rng)[0], p, normal(rng, 40, 3, 200), normal(rng, 40, 3, 210)


LARGE = {f.__name__: f for f in (
    large_mlp, large_gated, large_tied, large_embedding, large_sequence,
)}  # fmt: skip


@pytest.mark.parametrize("way", ["by_tensordot", "by_product", "by_einsum", "inside", "by_layer"])
@pytest.mark.parametrize("model", LARGE)
def test_no_gradient_of_an_example_is_made(model, way):
    loss, *args = LARGE[model](np.random.default_rng(0))
    args = cast(args, "float32")
    program = ft.jit(partial(WAYS[way], OURS, loss)).program(*args)
    n = len(args[1])
    large = {(n, *a.shape) for a in jax.tree.leaves(args[0]) if a.size > 1000}
    made = [s for s in shapes_made(program) if sorted(s) in [sorted(t) for t in large]]
    assert not made


@pytest.mark.parametrize("model", ["large_mlp", "large_embedding"])
def test_memory_and_values(model):
    loss, *args = LARGE[model](np.random.default_rng(0))
    args = cast(args, "float32")
    ours = ft.jit(partial(by_tensordot, OURS, loss)).lower(*args).compile()
    theirs = jax.jit(partial(by_tensordot, JAX, loss)).lower(*args).compile()
    sizes = [f.memory_analysis().temp_size_in_bytes for f in (ours, theirs)]
    assert sizes[0] * 5 < sizes[1]
    close(ours(*args), theirs(*args), 1e-5)


# --- special values and shapes --------------------------------------------------------------------

AXES = [
    (0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0), (1, 1, 1, 1), (1, 3, 4, 5),
    (3, 1, 1, 5), (3, 2, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("search", [Everything, Grams, Loops, GramLoops])
@pytest.mark.parametrize("sizes", AXES)
def test_axes_of_no_and_of_one_element(sizes, search, monkeypatch):
    chosen(monkeypatch, search)
    b, t, i, j = sizes
    x, d = np.ones((b, t, i), np.float32), 2 * np.ones((b, t, j), np.float32)

    def f(x: Any, d: Any) -> Any:
        g = fnp.einsum("bti,btj->bij", x, d)
        n = summed_squares(g.reshape(b, j, i)) if i * j else summed_squares(g)
        return n, fnp.tensordot(n, g, 1), fnp.sum(g.reshape(-1))

    program = ft.make_ir(f)(x, d)
    made = ft.passes.contract(program)
    check(made)
    wanted = reference.run(program, [x, d])
    close(reference.run(made, [x, d]), wanted, 1e-6)
    close(ft.jit(lambda *xs: f(*xs))(x, d), wanted, 1e-6)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e30])
@pytest.mark.parametrize("model", ["mlp", "tied", "embeddings"])
def test_infinities_and_nans_do_not_fail(model, value, monkeypatch):
    chosen(monkeypatch, Everything)
    loss, p, x, y = MODELS[model](np.random.default_rng(0))
    args = cast((p, x, np.full_like(y, value)), "float32")
    program = ft.make_ir(partial(by_tensordot, OURS, loss))(*args)
    made = ft.passes.optimize(program)
    with np.errstate(all="ignore"):
        leaves = [np.asarray(a) for a in jax.tree.leaves(args)]
        for a, b in zip(reference.run(made, leaves), reference.run(program, leaves), strict=True):
            assert a.shape == b.shape
            if not np.isfinite(b).all():
                assert not np.isfinite(a).all()


def test_an_infinite_example_does_not_reach_the_norms_of_others(monkeypatch):
    chosen(monkeypatch, Everything)
    x, d = np.ones((4, 3, 5), np.float32), np.ones((4, 3, 6), np.float32)
    x[1, 0, 0], d[2, 1, 1] = np.inf, np.nan
    f = ft.jit(lambda x, d: summed_squares(fnp.einsum("bti,btj->bij", x, d)))
    y = np.asarray(f(x, d))
    assert np.isfinite(y).tolist() == [True, False, False, True]
    np.testing.assert_allclose(y[[0, 3]], 9 * 30)


def test_transformations_of_a_jitted_step(monkeypatch):
    chosen(monkeypatch, Everything)
    _, *args = mlp(np.random.default_rng(0))
    args = cast((args[0][0][0], *args[1:]), "float32")

    def loss(lib: Any, p: Any, x: Any, y: Any) -> Any:
        return lib.np.sum(lib.np.tanh(x @ p) ** 2) * lib.np.mean(y)

    def total(lib: Any, p: Any, x: Any, y: Any) -> Any:
        g = lib.ft.jit(partial(by_product, lib, loss))(p, x, y)
        return sum([lib.np.sum(a**3) for a in jax.tree.leaves(g)])

    def batch(lib: Any, f: Any) -> Any:
        return lib.ft.vmap(f, (None, 0, 0))

    more = [a[None] * jnp.ones((2, *[1] * a.ndim), a.dtype) for a in args[1:]]
    for make, given in (
        (lambda lib: lib.ft.grad(partial(total, lib)), args),
        (lambda lib: lambda *xs: lib.ft.jvp(partial(total, lib), xs, xs), args),
        (lambda lib: lib.ft.jit(batch(lib, lib.ft.grad(partial(total, lib)))), (args[0], *more)),
    ):
        close(
            make(OURS)(*given), make(JAX)(*given), 1e-4
        )  # a sum of cubes: three roundings of 1e-5


# --- long programs --------------------------------------------------------------------------------


def chain(n: int, step: Any, end: Any) -> Program:
    """x @ w, n steps of some operations, and what is made of it."""

    def f(x: Any, w: Any) -> Any:
        z = x @ w
        for i in range(n):
            z = step(z, x, w, i)
        return end(z)

    return ft.make_ir(f)(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))


STEPS: dict[str, Any] = {
    "negated": lambda z, x, w, i: -z,
    "squared": lambda z, x, w, i: z * z,
    "doubled": lambda z, x, w, i: z + z,
    "reshaped": lambda z, x, w, i: z.reshape(2, 8) if i % 2 else z.reshape(4, 4),
    "added": lambda z, x, w, i: z.reshape(4, 4) + x @ w,
}


@pytest.mark.parametrize("end", [fnp.sum, lambda z: fnp.sum(fnp.sin(z)), lambda z: z])
@pytest.mark.parametrize("step", STEPS)
def test_long_chains(step, end, monkeypatch):
    chosen(monkeypatch, Everything)
    program = chain(2000, STEPS[step], end)
    check(ft.passes.contract(program))


def test_a_very_long_chain(monkeypatch):
    chosen(monkeypatch, Everything)
    check(ft.passes.contract(chain(50_000, STEPS["negated"], fnp.sum)))
    program = chain(8_000, lambda z, x, w, i: z + fnp.sum(x @ (w * float(i))), fnp.sum)
    check(ft.passes.contract(program))
