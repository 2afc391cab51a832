"""The contraction pass keeps the numbers: accuracy, special values, random and long programs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.backends import reference
from functrans.ir import PRIMITIVES, Program, check
from tests.unit.contraction_searches import (
    NARROW,
    Everything,
    GramLoops,
    Grams,
    Loops,
    chosen,
    close,
    outer,
    summed_squares,
)

pytestmark = pytest.mark.smoke

P = PRIMITIVES


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
                x = self.made(self.pick(self.kinds), self.pick(self.values[-5:]))
                if x.size <= 3000:
                    self.values.append(x)
            made = self.values[n:][-3:]
            return [fnp.sum(made[0])] + [self.ended(x) for x in made[1:]] if made else []

        return run

    def ended(self, x: Any) -> Any:
        return self.total(self.pick([P["square"], lambda y: y])(x))

    def made(self, kind: str, x: Any) -> Any:
        return OF_ONE_LINE[kind](self, x) if kind in OF_ONE_LINE else getattr(self, kind)(x)

    # one operation each, and in OF_ONE_LINE

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

    def outer(self, x: Any) -> Any:
        y = self.pick(self.values)
        if x.ndim + y.ndim > 5:
            return x
        names = list(range(x.ndim + y.ndim))
        left = P["broadcast_in_dim"](x, shape=(*x.shape, *y.shape), dimensions=tuple(names[: x.ndim]))
        right = P["broadcast_in_dim"](y, shape=(*x.shape, *y.shape), dimensions=tuple(names[x.ndim :]))
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

    def total(self, x: Any) -> Any:
        over = tuple([i for i in range(x.ndim) if self.rng.random() < 0.5])
        return P["reduce_sum"](x, axes=over) if over else x

    def masked(self, x: Any) -> Any:
        if x.ndim != 2:
            return x
        if self.rng.random() < 0.5:
            return x * fnp.eye(*x.shape, dtype=x.dtype)
        return fnp.where(fnp.eye(*x.shape, dtype=bool), x, 0)

    def scattered(self, x: Any) -> Any:
        if not x.ndim or x.ndim > 3 or not 0 < x.shape[0] <= 6:
            return x
        mode = self.pick(["drop", "clip"])
        zeros = fnp.zeros((5, *x.shape[1:]), x.dtype)
        return zeros.at[self.pick(self.index)[: x.shape[0]]].add(x, mode=mode)


OF_ONE_LINE: dict[str, Callable[[Maker, Any], Any]] = {
    "mul": lambda m, x: x * m.matched(x),
    "add": lambda m, x: x + m.matched(x),
    "sub": lambda m, x: x - m.matched(x),
    "neg": lambda m, x: -x,
    "square": lambda m, x: P["square"](x),
    "pow": lambda m, x: P["integer_pow"](x, y=int(m.pick([2, 2, 3]))),
    "twice": lambda m, x: x * x,
    "scaled": lambda m, x: x * m.pick([0.5, -1.5, 2.0]),
    "divided": lambda m, x: x / m.pick([0.5, -3.0, 2.0]),
    "transposed": lambda m, x: fnp.transpose(x, tuple([int(i) for i in m.rng.permutation(x.ndim)])),
    "unit": lambda m, x: fnp.expand_dims(x, int(m.rng.integers(0, x.ndim + 1))) if x.ndim < 5 else x,
    "diagonal": lambda m, x: fnp.diagonal(x) if x.ndim == 2 and x.shape[0] == x.shape[1] else x,
}
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
    values = dict(zip(program.inputs, [np.abs(x) if x.dtype.kind == "f" else x for x in xs], strict=True))

    def get(v: Any) -> Any:
        if v in values:
            return values[v]
        value = np.full(v.type.shape, v.value, v.type.dtype)
        return np.abs(value) if value.dtype.kind == "f" else value

    for e in program.equations:
        args = [get(v) for v in e.inputs]
        if e.primitive is P["neg"]:
            out: Any = args[0]
        elif e.primitive is P["sub"] and e.outputs[0].type.dtype.kind == "f":
            out = args[0] + args[1]
        elif e.primitive is P["jit"]:
            out = magnitudes(e.params["program"], args)
        else:
            out = e.primitive.reference(*args, **e.params)
        outs = out if isinstance(out, (list, tuple)) else [out]
        for v, o in zip(e.outputs, outs, strict=True):
            o = np.asarray(o)
            values[v] = np.abs(o) if o.dtype.kind == "f" else o
    return [get(v) for v in program.outputs]


@pytest.mark.parametrize("search", [Everything, Loops, Grams, GramLoops])
def test_random_programs(search, monkeypatch):
    done = [try_random(seed, 10, search, monkeypatch) for seed in range(50)]
    assert sum(done) >= 15


@pytest.mark.heavy
@pytest.mark.parametrize("search", [Everything, Loops, Grams, GramLoops])
def test_many_random_programs(search, monkeypatch):
    for seed in range(1000, 6000):
        try_random(seed, 6 + seed % 12, search, monkeypatch)
