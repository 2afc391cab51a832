"""Every row of the primitive table under vmap, and the programs of each as data."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.ir import Program, check, equal, parse, show
from functrans.passes import inline, pipeline
from tests.matrix.cases import CASES
from tests.matrix.cases.case import Case
from tests.matrix.primitive_rows import (
    EVERY_DERIVATIVE,
    Made,
    Row,
    all_of,
    apply,
    both_ways,
    by_primitive,
    derivative_dtypes,
    direction,
    interpreted,
    point,
    precision,
    pulled,
    pushed,
    run_together,
    some_or_all,
)
from tests.support.closeness import assert_close
from tests.support.wide import each

Axes = tuple[int | None, ...]
COMPILED = 3  # of the calls that are checked on the reference: nested ones and varied axes


def subsets(n: int) -> list[tuple[bool, ...]]:
    """Which of n operands are batched: all choices up to three, else alone, all but one, all."""
    if n <= 3:
        return [s for s in itertools.product((True, False), repeat=n) if any(s)]
    alone = [tuple(i == k for i in range(n)) for k in range(n)]
    return [*alone, *[tuple(not b for b in s) for s in alone], (True,) * n]


def placements(ndims: Sequence[int]) -> list[Axes]:
    """Every subset with its batch axes in front, and with them in varied places."""
    if not ndims:
        return []
    found: dict[Axes, None] = {}
    for k, chosen in enumerate(subsets(len(ndims))):
        found[tuple(0 if c else None for c in chosen)] = None
        places = [(k + i) % (n + 1) for i, n in enumerate(ndims)]
        found[tuple(d if c else None for d, c in zip(places, chosen, strict=True))] = None
    found[tuple(ndims)] = None
    return list(found)


def stacked(values: Sequence[Any], axis: int) -> Any:
    return jnp.stack(values, axis) if isinstance(values[0], jax.Array) else np.stack(values, axis)


def batched(draws: Sequence[list[Any]], axes: Axes) -> list[Any]:
    """The operands of vmap: the draws stacked where there is an axis, else the first of them."""
    return [
        columns[0] if d is None else stacked(columns, d)
        for columns, d in zip(zip(*draws, strict=True), axes, strict=True)
    ]


def looped(program: Program, draws: Sequence[list[Any]], axes: Axes) -> list[Any]:
    """What vmap should give: one example after the other on the reference, stacked in front."""
    first = draws[0]
    rows = [
        interpreted(program, [f if d is None else x for f, x, d in zip(first, row, axes, strict=True)])
        for row in draws
    ]
    return [stacked(column, 0) for column in zip(*rows, strict=True)]


@pytest.mark.every(2)
@some_or_all("compiled_rows", 1)
@by_primitive([(case, "") for case in CASES])
def test_batch(rows: Sequence[Row], compiled_rows: int | None):
    """vmap = a Python loop, for subsets of the operands and varied axes; vmap of vmap likewise."""
    done = {row: mapped(row[0]) for row in rows}

    def make(case: Case, dtype: str) -> Made:
        calls = done[case, dtype].calls[-COMPILED:]
        return all_of(calls), (done[case, dtype].args[-COMPILED:],)

    at = {(case, done[case, ""].dtype): (case, "") for case, _ in rows}
    together = run_together(list(at)[:compiled_rows], lambda case, dtype: make(*at[case, dtype]))

    def check(row: Row) -> None:
        case, dtype = row
        calls, args, wanted, _ = done[at[row]]
        with precision(case, dtype):
            here = interpreted(ft.make_ir(all_of(calls))(args), [args])
            assert_close(here, wanted, case.close(dtype), "vmap against a loop,")
            if row in together:
                function, some = make(*at[row])
                by_xla = together[row] or ft.jit(function)(*some)
                assert_close(by_xla, wanted[-COMPILED:], case.close(dtype), "XLA against a loop,")

    each(at, check)


class Mapped(NamedTuple):
    """Functions made by vmap, their arguments, what they should give, and the dtype."""

    calls: list[Callable[..., Any]]
    args: list[list[Any]]
    wanted: list[list[Any]]
    dtype: str


def mapped(case: Case) -> Mapped:
    """vmap over subsets of the operands of a row, and nested."""
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    with precision(case, dtype):
        rng = case.rng("batch")
        draws = [case.make(rng, dtype) for _ in range(6)]
        ndims = [np.ndim(x) for x in draws[0]]
        f = apply(case)
        one = ft.make_ir(f)(*draws[0])
        calls, args, wanted = [], [], []
        if not ndims:
            calls, args = [ft.vmap(f, axis_size=3)], [[]]
            wanted = [[np.stack([y] * 3) for y in interpreted(one, [])]]
        for axes in placements(ndims):
            calls.append(ft.vmap(f, axes))
            args.append(batched(draws[:3], axes))
            wanted.append(looped(one, draws[:3], axes))
        for outer, inner in nests(ndims):
            calls.append(ft.vmap(ft.vmap(f, inner), outer))
            parts = [batched(draws[:3], inner), batched(draws[3:], inner)]
            args.append(batched(parts, outer))
            wanted.append(looped(ft.make_ir(ft.vmap(f, inner))(*parts[0]), parts, outer))
    return Mapped(calls, args, wanted, dtype)


def nests(ndims: Sequence[int]) -> list[tuple[Axes, Axes]]:
    """Axes of the outer and the inner vmap."""
    n = len(ndims)
    if not n:
        return []
    found: list[tuple[Axes, Axes]] = [((0,) * n, (0,) * n), (tuple(k + 1 for k in ndims), (0,) * n)]
    if n > 1:
        first = (0, *[None] * (n - 1))
        last = (*[None] * (n - 1), 0)
        found += [(first, last), (last, first)]
    return found


@pytest.mark.smoke
@by_primitive(EVERY_DERIVATIVE)
def test_batched_derivatives(rows: Sequence[Row]):
    """vmap of jvp and of vjp = a Python loop: what the rules make can be batched."""

    def check(row: Row) -> None:
        case, dtype = row
        with precision(case, dtype):
            p = point(case, dtype)
            rng = case.rng("batched derivative")
            both = both_ways(ft, p.ours)
            draws = []
            for _ in range(2):
                drawn = case.make(rng, dtype)
                x = [drawn[i] for i in case.differentiable]
                ct = [direction(rng, c) for c in p.ct]
                draws.append((x, [direction(rng, y) for y in x], ct))
            one = ft.make_ir(both)(*draws[0])
            args = jax.tree_util.tree_map(lambda *xs: np.stack(xs), *draws)
            wanted = [np.stack(c) for c in zip(*[interpreted(one, d) for d in draws], strict=True)]
            found = interpreted(ft.make_ir(ft.vmap(both))(*args), args)
            assert_close(found, wanted, p.tolerance(), "vmap against a loop,")

    each(rows, check)


Programs = list[tuple[Program, list[Any]]]  # with arguments


def value_programs(case: Case, dtype: str) -> Programs:
    draws = [case.make(case.rng("programs"), dtype) for _ in range(2)]
    made: Programs = [(ft.make_ir(apply(case))(*draws[0]), draws[0])]
    if case.operands:
        rows = batched(draws, (0,) * len(case.operands))
        made.append((ft.make_ir(ft.vmap(apply(case)))(*rows), rows))
    return made


def derivative_programs(case: Case, dtype: str) -> Programs:
    p = point(case, dtype)
    forward, reverse = [p.x, p.dx], [p.x, p.ct]
    return [
        (ft.make_ir(lambda x, dx: pushed(ft, p.ours, x, dx))(*forward), forward),
        (ft.make_ir(lambda x, ct: pulled(ft, p.ours, x, ct))(*reverse), reverse),
    ]


@pytest.mark.every(2)
@by_primitive([(case, case.dtypes[0]) for case in CASES])
def test_programs(rows: Sequence[Row]):
    """What transformations make is valid, goes through text and back, and means the same after
    each pass."""

    def check_one(program: Program, args: list[Any]) -> None:
        check(program)
        again = parse(show(program), program.values)
        assert equal(again, program)
        assert show(again) == show(program)
        wanted = interpreted(program, args)
        for one_pass in (*[p.run for p in pipeline.TABLE], inline):
            result = one_pass(program)
            check(result)
            assert_close(interpreted(result, args), wanted, what=one_pass.__name__)

    def check_row(row: Row) -> None:
        case, first = row
        makers = [(value_programs, first)]
        makers += [(derivative_programs, dtype) for dtype in derivative_dtypes(case)[:1]]
        for maker, dtype in makers:
            with precision(case, dtype):
                for program, args in maker(case, dtype):
                    check_one(program, args)

    each(rows, check_row)
