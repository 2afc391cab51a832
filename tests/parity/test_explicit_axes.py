"""Meshes with explicit axes, where types hold shardings: programs under ft.jit and under jax.jit, on
eight virtual CPU devices. Values, layouts, the types in the middle and the errors are JAX's.

The cases run in the process that test_on_eight_devices.py starts.
"""

import functools
from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest

import functrans as ft
from functrans import P
from tests.support.tables import TABLES, functions

INSIDE = len(jax.devices()) == 8
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


CASES = functions(TABLES / "devices.txt", "explicit axes", "m, n, lx, x", globals())


def with_rule(m: Any, n: Any) -> Any:
    f = m.custom_vjp(lambda x: n.sin(x))
    f.defvjp(lambda x: (n.sin(x), x), lambda x, ct: (2 * ct * n.cos(x),))
    return f


def traced(m: Any, f: Any) -> Any:
    """The types of what f makes of X and of what it sees, or the class of its error."""
    SEEN.clear()
    try:
        out = m.eval_shape(f, X)
    except Exception as error:
        return type(error).__name__
    return [str(jax.typeof(y)) for y in jax.tree.leaves(out)], sorted(set(SEEN))


def compare(mine: Any, names: Any) -> None:
    ours, theirs = (
        {name: functools.partial(CASES[name], *library) for name in names} for library in (mine, JAX)
    )
    with jax.set_mesh(MESH):
        types = {name: traced(jax, f) for name, f in theirs.items()}
        assert {name: traced(ft, f) for name, f in ours.items()} == types
        right = [name for name in names if not isinstance(types[name], str)]
        want = jax.jit(lambda x: {name: theirs[name](x) for name in right})(X)
        got = ft.jit(lambda x: {name: ours[name](x) for name in right})(X)
    for name in right:
        for a, b in zip(jax.tree.leaves(got[name]), jax.tree.leaves(want[name]), strict=True):
            assert (jax.typeof(a), a.sharding.spec) == (jax.typeof(b), b.sharding.spec), name
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5, err_msg=name)


if not INSIDE:

    def test_on_one_device():
        compare(OURS, ["elementwise"])

else:

    @pytest.mark.parametrize("library", [JAX, OURS], ids=["JAX", "functrans"])
    def test_as_in_jax(library):
        compare(library, CASES)

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
