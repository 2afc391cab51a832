"""Named axes of vmap and the collectives over them: values and derivatives as JAX's."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import functrans as ft
from tests.parity import collective_functions
from tests.parity.collective_functions import COLLECTIVES, COMPOSITIONS, JAX_CANNOT, X, Y, both
from tests.support.closeness import assert_close
from tests.support.matrices import alternately
from tests.support.tables import TABLES, functions


def index_and_size(name: Any) -> tuple[Any, int]:
    return jax.lax.axis_index(name), jax.lax.axis_size(name)


def gathered(x: Any, name: Any, axis: int = 0, tiled: bool = False) -> Any:
    """all_gather by psum: each adds its x at its own place."""
    index, n = index_and_size(name)
    own = (jnp.arange(n) == index).astype(x.dtype)
    rows = jax.lax.psum(own.reshape((n,) + (1,) * x.ndim) * x, name)
    return jnp.concatenate(list(rows), axis) if tiled else jnp.moveaxis(rows, 0, axis)


def own_part(x: Any, name: Any, axis: int) -> Any:
    """The part of x along an axis that belongs to this example."""
    index, n = index_and_size(name)
    part = x.shape[axis] // n
    return jax.lax.dynamic_slice_in_dim(x, index * part, part, axis)


def exchanged(x: Any, name: Any, split: int, concat: int, tiled: bool = False) -> Any:
    """all_to_all: each takes its part of all that there is."""
    parts = own_part(gathered(x, name), name, 1 + split)
    if tiled:
        return jnp.concatenate(list(parts), concat)
    return jnp.moveaxis(jnp.squeeze(parts, 1 + split), 0, concat)


def scattered(x: Any, name: Any, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    y = own_part(jax.lax.psum(x, name), name, scatter_dimension)
    return y if tiled else jnp.squeeze(y, scatter_dimension)


def permuted(x: Any, name: Any, perm: Any) -> Any:
    index, _ = index_and_size(name)
    rows = gathered(x, name)
    return sum(jnp.where(index == b, rows[a], 0) for a, b in perm)


def slices_exchanged(x: Any, out: Any, starts: Any, sizes: Any, places: Any, got: Any, axis_name: Any) -> Any:
    """ragged_all_to_all slice by slice, as JAX's documentation describes it."""
    rows, n = gathered(x, axis_name), got.shape[0]
    starts, places = (exchanged(v, axis_name, 0, 0, tiled=True) for v in (starts, places))
    for k in range(n):
        at = jnp.arange(out.shape[0]) - places[k]
        sent = rows[k][jnp.clip(at + starts[k], 0, x.shape[0] - 1)]
        out = jnp.where(((at >= 0) & (at < got[k]))[:, None], sent, out)
    return out


class JaxMended:
    """JAX with the collectives that it cannot always do expressed by psum and axis_index."""

    numpy, vmap, grad, jvp, vjp, linearize = (jnp, jax.vmap, jax.grad, jax.jvp, jax.vjp, jax.linearize)
    jit = staticmethod(lambda f: f)

    class lax:
        psum, axis_index = jax.lax.psum, jax.lax.axis_index
        all_gather = staticmethod(gathered)
        all_to_all = staticmethod(exchanged)
        psum_scatter = staticmethod(scattered)
        ppermute = staticmethod(permuted)
        ragged_all_to_all = staticmethod(slices_exchanged)
        pbroadcast = staticmethod(lambda x, name, source: gathered(x, name)[source])
        pcast = staticmethod(lambda x, name, to: x)
        pswapaxes = staticmethod(lambda x, name, axis: exchanged(x, name, axis, axis))


@pytest.mark.parametrize("name", alternately(COLLECTIVES))
def test_collectives_under_compositions(name: str):
    def run(x: Any, m: Any) -> dict[str, Any]:
        found = {}
        for how, composed in COMPOSITIONS.items():
            by = JaxMended if m is jax and how in JAX_CANNOT.get(name, ()) else m
            found[how] = composed(by, functools.partial(COLLECTIVES[name], by), x)
        return found

    ours, theirs = both(functools.partial(run, m=ft), functools.partial(run, m=jax), X)
    for how in COMPOSITIONS:
        assert_close(ours[how], theirs[how], what=f"{how} of {name}")


@pytest.mark.parametrize(("name", "how"), [("psum of a tree", "vmap(grad)"), ("all_gather", "mixed")])
def test_where_nothing_is_compiled(name: str, how: str):
    ours, theirs = (COMPOSITIONS[how](m, functools.partial(COLLECTIVES[name], m), X) for m in (ft, jax))
    assert_close(ours, theirs)


@pytest.mark.rest
def test_slices_are_sent_while_types_are_wide():
    with jax.enable_x64(True):
        ours, theirs = (
            m.vmap(functools.partial(COLLECTIVES["ragged_all_to_all"], m), axis_name="i")(X)
            for m in (ft, JaxMended)
        )
    assert_close(ours, theirs)


TWO_NAMES = functions(TABLES / "axis_names.txt", "two names", "m, x", {})


TWO_NAME_COMPOSITIONS = functions(
    TABLES / "axis_names.txt", "compositions", "m, f, y", vars(collective_functions)
)


def jax_can(name: str, how: str) -> bool:
    if name.startswith("all_to_all"):
        return not how.startswith("the ")
    return not name.startswith(("all_gather", "psum_scatter", "ppermute"))


@pytest.mark.rest
@pytest.mark.parametrize("name", TWO_NAMES)
def test_two_names(name: str):
    def run(y: Any, m: Any) -> dict[str, Any]:
        found = {}
        for how, composed in TWO_NAME_COMPOSITIONS.items():
            by = JaxMended if m is jax and not jax_can(name, how) else m
            found[how] = composed(by, functools.partial(TWO_NAMES[name], by), y)
        return found

    ours, theirs = both(functools.partial(run, m=ft), functools.partial(run, m=jax), Y)
    for how in TWO_NAME_COMPOSITIONS:
        assert_close(ours[how], theirs[how], what=f"{how} of {name}")
