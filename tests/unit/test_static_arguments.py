"""Static arguments: values that are equal and not the same, every way to give them, and donation
of the arguments that stand among them; for all that takes static arguments, inside of others.

The functions are traced and run by the reference, so nothing is compiled but where a buffer is
donated. Each result tells by its number with which values the function was traced.
"""

import enum
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jax_numpy
import ml_dtypes
import numpy as np
import pytest

import functrans as ft
from functrans import lax
from functrans.interop import from_jax
from tests.support.wide import each

X = np.float32(1.0)


class Mode(enum.IntEnum):
    ONE = 1


class Pair(NamedTuple):
    a: Any
    b: Any


class Other(NamedTuple):
    a: Any
    b: Any


# To Python many of them are equal; a function may do another thing for each.
VALUES = [
    1, True, 1.0, 1 + 0j, complex(1, -0.0), Mode.ONE, 0, False, 0.0, -0.0, complex(-0.0, 0.0),
    None, "1", b"1", float("nan"), float("inf"), 2**70, "float32", np.float32, jax_numpy.float32,
    np.dtype("float32"), abs, slice, Ellipsis,
    (), (1,), (True,), (1.0,), (0.0,), (-0.0,), ((1,), 1.0), ((1.0,), 1), ((-0.0,),), ((0.0,),),
    (1, 2), Pair(1, 2), Pair(1.0, 2), Other(1, 2), frozenset({1}), frozenset({True}),
    frozenset({0.0}), frozenset({-0.0}),
    *[t(x) for t in (np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16)
      for x in (1, 0.0, -0.0)],
    np.int32(1), np.int64(1), np.uint8(1), np.bool_(True),
]  # fmt: skip


def number(*values: Any) -> float:
    """What a function does with static values."""
    return float(zlib.crc32(f"{[type(x) for x in values]} {values}".encode()) % 8191 + 1)


def told(x: Any, n: Any) -> Any:
    return x * number(n)


KINDS: dict[str, Callable[[], Callable[[Any, Any], Any]]] = {
    "jit, by position": lambda: ft.jit(told, static_argnums=1),
    "jit, a number by name": lambda: by_name(ft.jit(told, static_argnums=-1)),
    "jit, by name": lambda: by_name(ft.jit(told, static_argnames="n")),
    "jit, a name by position": lambda: ft.jit(told, static_argnames=["n"]),
    "jit, inline": lambda: ft.jit(told, static_argnums=1, inline=True),
    "jit in jit": lambda: ft.jit(ft.jit(told, static_argnums=1), static_argnums=1),
    "checkpoint": lambda: ft.checkpoint(told, static_argnums=1),
    "checkpoint, by name": lambda: by_name(ft.checkpoint(told, static_argnames="n")),
    "from_jax": lambda: from_jax(told, static_argnums=1),
    "from_jax, by name": lambda: by_name(from_jax(told, static_argnames="n")),
    "custom_jvp": lambda: custom_jvp(),
}


def by_name(f: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda x, n: f(x, n=n)


def custom_jvp() -> Callable[[Any, Any], Any]:
    f = ft.custom_jvp(told, nondiff_argnums=(1,))
    f.defjvp(lambda n, primals, tangents: (f(*primals, n), told(*tangents, n)))
    return f


Each = Callable[[Callable[[Any, Any], Any], list[Any]], Callable[[Any], Any]]
INSIDE: dict[str, Each] = {
    "nothing": lambda f, values: lambda x: [f(x, v) for v in values],
    "grad": lambda f, values: lambda x: [ft.grad(f)(x, v) for v in values],
    "one grad": lambda f, values: ft.jacrev(lambda x: [f(x, v) for v in values]),
    "jvp": lambda f, values: lambda x: ft.jvp(lambda y: [f(y, v) for v in values], (x,), (x,))[1],
    "vmap": lambda f, values: (
        lambda x: [y[1] for y in ft.vmap(lambda y: [f(y, v) for v in values])(x + np.zeros(2))]
    ),
    "jit": lambda f, values: ft.jit(lambda x: [f(x, v) for v in values]),
    "checkpoint": lambda f, values: ft.grad(
        ft.checkpoint(lambda x: sum(f(x, v) / len(values) for v in values))
    ),
    "scan": lambda f, values: (
        lambda x: lax.scan(lambda c, _: (c, [f(c, v) for v in values]), x, None, length=1)[1]
    ),
    "cond": lambda f, values: (
        lambda x: lax.cond(x > 0, lambda: [f(x, v) for v in values], lambda: [x] * len(values))
    ),
}


@pytest.mark.every(1)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_values_that_are_not_the_same(kind: str):
    """Each value is met first by itself and after all the others: forwards or backwards."""

    def check(row: tuple[str, bool]) -> None:
        values = VALUES[::-1] if row[1] else VALUES
        program = ft.make_ir(INSIDE[row[0]](KINDS[kind](), values))(X)
        outs = [float(np.ravel(y)[0]) for y in ft.interpret(program, X)]
        want = [number(v) for v in values]
        if row[0] == "checkpoint":
            assert outs == pytest.approx([sum(want) / len(want)], rel=1e-5)
        else:
            wrong = [v for v, y, w in zip(values, outs, want, strict=True) if y != w]
            assert not wrong

    each([(inside, i % 2 == 1) for i, inside in enumerate(INSIDE)], check)


def test_positions_from_the_end_of_any_number():
    f = ft.jit(lambda *args: X * number(*args[1:]), static_argnums=-1)
    assert [float(f(X, 1)), float(f(X, 2))] == [number(1), number(2)]


@pytest.mark.parametrize("jit", [jax.jit, ft.jit])
def test_positions_and_names_given_together_are_not_inferred_from_each_other(jit: Any):
    seen = []
    f = jit(
        lambda x, y: seen.append([isinstance(v, jax.core.Tracer) for v in (x, y)]),
        static_argnums=1,
        static_argnames="x",
    )
    f(2, "a"), f(1, y=3), f(x="a", y=3)
    assert seen == [[True, False], [True, True], [False, True]]


@pytest.mark.parametrize("donated", [{"donate_argnums": (0, 3)}, {"donate_argnames": ["a", "c"]}])
def test_what_is_donated_beside_static_arguments(donated: dict[str, Any]):
    """Positions count the static arguments too; of a tree all leaves go."""
    x, y, z = [{"p": jax_numpy.full((1, 3), i), "q": jax_numpy.full((1, 3), -i)} for i in (1.0, 2.0, 3.0)]
    f = ft.jit(lambda a, n, b, c: jax.tree.map(lambda v: v * n, [a, b, c]), static_argnums=1, **donated)
    f(x, 2, y, z)
    gone = [[v.is_deleted() for v in jax.tree.leaves(a)] for a in (x, y, z)]
    assert gone == [[True] * 2, [False] * 2, [True] * 2]
