"""shard_map over eight virtual CPU devices, against JAX's.

The cases run in the process that test_on_eight_devices.py starts.
"""

from __future__ import annotations

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import P, lax
from tests.support.matrices import alternately

INSIDE = len(jax.devices()) == 8
MINE, JAX = (lax, ft_numpy), (jax.lax, jax_numpy)
X = jax_numpy.arange(64.0).reshape(16, 4) / 10
W = jax_numpy.ones((4, 6)) * 0.1
RING = [(i, (i + 1) % 4) for i in range(4)]


def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))


# name -> (function of (lax, numpy) -> function of a part, in_specs, out_specs)
CASES = {
    "psum": (lambda lx, n: lambda x: lx.psum((x**2).sum(0), "i"), P("i"), P()),
    "psum over both": (lambda lx, n: lambda x: lx.psum(n.cos(x).sum(), ("i", "j")), P("i", "j"), P()),
    "psum over one of two": (
        lambda lx, n: lambda x: n.sin(lx.psum(x, "j")) * x.sum(),
        P("i", "j"),
        P("i", "j"),
    ),
    "all_gather": (
        lambda lx, n: lambda x: lx.all_gather(x * lx.axis_index("i"), "i", tiled=True),
        P("i"),
        P("i"),
    ),
    "ppermute": (lambda lx, n: lambda x: lx.ppermute(n.sin(x), "i", RING), P("i", "j"), P("i", "j")),
    "psum_scatter": (
        lambda lx, n: lambda x: lx.psum_scatter(x * x, "j", scatter_dimension=0, tiled=True),
        P("i"),
        P(("i", "j")),
    ),
    "all_to_all": (
        lambda lx, n: lambda x: lx.all_to_all(x.reshape(4, 4) * lx.axis_index("j"), "i", 0, 0, tiled=True),
        P("i"),
        P(("i", "j")),
    ),
    "pbroadcast": (
        lambda lx, n: lambda x: lx.pbroadcast(x, "i", 2) * x if lx is lax else lx.all_gather(x, "i")[2] * x,
        P("i"),
        P("i"),
    ),
    "ragged_all_to_all": (
        lambda lx, n: (
            lambda x: (
                lx.ragged_all_to_all(
                    x,
                    x * 0,
                    n.arange(4),
                    n.ones(4, int),
                    n.arange(4) * 0 + lx.axis_index("i"),
                    n.ones(4, int),
                    axis_name="i",
                )
                if lx is lax
                else lx.all_to_all(x, "i", 0, 0, tiled=True)
            )
        ),
        P("i"),
        P("i"),
    ),
    "axes in another order": (lambda lx, n: lambda x: x - lx.pmean(x, "i"), P(("j", "i")), P(("j", "i"))),
    "several results": (
        lambda lx, n: lambda x: {"a": lx.psum(x, "i"), "b": (x * 2, x.sum(1))},
        P("i", None),
        {"a": P(), "b": P("i")},
    ),
    "a ring in a loop": (
        lambda lx, n: lambda x: lx.fori_loop(0, 3, lambda k, v: lx.ppermute(v, "i", RING) * 1.5 + x, x),
        P("i", "j"),
        P("i", "j"),
    ),
    "a scan with sums": (
        lambda lx, n: lambda x: lx.scan(lambda c, r: (c + lx.psum(r, "i"), c * r), x[0], x)[1],
        P(None, "i"),
        P(None, "i"),
    ),
}


@jax.custom_jvp
def by_jvp(x, w):
    return x * x * w


by_jvp.defjvp(lambda p, t: (by_jvp(*p), 2 * p[0] * p[1] * t[0] + 3 * p[0] ** 2 * t[1]))


@jax.custom_vjp
def by_vjp(x, w):
    return x * x * w


by_vjp.defvjp(lambda x, w: (by_vjp(x, w), (x, w)), lambda r, g: (2 * r[0] * r[1] * g, 3 * r[0] ** 2 * g))

# JAX's functions with rules of their own, in a checked map that is differentiated from outside
RULES = {
    "relu": lambda x, w: jax.nn.relu(x - 1) * w,
    "of what all devices share": lambda x, w: jax.nn.relu(w) * x,
    "jvp": lambda x, w: by_jvp(x, w),
    "vjp": lambda x, w: by_vjp(x, x * w),
    "in a loop": lambda x, w: jax.lax.fori_loop(0, 2, lambda _, c: jax.nn.relu(by_vjp(c, x) * w - 1), x),
    "in a checkpoint": lambda x, w: jax.checkpoint(lambda x: by_jvp(jax.nn.relu(x - 1), x))(x) * w,
    "in a branch": lambda x, w: jax.lax.cond(w > 0, lambda x: by_jvp(x, w), lambda x: by_vjp(x, x), x),
    "batched": lambda x, w: jax.vmap(lambda x: jax.nn.relu6(x) * w)(x),
    "of two axes": lambda x, w: jax.lax.psum(jax.nn.relu(x - jax.lax.axis_index("j")), "j") * w,
}


def both(name):
    f, ins, outs = CASES[name]
    how = {"mesh": mesh(), "in_specs": ins, "out_specs": outs, "check_vma": False}
    return ft.shard_map(f(*MINE), **how), jax.shard_map(f(*JAX), **how)


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def loss(f):
    return lambda x: sum((y**2).sum() for y in jax.tree.leaves(f(x)))


if not INSIDE:

    def test_on_one_device():
        one = ft.make_mesh((1,), ("i",))
        f = ft.shard_map(lambda x: lax.psum(x, "i") * 2, mesh=one, in_specs=P("i"), out_specs=P())
        same(f(X), X * 2)

else:

    @pytest.mark.parametrize("name", alternately(CASES))
    def test_values_and_layout(name):
        mine, theirs = both(name)
        want = theirs(X)
        for got in (mine(X), ft.jit(mine)(X)):
            same(got, want)
            for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
                assert len(a.sharding.device_set) == 8
        program = ft.make_ir(mine)(X)
        ft.ir.check(program)
        same(ft.interpret(program, X), jax.tree.leaves(want))

    @pytest.mark.parametrize("name", alternately(CASES))
    def test_gradients(name):
        mine, theirs = both(name)
        want = jax.jit(jax.grad(loss(theirs)))(X)
        same(ft.jit(ft.grad(loss(mine)))(X), want)
        same(ft.grad(loss(mine))(X), want)

    @pytest.mark.parametrize("name", RULES)
    def test_rules_of_jax_in_a_checked_map(name):
        def gradient(shard_map, grad):
            part = shard_map(RULES[name], mesh=mesh(), in_specs=(P("i"), P()), out_specs=P("i"))
            return grad(lambda x, w: (part(x, w) ** 2).sum(), (0, 1))

        w = jax_numpy.float32(2.0)
        want = jax.jit(gradient(jax.shard_map, jax.grad))(X, w)
        by_jax, ours = (gradient(ft.shard_map, grad) for grad in (jax.grad, ft.grad))
        for found in (by_jax(X, w), ours(X, w)):
            same(found, want)
        for jit in (jax.jit, ft.jit):
            same(jit(lambda x, w: (by_jax(x, w), ours(x, w)))(X, w), (want, want))

    @pytest.mark.parametrize("spec", [P("i"), P("i", "j"), P(None, "j"), P()], ids=str)
    def test_each_device_calls_back_with_its_part(spec):
        def f(x):
            return jax.pure_callback(lambda a: np.cumsum(a, 0), jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

        how = {"mesh": mesh(), "in_specs": spec, "out_specs": spec}
        want = jax.shard_map(f, **how)(X)
        for check in (False, True):
            mine = ft.shard_map(f, check_vma=check, **how)
            same(mine(X), want)
            same(ft.jit(mine)(X), want)

    def test_a_sharded_layer_talks_between_devices():
        def layer(lax, np_):
            return lambda w, x: np_.tanh(lax.psum(x @ w, "j"))

        how = {"mesh": mesh(), "in_specs": (P("j"), P("i", "j")), "out_specs": P("i")}
        mine, theirs = ft.shard_map(layer(*MINE), **how), jax.shard_map(layer(*JAX), **how)
        same(mine(W, X), theirs(W, X))
        same(ft.grad(lambda w: (mine(w, X) ** 2).sum())(W), jax.grad(lambda w: (theirs(w, X) ** 2).sum())(W))
        xs = jax_numpy.stack([X, X * 2])
        same(ft.vmap(mine, (None, 0))(W, xs), jax.vmap(theirs, (None, 0))(W, xs))
        assert "all-reduce" in ft.jit(mine).lower(W, X).compile().as_text()

    def test_closures_over_traced_values_have_gradients():
        def f(shard_map, lax):
            return lambda w: shard_map(
                lambda x: lax.psum((x * w).sum(0), "i"), mesh=mesh(), in_specs=P("i"), out_specs=P()
            )(X).sum()

        same(ft.grad(f(ft.shard_map, lax))(W[:, 0]), X.sum(0))

    def test_a_result_that_differs_between_devices():
        how = {"mesh": mesh(), "in_specs": P("i"), "out_specs": P()}
        with pytest.raises(ValueError, match=r"may vary over a mesh axis(.|\n)*'i'"):
            ft.shard_map(lambda x: x, **how)(X)
        same(ft.shard_map(lambda x: x, **how, check_vma=False)(X), X[:4])

    def test_one_of_jax_s_is_an_operation_of_its_own():
        """By from_jax: the devices of its mesh are those of the program that holds it."""

        def f(x):
            def part(x):
                return jax.lax.psum(jax_numpy.sin(x).sum(), "i") * x * jax.lax.axis_index("i")

            return jax.shard_map(part, mesh=mesh(), in_specs=P("i"), out_specs=P("i"))(x)

        ours = ft.interop.from_jax(f)
        np.testing.assert_allclose(ours(X), f(X), rtol=1e-5)
        np.testing.assert_allclose(ft.interpret(ft.make_ir(ours)(X), X)[0], f(X), rtol=1e-5)
        mine = ft.jit(ft.grad(lambda x: (ours(x) ** 2).sum()))(X)
        theirs = jax.jit(jax.grad(lambda x: (f(x) ** 2).sum()))(X)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
        two = jax_numpy.stack([X, X / 2])
        np.testing.assert_allclose(ft.jit(ft.vmap(ours))(two), jax.vmap(f)(two), rtol=1e-5)

    def test_misuse():
        def call(f=lambda x: x, x=X, **how):
            ft.shard_map(f, **{"mesh": mesh(), "in_specs": P("i"), "out_specs": P("i")} | how)(x)

        for kind, message, how in (
            (ValueError, "must name axes of the mesh", {"in_specs": P("k")}),
            (ValueError, "each at most once", {"in_specs": P("i", "i")}),
            (ValueError, "is not divisible", {"x": X[:5]}),
            (ValueError, "has 3 entries", {"in_specs": P(None, None, "i")}),
            (TypeError, "mesh must be", {"mesh": 3}),
            (TypeError, "must be a PartitionSpec", {"in_specs": "i"}),
            (ValueError, "do not fit out_specs", {"f": lambda x: x.sum()}),
            (ValueError, "length 1", {"f": lambda x: lax.psum(x.sum(), "i")}),
            (
                ValueError,
                "the spec of result has 1",
                {"f": lambda x: lax.psum(x.sum(), "i"), "check_vma": False},
            ),
            (ValueError, "in_specs does not fit", {"in_specs": (P("i"), P("j"))}),
            (TypeError, "takes a function", {"f": 3}),
        ):
            with pytest.raises(kind, match=message) as info:
                call(**how)
            assert "test_shard_map.py" in str(info.value)
        with pytest.raises(NameError, match="nowhere"):
            call(lambda x: lax.psum(x, "nowhere"))
        assert ft.jit(lambda x: x + 1)(1) == 2

    def test_specs_and_mesh_that_are_left_out():
        explicit = jax.make_mesh((4, 2), ("i", "j"))
        x = jax.device_put(X, jax.NamedSharding(explicit, P("i")))

        def part(n):
            return lambda x: x * n.sin(x).sum()

        with jax.set_mesh(explicit):
            want = jax.shard_map(part(jax_numpy), out_specs=P("i"))(x)
            same(ft.shard_map(part(ft_numpy), out_specs=P("i"))(x), want)
            same(ft.shard_map(out_specs=P("i"))(part(ft_numpy))(x), want)
            same(jax.jit(ft.shard_map(part(ft_numpy), out_specs=P("i")))(x), want)
            same(ft.shard_map(part(ft_numpy), in_specs=P("i"), out_specs=P("i"))(x), want)
            for by, n in ((ft, ft_numpy), (jax, jax_numpy)):
                same(ft.jit(by.shard_map(part(n), out_specs=P("i")))(x), want)
            for transform in (lambda f: ft.jit(f), ft.grad):
                moved = jax.sharding.reshard(x, P(None, "j"))
                got = transform(lambda x: jax.sharding.reshard(x * x, P(None, "j")).sum())(x)
                same(got, transform(lambda x: (x * x).sum())(moved))
            got = ft.jit(lambda x: jax.sharding.reshard(x * 2, P(None, "j")))(x)
            assert got.sharding.is_equivalent_to(moved.sharding, 2)
            where = jax.NamedSharding(explicit, P(None, "j"))
            with pytest.raises(AssertionError, match="acts as an assert"):  # as in JAX
                ft.jit(lambda x: lax.with_sharding_constraint(x * 2, where))(x)
        around = ft.shard_map(part(ft_numpy), in_specs=P("i"), out_specs=P("i"))
        with jax.set_mesh(mesh()):
            same(around(X), want)
            same(ft.jit(around)(X), want)
        with pytest.raises(TypeError, match="no mesh is set around the call"):
            around(X)
        with pytest.raises(TypeError, match="no mesh is set around the call"):
            ft.shard_map(part(ft_numpy), out_specs=P("i"))(X)

    def test_a_mesh_with_explicit_axes():
        explicit = jax.make_mesh((4, 2), ("i", "j"))
        x = jax.device_put(X, jax.NamedSharding(explicit, P("i")))

        def part(n):
            return lambda x: x * n.sin(x).sum() + lax.axis_index("i")

        def total(x):
            return jax.lax.psum((x**2).sum(), ("i",))

        def steps(f):
            return lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, length=3)[0]

        with jax.set_mesh(explicit):
            of_x = {"in_specs": P("i"), "out_specs": P("i")}
            want = jax.shard_map(part(jax_numpy), **of_x)(x)
            for by, n in ((ft, ft_numpy), (jax, jax_numpy)):
                for over in ({}, {"mesh": explicit}):
                    f = by.shard_map(part(n), **of_x, **over)
                    same(ft.jit(f)(x), want)
                    same(ft.jit(steps(f))(x), jax.jit(steps(f))(x))
                    same(ft.vmap(f)(x[None])[0], want)
                g = by.shard_map(total, in_specs=P("i"), out_specs=P())
                for transform in (lambda f: ft.jit(ft.grad(f)), ft.grad):
                    same(transform(g)(x), 2 * X)
            same(ft.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, P("i")))(x), 2 * X)
            asked, w = P(None, "j"), np.arange(24.0, dtype=np.float32).reshape(4, 6)
            for f in (
                lambda x: jax_numpy.einsum("ab,bc->ac", x, w, out_sharding=asked),
                lambda x: jax_numpy.dot(x, w, out_sharding=asked),
                lambda x: jax_numpy.zeros(x.shape, out_sharding=asked) + 1,
                lambda x: jax.sharding.auto_axes(lambda x: x * 2, out_sharding=asked)(x),
            ):
                got = ft.jit(f)(x)
                assert got.sharding.is_equivalent_to(jax.NamedSharding(explicit, asked), 2)
                same(got, jax.jit(f)(x))

    def test_spmd_axis_name_lays_the_batch_out():
        sharding = jax.sharding.NamedSharding(mesh(), P("j"))
        f = ft.vmap(lambda x: lax.with_sharding_constraint(x * 2, sharding), spmd_axis_name="i")
        got = ft.jit(f)(X)
        assert got.sharding.is_equivalent_to(jax.sharding.NamedSharding(mesh(), P("i", "j")), 2)
        same(got, X * 2)
