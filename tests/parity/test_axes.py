"""Axes as users write them: negative, mixed, in every order, and beside an axis that vmap adds.

A row is an expression with the axis `a`. All spellings of an axis give one program, so nothing is
compiled for them; values are JAX's, whose side is one compiled program of all rows.
"""

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from tests.support.closeness import assert_close
from tests.support.libraries import functions
from tests.support.versions import QUICK
from tests.support.wide import each

Axis = int | tuple[int, ...]

Q = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
SCOPE = {
    "b": Q > -0.5,
    "i": np.argsort(Q, 1).astype(np.int32) % 2,
    "every": lambda a: (*a, 3 - a[0] % 3 - a[1] % 3),
}


def calls(module: str, names: str, arguments: str = "q, axis=a") -> list[str]:
    return [f"{module}.{name}({arguments})" for name in names.split()]


# Our functions, and some of those that are JAX's.
SOME = [  # takes one axis, or several
    *calls("jnp", "max mean std sum var add.reduce"),
    "jnp.squeeze(q[:1, :1, :1], a)",
    *calls("jnp", "sum mean std var", "q, axis=a, where=b, keepdims=True"),
    "jnp.var(q, a, mean=jnp.mean(q, a, keepdims=True))",
    *calls("nn", "log_softmax softmax"),
    *calls("nn", "log_softmax softmax", "q, axis=a, where=b"),
]
PAIRS = [  # takes two
    "jnp.swapaxes(q, *a)",
    "jnp.diagonal(q, 1, *a)",
    "jnp.transpose(q, every(a))",
    "jnp.permute_dims(q, every(a))",
]
ONE = [
    *calls("jnp", "argmax cumsum"),
    "jnp.concatenate([q, q + 1], axis=a)",
    "jnp.take_along_axis(q, i, a)",
    "jnp.expand_dims(q, a)",
    "jnp.stack([q, i], a)",
    "lax.associative_scan(lax.add, q, axis=a)",
]
# They take no negative axes, as JAX's.
WITHOUT = {f"lax.reduce_{name}" for name in ("and", "max", "min", "or", "prod", "sum", "xor")}


def evaluated(row: str, root: str, a: Axis) -> Callable[[Any], list[Any]]:
    code = compile(row, row, "eval")
    scope = {**SCOPE, "np": np, "a": a, **functions(root)}
    return lambda q: [
        np.asarray(y) if isinstance(y, int) else y for y in jax.tree.leaves(eval(code, {**scope, "q": q}))
    ]


def ours(row: str, a: Axis) -> ft.ir.Program:
    return ft.make_ir(evaluated(row, "functrans", a))(Q)


def plain(row: str, a: Axis) -> Axis:
    """The axis counted from the front, in the result if the row gives it one more."""
    n = 4 if GROWING.search(row) else 3
    return a % n if isinstance(a, int) else tuple([i % n for i in a])


INTEGERS: list[Axis] = [-1, -2, -3]
MIXED: list[Axis] = [
    pair
    for i, j in itertools.permutations(range(3), 2)
    for pair in ((i - 3, j) if i < j else (i, j - 3), (i - 3, j - 3))
]
TABLES = {"one": (ONE, INTEGERS), "some": (SOME, INTEGERS + MIXED), "pairs": (PAIRS, MIXED)}
GROWING = re.compile(r"\b(?:expand_dims|stack)\(")
NAMED = re.compile(r"\b(\w+(?:\.\w+)+)\(")


def test_every_function_of_ours_with_axes_has_a_row():
    listed = {name for rows, _ in TABLES.values() for row in rows for name in NAMED.findall(row)}
    words, found = {"axis", "axes", "dimension", "dimensions"}, set()
    for short in ("jnp", "lax", "nn"):
        here, there = [functions(root)[short] for root in ("functrans", "jax")]
        for name in set(dir(here)) & set(dir(there)):
            function = getattr(here, name)
            if hasattr(function, "clear_cache"):
                continue  # JAX's
            if inspect.isfunction(function) and words & {*inspect.signature(function).parameters}:
                found.add(f"{short}.{name}")
    assert not found - listed - WITHOUT


@pytest.mark.smoke
@pytest.mark.parametrize("table", TABLES)
def test_all_spellings_of_an_axis_are_one_program(table: str):
    rows, axes = TABLES[table]

    def check(row: str) -> None:
        texts = {a: str(ours(row, a)) for a in {plain(row, a) for a in axes}}
        for a in axes:
            assert str(ours(row, a)) == texts[plain(row, a)], f"a={a}"

    each(rows, check)


@pytest.mark.parametrize("table", TABLES)
def test_values(table: str):
    rows, _ = TABLES[table]
    chosen = {"one": [-2], "some": [-2, (-1, 0), (1, -1)], "pairs": [(-1, 0), (1, -1)]}[table]
    calls = [(row, a) for row in rows for a in chosen]
    theirs = jax.jit(
        lambda q: [evaluated(row, "jax", plain(row, a))(q) for row, a in calls], compiler_options=QUICK
    )(Q)
    found = dict(zip(calls, theirs, strict=True))

    def check(call: tuple[str, Axis]) -> None:
        assert_close(ft.interpret(ours(*call), Q), found[call], 1e-4)

    each(calls, check)


@pytest.mark.smoke
@pytest.mark.parametrize("table", TABLES)
def test_axes_beside_one_that_is_mapped(table: str):
    """vmap over each axis gives what the examples give alone."""
    rows, axes = TABLES[table]
    second = np.flip(Q) * 2

    def check(row: str) -> None:
        for axis, a in itertools.product(range(4), range(3)):
            a = a if isinstance(axes[0], int) else (a, a - 1)
            f, both = evaluated(row, "functrans", a), np.stack([Q, second], axis)
            program = ft.make_ir(ft.vmap(f, axis))(both)
            single = ft.make_ir(f)(Q)
            alone = [ft.interpret(single, x) for x in (Q, second)]
            together = ft.interpret(program, both)
            assert_close(together, [np.stack(y) for y in zip(*alone, strict=True)], 1e-4)

    each(rows, check)
