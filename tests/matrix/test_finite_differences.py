"""Every derivative by finite differences in float64: control flow, solvers, custom rules, checkpoint.

`TABLE` holds functions of a vector of four, which return pytrees. Of each, along one direction,

    jvp             against the central difference of the function
    vjp             against jvp, by their dot products
    jvp of vjp      against the central difference of the gradient
    un-jitted       against jitted

The difference is Richardson's, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, with an error of
h^4 f'''''/30 + 1.5 eps |f| / h; for h = 1e-3 and fifth derivatives up to 1e3 that is 3e-11.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.ad_checkpoint import checkpoint_name
from functrans.experimental.jet import jet
from tests.support.versions import QUICK

Function = Callable[[Any], Any]

STEP = 1e-3
TOLERANCE = 1e-8  # of differences: thirty times and more what is said above; solvers end at 1e-13
SAME = 1e-11  # of dot products, and jitted against un-jitted: roundings of some dozens of sums

X = np.array([0.4, -0.7, 1.1, 0.3])
V = np.array([0.8, 0.5, -0.6, 1.2])
W = np.array([[0.2, -0.5, 0.1, 0.3], [0.4, 0.3, -0.2, 0.1], [-0.1, 0.6, 0.5, -0.3], [0.2, 0.1, -0.4, 0.6]])


# --- the check ------------------------------------------------------------------------------------


def flat(f: Function) -> Function:
    """The results of f as one vector."""
    return lambda x: jnp.concatenate([jnp.ravel(y) for y in ft.tree.leaves(f(x))])


def weights(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=n)


def derivatives(f: Function) -> Callable[[Any, Any], tuple[Any, ...]]:
    """(x, v) -> f(x), its derivative along v, the gradient of a weighted sum of f, and that
    gradient's derivative along v."""

    def gradient(x):
        y, pull = ft.vjp(f, x)
        return pull(jnp.asarray(weights(y.size)))[0]

    def all_of_them(x, v):
        y, dy = ft.jvp(f, (x,), (v,))
        g, dg = ft.jvp(gradient, (x,), (v,))
        return y, dy, g, dg

    return all_of_them


fast = functools.partial(ft.jit, compiler_options=QUICK)


def difference(at: Callable[[float], Any]) -> list[np.ndarray]:
    """d/dt of the results of `at`, at 0."""
    ends = [[np.asarray(y) for y in at(n * STEP)] for n in (1, -1, 2, -2)]
    return [(8 * (a - b) - (c - d)) / (12 * STEP) for a, b, c, d in zip(*ends, strict=True)]


def close(got: Any, want: Any, tolerance: float, what: str) -> None:
    size = 1.0 + np.abs(np.asarray(want)).max()
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * size, err_msg=what)


@jax.enable_x64(True)
def check(f: Function, frozen: Function | None = None) -> None:
    """`frozen`: what to take differences of, where that is not f."""
    f = flat(f)
    compiled = fast(derivatives(f))
    y, dy, g, dg = compiled(X, V)
    assert {a.dtype for a in (y, dy, g, dg)} == {np.dtype("float64")}
    assert np.abs(dy).max() > 1e-3, "the row should move"
    moved = compiled if frozen is None else fast(derivatives(flat(frozen)))
    slope, _, bend, _ = difference(lambda t: moved(X + t * V, V))
    close(dy, slope, TOLERANCE, "jvp")
    close(np.dot(g, V), np.dot(weights(y.size), dy), SAME, "vjp")
    close(dg, bend, TOLERANCE, "jvp of vjp")
    program = ft.ir.check(ft.make_ir(derivatives(f))(X, V))
    assert ft.ir.equal(ft.ir.parse(ft.ir.show(program), program.values), program)
    close(ft.interpret(program, X, V)[-1], dg, SAME, "reference")
    x, v = jnp.asarray(X), jnp.asarray(V)
    again, moving = ft.jvp(f, (x,), (v,))
    close(again, y, SAME, "un-jitted")
    close(moving, dy, SAME, "un-jitted jvp")
    _, pull = ft.vjp(f, x)
    for _ in range(2):  # a pullback may be used again
        close(pull(jnp.asarray(weights(y.size)))[0], g, SAME, "un-jitted vjp")


# --- the table ------------------------------------------------------------------------------------


TABLE: dict[str, tuple[Function, Function | None]] = {}


def row(name: str, f: Function, frozen: Function | None = None) -> None:
    assert name not in TABLE
    TABLE[name] = f, frozen


def bend(c: Any) -> Any:
    """A smooth map of vectors, with derivatives of every order near one."""
    return jnp.sin(W @ c) + 0.3 * c


def product(x: Any) -> Any:
    return jnp.sin(x) * jnp.exp(-x[::-1])


# Control flow.
row("cond, operands", lambda x: lax.cond(x[0] > -9, lambda a, b: a * bend(b), lambda a, b: a, x, x[::-1]))
row(
    "cond, pytrees",
    lambda x: lax.cond(
        x.sum() < 0,
        lambda d: {"p": d["a"] * d["b"], "q": d["b"][0]},
        lambda d: {"p": bend(d["a"]), "q": 2.0 * d["b"][1]},
        {"a": x, "b": jnp.sin(x)},
    ),
)


def until_small(x, **how):
    """Three steps, as many as the values say."""
    step = lambda c: (c[0] + 1, bend(c[1]) * 0.6)  # noqa: E731
    return lax.while_loop(
        lambda c: (c[0] < 7) & ((c[1] ** 2).sum() > 0.02), step, (jnp.asarray(0), x), **how
    )[1]


row("while_loop", until_small)
row("while_loop, max_steps", lambda x: until_small(x, max_steps=9))
row("fori_loop, known bounds", lambda x: lax.fori_loop(1, 4, lambda i, c: bend(c) + i * x, x, unroll=2))


def traced(x, **how):
    return lax.fori_loop(0, 2 + (x[0] > 0), lambda i, c: bend(c) + i * x, x, **how)


row("fori_loop, traced bounds", traced)
row("fori_loop, traced bounds, max_steps", lambda x: traced(x, max_steps=4))


def scanned(x):
    def step(c, s):
        new = bend(c["a"]) * s["p"] + x
        return {"a": new, "n": c["n"] + s["q"]}, (new.sum(), {"s": new * c["n"]})

    init = {"a": x, "n": x[0]}
    return lax.scan(step, init, {"p": jnp.cos(x), "q": x[::-1] * x})


row("scan of pytrees", scanned)
row("scan, reverse", lambda x: lax.scan(lambda c, s: (bend(c) * s, c), x, x[:3], reverse=True, unroll=2))
row("map", lambda x: lax.map(lambda s: jnp.sin(s) * x, x, batch_size=3))


def composed(a, b):
    """Of two affine maps of numbers."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def affine(p, q):
    """Of two affine maps of vectors."""
    return q[0] @ p[0], jnp.einsum("tij,tj->ti", q[0], p[1]) + q[1]


def updated(i, c, x):
    c = c.at[i].set(c[i - 1] * x[0] + i)
    return c.at[3 - i].multiply(c[i]).at[0].add(x[1])


row("associative_scan", lambda x: lax.associative_scan(composed, (jnp.cos(x), x)))
row(
    "associative_scan of two ranks",
    lambda x: lax.associative_scan(affine, (jnp.sin(x)[:3, None, None] * W[:2, :2], (W + x)[:3, :2])),
)
row("updates in place", lambda x: lax.fori_loop(1, 4, lambda i, c: updated(i, c, x), jnp.cos(x)))
row("select_n", lambda x: lax.select_n((x > 0).astype("int32"), jnp.sin(x), x * x[0]))
row("cumsum", lambda x: lax.cumsum(jnp.sin(x) * x))
row("cumprod, reverse", lambda x: lax.cumprod(jnp.sin(x) * x, reverse=True))
row("cummax", lambda x: lax.cummax(jnp.sin(x) * x))
row("cumlogsumexp", lambda x: lax.cumlogsumexp(jnp.sin(x) * x))


# Solvers.


def newton(f, guess):
    """And how many steps it took."""

    def step(c):
        value, slope = ft.jvp(f, (c[0],), (jnp.ones_like(c[0]),))
        return c[0] - value / slope, c[1] + 1.0

    return lax.while_loop(lambda c: (abs(f(c[0])).max() > 1e-13) & (c[1] < 30), step, (guess, 0.0))


def iterated(matvec, b):
    """x <- x + b - A x, for A near one."""
    step = lambda y: ft.tree.map(lambda y, b, a: y + b - a, y, b, matvec(y))  # noqa: E731
    return lax.fori_loop(0, 45, lambda _, y: step(y), b)


def root(x):
    def f(y):
        return y**3 + (1 + x**2) * y - jnp.exp(x)

    y, steps = lax.custom_root(f, jnp.ones(4), newton, lambda g, z: z / g(jnp.ones(4)), has_aux=True)
    return y + (steps < 30)


def solved(x):
    return lax.custom_linear_solve(
        lambda v: v + 0.3 * jnp.cos(x[0]) * (W @ v), jnp.sin(x), iterated, iterated
    )


def solved_symmetric(x):
    return lax.custom_linear_solve(lambda v: v + 0.2 * x[0] * (W @ v + W.T @ v), x, iterated, symmetric=True)


def solved_pytrees(x):
    def matvec(v):
        return {"p": v["p"] + 0.2 * x * v["q"], "q": v["q"] + 0.1 * v["p"].sum()}

    def solve(matvec, b):
        return iterated(matvec, b), {"steps": 45}

    y, aux = lax.custom_linear_solve(matvec, {"p": jnp.sin(x), "q": x[0]}, solve, solve, has_aux=True)
    return y["p"] * y["q"] + aux["steps"]


def solved_in_steps(x):
    def step(c, s):
        c = lax.custom_linear_solve(lambda v: v + 0.1 * c.sum() * (W @ v), s * x, iterated, iterated)
        y, _ = lax.custom_root(lambda y: y**3 + y - c[0], 0.5, newton, lambda g, z: z / g(1.0), has_aux=True)
        return c, y

    return lax.scan(step, x, x[:2])


row("custom_root", root)
row("custom_linear_solve", solved)
row("custom_linear_solve, symmetric", solved_symmetric)
row("custom_linear_solve of pytrees", solved_pytrees)
row("solvers in a scan under vmap", lambda x: ft.vmap(solved_in_steps)(jnp.stack([x, x * x])))


# Rules that are Python. (Others are compared with JAX's: test_custom_*.py.)


@ft.custom_jvp
def by_numpy(x):
    return ft.pure_callback(np.sin, ft.ShapeDtypeStruct(x.shape, x.dtype), x)


by_numpy.defjvps(lambda dx, out, x: jnp.cos(x) * dx)

row("stop_gradient", lambda x: jnp.sin(x) * lax.stop_gradient(x * x), lambda x: jnp.sin(x) * X**2)
row("pure_callback in a custom_jvp", lambda x: by_numpy(x * x[0]))


# Checkpoint.

POLICIES = {"no policy": None, "dots_saveable": ft.checkpoint_policies.dots_saveable}


def layer(w, x):
    h = checkpoint_name(jnp.tanh(w @ x), "a")
    return jnp.sin(w @ h) * x


def in_a_scan(f: Any, x: Any) -> Any:
    return lax.scan(lambda c, s: (f(W + s, c), None), x, jnp.cos(x[:2]))[0]


for name, policy in POLICIES.items():
    of = ft.checkpoint(layer, policy=policy)
    row(f"checkpoint, {name}", lambda x, f=of: f(W * x, x))
    inside = functools.partial(in_a_scan, ft.checkpoint(layer, policy=policy, prevent_cse=False))
    row(f"checkpoint, {name}, in a scan under vmap", lambda x, f=inside: ft.vmap(f)(jnp.stack([x, x * x])))


# Transformations as functions. Others are compared with JAX's, collectives too.


def doubled(equation: Any, values: list[Any]) -> Any:
    """Another meaning of sin."""
    out = equation.primitive(*values, **equation.params)
    return out * 2.0 if equation.primitive.name == "sin" else out


def recorded(x: Any, *how: Any) -> Any:
    return ft.evaluate(ft.make_ir(product)(x), [x], *how)


row("jet", lambda x: jet(bend, (x,), ((jnp.cos(x), x),)))
row("evaluate", recorded)
row("evaluate, a meaning of one's own", lambda x: recorded(x, doubled))


# Compile for long, and stand beside a row that is much the same.
SWEPT = {"while_loop, max_steps", "fori_loop, traced bounds, max_steps"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.sweep] * (n in SWEPT)) for n in TABLE])
def test_derivatives(name):
    check(*TABLE[name])
