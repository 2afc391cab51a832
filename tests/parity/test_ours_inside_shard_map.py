"""Functions of functrans inside of `jax.shard_map`, over eight virtual CPU devices, beside JAX's.

The cases run in the process that test_on_eight_devices.py starts.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from tests.support.tables import TABLES, functions
from tests.support.worlds import JAX, JITTED, PLAIN, World, as_it_is, assert_same

P = jax.P
SPLIT = P("i")
INSIDE = len(jax.devices()) == 8
XS = jnp.arange(16.0) / 10
RING = [(i, (i + 1) % 4) for i in range(4)]
Map = Callable[..., Any]

CASES = functions(TABLES / "devices.txt", "ours inside", "w, m", globals())
AT_ONCE = ("psum and a gradient around", "in a call")  # is un-jitted, too
W = 2.0


def doubled(w: World) -> Any:
    f = w.top.custom_vjp(lambda x: w.np.sin(x))
    f.defvjp(lambda x: (w.np.sin(x), x), lambda x, ct: (ct * 2 * w.np.cos(x),))
    return f


def total(w: World) -> Any:
    return lambda a, x: w.lax.psum(w.np.sum(w.np.sin(a * x)), "i")


def clipped(w: World) -> Any:
    """The mean of the clipped gradients of all examples."""

    def one(a, e):
        g = w.top.grad(lambda a: w.np.tanh(a * e) ** 2)(a)
        return g * w.np.minimum(1.0, 0.1 / w.np.abs(g))

    return lambda a, x: w.lax.pmean(w.np.mean(w.top.vmap(one, (None, 0))(a, x)), "i")


# Their derivatives are inside the shard_map: JAX sums those of a.
DERIVATIVES = functions(TABLES / "devices.txt", "derivatives inside", "w", globals())
MIXED = JAX._replace(top=ft)

if INSIDE:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("i",))

    def mapping(check: bool) -> Map:
        def mapped(f: Any, in_specs: Any = SPLIT, out_specs: Any = SPLIT) -> Any:
            return jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check)

        return mapped

    CODE = JAX._replace(jit=ft.jit)  # which is JAX's
    WORLDS = [(JITTED, True), (PLAIN, False), (CODE, True), (CODE, False)]  # and: is it checked?

    def test_like_jax():
        def every(worlds: Any) -> Any:
            return [{name: f(w, mapping(check)) for name, f in CASES.items()} for w, check in worlds]

        found, wanted = jax.jit(lambda: (every(WORLDS), every([(JAX, True), (JAX, False)])))()
        for (world, check), results in zip(WORLDS, found, strict=True):
            want = wanted[not check]
            for name in CASES:
                assert_same(results[name], want[name])
            for name in AT_ONCE if world in (JITTED, PLAIN) else ():
                assert_same(CASES[name](world, mapping(check)), want[name])

    def test_derivatives_inside():
        """Of our functions and of JAX's, jitted inside or outside; most are not JAX's without a check. Every
        second way has every second function."""

        def mapped(shard_map: Any, world: World, inside: Any = as_it_is) -> Map:
            def every(a: Any, x: Any, names: Any = DERIVATIVES) -> dict[str, Any]:
                how = {"mesh": mesh, "in_specs": (P(), P("i")), "out_specs": P()}
                return {name: shard_map(inside(DERIVATIVES[name](world)), **how)(a, x) for name in names}

            return every

        want = jax.jit(mapped(jax.shard_map, JAX))(W, XS)
        ours = [mapped(ft.shard_map, w) for w in (PLAIN, JAX)]
        around = [mapped(jax.shard_map, w) for w in (PLAIN, MIXED, JAX)]
        inside = [around[0], mapped(jax.shard_map, PLAIN, jax.jit)]
        inside += [mapped(jax.shard_map, w, ft.jit) for w in (PLAIN, JAX)]
        names = [list(DERIVATIVES)[k::2] for k in (0, 1)]
        for jit, functions in ((jax.jit, inside + ours[:1]), (ft.jit, around + ours)):
            chosen = [functools.partial(f, names=names[k % 2]) for k, f in enumerate(functions)]
            for found in jit(lambda *xs, fs=chosen: [f(*xs) for f in fs])(W, XS):
                for name, results in found.items():
                    assert_same(results, want[name])

    @pytest.mark.parametrize("case", ["a psum of it", "value_and_grad"])
    def test_derivatives_inside_of_what_is_not_jitted(case):
        f = DERIVATIVES[case]
        how = {"mesh": mesh, "in_specs": (P(), P("i")), "out_specs": P()}
        want = jax.jit(jax.shard_map(f(JAX), **how))(W, XS)
        for shard_map in (jax.shard_map, ft.shard_map):
            for made in (f(PLAIN), f(MIXED), ft.jit(f(PLAIN))):
                assert_same(shard_map(made, **how)(W, XS), want)

    @pytest.mark.parametrize("library", [ft, jax], ids=["functrans", "jax"])
    def test_captured_values(library):
        """The mapped function captures a value that is differentiated, or mapped, outside."""

        def f(library):
            how = {"mesh": mesh, "in_specs": P("i"), "out_specs": P()}
            return lambda w: library.shard_map(lambda x: jax.lax.psum(jnp.sum(x * w), "i"), **how)(XS)

        def both(m, f):
            return lambda w, x: (m.grad(f)(w), m.vmap(f)(x))

        want = jax.jit(both(jax, f(jax)))(W, XS)
        for jit in (as_it_is, ft.jit, jax.jit):
            assert_same(jit(both(ft, f(library)))(W, XS), want)

    def test_the_passes_see_what_jax_maps():
        """The loop of one device becomes a kernel, if all axes of the mesh are mapped."""

        def orbit(y):
            move = lambda y, _: (y + 0.1 * jnp.stack([y[1], -jnp.sin(y[0])]), None)  # noqa: E731
            return jax.lax.scan(move, y, None, length=20)[0]

        def kernels(**how):
            f = jax.shard_map(
                jax.vmap(jax.grad(lambda y: orbit(y)[0])), in_specs=P("i"), out_specs=P("i"), **how
            )
            assert_same(ft.jit(f)(many), jax.jit(f)(many))
            return ft.jit(f).lower(many).as_text().count("xla_cpu_small_call")

        many = jnp.sin(jnp.arange(512.0)).reshape(256, 2)
        assert kernels(mesh=mesh)
        grid = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))
        assert not kernels(mesh=grid, axis_names={"i"})

    def test_a_result_that_jax_finds_to_vary_less():
        """Over the axis both results of the loop vary, if it is a part of ours."""

        def f(x):
            step = lambda c, _: (c / 2 + jax.lax.psum(jnp.sum(x), "i"), None)  # noqa: E731
            return jax.lax.scan(step, 1.0, None, length=3)[0], x * 2

        mapped = jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=(P(), P("i")))
        slope = lambda m: m.grad(lambda x: sum(jnp.sum(y**2) for y in mapped(x)))  # noqa: E731
        for jit in (as_it_is, ft.jit):
            assert_same(jit(mapped)(XS), jax.jit(mapped)(XS))
            assert_same(jit(slope(ft))(XS), jax.jit(slope(jax))(XS))

    def test_errors_of_jax_name_the_users_line():
        """JAX 0.11 says where it occurred."""
        layout = jax.sharding.NamedSharding(mesh, P("i"))
        with pytest.raises(ValueError, match="should evenly divide the shape") as error:
            ft.numpy.zeros(3, device=layout)
        assert "(zeros)" not in str(error.value)
