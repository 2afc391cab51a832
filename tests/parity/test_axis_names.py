"""Names of axes: their scope, groups, control flow and custom rules."""

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
from tests.parity.collective_functions import (
    COLLECTIVES,
    EVEN,
    GROUPED,
    GROUPINGS,
    UNEVEN,
    N,
    X,
    Y,
    both,
    nested,
    scalar,
)
from tests.support.closeness import assert_close
from tests.support.tables import TABLES, functions

pytestmark = pytest.mark.smoke

# --- scope ----------------------------------------------------------------------------------------


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


def test_any_hashable_is_a_name():
    marker = object()
    for name in (marker, 7.5, frozenset({1}), "i"):
        total = ft.vmap(lambda x, name=name: ft.lax.psum(x, name), axis_name=name)(np.ones(3))
        assert_close(total, jnp.full(3, 3.0))


def test_a_jitted_function_without_arguments():
    here = ft.jit(lambda: ft.lax.axis_index("i") * 2)
    assert_close(ft.vmap(lambda x: x + here(), axis_name="i")(jnp.arange(3)), 3 * jnp.arange(3))
    assert_close(ft.vmap(lambda x: here(), axis_name="i")(jnp.arange(3)), 2 * jnp.arange(3))


def test_no_collective_is_left_and_the_scope_ends():
    f = ft.jit(ft.vmap(ft.jit(lambda x: ft.lax.psum(x * ft.lax.axis_index("i"), "i")), axis_name="i"))
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
    assert_close(
        nested(ft, lambda y: getattr(ft.lax, name)(y, ("j", "i")))(Y),
        nested(jax, lambda y: getattr(jax.lax, name)(y, ("j", "i")))(Y),
    )
    one = lambda y: getattr(ft.lax, name)(y, "i")  # noqa: E731
    whole = {"pmax": jnp.max, "pmin": jnp.min}[name]
    found = ft.grad(lambda x: ft.numpy.sum(ft.numpy.sin(ft.vmap(one, axis_name="i")(x))))(x)
    expected = jax.grad(lambda x: jnp.sum(jnp.sin(jnp.broadcast_to(whole(x, 0), x.shape))))(x)
    assert_close(found, expected)
    inside = ft.vmap(ft.grad(lambda y: ft.numpy.sum(ft.numpy.sin(one(y)))), axis_name="i")(x)
    assert_close(inside, expected)
    unbatched = ft.vmap(lambda k: one(x[0]), axis_name="i")(x)
    assert_close(unbatched, jnp.broadcast_to(x[0], x.shape))


def in_groups(operation: Callable[[Any], Any], groups: Any, x: Any) -> Any:
    """Each group for itself; `operation` maps the stacked members to the stacked results."""
    rows: dict[int, Any] = {}
    for g in groups:
        rows.update(zip(g, operation(ft.numpy.stack([x[i] for i in g])), strict=True))
    return ft.numpy.stack([rows[i] for i in range(len(x))])


@pytest.mark.long
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
        lambda y: (f(y), y), lambda y, ct: (m.lax.psum(ct, "i") * m.numpy.cos(y) * m.lax.axis_index("i"),)
    )
    return f


HIGHER = functions(TABLES / "axis_names.txt", "control flow and rules", "m, x", globals())


@pytest.mark.long
def test_inside_control_flow_and_custom_rules():
    def one(m: Any, name: str, x: Any) -> Any:
        f = functools.partial(HIGHER[name], m)
        mapped = m.vmap(f, axis_name="i")
        found = [mapped(x), m.vmap(m.jit(f), axis_name="i")(x)]
        if "while" in name or "vjp" in name:  # JAX has no such derivative; its bwd loses the name
            return found
        return [*found, m.grad(lambda z: scalar(m, mapped(z)))(x)]

    def every(x: Any, m: Any) -> Any:
        return {name: one(m, name, x) for name in HIGHER}

    x = jnp.arange(1.0, 4.0)
    ours, theirs = both(functools.partial(every, m=ft), functools.partial(every, m=jax), x)
    for name in HIGHER:
        assert_close(ours[name], theirs[name], what=name)
        if name in ("scan", "while_loop", "custom_vjp"):
            assert_close(one(ft, name, x), theirs[name], what=f"{name}, un-jitted")


@pytest.mark.long
def test_what_is_kept_of_a_function_is_kept_for_one_axis():
    """The same function objects in maps of two sizes: what was recorded for one is not used for
    the other."""

    def parts(m: Any) -> list[Callable[[Any], Any]]:
        jvp, vjp = with_jvp(m), with_vjp(m)
        share = lambda y: y / m.lax.psum(1, "i") + m.lax.psum(y, "i")  # noqa: E731
        step = lambda c, _: (share(c), None)  # noqa: E731
        saved = m.checkpoint(share)
        return [
            jvp,
            vjp,
            m.grad(jvp),
            m.grad(vjp),
            saved,
            m.grad(saved),
            m.jit(share),
            lambda y: m.lax.cond(y > 2, share, share, y),
            lambda y: m.lax.scan(step, y, None, length=2)[0],
            lambda y: m.lax.fori_loop(0, 2, lambda i, c: share(c), y),
        ]

    ours, theirs = parts(ft), parts(jax)
    for n in (3, 5, 3):
        x = jnp.arange(1.0, 1.0 + n)
        for i, (f, g) in enumerate(zip(ours, theirs, strict=True)):
            found = ft.vmap(f, axis_name="i")(x)
            assert_close(found, jax.vmap(g, axis_name="i")(x), what=f"part {i} for {n} examples")


# --- programs -------------------------------------------------------------------------------------


def test_a_program_with_a_name_left_is_not_run():
    kept = []

    def f(x: Any) -> Any:
        kept.append(ft.make_ir(lambda y: ft.lax.psum(y, "i"))(X[0]))
        return x

    ft.vmap(f, axis_name="i")(X)
    with pytest.raises(errors.UnboundAxis, match="psum over the axis 'i'"):
        ft.interpret(kept[0], X[0])


@pytest.mark.long
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
    compiled = ft.vmap(f, axis_name="i"), ft.vmap(ft.grad(lambda y: scalar(ft, f(y))), axis_name="i")
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


@pytest.mark.parametrize("lax", [jax.lax, ft.lax])
def test_collectives_of_a_value_that_is_not_mapped_inside_of_jaxs_calls(lax: Any):
    def f(x: Any) -> Any:
        def total(c: Any) -> Any:
            return lax.psum(c, "i")

        def add(c: Any, a: Any) -> Any:
            return c + total(a), c

        return (
            jax.jit(total)(x),
            jax.lax.cond(total(x[0]) > 0, total, lambda x: -x, x),
            jax.lax.scan(add, 0.0, x),
        )

    x = jnp.arange(3.0)
    got, want = (m.vmap(f, in_axes=None, axis_size=4, axis_name="i")(x) for m in (ft, jax))
    assert_close(got, want)
