"""Tables of two things that are combined: some pairs each time, the others with `-m sweep`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def spread(
    rows: Iterable[Any], columns: Sequence[Any], every: int = 2, always: Iterable[Any] = ()
) -> list[Any]:
    """Parameters (row, column) for `pytest.mark.parametrize`: of each row every second column (or
    third, ...), shifted from row to row so that each column is met too; the others are a sweep.
    Columns in `always` are met in each row."""
    shifted = [c for c in columns if c not in set(always)]
    made = []
    for i, row in enumerate(rows):
        for column in columns:
            skipped = column in shifted and (i + shifted.index(column)) % every
            marks = [pytest.mark.sweep] if skipped else []
            name = f"{getattr(row, '__name__', row)}-{getattr(column, '__name__', column)}"
            made.append(pytest.param(row, column, id=name, marks=marks))
    return made
