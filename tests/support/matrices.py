"""Tables of two things that are combined: some pairs each time, as many others with `-m sweep`, all
with `-m heavy`."""

from __future__ import annotations

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
