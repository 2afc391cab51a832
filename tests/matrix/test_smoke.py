"""Every primitive once through XLA, in few programs: its value, its derivative.

For `pytest -m smoke` alone; the rows of `cases/` at large are the other files'.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import functrans as ft
from tests.matrix.cases import CASES
from tests.matrix.cases.case import Case
from tests.matrix.primitive_rows import (
    Made,
    Row,
    apply,
    both_ways,
    interpreted,
    is_wide,
    point,
    precision,
    run_together,
)
from tests.support.closeness import assert_close
from tests.support.wide import each

pytestmark = pytest.mark.smoke
PER_PROGRAM = 40


@pytest.fixture(autouse=True)
def in_the_smoke_run(request: pytest.FixtureRequest) -> None:
    if "smoke" not in request.config.option.markexpr:
        pytest.skip("the other files run all of it")


FINE = ("float32", "float64", "complex64")


def first_of_each(dtypes: Callable[[Case], Sequence[str]]) -> list[Row]:
    """Of each primitive a row, at a dtype that needs no 64-bit types if there is one."""
    rows = [(case, dtype) for case in CASES for dtype in dtypes(case)]
    found: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: is_wide(*row)):
        found.setdefault(row[0].primitive, row)
    return list(found.values())


def by_both_backends(rows: Sequence[Row], make: Callable[[Case, str], Made]) -> dict[Row, Any]:
    """Of each row what XLA gives, many rows to a program, and what the reference gives."""
    by_xla: dict[Row, Any] = {}
    for k in range(0, len(rows), PER_PROGRAM):
        by_xla |= run_together(rows[k : k + PER_PROGRAM], make)
    results = {}
    for row in rows:
        with precision(*row):
            f, args = make(*row)
            results[row] = by_xla[row], interpreted(ft.make_ir(f)(*args), args)
    return results


def test_values():
    def make(case: Case, dtype: str) -> Made:
        return apply(case), case.make(case.rng(dtype), dtype)

    rows = first_of_each(lambda case: case.dtypes)
    results = by_both_backends(rows, make)
    each(rows, lambda row: assert_close(*results[row], row[0].close(row[1])))
    assert {case.primitive for case, _ in rows} == {case.primitive for case in CASES}


def test_derivatives():
    def make(case: Case, dtype: str) -> Made:
        p = point(case, dtype)
        return both_ways(ft, p.ours), (p.x, p.dx, p.ct)

    rows = first_of_each(lambda case: [d for d in case.dtypes if case.differentiable and d in FINE])
    results = by_both_backends(rows, make)
    each(rows, lambda row: assert_close(*results[row], point(*row).tolerance()))
