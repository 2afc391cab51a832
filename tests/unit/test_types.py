"""What checkers and editors see: `typed_user.py`, and what mypy says of it."""

import re
from pathlib import Path

import pytest
from mypy import api

_USER = Path(__file__).with_name("typed_user.py")
_ROOT = Path(__file__).parents[2]


def said(path: Path) -> dict[int, set[str]]:
    """What mypy says of each line, in the words of the comments of `typed_user.py`."""
    settings = f"--config-file {_ROOT}/pyproject.toml --cache-dir {_ROOT}/.mypy_cache"
    shown = "--no-warn-unused-configs --hide-error-context"
    out, problem, _ = api.run([*f"{settings} {shown}".split(), str(path)])
    assert not problem, problem
    found: dict[int, set[str]] = {}
    told = rf'^\S*{path.name}:(\d+): (?:note: Revealed type is "(.*)"|error: .*\[([\w-]+)\])$'
    for line, revealed, code in re.findall(told, out, re.MULTILINE):
        of_type = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", revealed)
        found.setdefault(int(line), set()).add(f"wrong: {code}" if code else f"is {of_type}")
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
