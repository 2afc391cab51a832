"""Callbacks in all that holds programs, where what these give is read, or in part, or by nobody.

What is shown is what Python shows that runs the function as it is written (`disable_jit`): by the
program as it is traced, optimized, differentiated, and by all of them compiled as one.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.passes.pipeline import optimize
from tests.support.matrices import alternately, marked
from tests.support.tables import TABLES, functions
from tests.support.wide import each

Seen = list[tuple[str, float]]
Show = Callable[[str, Any], None]  # a word and a number
Function = Callable[[Any], Any]


def with_show(show: Show, word: str, value: Any) -> Any:
    show(word, jnp.sum(value))
    return value


def called(show: Show) -> Function:
    return ft.jit(lambda x: with_show(show, "call", x) * 2)


def called_twice(show: Show) -> Function:
    """The same of the same: each is shown."""
    f = called(show)
    return lambda x: f(x) + f(x) + with_show(show, "x", x) + with_show(show, "x", x)


def custom_jvp(show: Show) -> Function:
    f = ft.custom_jvp(lambda x: with_show(show, "custom", x) * 2)
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 2))
    return f


def custom_vjp(show: Show) -> Function:
    f = ft.custom_vjp(lambda x: with_show(show, "custom", x) * 2)
    f.defvjp(lambda x: (with_show(show, "custom", x) * 2, None), lambda _, ct: (ct * 2,))
    return f


def condition(show: Show) -> Function:
    return lambda x: lax.while_loop(lambda c: with_show(show, "test", c) < 3, lambda c: c + 1, x)


def in_calls_steps_and_branches(show: Show) -> Function:
    inner = condition(show)
    return ft.jit(
        lambda x: lax.scan(
            lambda c, _: (lax.cond(c > 0, inner, lambda v: v, c) - 2.0, None), x, None, length=2
        )[0]
    )


HOLDERS = functions(TABLES / "effects.txt", "holders", "show", globals())


READERS = functions(TABLES / "effects.txt", "readers", "f", globals())
ROWS = list(itertools.product(HOLDERS, READERS))
SOME = ROWS[::4]  # each holder, and each reader
X = np.float32(0.5)


class Shown:
    """What was shown by each of several functions."""

    def __init__(self, ordered: bool):
        self.ordered = ordered
        self.seen: dict[str, Seen] = {}

    def function(self, row: tuple[str, str]) -> Function:
        holder, reader = row
        seen = self.seen.setdefault(f"{holder}, read by {reader}", [])

        def show(word: str, value: Any) -> None:
            def log(v: Any) -> None:
                seen.append((word, float(v)))

            ft.debug.callback(log, value, ordered=self.ordered)

        return READERS[reader](HOLDERS[holder](show))

    def take(self, run: Callable[[], Any]) -> dict[str, Seen]:
        for seen in self.seen.values():
            seen.clear()
        run()
        jax.effects_barrier()
        return {k: list(v) if self.ordered else sorted(v) for k, v in self.seen.items()}


def wanted(row: tuple[str, str], ordered: bool) -> dict[str, Seen]:
    shown = Shown(ordered)
    f = shown.function(row)
    with ft.disable_jit():
        found = shown.take(lambda: f(X))
    assert all(found.values())
    return found


@pytest.mark.smoke
@pytest.mark.parametrize("ordered", alternately([False, True]))
def test_programs_show_what_python_shows(ordered: bool):
    """As they are traced, optimized, pushed forwards; and differentiated, where the way back has nothing to
    show."""

    def check(row: tuple[str, str]) -> None:
        want = wanted(row, ordered)
        shown = Shown(ordered)
        f = shown.function(row)
        program = ft.make_ir(f)(X)
        made = [program]
        if row[0] != "solver":  # which solves for tangents, too
            made.append(ft.make_ir(lambda x: ft.jvp(f, (x,), (x,)))(X))
            if row in SOME:
                made.append(ft.make_ir(ft.grad(lambda x: sum(ft.tree.leaves(f(x)), x)))(X))
        for p in [*made, *map(optimize, made)]:
            ft.ir.check(p)
            assert shown.take(lambda p=p: ft.interpret(p, X)) == want

    each(ROWS, check)


@pytest.mark.parametrize("ordered", [*marked("rest", False), *marked("sweep", True)])
def test_compiled_programs_show_what_python_shows(ordered: bool):
    """All as one, so that the order among functions shows nothing."""
    shown = Shown(ordered)
    made = [shown.function(row) for row in SOME]
    found = shown.take(lambda: ft.jit(lambda x: [f(x) for f in made])(X))

    def check(row: tuple[str, str]) -> None:
        for name, seen in wanted(row, ordered).items():
            assert found[name] == seen

    each(SOME, check)


@pytest.mark.parametrize("ordered", [*marked("rest", False), *marked("sweep", True)])
def test_batched_programs_show_it_whoever_reads(ordered: bool):
    """What is shown of several examples does not depend on what is done with the results."""
    xs = np.array([0.5, -0.5, 1.5], "float32")

    def shown_by(holder: str, reader: str, optimized: bool) -> list[Seen]:
        shown = Shown(ordered)
        program = ft.make_ir(ft.vmap(shown.function((holder, reader))))(xs)
        program = optimize(program) if optimized else program
        return list(shown.take(lambda: ft.interpret(program, xs)).values())

    def check(holder: str) -> None:
        want = shown_by(holder, "all", False)
        assert any(want)
        for reader in ("all", "nobody", "nobody in a call", "a product with zero"):
            for optimized in (False, True):
                assert shown_by(holder, reader, optimized) == want, reader

    each(HOLDERS, check)


def steps_that_show(show: Show) -> dict[str, Callable[[Any, Any], Any]]:
    """Of a count and a number that is doubled: in calls, branches and loops, which show or not."""

    def next_of(i: Any) -> Any:
        return with_show(show, "count", i) + 1

    def twice(y: Any) -> Any:
        return with_show(show, "number", y) * 2.0

    return {
        "where it stands": lambda i, y: (next_of(i), twice(y)),
        "the count in a call": lambda i, y: (ft.jit(next_of)(i), y * 2.0),
        "the number in a call": lambda i, y: (i + 1, ft.jit(twice)(y)),
        "both in a call": lambda i, y: ft.jit(lambda i, y: (next_of(i), twice(y)))(i, y),
        "a branch": lambda i, y: lax.cond(i < 9, lambda: (next_of(i), twice(y)), lambda: (i, y)),
        "a loop": lambda i, y: (
            lax.fori_loop(0, 1, lambda _, k: next_of(k), i),
            lax.fori_loop(0, 1, lambda _, v: twice(v), y),
        ),
        "a loop while": lambda i, y: lax.while_loop(
            lambda c: c[0] < i + 1, lambda c: (next_of(c[0]), twice(c[1])), (i, y)
        ),
    }


LOOPS = functions(TABLES / "effects.txt", "loops", "step, x", globals())


@pytest.mark.rest
@pytest.mark.parametrize(("loop", "ordered"), [(loop, i % 2 == 1) for i, loop in enumerate(LOOPS)])
def test_derivatives_of_steps_that_show(loop: str, ordered: bool):
    """Of what is linear in the steps and what is not, which are taken apart on the way back."""

    def show(word: str, value: Any) -> None:
        ft.debug.callback(lambda v: None, value, ordered=ordered)

    def check(name: str) -> None:
        def f(x: Any) -> Any:
            return LOOPS[loop](steps_that_show(show)[name], x)

        ways = [
            ft.grad(f),
            ft.grad(ft.grad(lambda x: f(x) ** 2 / 16)),
            lambda x: ft.jvp(f, (x,), (x * 2,))[1],
            lambda x: ft.linearize(f, x)[1](x * 2),
        ]
        if loop != "bounded":  # whose condition is not linear
            ways.append(lambda x: ft.linear_transpose(f, x)(x * 2)[0])
        for way in ways:
            program = ft.make_ir(way)(X)
            ft.ir.check(program)
            for p in (program, optimize(program)):
                assert ft.interpret(p, X) == [8.0]

    each(steps_that_show(show), check)
