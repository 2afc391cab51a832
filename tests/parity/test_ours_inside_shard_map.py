"""Functions of functrans inside of `jax.shard_map`, over eight virtual CPU devices, beside JAX's.

The cases run in the process that test_on_eight_devices.py starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from tests.support.matrices import alternately
from tests.support.worlds import JAX, JITTED, PLAIN, World, as_it_is, assert_same

P = jax.P
INSIDE = len(jax.devices()) == 8
XS = jnp.arange(16.0) / 10
RING = [(i, (i + 1) % 4) for i in range(4)]
Map = Callable[..., Any]

# name -> (function of the world, function that maps a function of a part) -> results
CASES: dict[str, Callable[[World, Map], Any]] = {
    "operations": lambda w, m: m(w.jit(lambda x: w.np.cumsum(w.np.sin(x)) + w.np.arange(4.0)))(XS),
    "a gradient around": lambda w, m: jax.grad(
        lambda x, a: jnp.sum(m(w.jit(lambda x, a: w.np.sin(x * a)), (P("i"), P()))(x, a)), (0, 1)
    )(XS, 2.0),
    "a gradient inside": lambda w, m: m(jax.grad(w.jit(lambda x: w.np.sum(w.np.sin(x)))))(XS),
    "psum": lambda w, m: m(w.jit(lambda x: w.lax.psum(w.np.sin(x), "i")), out_specs=P())(XS),
    "psum and a gradient around": lambda w, m: jax.grad(
        lambda x, a: m(
            w.jit(lambda x, a: w.lax.psum(w.np.sum(w.np.sin(x * a)), "i") ** 2), (P("i"), P()), P()
        )(x, a),
        (0, 1),
    )(XS, 2.0),
    "pmean and a gradient inside": lambda w, m: m(
        jax.grad(w.jit(lambda x, a: w.lax.pmean(w.np.sum(w.np.sin(x * a) ** 2), "i"))), (P("i"), P())
    )(XS, 2.0),
    "JAX's collective between ours": lambda w, m: m(
        lambda x: x - jax.lax.pmean(w.jit(lambda x: w.np.sin(x))(x), "i")
    )(XS),
    "ppermute, axis_index": lambda w, m: m(
        w.jit(lambda x: w.lax.ppermute(x * 2, "i", RING) * w.lax.axis_index("i"))
    )(XS),
    "all_gather": lambda w, m: m(w.jit(lambda x: w.np.sum(w.lax.all_gather(x, "i"), 0) * x))(XS),
    "all_to_all": lambda w, m: m(w.jit(lambda x: w.lax.all_to_all(w.np.reshape(x, (4, 1)), "i", 0, 1)))(XS),
    "psum_scatter": lambda w, m: m(w.jit(lambda x: w.lax.psum_scatter(x, "i", tiled=True)))(XS),
    "pmax, pmin": lambda w, m: m(w.jit(lambda x: w.lax.pmax(x, "i") - w.lax.pmin(x, "i") + x))(XS),
    "in a call": lambda w, m: m(
        w.jit(lambda x: w.top.jit(lambda y: w.np.sin(w.lax.psum(y, "i")))(x * x) + x)
    )(XS),
    "in a scan": lambda w, m: m(
        w.jit(lambda x: w.lax.scan(lambda c, y: (c + w.lax.psum(y, "i"), c), x[0] * 0, x)[1])
    )(XS),
    "in a scan, and a gradient around": lambda w, m: jax.grad(
        lambda x: jnp.sum(
            m(w.jit(lambda x: w.lax.scan(lambda c, y: (c + w.lax.psum(y * y, "i"), c), x[0] * 0, x)[1]))(x)
            ** 2
        )
    )(XS),
    "a map around": lambda w, m: jax.vmap(m(w.jit(lambda x: x - w.lax.psum(x, "i"))))(
        jnp.stack([XS, XS + 1])
    ),
    "compiled": lambda w, m: jax.jit(
        jax.value_and_grad(lambda x: m(w.jit(lambda x: w.lax.psum(w.np.sum(x**2), "i")), out_specs=P())(x))
    )(XS),
}

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


# name -> function of a world that returns a function of a, which all parts share, and a part of x,
# with a result that all share. Its derivatives are inside the shard_map: JAX sums those of a.
DERIVATIVES: dict[str, Callable[[World], Any]] = {
    "grad of a psum": lambda w: w.top.grad(total(w)),
    "grad of a pmean": lambda w: w.top.grad(lambda a, x: w.lax.pmean(w.np.sum((a * x) ** 2), "i")),
    "grad without a collective": lambda w: w.top.grad(lambda a, x: w.np.sum((a * x) ** 2)),
    "a psum of it": lambda w: lambda a, x: w.lax.psum(w.top.grad(lambda a: w.np.sum((a * x) ** 2))(a), "i"),
    "value_and_grad": lambda w: lambda a, x: sum(w.top.value_and_grad(total(w))(a, x)),
    "jvp": lambda w: lambda a, x: w.top.jvp(lambda a: total(w)(a, x), (a,), (a,))[1],
    "vjp": lambda w: lambda a, x: w.top.vjp(lambda a: total(w)(a, x), a)[1](w.np.ones_like(a))[0],
    "linearize": lambda w: lambda a, x: w.top.linearize(lambda a: total(w)(a, x), a)[1](a),
    "jacfwd": lambda w: w.top.jacfwd(total(w)),
    "hessian": lambda w: w.top.hessian(total(w)),
    "checkpoint": lambda w: w.top.grad(w.top.checkpoint(total(w))),
    "vmap": lambda w: lambda a, x: w.np.sum(w.top.vmap(lambda y: w.lax.psum(y * a, "i"))(x)),
    "clipped gradients": clipped,
    "a psum in a scan": lambda w: w.top.grad(
        lambda a, x: w.lax.scan(lambda c, y: (w.lax.psum(c * y * a, "i") * 0.1, None), 1.0 * a, x)[0]
    ),
    "a scan": lambda w: w.top.grad(
        lambda a, x: w.lax.psum(w.lax.scan(lambda c, y: (c * y * a, None), a * x[0], x)[0], "i")
    ),
    "a branch": lambda w: w.top.grad(
        lambda a, x: w.lax.psum(w.lax.cond(x[0] > 0.5, lambda a: a * x[0], lambda a: a * x[1], a), "i")
    ),
    "a custom rule": lambda w: w.top.grad(lambda a, x: w.lax.psum(w.np.sum(doubled(w)(a) * x), "i")),
    "ppermute": lambda w: w.top.grad(
        lambda a, x: w.lax.psum(w.np.sum(w.lax.ppermute(a * x, "i", RING) * x), "i")
    ),
    "all_gather": lambda w: w.top.grad(lambda a, x: w.lax.pmean(w.np.sum(w.lax.all_gather(a * x, "i")), "i")),
}
LIBRARIES = (ft, jax)
JITS = {"un-jitted": as_it_is, "jitted": ft.jit, "in jax.jit": jax.jit}

if INSIDE:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("i",))

    @pytest.mark.parametrize(
        ("check", "world"),
        [(True, JITTED), (False, PLAIN), (True, JAX._replace(jit=ft.jit)), (False, JAX._replace(jit=ft.jit))],
        ids=["checked", "un-jitted", "JAX's code checked", "JAX's code"],
    )
    @pytest.mark.parametrize("case", alternately(CASES))
    def test_like_jax(case, check, world):
        def mapped(f: Any, in_specs: Any = None, out_specs: Any = None) -> Any:
            specs = [P("i") if s is None else s for s in (in_specs, out_specs)]
            how = {"mesh": mesh, "check_vma": check}
            return jax.shard_map(f, in_specs=specs[0], out_specs=specs[1], **how)

        assert_same(CASES[case](world, mapped), CASES[case](JAX, mapped))

    @pytest.mark.parametrize("case", alternately(DERIVATIVES))
    def test_derivatives_inside(case):
        """Of our functions and of JAX's, jitted inside or outside; most are not JAX's without a check."""

        def mapped(shard_map: Any, world: World, inside: Any = as_it_is) -> Any:
            f = inside(DERIVATIVES[case](world))
            return shard_map(f, mesh=mesh, in_specs=(P(), P("i")), out_specs=P())

        def check(jit: Any, functions: list[Any]) -> None:
            """In one program, or one by one."""
            for found in jit(lambda *xs: [f(*xs) for f in functions])(W, XS):
                assert_same(found, want)

        want = jax.jit(mapped(jax.shard_map, JAX))(W, XS)
        worlds = (PLAIN, JAX._replace(top=ft), JAX)
        check(as_it_is, [mapped(jax.shard_map, w, inside) for w in worlds for inside in JITS.values()])
        check(as_it_is, [mapped(ft.shard_map, w) for w in (PLAIN, JAX)])
        check(
            jax.jit, [mapped(jax.shard_map, PLAIN, ft.jit), *(mapped(ft.shard_map, w) for w in (PLAIN, JAX))]
        )
        check(
            ft.jit,
            [*(mapped(jax.shard_map, w) for w in worlds), *(mapped(ft.shard_map, w) for w in (PLAIN, JAX))],
        )

    @pytest.mark.parametrize("library", LIBRARIES, ids=["functrans", "jax"])
    @pytest.mark.parametrize("jit", JITS)
    def test_captured_values(library, jit):
        """The mapped function captures a value that is differentiated, or mapped, outside."""

        def f(w):
            how = {"mesh": mesh, "in_specs": P("i"), "out_specs": P()}
            return library.shard_map(lambda x: jax.lax.psum(jnp.sum(x * w), "i"), **how)(XS)

        assert_same(JITS[jit](ft.grad(f))(W), jax.grad(f)(W))
        assert_same(JITS[jit](ft.vmap(f))(XS), jax.vmap(f)(XS))

    def test_errors_of_jax_name_the_users_line():
        """JAX 0.11 says where it occurred."""
        layout = jax.sharding.NamedSharding(mesh, P("i"))
        with pytest.raises(ValueError, match="should evenly divide the shape") as error:
            ft.device_put(np.ones(3), layout)
        assert "device_put)" not in str(error.value)
