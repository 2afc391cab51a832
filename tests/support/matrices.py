"""Long tables: some rows each time, others with `-m sweep`, all with `-m heavy`."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def spread(
    rows: Iterable[Any], columns: Sequence[Any], every: int = 2, always: Iterable[Any] = ()
) -> list[Any]:
    """Parameters (row, column) for `pytest.mark.parametrize`: of each row every second column (or
    third, ...), shifted from row to row so that each column is met too; as many others are a sweep,
    the rest is heavy. Columns in `always` are met in each row."""
    shifted = [c for c in columns if c not in set(always)]
    made = []
    for i, row in enumerate(rows):
        for column in columns:
            share = column in shifted and (i + shifted.index(column)) % every
            marks = [pytest.mark.sweep if share == 1 else pytest.mark.heavy] if share else []
            name = f"{getattr(row, '__name__', row)}-{getattr(column, '__name__', column)}"
            made.append(pytest.param(row, column, id=name, marks=marks))
    return made


def marked(marker: str, *rows: Any) -> list[Any]:
    """Parameters for `pytest.mark.parametrize` that have a marker."""
    return [pytest.param(row, marks=getattr(pytest.mark, marker)) for row in rows]


def alternately(rows: Iterable[Any]) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: every second row (or `pytest.param`); the others are a
    sweep."""
    params = [row if isinstance(row, type(pytest.param())) else pytest.param(row) for row in rows]
    return [
        pytest.param(*p.values, id=p.id, marks=[*p.marks, *[pytest.mark.sweep] * (i % 2)])
        for i, p in enumerate(params)
    ]
