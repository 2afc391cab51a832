"""pmap over eight virtual CPU devices, against JAX's.

The cases run in the process that test_on_eight_devices.py starts.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import errors
from tests.support.matrices import alternately

INSIDE = len(jax.devices()) == 8
MINE, JAX = (ft, ft_numpy), (jax, jax_numpy)
X = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2) / 10
W = np.ones((2, 5), np.float32) * 0.1
RING = [(i, (i + 1) % 4) for i in range(4)]


class Case(NamedTuple):
    make: Callable[[Any, Any], Any]  # (library, its numpy) -> function of one slice
    options: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def both(self):
        return (m.pmap(self.make(m, n), **self.options) for m, n in (MINE, JAX))


CASES: dict[str, Case] = {}


def case(name, make, *args, keywords=None, **options):
    CASES[name] = Case(make, options, args, keywords or {})


def step_of_training(m, n):
    def loss(params, x):
        return (n.tanh(x @ params["w"] + params["b"]) ** 2).mean()

    def step(params, x):
        value, gradient = m.value_and_grad(loss)(params, x)
        gradient = m.lax.pmean(gradient, "i")
        updated = m.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
        return updated, m.lax.pmean(value, "i")

    return step


PARAMS = {"w": W, "b": np.float32(0.5)}
MANY_PARAMS = {"w": np.stack([W] * 4), "b": np.ones(4, np.float32)}
PSUM = lambda m, n: lambda x: m.lax.psum(n.sin(x), "i") * x  # noqa: E731
SINE = lambda m, n: n.sin  # noqa: E731

case("no options", SINE, X)
case("psum", PSUM, X, axis_name="i")
case("one device", PSUM, X[:1], axis_name="i")
case("eight devices", PSUM, np.ones((8, 2), np.float32), axis_name="i")
case("a number", lambda m, n: lambda x: x * m.lax.psum(1, "i"), X, axis_name="i")
case("pmean", lambda m, n: lambda x: x**2 - m.lax.pmean(x, "i"), X, axis_name="i")
case("axis_index", lambda m, n: lambda x: x * m.lax.axis_index("i"), X, axis_name="i")
case("all_gather", lambda m, n: lambda x: m.lax.all_gather(x, "i") * x, X, axis_name="i")
case("ppermute", lambda m, n: lambda x: m.lax.ppermute(n.sin(x), "i", RING), X, axis_name="i")
case(
    "all_to_all",
    lambda m, n: lambda x: m.lax.all_to_all(n.tile(x, (4, 1)), "i", 0, 1, tiled=True),
    X,
    axis_name="i",
)
case(
    "psum_scatter",
    lambda m, n: lambda x: m.lax.psum_scatter(n.tile(x * x, (4, 1)), "i", tiled=True),
    X,
    axis_name="i",
)
case("in_axes, an int", SINE, X, in_axes=1)
case("in_axes, a tuple", lambda m, n: n.matmul, X, W, in_axes=(0, None))
case(
    "in_axes, a tree",
    lambda m, n: lambda p, x: x @ p["w"] + p["b"],
    {"w": W, "b": np.ones((5, 4), np.float32)},
    X,
    in_axes=({"w": None, "b": 1}, 0),
)
case("out_axes, an int", SINE, X, out_axes=2)
case("out_axes None", lambda m, n: lambda x: m.lax.psum(x, "i"), X, axis_name="i", out_axes=None)
case("out_axes None of what differs", SINE, X, out_axes=None)
case(
    "out_axes, a tree",
    lambda m, n: lambda x: {"a": x, "b": (m.lax.pmean(x, "i"), x.sum())},
    X,
    axis_name="i",
    out_axes={"a": 1, "b": (None, 0)},
)
case("constants", lambda m, n: lambda x: (1.0, x), X, out_axes=(None, 0))
case("None", lambda m, n: lambda x, y: (x, y), X, None)
case("keywords", lambda m, n: lambda x, y: x + y["a"], X[0], in_axes=1, keywords={"y": {"a": X[:2, :, 0]}})
case(
    "static arguments",
    lambda m, n: lambda k, x, how: getattr(n, how)(x) * k,
    3,
    X,
    "sin",
    static_broadcasted_argnums=(0, 2),
    in_axes=(None, 1, None),
)
case("devices", PSUM, X, axis_name="i", devices=jax.devices()[:3:-1])
case("more devices than slices", SINE, X, devices=jax.devices()[2:])
case("axis_size", SINE, X, axis_size=4)
case("backend", SINE, X, backend="cpu")
case(
    "a gradient",
    lambda m, n: m.grad(lambda w, x: m.lax.pmean(n.sin(x @ w).sum(), "i")),
    W,
    X,
    axis_name="i",
    in_axes=(None, 0),
)
case("a step of training", step_of_training, PARAMS, X, axis_name="i", in_axes=(None, 0), out_axes=None)
case("a step, parameters on all", step_of_training, MANY_PARAMS, X, axis_name="i")
case(
    "a loop",
    lambda m, n: lambda x: m.lax.scan(lambda c, r: (c + m.lax.psum(r, "i"), c * r), x[0], x)[1],
    X,
    axis_name="i",
)
case(
    "vmap inside",
    lambda m, n: m.vmap(lambda r: r / m.lax.psum(n.exp(r), ("i", "j")), axis_name="j"),
    X,
    axis_name="i",
)
case("jit inside", lambda m, n: m.jit(PSUM(m, n)), X, axis_name="i")
case("integers", lambda m, n: lambda x: m.lax.pmax(x, "i") - x, np.arange(4), axis_name="i")


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def same_layout(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.sharding == b.sharding or a.sharding.is_equivalent_to(b.sharding, a.ndim)
        assert a.sharding.device_set == b.sharding.device_set


if not INSIDE:

    def test_on_one_device():
        for name in ("one device", "in_axes, an int", "a step of training"):
            mine, theirs = CASES[name].both()
            x = X[:1, :1]
            given = (PARAMS, x) if "step" in name else (x,)
            same(mine(*given), theirs(*given))
            same_layout(mine(*given), theirs(*given))

    @pytest.mark.parametrize("transform", [ft.vmap, ft.grad, ft.checkpoint])
    def test_what_is_made_of_it_has_not_its_methods(transform):
        mapped = ft.pmap(ft.jit(lambda x: x * 2))
        assert "stablehlo" in mapped.lower(X[:1]).as_text()
        assert not hasattr(transform(mapped), "lower")

    def test_the_function_is_not_kept_alive():
        def f(x):
            return x * 2

        known = weakref.ref(f)
        ft.pmap(f)(X[:1])
        del f
        gc.collect()
        assert known() is None

    def test_several_processes_are_refused(monkeypatch):
        monkeypatch.setattr(jax, "process_index", lambda backend=None: 1)
        with pytest.raises(ValueError, match=r"belong to several processes(.|\n)*test_pmap.py"):
            ft.pmap(lambda x: x)(X[:1])

else:

    def loss(f, case):
        """A number that depends on the arrays among the positional arguments."""

        def of(arrays):
            rest = iter(arrays)
            args = [next(rest) if isinstance(x, np.ndarray) else x for x in case.args]
            return sum((y**2).sum() for y in jax.tree.leaves(f(*args, **case.kwargs)))

        return of

    @pytest.mark.parametrize("name", alternately(CASES))
    def test_values_and_layout(name):
        case = CASES[name]
        mine, theirs = case.both()
        want = theirs(*case.args, **case.kwargs)
        static = {"static_argnums": case.options.get("static_broadcasted_argnums", ())}
        for f in (mine, mine, ft.jit(mine, **static)):
            got = f(*case.args, **case.kwargs)
            same(got, want)
            same_layout(got, want)
        if not static["static_argnums"]:
            program = ft.make_ir(mine)(*case.args, **case.kwargs)
            ft.ir.check(program)
            given = jax.tree.leaves((case.args, case.kwargs))
            found = ft.interpret(program, *given), jax.tree.leaves(want)
            for a, b in zip(*found, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)

    @pytest.mark.parametrize("name", alternately(CASES))
    def test_gradients(name):
        case = CASES[name]
        mine, theirs = case.both()
        arrays = [x for x in case.args if isinstance(x, np.ndarray)]
        if name in ("integers", "out_axes None of what differs"):  # JAX's is that of the mean
            return
        want = jax.jit(jax.grad(loss(theirs, case)))(arrays)
        same(ft.grad(loss(mine, case))(arrays), want)
        same(ft.jit(ft.grad(loss(mine, case)))(arrays), want)

    def test_the_gradient_of_what_the_first_device_has():
        first = ft.pmap(lambda x: x**2, out_axes=None)
        same(ft.grad(lambda x: first(x).sum())(jax_numpy.ones(4)), jax_numpy.array([2.0, 0, 0, 0]))

    def test_inside_other_transformations():
        def of(m, n):
            f = m.pmap(lambda x: n.sin(x) * m.lax.psum(x, "i"), axis_name="i")
            xs = n.stack([X, X * 2], axis=1)
            return (
                m.vmap(f, in_axes=1)(xs),
                m.jit(m.vmap(f, in_axes=1, out_axes=2))(xs),
                m.jvp(f, (X,), (X,)),
                m.jit(lambda w: m.pmap(lambda x: x * w)(X))(2.0),
                m.grad(lambda w: m.pmap(lambda x: x * w)(X).sum())(2.0),
                m.lax.scan(lambda c, _: (f(c), None), X, None, length=2)[0],
                m.vmap(m.pmap(lambda x: m.lax.psum(x, ("b", "i")), "i"), axis_name="b")(
                    xs[:, :, 0].transpose(1, 0, 2)
                ),
                m.hessian(lambda w: m.pmap(lambda x: n.sin(x * w))(X).sum())(2.0),
            )

        got, want = of(*MINE), of(*JAX)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        same_layout(got[:2], want[:2])

    @pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
    def test_random_keys(make):
        keys = jax.random.split(make(0), 4)

        def of(m, n):
            def draw(key):
                key = m.random.fold_in(key, m.lax.axis_index("i"))
                return m.random.normal(key, (3,)), m.random.split(key)

            values, made = m.pmap(draw, axis_name="i")(keys)
            return values, made if make is jax.random.PRNGKey else m.random.key_data(made)

        same(of(*MINE), of(*JAX))
        same_layout(of(*MINE), of(*JAX))

    def test_donated_buffers():
        a, b, c = (ft.pmap(lambda x: x * 1)(X) for _ in range(3))
        f = ft.pmap(
            lambda n, x, y, z: (x + y["a"] * n, x + z), donate_argnums=(2, -1), static_broadcasted_argnums=0
        )
        f(2, a, {"a": b}, c)
        assert (a.is_deleted(), b.is_deleted(), c.is_deleted()) == (False, True, True)
        with pytest.raises(errors.InvalidArgument, match=r"argument 0 of .* is both static"):
            ft.pmap(lambda n, x: x, donate_argnums=0, static_broadcasted_argnums=0)

    def test_axes_from_the_end():
        same(ft.pmap(lambda x: x * 2, in_axes=-2, out_axes=-1)(X), ft_numpy.moveaxis(X * 2, 1, 2))

    @pytest.mark.parametrize("axis_name", [3, ("a", "b"), None])
    def test_a_name_may_be_anything_hashable(axis_name):
        f = ft.pmap(lambda x: x * 2, axis_name=axis_name)
        same(f(X), ft_numpy.asarray(X * 2))

    def test_no_argument_but_a_size():
        same(ft.pmap(lambda: ft.lax.axis_index("i"), "i", axis_size=3)(), ft_numpy.arange(3))

    def test_committed_to_another_place():
        for place in (jax.devices()[3], jax.NamedSharding(jax.make_mesh((4,), ("k",)), jax.P())):
            x = jax.device_put(X, place)
            with pytest.raises(ValueError, match=r"args\[1\]\['x'\] .* is committed to(.|\n)*device_put"):
                ft.pmap(lambda n, t: t["x"], static_broadcasted_argnums=0)(1, {"x": x})
        with pytest.raises(errors.TypeMismatch, match="matmul"):
            ft.pmap(lambda x: x @ x)(x)
        lying = jax.device_put(X, ft.pmap(lambda x: x)(X).sharding)
        same(ft.pmap(lambda x: x)(lying), ft_numpy.asarray(X))

    def test_too_few_devices():
        for n, options in ((9, {}), (3, {"devices": jax.devices()[:2]}), (0, {})):
            with pytest.raises(ValueError, match=f"size {n}, but . devices(.|\n)*test_pmap.py"):
                ft.pmap(lambda x: x, **options)(np.ones((n, 2)))
        with pytest.raises(ValueError, match="distinct"):
            ft.pmap(lambda x: x, devices=jax.devices()[:1] * 2)
        with pytest.raises(ValueError, match=r"jax\.Devices"):
            ft.pmap(lambda x: x, devices=8)

    def test_it_is_traced_once_for_a_signature():
        traced = []

        def f(x, n):
            traced.append(n)
            return x * n

        for n in (2, 2, 3, 2):
            ft.pmap(f, static_broadcasted_argnums=1)(X, n)
        assert traced == [2, 3]
        reasons = ft.explain_cache(f).traces[1].reasons
        assert "n: the static value 3, was the static value 2" in reasons

    def test_python_as_it_is_written():
        with ft.disable_jit():
            same(ft.pmap(lambda x: x * 2)(X), ft_numpy.asarray(X * 2))
