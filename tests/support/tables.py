"""Tables of functions as text: what each test function is told, a line for each.

A file holds sections, `[name]`; a line of one holds fields, which ` ; ` separates; `#` begins a comment.
An error in an expression names its line of the table.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TABLES = Path(__file__).parents[1] / "parity" / "tables"


class Row(NamedTuple):
    """A line of a table."""

    fields: list[str]
    path: str
    number: int

    def function(self, arguments: str, scope: dict[str, Any], field: int = -1) -> Callable[..., Any]:
        """An expression among its fields, the last one, as a function."""
        text = "\n" * (self.number - 1) + f"lambda {arguments}: ({self.fields[field]})"
        return eval(compile(text, self.path, "eval"), scope)


def rows(path: Path, section: str) -> list[Row]:
    found, here = [], ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("["):
            assert " ; " not in line, f"{path}, line {number}: a row cannot begin with a bracket"
            here = line.strip("[]")
        elif here == section and line and not line.startswith("#"):
            found.append(Row([part.strip() for part in line.split(" ; ")], str(path), number))
    assert found, f"{path} has no section [{section}]"
    return found


def functions(path: Path, section: str, arguments: str, scope: dict[str, Any]) -> dict[str, Any]:
    """Of lines `name ; expression`, by their names."""
    return {row.fields[0]: row.function(arguments, scope) for row in rows(path, section)}
