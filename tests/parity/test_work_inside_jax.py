"""Functions of functrans inside of JAX's transformations: their effects, how often what is
computed, the libraries they work in, what misuse is told."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval

import functrans as ft
from functrans import errors, trace  # noqa: F401  (read by the table)
from functrans.backends import xla
from functrans.ir.text import with_nested
from tests.support.closeness import assert_close
from tests.support.tables import TABLES, rows
from tests.support.worlds import JAX, OURS, Function, M, V, World, X, assert_same


@OURS
def test_ordered_and_pure_callbacks(world):
    def run(w: World) -> tuple[Any, list[float]]:
        seen: list[float] = []
        like = jax.ShapeDtypeStruct((), "float32")

        def note(v: Any) -> Any:
            seen.append(float(v))
            return np.float32(v) * 2

        io = ft.experimental.io_callback if w.top is ft else jax.experimental.io_callback
        step = w.jit(lambda x: io(note, like, x, ordered=True) + x)
        pure = w.jit(
            lambda x: w.top.pure_callback(
                np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims"
            )
        )
        outs = (
            jax.jit(lambda x: step(step(x)))(1.0),
            jax.lax.fori_loop(0, 2, lambda i, c: step(c), 1.0),
            jax.vmap(pure)(X),
            jax.jit(pure)(X),
        )
        jax.effects_barrier()
        return outs, seen

    (outs, seen), (expected, theirs) = run(world), run(JAX)
    assert_same(outs, expected)
    assert seen == theirs


def operations(fun: Function, *args: Any) -> list[str]:
    """The names of the operations that compute a function's results, also in our programs as they
    are lowered."""
    jaxpr = jax.make_jaxpr(fun)(*args).jaxpr
    return _names(partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0])


def _names(jaxpr: Any) -> list[str]:
    found = []
    for eqn in jaxpr.eqns:
        if "functrans" in eqn.primitive.name:
            lowered = xla.prepared(eqn.params["program"], eqn.params["preparation"])
            found += [e.primitive.name for p in with_nested(lowered) for e in p.equations]
        else:
            found.append(eqn.primitive.name)
        for inner in jax.tree.leaves(list(eqn.params.values())):
            found += _names(getattr(inner, "jaxpr", inner)) if hasattr(inner, "eqns") else []
    return found


def network(w: World) -> Function:
    def f(ws: Any, x: Any) -> Any:
        for m in ws:
            x = w.name(w.np.tanh(x @ m), "layer")
        return w.np.sum(w.np.exp(x))

    return f


@OURS
@pytest.mark.smoke
def test_reverse_mode_computes_nothing_twice(world):
    f = world.jit(network(world))
    made = operations(jax.value_and_grad(f), [M, M, M], X)
    assert made.count("tanh") == 3
    assert made.count("exp") == 1
    assert made.count("dot_general") == 3 + 3 + 2  # forwards; of the weights; of what came before


@OURS
def test_second_derivatives_compute_nothing_twice(world):
    f = world.jit(lambda x: world.np.sum(world.np.sin(world.np.tanh(x))))
    made = operations(lambda x: jax.jvp(jax.grad(f), (x,), (V,))[1], X)
    assert [made.count(name) for name in ("tanh", "sin", "cos")] == [1, 1, 1]


@OURS
def test_what_is_not_asked_for_is_not_computed(world):
    f = world.jit(lambda x, y: (world.np.sin(x), world.np.exp(y)))
    made = operations(jax.grad(lambda x, y: jnp.sum(f(x, y)[0])), X, V)
    assert "exp" not in made


NAMED = [f"save_{which}_these_names('layer')" for which in ("only", "anything_except")]


@OURS
@pytest.mark.parametrize("policy", ["None", "dots_saveable", "everything_saveable", *NAMED])
def test_policies_of_checkpoint_see_the_operations(policy, world):
    how = eval(policy, dict(vars(jax.checkpoint_policies)))

    def made(w: World) -> tuple[Any, list[str]]:
        grad = jax.grad(jax.checkpoint(w.jit(network(w)), policy=how))
        return grad([M, M, M], X), operations(grad, [M, M, M], X)

    (value, mine), (expected, theirs) = made(world), made(JAX)
    assert_same(value, expected)
    for name in ("tanh", "dot_general"):
        assert mine.count(name) == theirs.count(name)


def test_what_is_derived_is_kept_by_the_program(monkeypatch):
    f = ft.jit(lambda x: ft.numpy.sum(ft.numpy.sin(x)))
    f(X)
    jax.vmap(jax.grad(f))(M)
    made = []
    monkeypatch.setattr(trace, "_stage", lambda *args: made.append(args))
    jax.jit(jax.vmap(jax.grad(lambda x: f(x))))(M)
    assert not made


@OURS
@pytest.mark.smoke
@pytest.mark.parametrize("row", rows(TABLES / "inside_jax.txt", "misuse"), ids=lambda row: row.fields[0])
def test_misuse(row, world):
    _, kind, says, _ = row.fields
    with pytest.raises(eval(kind), match=says) as caught:
        row.function("w", globals())(world)
    assert f"inside_jax.txt:{row.number}" in str(caught.value)
    assert_close(jax.grad(world.jit(lambda x: world.np.sin(x)))(0.0), jnp.float32(1))  # all is well


@OURS
def test_where_a_nan_is_made(world):
    grad = jax.grad(world.jit(lambda x: world.np.sum(world.np.log(x))))
    with jax.debug_nans(True), pytest.raises(FloatingPointError) as caught:
        grad(-(X**2))
    assert Path(__file__).name in str(caught.value)
