"""Wide tests: many rows in one test, so that one compiled program serves them all."""

from collections.abc import Callable, Iterable
from typing import Any


def each(rows: Iterable[Any], check: Callable[[Any], None]) -> None:
    """Check every row; then say which failed, and how, if any did."""
    failed: list[tuple[Any, Exception]] = []
    for row in rows:
        try:
            check(row)
        except Exception as error:
            failed.append((row, error))
    if failed:
        told = "\n\n".join([f"{_name(row)}: {type(e).__name__}: {e}" for row, e in failed])
        raise AssertionError(f"{len(failed)} rows\n{told}") from failed[0][1]


def _name(row: Any) -> str:
    return "-".join(map(str, row)) if isinstance(row, tuple) else str(row)
