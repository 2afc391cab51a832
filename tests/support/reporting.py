"""What a failing test says beside its traceback: the program, the seed, how to run it again. And the
lines that errors and reports of ours should name."""

import inspect
import linecache
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from functrans.ir import Program, show
from tests.matrix.cases.case import Case

TESTS = Path(__file__).parents[1]
_LINES = 60  # of a program


def described(item: pytest.Item, caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Programs, seeds and rows among the locals of the test's frames, innermost first."""
    frames = [entry.frame.f_locals for entry in caught.traceback]
    found: dict[str, str] = {}
    for names in reversed(frames):
        for name, value in names.items():
            if name not in found and _tells(name, value):
                found[name] = _shown(value)
    entry = [e for e in caught.traceback if TESTS in Path(e.path).parents][-1:] or caught.traceback
    line = _line(entry[-1].frame.code.raw, entry[-1].lineno)
    again = f"{sys.executable} -m pytest {item.nodeid!r}"
    return "\n".join([*[f"{k} = {v}" for k, v in found.items()], f"at {line}", f"again: {again}"])


def _tells(name: str, value: Any) -> bool:
    return isinstance(value, (Program, Case)) or "seed" in name


def _shown(value: Any) -> str:
    if not isinstance(value, Program):
        return str(value)
    lines = show(value).splitlines()
    left = len(lines) - _LINES
    return "\n".join([*lines[:_LINES], *([f"... {left} lines more"] if left > 0 else [])])


def _line(code: CodeType, number: int) -> str:
    text = linecache.getline(code.co_filename, number + 1).strip()
    return f"{code.co_filename}:{number + 1}: {text}"


def line_number(function: Any, text: str) -> int:
    """The line of a function's source that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)
