"""Named axes of vmap and the collectives over them: values and derivatives as JAX's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import functrans as ft
from tests.parity.collective_functions import (
    COLLECTIVES,
    COMPOSITIONS,
    JAX_CANNOT,
    X,
    Y,
    both,
    nested,
    scalar,
)
from tests.support.closeness import assert_close
from tests.support.matrices import alternately


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


@pytest.mark.parametrize("how", ["vmap(jit)", "mixed", "vmap(grad)"])
@pytest.mark.parametrize("name", ["psum of a tree", "all_gather", "axis_index"])
def test_where_nothing_is_compiled(name: str, how: str):
    ours, theirs = (COMPOSITIONS[how](m, functools.partial(COLLECTIVES[name], m), X) for m in (ft, jax))
    assert_close(ours, theirs)


# --- several names --------------------------------------------------------------------------------

# Functions of x: f32[6, 8] in vmaps of 3 named "i" around 2 named "j".
TWO_NAMES: dict[str, Callable[[Any, Any], Any]] = {
    "psum over both": lambda m, x: x * m.lax.psum(x, ("i", "j")),
    "psum over both and an own axis": lambda m, x: x * m.lax.psum(x / 8, ("j", 0, "i")),
    "psum over each": lambda m, x: m.lax.psum(x, "i") * m.lax.psum(m.numpy.sin(x), "j"),
    "pmean over both": lambda m, x: x - m.lax.pmean(x, ["j", "i"]),
    "psum of ones": lambda m, x: x * m.lax.psum(1, ("i", "j")) + m.lax.psum(1.5, "j"),
    "axis_index of both": lambda m, x: x * m.lax.axis_index(("i", "j")),
    "axis_index of both, other order": lambda m, x: x + m.lax.axis_index(("j", "i")),
    "axis_index of the outer": lambda m, x: x * m.lax.axis_index("i"),
    "axis_index of the inner": lambda m, x: x * m.lax.axis_index("j"),
    "axis_size of both": lambda m, x: x / m.lax.axis_size(("i", "j")),
    "all_to_all over both": lambda m, x: m.lax.all_to_all(x, ("i", "j"), 0, 1, tiled=True),
    "all_to_all over both, other order": lambda m, x: m.lax.all_to_all(x, ("j", "i"), 0, 0, tiled=True),
    "all_gather over both": lambda m, x: m.lax.all_gather(x, ("i", "j")) * x,
    "all_gather over both, other order": lambda m, x: m.lax.all_gather(x, ("j", "i"), axis=1, tiled=True),
    "psum_scatter over both": lambda m, x: m.lax.psum_scatter(m.numpy.sin(x), ("i", "j")),
    "psum_scatter over both, other order": lambda m, x: m.lax.psum_scatter(
        x.T[:6], ("j", "i"), scatter_dimension=1, tiled=True
    ),
    "ppermute over both": lambda m, x: (
        x * m.lax.ppermute(x, ("i", "j"), [(0, 3), (3, 5), (5, 0), (1, 2), (2, 1), (4, 4)])
    ),
    "ppermute over both, not all": lambda m, x: x * m.lax.ppermute(x, ("j", "i"), [(0, 3), (3, 5), (2, 2)]),
    "one after the other": lambda m, x: m.lax.ppermute(
        m.lax.all_gather(x, "j", axis=1), "i", [(0, 2), (2, 1), (1, 0)]
    ),
    "jitted": lambda m, x: m.jit(lambda y: m.lax.psum(y, "i") - m.lax.pmean(y, "j"))(x),
}


TWO_NAME_COMPOSITIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap(vmap)": lambda m, f, y: nested(m, f)(y),
    "vmap(jit(vmap))": lambda m, f, y: m.vmap(m.jit(m.vmap(m.jit(f), axis_name="j")), axis_name="i")(y),
    "grad(vmap(vmap))": lambda m, f, y: m.grad(lambda z: scalar(m, nested(m, f)(z)))(y),
    "vmap(vmap(grad))": lambda m, f, y: nested(m, m.grad(lambda z: scalar(m, f(z))))(y),
    "vmap(grad(vmap))": lambda m, f, y: m.vmap(
        m.grad(lambda z: scalar(m, m.vmap(f, axis_name="j")(z))), axis_name="i"
    )(y),
    "the same in the inner": lambda m, f, y: m.vmap(
        lambda a: m.vmap(lambda k, b: f(b), (0, None), axis_name="j")(m.numpy.arange(2), a), axis_name="i"
    )(y[:, 0]),
    "the same in the outer": lambda m, f, y: m.vmap(
        lambda k, b: m.vmap(f, axis_name="j")(b), (0, None), axis_name="i"
    )(m.numpy.arange(3), y[0]),
    "the outer's value in the inner": lambda m, f, y: m.vmap(
        lambda a: m.vmap(lambda b: f(a[0]) * b[0, 0], axis_name="j")(a), axis_name="i"
    )(y),
}


def jax_can(name: str, how: str) -> bool:
    if name.startswith("all_to_all"):
        return not how.startswith("the ")
    return not name.startswith(("all_gather", "psum_scatter", "ppermute"))


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
