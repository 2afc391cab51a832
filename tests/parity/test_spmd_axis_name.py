"""`vmap(..., spmd_axis_name=...)` of functions with sharding constraints and shard_maps inside, on
eight virtual CPU devices: values and layouts are those of jax.vmap.

The cases run in the process that test_on_eight_devices.py starts.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest

import functrans as ft
from functrans import P, errors

INSIDE = len(jax.devices()) == 8
X = J.arange(8 * 4 * 6.0).reshape(8, 4, 6) / 50
W = J.ones((4, 6)) * 0.1


def mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("i", "j", "k"))


def laid(x: Any, *spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh(), P(*spec)))


def parts(f: Any, in_specs: Any, out_specs: Any) -> Any:
    return jax.shard_map(f, mesh=mesh(), in_specs=in_specs, out_specs=out_specs)


def waves(x: Any) -> Any:
    return laid(J.sin(x), "j") * x


def total(x: Any) -> Any:
    return parts(lambda x: J.sin(x) * jax.lax.psum(x, "j"), P("j"), P("j"))(x)


def product(x: Any, w: Any) -> Any:
    return parts(lambda x, w: x @ w.T, (P("j"), P(None)), P("j"))(x, w)


def scanned(x: Any) -> Any:
    return jax.lax.scan(lambda c, y: (laid(c + y, "j"), y), x[0], x)[0]


def chosen(x: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 1, lambda: laid(x, "j"), lambda: x)


# name -> function of (library, its vmap over "i") -> function of X, or of X and W
CASES = {
    "constraint": lambda m, vmap: vmap(waves),
    "constraint of a later axis": lambda m, vmap: vmap(lambda x: laid(x, None, "j")),
    "over two axes": lambda m, vmap: m.vmap(waves, spmd_axis_name=("i", "k")),
    "nested": lambda m, vmap: vmap(m.vmap(lambda x: laid(x * x, "k"), spmd_axis_name="j")),
    "other axes": lambda m, vmap: m.vmap(waves, in_axes=1, out_axes=1, spmd_axis_name="i"),
    "with a name": lambda m, vmap: m.vmap(
        lambda x: waves(x) + jax.lax.psum(x, "b"), axis_name="b", spmd_axis_name="i"
    ),
    "grad inside": lambda m, vmap: vmap(m.grad(lambda x: waves(x).sum())),
    "grad outside": lambda m, vmap: m.grad(lambda x: vmap(waves)(x).sum()),
    "checkpoint": lambda m, vmap: m.grad(lambda x: vmap(m.checkpoint(waves))(x).sum()),
    "jit inside": lambda m, vmap: vmap(m.jit(waves)),
    "scan": lambda m, vmap: vmap(scanned),
    "cond": lambda m, vmap: vmap(chosen),
    "shard_map": lambda m, vmap: vmap(total),
    "shard_map over two axes": lambda m, vmap: m.vmap(total, spmd_axis_name=("i", "k")),
    "shard_map, nested": lambda m, vmap: vmap(m.vmap(parts(J.sin, P("k"), P("k")), spmd_axis_name="j")),
    "shard_map, grad": lambda m, vmap: vmap(m.grad(lambda x: (total(x) ** 2).sum())),
    "shard_map of ours": lambda m, vmap: vmap(
        m.shard_map(lambda x: J.sin(x) * m.lax.psum(x, "j"), mesh=mesh(), in_specs=P("j"), out_specs=P("j"))
    ),
    "an operand for all": lambda m, vmap: m.vmap(
        lambda x, w: product(x, laid(w, "k")), in_axes=(0, None), spmd_axis_name="i"
    ),
}


if INSIDE:

    @pytest.mark.parametrize("jitted", [False, True], ids=["", "jit"])
    @pytest.mark.parametrize("name", CASES)
    def test_values_and_layouts_are_those_of_jax(name: str, jitted: bool):
        args = (X, W) if name == "an operand for all" else (X,)
        found = []
        for m in (ft, jax):
            f = CASES[name](m, lambda f, m=m: m.vmap(f, spmd_axis_name="i"))
            found.append((m.jit(f) if jitted else f)(*args))
        got, want = found
        np.testing.assert_allclose(got, want, rtol=2e-6)
        assert got.sharding.is_equivalent_to(want.sharding, got.ndim)
        assert len(got.sharding.device_set) == 8

    @pytest.mark.parametrize(
        ("f", "axis", "error"),
        [
            (lambda x: laid(x, "i"), "i", errors.InvalidArgument),
            (waves, "q", errors.InvalidArgument),
            (parts(J.sin, P("i"), P("i")), "i", errors.MissingRule),
        ],
        ids=["used", "unknown", "used by shard_map"],
    )
    def test_an_axis_that_cannot_be_had(f: Any, axis: str, error: type[Exception]):
        with pytest.raises(ValueError, match=r"spmd_axis_name|not found in mesh"):
            jax.vmap(f, spmd_axis_name=axis)(X)
        with pytest.raises(error, match=rf"(?s)'{axis}'|spmd_axis_name.*test_spmd_axis_name"):
            ft.vmap(f, spmd_axis_name=axis)(X)
