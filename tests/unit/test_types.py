"""What checkers and editors see: `typed_user.py`, and what mypy says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

_USER = Path(__file__).with_name("typed_user.py")
_ROOT = Path(__file__).parents[2]


def said(path: Path) -> dict[int, set[str]]:
    """What mypy says of each line, in the words of the comments of `typed_user.py`."""
    out, problem, _ = api.run(
        [
            "--config-file",
            str(_ROOT / "pyproject.toml"),
            "--no-warn-unused-configs",
            "--hide-error-context",
            "--cache-dir",
            str(_ROOT / ".mypy_cache"),
            str(path),
        ]
    )
    assert not problem, problem
    found: dict[int, set[str]] = {}
    for line in out.splitlines():
        where, _, text = line.partition(": ")
        if not where.startswith(str(path)) and not where.startswith(str(path.relative_to(_ROOT))):
            continue
        revealed = re.search(r'Revealed type is "(.*)"', text)
        code = re.search(r"\[([\w-]+)\]$", text)
        if revealed:
            of_type = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", revealed[1])
            found.setdefault(int(where.split(":")[1]), set()).add(f"is {of_type}")
        elif code and text.startswith("error"):
            found.setdefault(int(where.split(":")[1]), set()).add(f"wrong: {code[1]}")
    return found


@pytest.mark.sweep
def test_a_users_checker_knows_our_types():
    lines = _USER.read_text().splitlines()
    comments = {
        i: {line.rpartition("  # ")[2]}
        for i, line in enumerate(lines, 1)
        if re.search("  # (is|wrong:) ", line)
    }
    assert len(comments) > 40
    assert said(_USER) == comments
