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
from tests.support.worlds import JAX, JITTED, PLAIN, World, assert_same

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

if INSIDE:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("i",))

    @pytest.mark.parametrize(
        ("check", "world"),
        [(True, JITTED), (False, PLAIN), (True, JAX._replace(jit=ft.jit)), (False, JAX._replace(jit=ft.jit))],
        ids=["checked", "un-jitted", "JAX's code checked", "JAX's code"],
    )
    @pytest.mark.parametrize("case", CASES)
    def test_like_jax(case, check, world):
        def mapped(f: Any, in_specs: Any = None, out_specs: Any = None) -> Any:
            specs = [P("i") if s is None else s for s in (in_specs, out_specs)]
            how = {"mesh": mesh, "check_vma": check}
            return jax.shard_map(f, in_specs=specs[0], out_specs=specs[1], **how)

        assert_same(CASES[case](world, mapped), CASES[case](JAX, mapped))
