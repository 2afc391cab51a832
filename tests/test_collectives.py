"""Named axes of vmap and the collectives over them: values, derivatives and refusals as JAX's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans.ir import check, equal, parse, show
from functrans.ir.program import hoist_constants
from functrans.trace import state
from functrans.transforms.batch import Batching
from tests.closeness import assert_close

N = 4
X = np.random.default_rng(0).normal(size=(N, N, 8)).astype(np.float32)
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def mean_of_square(m: Any, x: Any) -> Any:
    return m.lax.pmean(x * x, "i")


BACK = [(b, a) for a, b in RING]


def messages(m: Any, x: Any) -> Any:
    """What went around the ring in both directions."""
    token = m.lax.after_all(m.lax.psend(x, "i", RING), m.lax.psend(x * x, "i", BACK))
    there = m.lax.precv(token, jax.ShapeDtypeStruct(x.shape, x.dtype), "i", RING)
    return there * m.lax.precv(token, x, "i", BACK)


SIZES = np.array([[1, 0, 2, 1], [0, 2, 1, 1], [1, 1, 1, 1], [2, 0, 0, 2]], np.int32)  # [from, to]


def slices(m: Any, x: Any) -> Any:
    """Rows of each go to all, in numbers that differ; behind one another in six rows of ones."""
    starts = np.cumsum(SIZES, 1) - SIZES
    places = np.cumsum(SIZES, 0) - SIZES
    me = m.lax.axis_index("i")
    mine = [m.numpy.asarray(table)[me] for table in (starts, SIZES, places, SIZES.T)]
    return m.lax.ragged_all_to_all(x, m.numpy.ones((6, 8), x.dtype), *mine, axis_name="i")


# Functions of one example x: f32[4, 8] among N; m is functrans or jax.
COLLECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda m, x: m.lax.psum(x, "i"),
    "psum of a product": lambda m, x: x * m.lax.psum(m.numpy.sin(x), "i"),
    "psum of a tree": lambda m, x: m.lax.psum({"a": x, "b": (x[0], 2.0)}, "i"),
    "psum over an own axis too": lambda m, x: m.lax.psum(m.numpy.cos(x), (0, "i")),
    "pmean": lambda m, x: x - m.lax.pmean(x, "i"),
    "pmean of squares": mean_of_square,
    "all_gather": lambda m, x: m.lax.all_gather(x, "i") * x,
    "all_gather axis=1": lambda m, x: m.lax.all_gather(x, "i", axis=1),
    "all_gather axis=-1": lambda m, x: m.lax.all_gather(x, "i", axis=-1),
    "all_gather tiled": lambda m, x: m.lax.all_gather(x, "i", axis=1, tiled=True),
    "all_to_all": lambda m, x: m.lax.all_to_all(x, "i", 0, 1),
    "all_to_all to the front": lambda m, x: m.lax.all_to_all(x.T, "i", 1, 0),
    "all_to_all tiled": lambda m, x: m.lax.all_to_all(x, "i", 1, 0, tiled=True),
    "all_to_all tiled, one axis": lambda m, x: m.lax.all_to_all(x, "i", 1, 1, tiled=True),
    "pswapaxes": lambda m, x: m.lax.pswapaxes(x, "i", 0) * x,
    "ppermute": lambda m, x: m.lax.ppermute(x, "i", RING) * x,
    "pshuffle": lambda m, x: m.lax.pshuffle(x, "i", [2, 0, 3, 1]) * x,
    "psum_scatter": lambda m, x: m.lax.psum_scatter(m.numpy.sin(x), "i"),
    "psum_scatter tiled": lambda m, x: m.lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "axis_index": lambda m, x: x * m.lax.axis_index("i"),
    "axis_size": lambda m, x: x / m.lax.axis_size("i"),
    "pbroadcast": lambda m, x: m.lax.pbroadcast(x, "i", 2) * x,
    "pcast": lambda m, x: m.lax.pcast(m.numpy.sin(x), "i", to="varying"),
    "messages": lambda m, x: messages(m, x),
    "ragged_all_to_all": lambda m, x: slices(m, m.numpy.sin(x)),
    "gather of a scatter": lambda m, x: m.lax.all_gather(m.lax.psum_scatter(x, "i"), "i") * x,
    "softmax": lambda m, x: m.numpy.exp(x) / m.lax.psum(m.numpy.exp(x), "i"),
    "one of each": lambda m, x: m.lax.psum(
        m.lax.ppermute(x, "i", RING) * m.lax.axis_index("i") + m.lax.pswapaxes(x, "i", 0), "i"
    ),
}


def scalar(m: Any, y: Any) -> Any:
    return sum(m.numpy.sum(m.numpy.cos(v) * 0.5) for v in jax.tree_util.tree_leaves(y))


def batched(m: Any, f: Any, in_axes: Any = 0, out_axes: Any = 0, **names: Any) -> Any:
    return m.vmap(f, in_axes, out_axes, axis_name="i", **names)


def the_same_in_all(m: Any, f: Any, x: Any) -> Any:
    return batched(m, lambda k: f(x[0]), axis_size=N)(m.numpy.arange(N))


def mixed(m: Any, f: Any, x: Any) -> Any:
    """A batched and an unbatched use of one collective."""
    return batched(m, lambda a, b: (f(a), f(b)), (0, None))(x, x[1])


# What may be made of `f`; each takes x: f32[N, N, 8].
COMPOSITIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap": lambda m, f, x: batched(m, f)(x),
    "vmap in_axes=1": lambda m, f, x: batched(m, f, 1, -1)(x),
    "vmap in_axes=2": lambda m, f, x: batched(m, f, -1)(x[..., :N].transpose(1, 2, 0).repeat(2, 1)),
    "vmap(jit)": lambda m, f, x: batched(m, m.jit(f))(x),
    "unbatched": the_same_in_all,
    "mixed": mixed,
    "grad(vmap)": lambda m, f, x: m.grad(lambda y: scalar(m, batched(m, f)(y)))(x),
    "vmap(grad)": lambda m, f, x: batched(m, m.grad(lambda y: scalar(m, f(y))))(x),
    "vmap(jit(grad(jit)))": lambda m, f, x: batched(
        m, m.jit(m.grad(lambda y: scalar(m, m.jit(f)(y))))
    )(x),
    "grad(unbatched)": lambda m, f, x: m.grad(lambda y: scalar(m, the_same_in_all(m, f, y)))(x),
    "jvp(vmap)": lambda m, f, x: m.jvp(batched(m, f), (x,), (x * x,)),
    "vmap(jvp)": lambda m, f, x: batched(m, lambda y: m.jvp(f, (y,), (y * y,)))(x),
    "vmap(linearize)": lambda m, f, x: batched(m, lambda y: m.linearize(f, y)[1](y * y))(x),
    "vmap(vjp)": lambda m, f, x: batched(m, lambda y: m.vjp(f, y)[1](f(y)))(x),
    "grad(vmap(grad))": lambda m, f, x: m.grad(
        lambda y: scalar(m, batched(m, m.grad(lambda z: scalar(m, f(z))))(y))
    )(x),
    "vmap(named)": lambda m, f, x: m.vmap(batched(m, f))(m.numpy.stack([x, x + 1])),
    "named(vmap)": lambda m, f, x: batched(m, m.vmap(f), 1)(m.numpy.stack([x, x + 1])),
    "named(vmap axis 1)": lambda m, f, x: batched(m, m.vmap(f, 1))(
        m.numpy.stack([x, x + 1], 2)
    ),
}  # fmt: skip


# What JAX 0.10 computes wrongly or cannot: all_to_all of a value that is the same in all examples
# (its result has axes too many) and the transpose of the untiled one; psum_scatter where another
# vmapped axis stands behind `scatter_dimension`.
UNBATCHED = {"unbatched", "mixed", "grad(unbatched)"}
TRANSPOSED = {
    "vmap(grad)", "vmap(jit(grad(jit)))", "vmap(vjp)", "grad(vmap(grad))",
}  # fmt: skip
JAX_CANNOT = {
    "all_to_all": UNBATCHED | TRANSPOSED,
    "all_to_all to the front": UNBATCHED | TRANSPOSED,
    "all_to_all tiled": UNBATCHED,
    "all_to_all tiled, one axis": UNBATCHED,
    "pswapaxes": UNBATCHED,
    "one of each": UNBATCHED | TRANSPOSED,
    "psum_scatter": {"named(vmap axis 1)"},
    "gather of a scatter": {"named(vmap axis 1)"},
    # On CPUs or under vmap not at all.
    **{k: set(COMPOSITIONS) for k in ("pbroadcast", "pcast", "messages", "ragged_all_to_all")},
}


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


def slices_exchanged(
    x: Any, out: Any, starts: Any, sizes: Any, places: Any, got: Any, axis_name: Any
) -> Any:
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

    numpy, vmap, grad, jvp, vjp, linearize = (
        jnp, jax.vmap, jax.grad, jax.jvp, jax.vjp, jax.linearize,
    )  # fmt: skip
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
        psend = staticmethod(lambda x, name, perm: {tuple(perm): permuted(x, name, perm)})
        after_all = staticmethod(lambda a, b: a | b)
        precv = staticmethod(lambda token, shape, name, perm: token[tuple(perm)])
        pswapaxes = staticmethod(lambda x, name, axis: exchanged(x, name, axis, axis))


def both(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The results of functrans and of JAX, compiled together."""
    return jax.jit(lambda *xs: (ft.jit(ours)(*xs), theirs(*xs)))(*args)


@pytest.mark.parametrize("name", COLLECTIVES)
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
    ours, theirs = (COMPOSITIONS[how](m, functools.partial(COLLECTIVES[name], m), X)
                    for m in (ft, jax))  # fmt: skip
    assert_close(ours, theirs)


# --- several names --------------------------------------------------------------------------------

# Functions of x: f32[6, 8] in vmaps of 3 named "i" around 2 named "j".
TWO_NAMES: dict[str, Callable[[Any, Any], Any]] = {
    "psum over both": lambda m, x: x * m.lax.psum(x, ("i", "j")),
    "psum over both and an own axis": lambda m, x: x * m.lax.psum(x, ("j", 0, "i")),
    "psum over each": lambda m, x: m.lax.psum(x, "i") * m.lax.psum(m.numpy.sin(x), "j"),
    "pmean over both": lambda m, x: x - m.lax.pmean(x, ["j", "i"]),
    "psum of ones": lambda m, x: x * m.lax.psum(1, ("i", "j")) + m.lax.psum(1.5, "j"),
    "axis_index of both": lambda m, x: x * m.lax.axis_index(("i", "j")),
    "axis_index of both, other order": lambda m, x: x + m.lax.axis_index(("j", "i")),
    "axis_index of the outer": lambda m, x: x * m.lax.axis_index("i"),
    "axis_index of the inner": lambda m, x: x * m.lax.axis_index("j"),
    "axis_size of both": lambda m, x: x / m.lax.axis_size(("i", "j")),
    "all_to_all over both": lambda m, x: m.lax.all_to_all(x, ("i", "j"), 0, 1, tiled=True),
    "all_to_all over both, other order": lambda m, x: m.lax.all_to_all(
        x, ("j", "i"), 0, 0, tiled=True
    ),
    "all_gather over both": lambda m, x: m.lax.all_gather(x, ("i", "j")) * x,
    "all_gather over both, other order": lambda m, x: m.lax.all_gather(
        x, ("j", "i"), axis=1, tiled=True
    ),
    "psum_scatter over both": lambda m, x: m.lax.psum_scatter(m.numpy.sin(x), ("i", "j")),
    "psum_scatter over both, other order": lambda m, x: m.lax.psum_scatter(
        x.T[:6], ("j", "i"), scatter_dimension=1, tiled=True
    ),
    "ppermute over both": lambda m, x: (
        x * m.lax.ppermute(x, ("i", "j"), [(0, 3), (3, 5), (5, 0), (1, 2), (2, 1), (4, 4)])
    ),
    "ppermute over both, not all": lambda m, x: (
        x * m.lax.ppermute(x, ("j", "i"), [(0, 3), (3, 5), (2, 2)])
    ),
    "one after the other": lambda m, x: m.lax.ppermute(
        m.lax.all_gather(x, "j", axis=1), "i", [(0, 2), (2, 1), (1, 0)]
    ),
    "jitted": lambda m, x: m.jit(lambda y: m.lax.psum(y, "i") - m.lax.pmean(y, "j"))(x),
}
Y = np.random.default_rng(1).normal(size=(3, 2, 6, 8)).astype(np.float32)


def nested(m: Any, f: Any, *in_axes: Any) -> Any:
    outer, inner = in_axes or (0, 0)
    return m.vmap(m.vmap(f, inner, axis_name="j"), outer, axis_name="i")


TWO_NAME_COMPOSITIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap(vmap)": lambda m, f, y: nested(m, f)(y),
    "vmap(jit(vmap))": lambda m, f, y: m.vmap(
        m.jit(m.vmap(m.jit(f), axis_name="j")), axis_name="i"
    )(y),
    "grad(vmap(vmap))": lambda m, f, y: m.grad(lambda z: scalar(m, nested(m, f)(z)))(y),
    "vmap(vmap(grad))": lambda m, f, y: nested(m, m.grad(lambda z: scalar(m, f(z))))(y),
    "vmap(grad(vmap))": lambda m, f, y: m.vmap(
        m.grad(lambda z: scalar(m, m.vmap(f, axis_name="j")(z))), axis_name="i"
    )(y),
    "the same in the inner": lambda m, f, y: m.vmap(
        lambda a: m.vmap(lambda k, b: f(b), (0, None), axis_name="j")(m.numpy.arange(2), a),
        axis_name="i",
    )(y[:, 0]),
    "the same in the outer": lambda m, f, y: m.vmap(
        lambda k, b: m.vmap(f, axis_name="j")(b), (0, None), axis_name="i"
    )(m.numpy.arange(3), y[0]),
    "the outer's value in the inner": lambda m, f, y: m.vmap(
        lambda a: m.vmap(lambda b: f(a[0]) * b[0, 0], axis_name="j")(a), axis_name="i"
    )(y),
}  # fmt: skip


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


# --- scope ----------------------------------------------------------------------------------------


def test_an_inner_name_hides_an_outer_one():
    def f(m: Any, y: Any) -> Any:
        inner = lambda a, b: (  # noqa: E731
            m.lax.psum(b, "i"), m.lax.psum(a, "i"), m.lax.axis_index("i"), m.lax.axis_size("i"),
        )  # fmt: skip

        def outer(a: Any) -> Any:
            hidden = m.vmap(inner, (None, 0), axis_name="i")(a[0], a)
            return hidden, m.lax.psum(a, "i"), m.lax.axis_size("i")

        return m.vmap(outer, axis_name="i")(y)

    for how in (lambda g: g, ft.jit):
        assert_close(how(functools.partial(f, ft))(Y), f(jax, Y))


def test_a_sum_of_constants_is_computed_at_once():
    seen = []

    def f(m: Any, x: Any) -> Any:
        seen.append((m.lax.psum(1, "i"), m.lax.psum(2.5, "i"), m.lax.axis_size("i")))
        constants = (True, np.arange(3), np.float32(2), jnp.asarray(2.0), jnp.ones(2, jnp.bfloat16))
        return x, m.lax.psum(constants, "i"), m.lax.psum((x, 1, 2.0, True), "i")

    for m in (ft, jax):
        found = m.vmap(functools.partial(f, m), axis_name="i")(jnp.ones(5))
        assert [type(v) for v in seen[-1]] == [int, float, int]
        assert seen[-1] == (5, 12.5, 5)
        weak = [bool(v.weak_type) for v in jax.tree_util.tree_leaves(found)]
        if m is ft:
            ours, our_weak = found, weak
    assert_close(ours, found)
    assert our_weak == weak


DTYPES = ["bool", "int8", "uint32", "bfloat16", "float16", "float32", "complex64", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str):
    with jax.enable_x64(dtype == "float64"):
        x = (X[:, 0] * 5).astype(dtype)

        def run(x: Any, m: Any) -> Any:
            def f(x: Any) -> Any:
                moved = (
                    m.lax.all_gather(x, "i"), m.lax.ppermute(x, "i", RING),
                    m.lax.pswapaxes(x[:N], "i", 0),
                )  # fmt: skip
                if dtype == "complex64":
                    return moved, m.lax.psum(x, "i"), m.lax.pmean(x, "i")
                ends = m.lax.pmax(x, "i"), m.lax.pmin(x, "i")
                return moved, ends, m.lax.psum(x, "i"), m.lax.pmean(x, "i")

            return m.vmap(f, axis_name="i")(x), m.vmap(lambda k: f(x[0]), axis_name="i")(x)

        def mended(x: Any) -> Any:  # of values that are the same in all, see JAX_CANNOT
            (moved, *rest), unbatched = run(x, jax)
            swapped = jnp.broadcast_to(x[0][:N, None], (N, N))
            return (moved, *rest), ((*unbatched[0][:2], swapped), *unbatched[1:])

        ours, theirs = both(functools.partial(run, m=ft), mended, x)
        assert_close(ours, theirs)


def test_any_hashable_is_a_name():
    marker = object()
    for name in (marker, 7.5, frozenset({1}), "i"):
        total = ft.vmap(lambda x, name=name: ft.lax.psum(x, name), axis_name=name)(np.ones(3))
        assert_close(total, jnp.full(3, 3.0))


def test_a_jitted_function_is_traced_for_each_axis():
    @ft.jit
    def share(x):
        return x / ft.lax.psum(1, "i") + ft.lax.axis_index("i")

    for n in (3, 5, 3):
        assert_close(ft.vmap(share, axis_name="i")(np.ones(n)), 1 / n + jnp.arange(n))
    with pytest.raises(errors.UnboundAxis):
        share(1.0)
    with pytest.raises(errors.UnboundAxis):
        ft.vmap(share, axis_name="j")(np.ones(3))
    assert_close(ft.vmap(share, axis_name="i")(np.ones(3)), 1 / 3 + jnp.arange(3.0))


def test_a_jitted_function_without_arguments():
    here = ft.jit(lambda: ft.lax.axis_index("i") * 2)
    assert_close(ft.vmap(lambda x: x + here(), axis_name="i")(jnp.arange(3)), 3 * jnp.arange(3))
    assert_close(ft.vmap(lambda x: here(), axis_name="i")(jnp.arange(3)), 2 * jnp.arange(3))


def test_names_reach_deeply_nested_functions():
    def deep(n: int) -> Callable[[Any], Any]:
        if n == 0:
            return lambda x: ft.lax.psum(x, "i")
        return ft.jit(lambda x: deep(n - 1)(x) + 1)

    found = ft.vmap(deep(60), axis_name="i")(jnp.arange(3.0))
    assert_close(found, jnp.full(3, 63.0))


def test_no_collective_is_left_and_the_scope_ends():
    f = ft.jit(ft.vmap(ft.jit(lambda x: ft.lax.psum(x * ft.lax.axis_index("i"), "i")),
                       axis_name="i"))  # fmt: skip
    text = show(f.program(jnp.ones(3)))
    assert "psum" not in text
    assert "axis_index" not in text
    assert state.axes == ()
    with pytest.raises(ZeroDivisionError):
        ft.vmap(lambda x: 1 / 0, axis_name="i")(jnp.ones(3))
    assert state.axes == ()


def test_spmd_axis_name_and_sum_match():
    def f(m: Any, x: Any) -> Any:
        named = m.vmap(lambda a: m.lax.psum(a, "i"), axis_name="i", spmd_axis_name="data")
        summed = m.vmap(lambda a: (2 * a, a, 3.0), out_axes=(None, 0, None), sum_match=True)
        return named(x), m.vmap(named, spmd_axis_name=("data", "model"))(X[0]), summed(x)

    assert_close(f(ft, X[0, 0]), f(jax, X[0, 0]))


# --- what JAX has no answer for -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_extremes(name: str):
    """Values as JAX's. Its pmax has no derivative; that of reduce_max along the axis is ours."""

    def f(m: Any, x: Any) -> Any:
        extreme = getattr(m.lax, name)
        return extreme({"a": x, "b": (x[0], 3)}, "i"), extreme(x, ("i", 0))

    x = np.round(X[:, 0])  # with ties
    assert_close(
        ft.vmap(functools.partial(f, ft), axis_name="i")(x),
        jax.vmap(functools.partial(f, jax), axis_name="i")(x),
    )
    assert_close(nested(ft, lambda y: getattr(ft.lax, name)(y, ("j", "i")))(Y),
                 nested(jax, lambda y: getattr(jax.lax, name)(y, ("j", "i")))(Y))  # fmt: skip
    one = lambda y: getattr(ft.lax, name)(y, "i")  # noqa: E731
    whole = {"pmax": jnp.max, "pmin": jnp.min}[name]
    found = ft.grad(lambda x: ft.numpy.sum(ft.numpy.sin(ft.vmap(one, axis_name="i")(x))))(x)
    expected = jax.grad(lambda x: jnp.sum(jnp.sin(jnp.broadcast_to(whole(x, 0), x.shape))))(x)
    assert_close(found, expected)
    inside = ft.vmap(ft.grad(lambda y: ft.numpy.sum(ft.numpy.sin(one(y)))), axis_name="i")(x)
    assert_close(inside, expected)
    unbatched = ft.vmap(lambda k: one(x[0]), axis_name="i")(x)
    assert_close(unbatched, jnp.broadcast_to(x[0], x.shape))


@pytest.mark.parametrize("perm", [[(0, 1), (1, 2)], [(3, 0)], [], [(1, 1), (2, 0)]])
def test_what_nothing_is_sent_to_is_zero(perm: list[tuple[int, int]]):
    expected = np.zeros_like(X)
    for a, b in perm:
        expected[b] = X[a]
    shift = ft.vmap(lambda x: ft.lax.ppermute(x, "i", perm), axis_name="i")
    assert_close(shift(X), expected)
    same = ft.vmap(lambda k: ft.lax.ppermute(X[0], "i", perm), axis_name="i")(X)
    assert_close(same, np.stack([X[0] * (k in [b for _, b in perm]) for k in range(N)]))
    back = ft.vjp(shift, X)[1](X)[0]
    assert_close(back, shift_by_hand(X, [(b, a) for a, b in perm]))


def shift_by_hand(x: Any, perm: Any) -> Any:
    out = np.zeros_like(x)
    for a, b in perm:
        out[b] = x[a]
    return out


EVEN, UNEVEN = [[0, 2], [3, 1]], [[2], [0, 3, 1]]


def in_groups(operation: Callable[[Any], Any], groups: Any, x: Any) -> Any:
    """Each group for itself; `operation` maps the stacked members to the stacked results."""
    rows: dict[int, Any] = {}
    for g in groups:
        rows.update(zip(g, operation(ft.numpy.stack([x[i] for i in g])), strict=True))
    return ft.numpy.stack([rows[i] for i in range(len(x))])


GROUPED = {
    "psum": lambda lax, x, **how: lax.psum(x, "i", **how),
    "pmean": lambda lax, x, **how: lax.pmean(x, "i", **how),
    "pmax": lambda lax, x, **how: lax.pmax(x, "i", **how),
    "all_gather": lambda lax, x, **how: lax.all_gather(x, "i", axis=1, tiled=True, **how),
    "psum_scatter": lambda lax, x, **how: lax.psum_scatter(
        x, "i", scatter_dimension=1, tiled=True, **how
    ),
    "all_to_all": lambda lax, x, **how: lax.all_to_all(x, "i", 1, 0, tiled=True, **how),
}


GROUPINGS = [
    (name, groups)
    for name in GROUPED
    for groups in ((EVEN, UNEVEN) if name in ("psum", "pmean", "pmax") else (EVEN,))
]


@pytest.mark.parametrize(("name", "groups"), GROUPINGS)
def test_groups(name: str, groups: list[list[int]]):
    """JAX refuses groups under vmap: compared with a vmap for each group."""
    f = GROUPED[name]
    whole = ft.vmap(lambda x: f(ft.lax, x, axis_index_groups=groups), axis_name="i")
    alone = ft.vmap(lambda x: f(ft.lax, x), axis_name="i")
    by_hand = functools.partial(in_groups, alone, groups)

    @ft.jit
    def pairs(x: Any) -> list[tuple[Any, Any]]:
        same = ft.vmap(lambda k: f(ft.lax, x[0], axis_index_groups=groups), axis_name="i")
        two = ft.numpy.stack([x, 2 * x], 2)
        return [
            (whole(x), by_hand(x)),
            (same(x), by_hand(ft.numpy.stack([x[0]] * N))),
            (ft.vjp(whole, x)[1](whole(x))[0], ft.vjp(by_hand, x)[1](by_hand(x))[0]),
            (ft.vmap(whole, 2)(two), ft.numpy.stack([whole(x), whole(2 * x)])),
        ]

    for found, expected in pairs(X):
        assert_close(found, expected)


def test_sizes_of_groups():
    def f(x: Any) -> Any:
        even, uneven = (ft.lax.psum(1, "i", axis_index_groups=g) for g in (EVEN, UNEVEN))
        assert even == 2
        return uneven

    assert_close(ft.vmap(f, axis_name="i")(jnp.ones(N)), jnp.array([3, 3, 1, 3]))


# --- inside control flow and rules of the user's own ----------------------------------------------


def with_jvp(m: Any) -> Any:
    f = m.custom_jvp(lambda y: m.lax.psum(m.numpy.sin(y), "i"))
    f.defjvp(lambda p, t: (f(*p), m.lax.psum(2 * m.numpy.cos(p[0]) * t[0], "i")))
    return f


def with_vjp(m: Any) -> Any:
    f = m.custom_vjp(lambda y: m.lax.psum(m.numpy.sin(y), "i"))
    f.defvjp(
        lambda y: (f(y), y),
        lambda y, ct: (m.lax.psum(ct, "i") * m.numpy.cos(y) * m.lax.axis_index("i"),),
    )
    return f


# Functions of a scalar x among three.
HIGHER: dict[str, Callable[[Any, Any], Any]] = {
    "scan": lambda m, x: m.lax.scan(
        lambda c, a: (c + m.lax.psum(a * x, "i"), m.lax.axis_index("i") + a), 0.0, jnp.arange(3.0)
    ),
    "scan of what is the same in all": lambda m, x: m.lax.scan(
        lambda c, a: (m.lax.psum(c, "i"), m.lax.axis_index("i")), 1.0, None, length=3
    ),
    "a carry that becomes different": lambda m, x: m.lax.scan(
        lambda c, a: (c + m.lax.axis_index("i"), c), 0, None, length=3
    ),
    "cond": lambda m, x: m.lax.cond(
        m.lax.psum(x, "i") > 2, lambda y: m.lax.psum(y, "i"), lambda y: y, x
    ),
    "cond without operands": lambda m, x: m.lax.cond(
        True, lambda: m.lax.axis_index("i") * 2, lambda: 7
    ),
    "while_loop": lambda m, x: m.lax.while_loop(
        lambda c: c < m.lax.pmax(m.lax.stop_gradient(x), "i"),
        lambda c: c + m.lax.psum(1.0, "i") / (2 + m.lax.axis_index("i")), 0.0,
    ),
    "a trip count that is different": lambda m, x: m.lax.while_loop(
        lambda c: c < 5, lambda c: c + m.lax.axis_index("i") + 1, 0
    ),
    "fori_loop": lambda m, x: m.lax.fori_loop(0, 3, lambda i, c: c + m.lax.axis_index("i"), 0),
    "map": lambda m, x: m.lax.map(lambda a: a * m.lax.psum(x, "i"), jnp.arange(3.0)),
    "stop_gradient": lambda m, x: m.grad(
        lambda y: m.lax.psum(m.lax.stop_gradient(y), "i") * y
    )(x),
    "checkpoint": lambda m, x: m.checkpoint(
        lambda y: m.lax.psum(m.numpy.sin(y), "i") * y * m.lax.axis_index("i")
    )(x),
    "grad of checkpoint": lambda m, x: m.grad(
        m.checkpoint(lambda y: m.lax.psum(m.numpy.sin(y), "i") * y)
    )(x),
    "custom_jvp": lambda m, x: (with_jvp(m)(x), m.grad(with_jvp(m))(x), m.grad(with_jvp(m))(1.5)),
    "custom_vjp": lambda m, x: (with_vjp(m)(x), m.grad(with_vjp(m))(x), m.grad(with_vjp(m))(1.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", HIGHER)
def test_inside_control_flow_and_custom_rules(name: str):
    def run(x: Any, m: Any) -> Any:
        f = functools.partial(HIGHER[name], m)
        mapped = m.vmap(f, axis_name="i")
        found = [mapped(x), m.vmap(m.jit(f), axis_name="i")(x)]
        if "while" in name or "vjp" in name:  # JAX has no such derivative; its bwd loses the name
            return found
        return [*found, m.grad(lambda z: scalar(m, mapped(z)))(x)]

    x = jnp.arange(1.0, 4.0)
    ours, theirs = both(functools.partial(run, m=ft), functools.partial(run, m=jax), x)
    assert_close(ours, theirs)
    assert_close(run(x, ft), theirs)


def test_what_is_kept_of_a_function_is_kept_for_one_axis():
    """The same function objects in maps of two sizes: what was recorded for one is not used for
    the other."""

    def parts(m: Any) -> list[Callable[[Any], Any]]:
        jvp, vjp = with_jvp(m), with_vjp(m)
        share = lambda y: y / m.lax.psum(1, "i") + m.lax.psum(y, "i")  # noqa: E731
        step = lambda c, _: (share(c), None)  # noqa: E731
        saved = m.checkpoint(share)
        return [
            jvp, vjp, m.grad(jvp), m.grad(vjp), saved, m.grad(saved), m.jit(share),
            lambda y: m.lax.cond(y > 2, share, share, y),
            lambda y: m.lax.scan(step, y, None, length=2)[0],
            lambda y: m.lax.fori_loop(0, 2, lambda i, c: share(c), y),
        ]  # fmt: skip

    ours, theirs = parts(ft), parts(jax)
    for n in (3, 5, 3):
        x = jnp.arange(1.0, 1.0 + n)
        for i, (f, g) in enumerate(zip(ours, theirs, strict=True)):
            found = ft.vmap(f, axis_name="i")(x)
            assert_close(found, jax.vmap(g, axis_name="i")(x), what=f"part {i} for {n} examples")


# --- wrong programs -------------------------------------------------------------------------------

# what -> (program, JAX's class of error or ours, words that the message has)
WRONG: dict[str, tuple[Callable[[], Any], type, list[str]]] = {
    "outside": (lambda: ft.lax.psum(X, "i"), NameError, ["psum", "'i'", "none", "vmap"]),
    "size outside": (lambda: ft.lax.psum(1, "i"), NameError, ["psum", "'i'"]),
    "index outside": (lambda: ft.lax.axis_index("i"), NameError, ["axis_index", "'i'"]),
    "another name": (
        lambda: ft.vmap(lambda x: ft.lax.all_gather(x, "j"), axis_name="i")(X),
        NameError, ["all_gather", "'j'", "'i' of size 4", "vmap(f, axis_name='j')"],
    ),
    "no name": (lambda: ft.vmap(lambda x: ft.lax.pmax(x, "i"))(X), NameError, ["pmax", "none"]),
    "one of two": (
        lambda: ft.vmap(lambda x: ft.lax.pmean(x, ("i", "j")), axis_name="i")(X),
        NameError, ["'j'"],
    ),
    "jitted": (
        lambda: ft.vmap(ft.jit(lambda x: ft.lax.psum(x, "j")), axis_name="i")(X),
        NameError, ["'j'", "'i' of size 4"],
    ),
    "grad outside": (lambda: ft.grad(lambda x: ft.lax.psum(x, "i"))(1.0), NameError, ["psum"]),
    "after its vmap": (
        lambda: ft.vmap(lambda x: ft.lax.psum(x, "i"))(ft.vmap(lambda x: x, axis_name="i")(X)),
        NameError, ["none"],
    ),
    "twice": (
        lambda: ft.vmap(lambda x: ft.lax.psum(x, ("i", "i")), axis_name="i")(X),
        ValueError, ["twice"],
    ),
    "groups": (
        lambda: ft.vmap(
            lambda x: ft.lax.psum(x, "i", axis_index_groups=[[0, 1], [2]]), axis_name="i"
        )(X),
        ValueError, ["cover", "0..3", "[[0, 1], [2]]"],
    ),
    "uneven groups": (
        lambda: ft.vmap(
            lambda x: ft.lax.all_gather(x, "i", axis_index_groups=UNEVEN), axis_name="i"
        )(X),
        ValueError, ["one size"],
    ),
    "groups and own axes": (
        lambda: ft.vmap(
            lambda x: ft.lax.psum(x, ("i", 0), axis_index_groups=EVEN), axis_name="i"
        )(X),
        ValueError, ["(0,)"],
    ),
    "groups over two names": (
        lambda: nested(ft, lambda x: ft.lax.psum(
            x, ("i", "j"), axis_index_groups=[[0, 1, 2], [3, 4, 5]]))(Y),
        NotImplementedError, ["axis_index_groups", "('i', 'j')"],
    ),
    "no permutation": (
        lambda: ft.vmap(lambda x: ft.lax.pshuffle(x, "i", [0, 0, 1, 2]), axis_name="i")(X),
        ValueError, ["pshuffle", "once"],
    ),
    "a destination twice": (
        lambda: ft.vmap(lambda x: ft.lax.ppermute(x, "i", [(0, 1), (2, 1)]), axis_name="i")(X),
        TypeError, ["destination twice"],
    ),
    "a source that there is not": (
        lambda: ft.vmap(lambda x: ft.lax.ppermute(x, "i", [(4, 1)]), axis_name="i")(X),
        TypeError, ["source", "0..3"],
    ),
    "gather axis": (
        lambda: ft.vmap(lambda x: ft.lax.all_gather(x, "i", axis=3), axis_name="i")(X),
        ValueError, ["all_gather", "axis 3"],
    ),
    "gather type": (
        lambda: ft.vmap(lambda x: ft.lax.all_gather(x, "i", to="fro"), axis_name="i")(X),
        ValueError, ["'fro'", "varying"],
    ),
    "wrong size": (
        lambda: ft.vmap(lambda x: ft.lax.all_to_all(x, "i", 1, 0), axis_name="i")(X),
        ValueError, ["all_to_all", "f32[4,8]", "size 8", "must be 4", "tiled=True"],
    ),
    "not divisible": (
        lambda: ft.vmap(
            lambda x: ft.lax.psum_scatter(x[:3], "i", tiled=True), axis_name="i"
        )(X),
        ValueError, ["psum_scatter", "size 3", "multiple of 4"],
    ),
    "scatter of booleans": (
        lambda: ft.vmap(lambda x: ft.lax.psum_scatter(x > 0, "i"), axis_name="i")(X),
        TypeError, ["psum_scatter", "bool"],
    ),
    "broadcast from nobody": (
        lambda: ft.vmap(lambda x: ft.lax.pbroadcast(x, "i", 4), axis_name="i")(X),
        ValueError, ["pbroadcast", "source 4", "0..3"],
    ),
    "broadcast from a traced one": (
        lambda: ft.vmap(
            lambda x: ft.lax.pbroadcast(x, "i", ft.lax.axis_index("i")), axis_name="i"
        )(X),
        ValueError, ["pbroadcast", "Python int"],
    ),
    "cast to what there is not": (
        lambda: ft.vmap(lambda x: ft.lax.pcast(x, "i", to="unreduced"), axis_name="i")(X),
        ValueError, ["pcast", "'unreduced'", "varying"],
    ),
    "cast outside": (lambda: ft.lax.pcast(X, "i", to="varying"), NameError, ["pcast", "'i'"]),
    "no token": (lambda: ft.lax.after_all(X), TypeError, ["after_all", "takes tokens"]),
    "a message that was not sent": (
        lambda: ft.vmap(
            lambda x: ft.lax.precv(ft.lax.psend(x, "i", RING), x, "i", BACK), axis_name="i"
        )(X),
        ValueError, ["precv", "brings no f32[4,8]", "[(1, 0)", "it brings f32[4,8]", "[(0, 1)"],
    ),
    "a message of another type": (
        lambda: ft.vmap(
            lambda x: ft.lax.precv(ft.lax.psend(x, "i", RING), x[0], "i", RING), axis_name="i"
        )(X),
        ValueError, ["precv", "brings no f32[8]"],
    ),
    "nothing was sent": (
        lambda: ft.vmap(
            lambda x: ft.lax.precv(ft.lax.create_token(), x, "i", RING), axis_name="i"
        )(X),
        ValueError, ["precv", "no message"],
    ),
    "slices of floats": (
        lambda: ft.vmap(
            lambda x: ft.lax.ragged_all_to_all(x, x, x[0], x[0], x[0], x[0], axis_name="i"),
            axis_name="i",
        )(X),
        TypeError, ["ragged_all_to_all", "input_offsets", "integers", "f32[8]"],
    ),
    "slices for some": (
        lambda: ft.vmap(
            lambda x: ft.lax.ragged_all_to_all(x, x, *[np.arange(3)] * 4, axis_name="i"),
            axis_name="i",
        )(X),
        ValueError, ["ragged_all_to_all", "3 slices", "4 examples", "multiple of 4"],
    ),
    "slices into another dtype": (
        lambda: ft.vmap(
            lambda x: ft.lax.ragged_all_to_all(
                x, x.astype("int32"), *[np.arange(4)] * 4, axis_name="i"
            ),
            axis_name="i",
        )(X),
        TypeError, ["ragged_all_to_all", "f32[4,8]", "i32[4,8]"],
    ),
    "a name that is not hashable": (
        lambda: ft.vmap(lambda x: x, axis_name=["i"])(X), TypeError, ["axis_name", "['i']"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_programs(what: str):
    program, kind, words = WRONG[what]
    with pytest.raises(kind) as caught:
        program()
    message = str(caught.value)
    assert isinstance(caught.value, errors.FunctransError)
    assert "test_collectives.py" in message, "it names the user's line"
    for word in words:
        assert word in message
    assert state.axes == ()


def test_a_program_with_a_name_left_is_not_run():
    kept = []

    def f(x: Any) -> Any:
        kept.append(ft.make_ir(lambda y: ft.lax.psum(y, "i"))(X[0]))
        return x

    ft.vmap(f, axis_name="i")(X)
    with pytest.raises(errors.UnboundAxis, match="psum over the axis 'i'"):
        ft.interpret(kept[0], X[0])


# --- the program ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COLLECTIVES)
def test_programs_with_names_are_text_and_are_batched_later(name: str):
    """What is recorded prints, parses and checks; it and its derivatives are batched when the name
    is in scope no more."""
    kept: list[Any] = []
    f = functools.partial(COLLECTIVES[name], ft)

    def record(x: Any) -> Any:
        kept.append(ft.make_ir(f)(X[0]))
        kept.append(ft.make_ir(ft.grad(lambda y: scalar(ft, f(y))))(X[0]))
        return x

    ft.vmap(record, axis_name="i")(X)
    compiled = ft.vmap(f, axis_name="i"), ft.vmap(ft.grad(lambda y: scalar(ft, f(y))),
                                                  axis_name="i")  # fmt: skip
    for program, expected in zip(kept, compiled, strict=True):
        check(program)
        again = parse(show(program), program.values)
        assert equal(again, program), show(program)
        t = Batching(N, "i")
        again, constants = hoist_constants(again)
        (whole, dims) = t.program(again, (*[None] * len(constants), 0))
        check(whole)
        outs = ft.interpret(whole, *constants, X)
        outs = [t.at(jnp.asarray(y), d, 0) for y, d in zip(outs, dims, strict=True)]
        assert_close(outs, jax.tree_util.tree_leaves(expected(X)))
