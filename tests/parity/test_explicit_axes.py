"""Meshes with explicit axes, where types hold shardings: programs under ft.jit and under jax.jit, on
eight virtual CPU devices. Values, layouts, the types in the middle and the errors are JAX's.

The cases run in the process that test_on_eight_devices.py starts; those marked `sweep`, and all of
them written with our functions, in the one of sweep/test_on_eight_devices.py.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest

import functrans as ft
from functrans import P

INSIDE = len(jax.devices()) == 8
USUAL = 24  # the first cases, which are in the default run
JAX: Any = (jax, J, jax.lax)
OURS: Any = (ft, ft.numpy, ft.lax)
MESH = jax.make_mesh((4, 2), ("x", "y")) if INSIDE else ft.make_mesh((1, 1), ("x", "y"))


def put(a: Any, *spec: Any) -> Any:
    return jax.device_put(a, jax.NamedSharding(MESH, P(*spec)))


X = put(J.arange(64.0).reshape(16, 4) / 64, "x", "y")
W = put(J.ones((4, 6)) * 0.1, "y", None)
ROWS = np.array([0, 2])
SEEN: list[str] = []


def see(x: Any) -> Any:
    SEEN.append(str(jax.typeof(x)))
    return x


def loss(n: Any) -> Any:
    return lambda w: n.sum(see(n.tanh(J.dot(X, w, out_sharding=P("x", None)))) ** 2)


def part(n: Any, lx: Any) -> Any:
    return lambda x: see(x) * n.sin(lx.psum(x.sum(), "x"))


# name -> function of (library, its numpy, its lax, x)
CASES: dict[str, Any] = {
    "elementwise": lambda m, n, lx, x: see(n.sin(x) * 2) + 1,
    "product, asked": lambda m, n, lx, x: see(J.dot(x.T, x, out_sharding=P("y", None))),
    "product, ambiguous": lambda m, n, lx, x: see(n.dot(x.T, x)),
    "einsum, asked": lambda m, n, lx, x: see(J.einsum("ab,bc->ac", x, W, out_sharding=P("x"))),
    "sum": lambda m, n, lx, x: see(x.sum(0)) + see(n.mean(x, axis=0)),
    "transpose": lambda m, n, lx, x: see(n.transpose(x)) * 2,
    "reshape, asked": lambda m, n, lx, x: see(J.reshape(x, (64,), out_sharding=P("x"))),
    "reshape, ambiguous": lambda m, n, lx, x: see(n.reshape(n.tile(x, (3, 1)), (6, 32))),
    "broadcast": lambda m, n, lx, x: see(x[None] + n.ones((3, 1, 1))),
    "shardings that differ": lambda m, n, lx, x: see(n.add(x, jax.sharding.reshard(x, P("y", "x")))),
    "reshard": lambda m, n, lx, x: see(jax.sharding.reshard(n.cos(x), P(None, "x"))) + 1,
    "zeros": lambda m, n, lx, x: see(J.zeros((16, 4), out_sharding=P("x", "y"))) + x,
    "get": lambda m, n, lx, x: see(x.at[ROWS].get(out_sharding=P(None, "y"))),
    "set": lambda m, n, lx, x: see(x.at[ROWS].set(1.0, out_sharding=P("x", "y"))),
    "index, ambiguous": lambda m, n, lx, x: see(x[ROWS]),
    "shard_map": lambda m, n, lx, x: see(m.shard_map(part(n, lx), out_specs=P("x", "y"))(x * 1)),
    "shard_map, wrong spec": lambda m, n, lx, x: m.shard_map(part(n, lx), in_specs=P("y"), out_specs=P("x"))(
        x * 1
    ),
    "gradient": lambda m, n, lx, x: see(m.grad(loss(n))(W)),
    "vmap": lambda m, n, lx, x: see(m.vmap(lambda r: see(n.sin(r)) * 2)(x)),
    "vmap over a mesh axis": lambda m, n, lx, x: see(
        m.vmap(lambda r: see(n.exp(r)) * 2, spmd_axis_name="x")(x)
    ),
    "scan": lambda m, n, lx, x: see(lx.scan(lambda c, _: (see(n.sin(c)), see(c.sum(0))), x, length=3)[0]),
    "cond": lambda m, n, lx, x: see(lx.cond(x.sum() > 0, lambda x: see(x * 2), lambda x: x - 1, x)),
    "auto_axes": lambda m, n, lx, x: see(
        jax.sharding.auto_axes(lambda x: see(x.T @ x), out_sharding=P("y", None))(x)
    ),
    "explicit_axes": lambda m, n, lx, x: jax.sharding.auto_axes(
        lambda x: jax.sharding.explicit_axes(lambda x: see(n.sin(x)), in_sharding=P("x", None))(x),
        out_sharding=P("x", "y"),
    )(x),
    # --- in the sweep
    "product with @": lambda m, n, lx, x: see(x @ n.ones((4, 3))),
    "einsum, ambiguous": lambda m, n, lx, x: see(n.einsum("ab,bc->ac", x, W)),
    "max": lambda m, n, lx, x: see(n.max(x)),
    "reshape": lambda m, n, lx, x: see(n.reshape(x, (4, 4, 4))),
    "index, not divisible": lambda m, n, lx, x: see(x[0]),
    "concatenate": lambda m, n, lx, x: see(n.concatenate([x, x], axis=1)),
    "sort": lambda m, n, lx, x: see(n.sort(x, axis=1)),
    "softmax": lambda m, n, lx, x: see(m.nn.softmax(x, axis=0)),
    "ones_like": lambda m, n, lx, x: see(n.ones_like(x)),
    "arange": lambda m, n, lx, x: see(J.arange(16, out_sharding=P("x"))) + x.sum(1),
    "random": lambda m, n, lx, x: see(jax.random.normal(jax.random.key(0), (16, 4), out_sharding=P("x"))),
    "shard_map over one axis": lambda m, n, lx, x: see(
        m.shard_map(part(n, lx), out_specs=P("x"), axis_names={"x"})(x * 1)
    ),
    "gradient through shard_map": lambda m, n, lx, x: see(
        m.grad(lambda x: n.sum(m.shard_map(part(n, lx), out_specs=P("x", "y"))(x * 1) ** 2))(x)
    ),
    "gradient of a checkpoint": lambda m, n, lx, x: see(
        m.grad(m.checkpoint(lambda x: n.sum(n.sin(n.sin(x)))))(x)
    ),
    "gradient of a scan": lambda m, n, lx, x: see(
        m.grad(lambda x: lx.scan(lambda c, _: (see(n.sin(c)), None), x, length=3)[0].sum())(x)
    ),
    "jvp": lambda m, n, lx, x: see(m.jvp(n.sin, (x,), (x,))[1]),
    "jacobian": lambda m, n, lx, x: see(m.jacfwd(n.sin)(x.sum(1))),
    "hessian": lambda m, n, lx, x: see(m.hessian(lambda v: n.sum(n.sin(v)))(x.sum(1))),
    "a loop": lambda m, n, lx, x: see(lx.fori_loop(0, 3, lambda i, c: see(n.cos(c)), x)),
    "a loop of unknown length": lambda m, n, lx, x: see(
        lx.while_loop(lambda c: n.sum(c) < 99, lambda c: c * 2, x)
    ),
    "custom_jvp": lambda m, n, lx, x: see(m.grad(lambda x: n.sum(m.nn.relu(x) * 2))(x)),
    "custom_vjp": lambda m, n, lx, x: see(with_rule(m, n)(x) * 2),
    "custom_vjp in a vmap": lambda m, n, lx, x: see(m.vmap(with_rule(m, n))(x)),
    "gradient of a custom_vjp": lambda m, n, lx, x: see(m.grad(lambda x: n.sum(with_rule(m, n)(x)))(x)),
    "a jit inside": lambda m, n, lx, x: see(m.jit(lambda x: see(n.sin(x)))(x)),
    "gradient of a jit": lambda m, n, lx, x: see(m.grad(m.jit(lambda x: n.sum(n.sin(x) ** 2)))(x)),
    "constraint that asserts": lambda m, n, lx, x: jax.lax.with_sharding_constraint(x * 2, P("y", "x")),
    "several results": lambda m, n, lx, x: {"a": x * 2, "b": (see(x.sum(1)), x, n.ones(3))},
}


def with_rule(m: Any, n: Any) -> Any:
    f = m.custom_vjp(lambda x: n.sin(x))
    f.defvjp(lambda x: (n.sin(x), x), lambda x, ct: (2 * ct * n.cos(x),))
    return f


def outcome(jit: Any, library: Any, name: str) -> tuple[Any, ...]:
    """What a case gives: the class of its error, or its results with their types, and what it saw."""
    SEEN.clear()
    try:
        with jax.set_mesh(MESH):
            out = jit(lambda x: CASES[name](*library, x))(X)
    except Exception as error:
        return type(error).__name__, []
    types = [(y.sharding.spec, str(jax.typeof(y))) for y in jax.tree.leaves(out)]
    return types, sorted(set(SEEN)), jax.tree.map(np.asarray, out)


def compare(mine: Any, name: str) -> None:
    got, want = outcome(ft.jit, mine, name), outcome(jax.jit, JAX, name)
    assert got[:2] == want[:2]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), got[2:], want[2:])


if not INSIDE:

    def test_on_one_device():
        compare(OURS, "elementwise")

else:
    usual = [
        pytest.param(name, marks=[pytest.mark.sweep] if i >= USUAL else []) for i, name in enumerate(CASES)
    ]

    @pytest.mark.parametrize("name", usual)
    def test_as_in_jax(name):
        compare(JAX, name)

    @pytest.mark.sweep
    @pytest.mark.parametrize("name", CASES)
    def test_with_our_functions(name):
        compare(OURS, name)

    def test_outside_of_jit():
        with jax.set_mesh(MESH):
            for mine, theirs in (
                (ft.grad(loss(ft.numpy)), jax.grad(loss(J))),
                (ft.vmap(ft.numpy.sin), jax.vmap(J.sin)),
                (ft.grad(ft.jit(loss(J))), jax.grad(jax.jit(loss(J)))),
                (jax.grad(ft.jit(loss(ft.numpy))), jax.grad(loss(J))),
            ):
                got, want = mine(W), theirs(W)
                assert (str(jax.typeof(got)), got.sharding) == (str(jax.typeof(want)), want.sharding)
                np.testing.assert_allclose(got, want, rtol=1e-5)

    def test_another_sharding_is_traced_anew():
        f = ft.jit(lambda x: see(x * 2))
        SEEN.clear()
        with jax.set_mesh(MESH):
            for spec in ("x", "y"), ("y", "x"), ("x", "y"):
                f(put(X, *spec))
        assert SEEN == ["float32[16@x,4@y]", "float32[16@y,4@x]"]

    def test_the_mesh_of_the_arguments():
        f = ft.jit(lambda x: see(ft.grad(lambda x: ft.numpy.sum(ft.numpy.sin(x)))(x)))
        SEEN.clear()
        assert f(X).sharding.spec == P("x", "y")
        assert SEEN == ["float32[16@x,4@y]"]

    def test_passes_see_through_the_layouts():
        def norms(g):
            return J.linalg.norm(g, axis=1)

        def step(jit, w, x, y):
            gradient = jax.grad(jit(lambda w, x, y: (J.tanh(x @ w) - y) ** 2))
            g = jit(jax.vmap(gradient, (None, 0, 0)))(w, x, y)
            return J.mean(g * J.minimum(1.0, 1 / jit(norms)(g))[:, None], axis=0)

        args = J.ones(3), J.ones((16, 3)), J.zeros(16)
        for jit in (jax.jit, ft.jit):
            f = functools.partial(step, jit)
            plain = ft.jit(f).program(*args)
            with jax.set_mesh(MESH):
                program = ft.jit(f).program(put(args[0]), put(args[1], "x"), put(args[2], "x"))
            names, usual = [[e.primitive.name for e in p.equations] for p in (program, plain)]
            assert names.count("dot_general") == usual.count("dot_general") == 3  # the clipped sum, too
            assert names.index("sharding_constraint") == len(names) - 1
            np.testing.assert_allclose(ft.interpret(program, *args)[0], jax.jit(f)(*args), rtol=1e-4)

    def test_references():
        kept = jax.new_ref(X * 1)

        def f(x):
            own = jax.new_ref(x)
            own[...] = own[...] * 2
            kept[...] = kept[...] + own[...]
            return own[...]

        with jax.set_mesh(MESH):
            np.testing.assert_allclose(ft.jit(f)(X), X * 2)
        np.testing.assert_allclose(kept[...], X * 3)

    def test_loops_of_unknown_length_have_reverse_mode():
        def f(x):
            return ft.lax.while_loop(lambda c: c[1] < 3, lambda c: (ft.numpy.sin(c[0]), c[1] + 1), (x, 0))[0]

        with jax.set_mesh(MESH):
            got = ft.jit(ft.grad(lambda x: see(f(x)).sum()))(X)
            want = jax.grad(lambda x: J.sin(J.sin(J.sin(x))).sum())(X)
        np.testing.assert_allclose(got, want, rtol=1e-5)

    def test_specs_left_out_where_we_trace():
        def f(x):
            step = ft.shard_map(lambda x: x, out_specs=P("x", "y"))
            return ft.lax.while_loop(lambda x: x.sum() < 1, step, x)

        with jax.set_mesh(MESH), pytest.raises(NotImplementedError, match=r"Pass in_specs=(.|\n)*"):
            ft.jit(f)(X)
