"""Wrong programs with names of axes; programs with names are text."""

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
from tests.parity.collective_functions import COLLECTIVES, EVEN, UNEVEN, N, X, Y, nested, scalar
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke

# --- wrong programs -------------------------------------------------------------------------------

# what -> (program, JAX's class of error or ours, words that the message has)
WRONG: dict[str, tuple[Callable[[], Any], type, list[str]]] = {
    "outside": (lambda: ft.lax.psum(X, "i"), NameError, ["psum", "'i'", "none", "vmap"]),
    "size outside": (lambda: ft.lax.psum(1, "i"), NameError, ["psum", "'i'"]),
    "index outside": (lambda: ft.lax.axis_index("i"), NameError, ["axis_index", "'i'"]),
    "another name": (
        lambda: ft.vmap(lambda x: ft.lax.all_gather(x, "j"), axis_name="i")(X),
        NameError,
        ["all_gather", "'j'", "'i' of size 4", "vmap(f, axis_name='j')"],
    ),
    "no name": (lambda: ft.vmap(lambda x: ft.lax.pmax(x, "i"))(X), NameError, ["pmax", "none"]),
    "one of two": (
        lambda: ft.vmap(lambda x: ft.lax.pmean(x, ("i", "j")), axis_name="i")(X),
        NameError,
        ["'j'"],
    ),
    "jitted": (
        lambda: ft.vmap(ft.jit(lambda x: ft.lax.psum(x, "j")), axis_name="i")(X),
        NameError,
        ["'j'", "'i' of size 4"],
    ),
    "grad outside": (lambda: ft.grad(lambda x: ft.lax.psum(x, "i"))(1.0), NameError, ["psum"]),
    "after its vmap": (
        lambda: ft.vmap(lambda x: ft.lax.psum(x, "i"))(ft.vmap(lambda x: x, axis_name="i")(X)),
        NameError,
        ["none"],
    ),
    "twice": (lambda: ft.vmap(lambda x: ft.lax.psum(x, ("i", "i")), axis_name="i")(X), ValueError, ["twice"]),
    "groups": (
        lambda: ft.vmap(lambda x: ft.lax.psum(x, "i", axis_index_groups=[[0, 1], [2]]), axis_name="i")(X),
        ValueError,
        ["cover", "0..3", "[[0, 1], [2]]"],
    ),
    "uneven groups": (
        lambda: ft.vmap(lambda x: ft.lax.all_gather(x, "i", axis_index_groups=UNEVEN), axis_name="i")(X),
        ValueError,
        ["equal sizes"],
    ),
    "groups and own axes": (
        lambda: ft.vmap(lambda x: ft.lax.psum(x, ("i", 0), axis_index_groups=EVEN), axis_name="i")(X),
        ValueError,
        ["(0,)"],
    ),
    "groups over two names": (
        lambda: nested(ft, lambda x: ft.lax.psum(x, ("i", "j"), axis_index_groups=[[0, 1, 2], [3, 4, 5]]))(Y),
        NotImplementedError,
        ["axis_index_groups", "('i', 'j')"],
    ),
    "no permutation": (
        lambda: ft.vmap(lambda x: ft.lax.pshuffle(x, "i", [0, 0, 1, 2]), axis_name="i")(X),
        ValueError,
        ["pshuffle", "once"],
    ),
    "a destination twice": (
        lambda: ft.vmap(lambda x: ft.lax.ppermute(x, "i", [(0, 1), (2, 1)]), axis_name="i")(X),
        TypeError,
        ["destination twice"],
    ),
    "a source that there is not": (
        lambda: ft.vmap(lambda x: ft.lax.ppermute(x, "i", [(4, 1)]), axis_name="i")(X),
        TypeError,
        ["source", "0..3"],
    ),
    "gather axis": (
        lambda: ft.vmap(lambda x: ft.lax.all_gather(x, "i", axis=3), axis_name="i")(X),
        ValueError,
        ["all_gather", "axis 3"],
    ),
    "gather type": (
        lambda: ft.vmap(lambda x: ft.lax.all_gather(x, "i", to="fro"), axis_name="i")(X),
        ValueError,
        ["'fro'", "varying"],
    ),
    "wrong size": (
        lambda: ft.vmap(lambda x: ft.lax.all_to_all(x, "i", 1, 0), axis_name="i")(X),
        ValueError,
        ["all_to_all", "f32[4,8]", "size 8", "must be 4", "tiled=True"],
    ),
    "not divisible": (
        lambda: ft.vmap(lambda x: ft.lax.psum_scatter(x[:3], "i", tiled=True), axis_name="i")(X),
        ValueError,
        ["psum_scatter", "size 3", "multiple of 4"],
    ),
    "scatter of booleans": (
        lambda: ft.vmap(lambda x: ft.lax.psum_scatter(x > 0, "i"), axis_name="i")(X),
        TypeError,
        ["psum_scatter", "bool"],
    ),
    "broadcast from nobody": (
        lambda: ft.vmap(lambda x: ft.lax.pbroadcast(x, "i", 4), axis_name="i")(X),
        ValueError,
        ["pbroadcast", "source 4", "0..3"],
    ),
    "broadcast from a traced one": (
        lambda: ft.vmap(lambda x: ft.lax.pbroadcast(x, "i", ft.lax.axis_index("i")), axis_name="i")(X),
        ValueError,
        ["pbroadcast", "Python int"],
    ),
    "cast to what there is not": (
        lambda: ft.vmap(lambda x: ft.lax.pcast(x, "i", to="unreduced"), axis_name="i")(X),
        ValueError,
        ["pcast", "'unreduced'", "varying"],
    ),
    "cast outside": (lambda: ft.lax.pcast(X, "i", to="varying"), NameError, ["pcast", "'i'"]),
    "slices of floats": (
        lambda: ft.vmap(
            lambda x: ft.lax.ragged_all_to_all(x, x, x[0], x[0], x[0], x[0], axis_name="i"), axis_name="i"
        )(X),
        TypeError,
        ["ragged_all_to_all", "input_offsets", "integers", "f32[8]"],
    ),
    "slices for some": (
        lambda: ft.vmap(
            lambda x: ft.lax.ragged_all_to_all(x, x, *[np.arange(3)] * 4, axis_name="i"), axis_name="i"
        )(X),
        ValueError,
        ["ragged_all_to_all", "3 slices", "4 examples", "multiple of 4"],
    ),
    "slices into another dtype": (
        lambda: ft.vmap(
            lambda x: ft.lax.ragged_all_to_all(x, x.astype("int32"), *[np.arange(4)] * 4, axis_name="i"),
            axis_name="i",
        )(X),
        TypeError,
        ["ragged_all_to_all", "f32[4,8]", "i32[4,8]"],
    ),
    "a name that is not hashable": (
        lambda: ft.vmap(lambda x: x, axis_name=["i"])(X),
        TypeError,
        ["axis_name", "['i']"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_programs(what: str):
    program, kind, words = WRONG[what]
    with pytest.raises(kind) as caught:
        program()
    message = str(caught.value)
    assert isinstance(caught.value, errors.FunctransError)
    assert "test_wrong_axis_names.py" in message, "it names the user's line"
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
