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
from tests.support.tables import TABLES, rows

INSIDE = len(jax.devices()) == 8
MINE, JAX = (ft, ft_numpy), (jax, jax_numpy)
X = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2) / 10
W = np.ones((2, 5), np.float32) * 0.1
RING = [(i, (i + 1) % 4) for i in range(4)]


class Case(NamedTuple):
    make: Callable[[Any, Any], Any]  # (library, its numpy) -> function of one slice
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]

    def both(self):
        return [m.pmap(self.make(m, n), **self.options) for m, n in (MINE, JAX)]


def given(*args, keywords=None, **options):
    return args, keywords or {}, options


def total(m, n):
    return lambda x: m.lax.psum(n.sin(x), "i") * x


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
CASES = {
    row.fields[0]: Case(row.function("m, n", globals(), 1), *eval(f"given({row.fields[2]})"))
    for row in rows(TABLES / "devices.txt", "pmap")
}


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

    @pytest.mark.parametrize("name", CASES)
    def test_values_and_layout(name):
        case = CASES[name]
        mine, theirs = case.both()
        want = theirs(*case.args, **case.kwargs)
        for _ in range(2):
            got = mine(*case.args, **case.kwargs)
            same(got, want)
            same_layout(got, want)
        if "static" not in name:
            program = ft.make_ir(mine)(*case.args, **case.kwargs)
            ft.ir.check(program)
            found = ft.interpret(program, *jax.tree.leaves((case.args, case.kwargs)))
            for a, b in zip(found, jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)

    def test_jitted_and_gradients():
        """Of the cases that use the same devices, in one program."""
        f = CASES["static arguments"]
        found = ft.jit(f.both()[0], static_argnums=(0, 2))(*f.args)
        same(found, f.both()[1](*f.args))
        cases = {name: c for name, c in CASES.items() if c.args[0] is X and "devices" not in c.options}
        cases = {name: c for name, c in cases.items() if c.options.get("in_axes") != 1}

        def every(m, which):
            found = {}
            for name, case in cases.items():
                f = case.both()[which]
                arrays = [x for x in case.args if isinstance(x, np.ndarray)]
                slope = None if "differs" in name else m.grad(loss(f, case))(arrays)  # JAX's: of the mean
                found[name] = f(*case.args, **case.kwargs), slope
            return found

        got, want = ft.jit(lambda: every(ft, 0))(), jax.jit(lambda: every(jax, 1))()
        same(got, want)
        same_layout(got, want)

    def test_the_gradient_of_what_the_first_device_has():
        first = ft.pmap(lambda x: x**2, out_axes=None)
        same(ft.grad(lambda x: first(x).sum())(jax_numpy.ones(4)), jax_numpy.array([2.0, 0, 0, 0]))

    def test_inside_other_transformations():
        def of(m, n):
            f = m.pmap(lambda x: n.sin(x) * m.lax.psum(x, "i"), axis_name="i")
            g = m.pmap(lambda x: m.lax.psum(x, ("b", "i")), "i")
            xs = n.stack([X, X * 2], axis=1)

            def jitted(xs, w):
                return (
                    m.vmap(f, in_axes=1, out_axes=2)(xs),
                    m.grad(lambda w: m.pmap(lambda x: x * w)(X).sum())(w),
                    m.lax.scan(lambda c, _: (f(c), None), X, None, length=2)[0],
                    m.vmap(g, axis_name="b")(xs[:, :, 0].transpose(1, 0, 2)),
                    m.hessian(lambda w: m.pmap(lambda x: n.sin(x * w))(X).sum())(w),
                )

            return m.vmap(f, in_axes=1)(xs), *m.jit(jitted)(xs, 2.0), m.jvp(f, (X,), (X,))

        got, want = of(*MINE), of(*JAX)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        same_layout(got[:2], want[:2])

    def test_random_keys():
        keys = [jax.random.split(make(0), 4) for make in (jax.random.key, jax.random.PRNGKey)]

        def of(m, n):
            def draw(keys):
                own = [m.random.fold_in(key, m.lax.axis_index("i")) for key in keys]
                return [m.random.normal(key, (3,)) for key in own], m.random.split(own[0]), own[1]

            values, made, old = m.pmap(draw, axis_name="i")(keys)
            return values, m.random.key_data(made), old

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

    def test_a_name_may_be_anything_hashable():
        for axis_name in (3, ("a", "b"), None):
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
