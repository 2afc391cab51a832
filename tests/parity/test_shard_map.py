"""shard_map over eight virtual CPU devices, against JAX's.

The cases run in the process that test_on_eight_devices.py starts.
"""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import P, lax
from tests.support.tables import TABLES, functions, rows

INSIDE = len(jax.devices()) == 8
MINE, JAX = (lax, ft_numpy), (jax.lax, jax_numpy)
X = jax_numpy.arange(64.0).reshape(16, 4) / 10
W = jax_numpy.ones((4, 6)) * 0.1
RING = [(i, (i + 1) % 4) for i in range(4)]


def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))


AT_ONCE = ("all_gather", "several results")  # are un-jitted too


@jax.custom_jvp
def by_jvp(x, w):
    return x * x * w


by_jvp.defjvp(lambda p, t: (by_jvp(*p), 2 * p[0] * p[1] * t[0] + 3 * p[0] ** 2 * t[1]))


@jax.custom_vjp
def by_vjp(x, w):
    return x * x * w


by_vjp.defvjp(lambda x, w: (by_vjp(x, w), (x, w)), lambda r, g: (2 * r[0] * r[1] * g, 3 * r[0] ** 2 * g))

# JAX's functions with rules of their own, in a checked map that is differentiated from outside
RULES = functions(TABLES / "devices.txt", "rules of JAX", "x, w", globals())


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def loss(f):
    return lambda *args: sum((y**2).sum() for y in jax.tree.leaves(f(*args)))


if not INSIDE:

    def test_on_one_device():
        one = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
        f = ft.shard_map(lambda x: lax.psum(x, "i") * 2, mesh=one, in_specs=P("i"), out_specs=P())
        same(f(X), X * 2)

else:

    def mapped(shard_map, lx, n):
        made = {}
        for row in rows(TABLES / "devices.txt", "shard_map"):
            ins, outs = (eval(text, globals()) for text in row.fields[1:3])
            f = row.function("x", {**globals(), "lx": lx, "n": n})
            how = {"in_specs": ins, "out_specs": outs, "check_vma": False}
            made[row.fields[0]] = shard_map(f, mesh=mesh(), **how)
        return made

    OURS, THEIRS = mapped(ft.shard_map, *MINE), mapped(jax.shard_map, *JAX)

    def test_values_and_layout():
        want = jax.jit(lambda x: {name: f(x) for name, f in THEIRS.items()})(X)
        found = [(name, f(X)) for name, f in OURS.items() if name in AT_ONCE]
        found += ft.jit(lambda x: {name: f(x) for name, f in OURS.items()})(X).items()
        for name, got in found:
            same(got, want[name])
            for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want[name]), strict=True):
                assert a.sharding.is_equivalent_to(b.sharding, a.ndim), name
                assert len(a.sharding.device_set) == 8
        for name, f in OURS.items():
            program = ft.make_ir(f)(X)
            ft.ir.check(program)
            same(ft.interpret(program, X), jax.tree.leaves(want[name]))

    def test_gradients():
        want = jax.jit(lambda x: {name: jax.grad(loss(f))(x) for name, f in THEIRS.items()})(X)
        same(ft.jit(lambda x: {name: ft.grad(loss(f))(x) for name, f in OURS.items()})(X), want)
        for name in AT_ONCE:
            same(ft.grad(loss(OURS[name]))(X), want[name])

    @pytest.mark.parametrize("np_", [ft_numpy, jax_numpy], ids=["ours", "JAX's"])
    def test_the_passes_see_what_each_device_does(np_):
        f = ft.shard_map(
            lambda x: np_.sin(np_.transpose(x.T)) * 1.0, mesh=mesh(), in_specs=P("i"), out_specs=P("i")
        )
        report = ft.passes.explain(f)(X)
        ((_, part),) = report.parts
        assert [e.primitive.name for e in part.after.equations] == ["sin"]
        assert part.after.in_types[0].shape == (4, 4)
        assert "on each device: test_shard_map.py" in str(report)

    @pytest.mark.parametrize("shard_map", [ft.shard_map, jax.shard_map], ids=["ours", "JAX's"])
    def test_tools_see_inside(shard_map):
        def part(x):
            return jax_numpy.log(x) * jax.lax.psum(x, "i")

        f = shard_map(part, mesh=mesh(), in_specs=P("i"), out_specs=P("i"))
        wrong = X + np.where(X == 3, -4, 1)
        for g, at in ((f, wrong), (lambda x: ft.grad(lambda x: f(x).sum())(x), X * 0)):
            assert "jax_numpy.log(x)" in str(ft.find_nan(g)(at).first)
            with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"jax_numpy\.log"):
                ft.jit(g)(at)
        assert ft.cost(f)(X).flops > 10 * X.size
        assert ft.compare(f)(X + 1).ok
        assert "np.log" in ft.to_python(ft.make_ir(f)(X))

    def test_rules_of_jax_in_a_checked_map():
        def gradients(shard_map, grad):
            how = {"mesh": mesh(), "in_specs": (P("i"), P()), "out_specs": P("i")}
            return {name: grad(loss(shard_map(f, **how)), (0, 1)) for name, f in RULES.items()}

        w = jax_numpy.float32(2.0)
        ours = gradients(ft.shard_map, ft.grad), gradients(ft.shard_map, jax.grad)

        def every(by):
            return lambda x, w: {name: f(x, w) for name, f in by.items()}

        want = jax.jit(every(gradients(jax.shard_map, jax.grad)))(X, w)
        for jit, by in ((ft.jit, ours[0]), (ft.jit, ours[1]), (jax.jit, ours[1])):
            same(jit(every(by))(X, w), want)
        for by in ours:
            same(by["jvp"](X, w), want["jvp"])

    def test_each_device_calls_back_with_its_part():
        def f(x):
            return jax.pure_callback(lambda a: np.cumsum(a, 0), jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

        def every(x, shard_map, checks):
            return [
                shard_map(f, mesh=mesh(), in_specs=spec, out_specs=spec, check_vma=check)(x)
                for spec in (P("i"), P("i", "j"), P(None, "j"), P())
                for check in checks
            ]

        want = jax.jit(lambda x: every(x, jax.shard_map, [False] * 2))(X)
        same(ft.jit(lambda x: every(x, ft.shard_map, [False, True]))(X), want)
        same(every(X, ft.shard_map, [True])[:1], want[:1])

    def test_a_sharded_layer_talks_between_devices():
        def layer(lax, np_):
            return lambda w, x: np_.tanh(lax.psum(x @ w, "j"))

        how = {"mesh": mesh(), "in_specs": (P("j"), P("i", "j")), "out_specs": P("i")}
        mine, theirs = ft.shard_map(layer(*MINE), **how), jax.shard_map(layer(*JAX), **how)

        def every(m, f):
            batch = m.vmap(f, (None, 0))
            return m.jit(lambda w, x: (f(w, x), m.grad(loss(f))(w, x), batch(w, m.numpy.stack([x, x * 2]))))

        same(every(ft, mine)(W, X), every(jax, theirs)(W, X))
        assert "all-reduce" in ft.jit(mine).lower(W, X).compile().as_text()

    def test_closures_over_traced_values_have_gradients():
        def f(shard_map, lax):
            return lambda w: shard_map(
                lambda x: lax.psum((x * w).sum(0), "i"), mesh=mesh(), in_specs=P("i"), out_specs=P()
            )(X).sum()

        same(ft.grad(f(ft.shard_map, lax))(W[:, 0]), X.sum(0))

    def test_a_result_that_differs_between_devices():
        how = {"mesh": mesh(), "in_specs": P("i"), "out_specs": P()}
        for run in (ft.jit, ft.grad):
            with pytest.raises(ValueError, match=r"varying over \{i\}"):
                run(ft.shard_map(lambda x: x * 2, **how))(X)
        same(ft.jit(ft.shard_map(lambda x: x, **how, check_vma=False))(X), X[:4])

    def test_misuse():
        def call(f=lambda x: x, **how):
            ft.jit(ft.shard_map(f, **{"mesh": mesh(), "in_specs": P("i"), "out_specs": P("i")} | how))(X)

        for f, how in ((lambda x: x, {"in_specs": P("k")}), (lambda x: x.sum(), {})):
            with pytest.raises(ValueError, match="specs"):
                call(f, **how)
        with pytest.raises(NameError, match="nowhere"):
            call(lambda x: lax.psum(x, "nowhere"))
        assert ft.jit(lambda x: x + 1)(1) == 2

    def test_specs_and_mesh_that_are_left_out():
        explicit = jax.make_mesh((4, 2), ("i", "j"))
        x = jax.device_put(X, jax.NamedSharding(explicit, P("i")))

        def part(n):
            return lambda x: x * n.sin(x).sum()

        with jax.set_mesh(explicit):
            theirs = jax.shard_map(part(jax_numpy), out_specs=P("i"))
            want = jax.jit(theirs)(x)
            mine = ft.shard_map(part(ft_numpy), out_specs=P("i"))
            bound = ft.shard_map(out_specs=P("i"))(part(ft_numpy))
            for jit in (jax.jit, ft.jit):
                same(jit(lambda x: (mine(x), bound(x), theirs(x)))(x), (want,) * 3)
            same(mine(x), want)
            moved = jax.sharding.reshard(x, P(None, "j"))
            for transform in (ft.jit, ft.grad):
                got = transform(lambda x: jax.sharding.reshard(x * x, P(None, "j")).sum())(x)
                same(got, transform(lambda x: (x * x).sum())(moved))
            where = jax.NamedSharding(explicit, P(None, "j"))
            with pytest.raises(ValueError, match="acts as an assert"):  # as in JAX
                ft.jit(lambda x: lax.with_sharding_constraint(x * 2, where))(x)
        around = ft.shard_map(part(ft_numpy), in_specs=P("i"), out_specs=P("i"))
        with jax.set_mesh(mesh()):
            same(around(X), want)
            same(ft.jit(around)(X), want)
        with pytest.raises(ValueError, match="mesh cannot be empty"):
            ft.jit(ft.shard_map(lambda x: x, in_specs=P("i"), out_specs=P("i")))(X)

    @pytest.mark.parametrize("library", [jax, ft])
    def test_shardings_of_a_jitted_function_inside_of_another(library):
        places = [jax.NamedSharding(mesh(), P(*axes)) for axes in (("i",), (None, "j"))]

        def outer(x):
            how = {"in_shardings": ({"a": places[0]}, None)}
            how["out_shardings"] = {"b": places[1], "c": None, "e": Format(Layout.AUTO)}
            inner = library.jit(lambda d, n, y: {"b": d["a"] * n, "c": y, "e": y}, static_argnums=1, **how)
            return inner({"a": x}, 3, x + 1)

        got, want = ft.jit(outer)(X), jax.jit(outer)(X)
        same(got, want)
        for a, b in zip(got.values(), want.values(), strict=True):
            assert a.sharding.is_equivalent_to(b.sharding, 2)
        with pytest.raises(ValueError, match="out_shardings"):
            ft.jit(lambda x: library.jit(jax_numpy.sin, out_shardings=(places, places))(x))(X)

    @pytest.mark.parametrize("around", [lambda: mesh(), lambda: jax.set_mesh(mesh())])
    @pytest.mark.filterwarnings("ignore:.*with mesh")
    def test_constraints_by_the_axes_of_the_mesh_that_is_set(around):
        def f(x):
            return lax.with_sharding_constraint(x, P("j"))

        for transform, spec in ((lambda f: f, P("j")), (ft.jit, P("j")), (ft.vmap, P(None, "j"))):
            with around():
                got = transform(f)(jax_numpy.ones(X.shape))
            assert got.sharding.is_equivalent_to(jax.sharding.NamedSharding(mesh(), spec), 2)

    @pytest.mark.parametrize("axes", [{"i", "j"}, {"i"}])
    def test_of_constants(axes):
        def total(x):
            return jax.lax.psum(x, "i").sum()

        f = jax.shard_map(total, mesh=mesh(), in_specs=P("i"), out_specs=P(), axis_names=axes)
        same(ft.jit(lambda: f(jax_numpy.ones(4)))(), 4.0)
        same(ft.jit(jax.grad(f))(X[:4, 0]), np.ones(4))  # the operand is not read
