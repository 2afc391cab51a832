"""`vmap(..., spmd_axis_name=...)` of functions with sharding constraints and shard_maps inside, on
eight virtual CPU devices: values and layouts are those of jax.vmap.

The cases run in the process that test_on_eight_devices.py starts.
"""

from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest

import functrans as ft
from functrans import P, errors
from tests.support.tables import TABLES, functions

INSIDE = len(jax.devices()) == 8
X = J.arange(8 * 4 * 6.0).reshape(8, 4, 6) / 200  # where no derivative of waves cancels
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
    return jax.lax.cond(x[0, 0] > 0.25, lambda: laid(x, "j"), lambda: x)


CASES = functions(TABLES / "devices.txt", "spmd_axis_name", "m, vmap", globals())
AT_ONCE = ("shard_map, nested", "with a name", "grad inside", "cond")  # are un-jitted, too


if INSIDE:

    def test_values_and_layouts_are_those_of_jax():
        def made(m: Any) -> dict[str, Any]:
            return {name: make(m, lambda f: m.vmap(f, spmd_axis_name="i")) for name, make in CASES.items()}

        def every(m: Any) -> Any:
            return m.jit(lambda given: {name: f(*given[name]) for name, f in made(m).items()})(args)

        args = {name: (X * (1 + i / 20),) for i, name in enumerate(CASES)}  # which have no terms in common
        args["an operand for all"] += (W,)
        want = every(jax)
        for name, got in [*every(ft).items(), *[(name, made(ft)[name](*args[name])) for name in AT_ONCE]]:
            np.testing.assert_allclose(got, want[name], rtol=2e-6, err_msg=name)
            assert got.sharding.is_equivalent_to(want[name].sharding, got.ndim), name
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
