"""The user's line behind an equation.

While tracing only `(code, offset)` is stored (0.3 µs); file, line and text are looked up when a
person asks.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType
from typing import Any

import jax
import numpy

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(numpy.__file__)) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class _Internal(dict):
    """file name -> is it ours, JAX's, NumPy's, or the standard library's call machinery?"""

    def __missing__(self, filename: str) -> bool:
        inside = filename.startswith((_HERE, _JAX, _NUMPY)) or filename in (
            _STDLIB + "functools.py",
            _STDLIB + "contextlib.py",
            _STDLIB + "threading.py",
        )
        self[filename] = inside
        return inside


_INTERNAL = _Internal()

Source = tuple[CodeType, int]


def is_users(code: CodeType) -> bool:
    """Is it code of the user's: not ours, JAX's, NumPy's?"""
    return not _INTERNAL[code.co_filename]


def user_source() -> Source | None:
    """Where the innermost frame of the caller's that is the user's own stands now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _INTERNAL[code.co_filename]:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def line_of(source: Source) -> int:
    """The line number."""
    code, offset = source
    for start, stop, line in code.co_lines():
        if start <= offset < stop and line is not None:
            return line
    return code.co_firstlineno


def location(source: Source | None) -> str:
    """`file.py:12 (loss)`, or `<unknown>`."""
    if source is None:
        return "<unknown>"
    code = source[0]
    return f"{code.co_filename}:{line_of(source)} ({code.co_qualname})"


def text_of(source: Source | None) -> str:
    """The source text of the line, stripped; empty when the file cannot be read."""
    if source is None:
        return ""
    return linecache.getline(source[0].co_filename, line_of(source)).strip()


def describe(source: Source | None) -> str:
    """Location and text for an error message: `file.py:12 (loss)\\n    y = x @ w`."""
    text = text_of(source)
    return location(source) + (f"\n        {text}" if text else "")


def equation_source(equation: Any) -> str:
    """`describe`, with what transformations made it: `transpose of jvp of dot_general at ...`."""
    steps = []
    origin = equation.origin
    while origin is not None:
        steps.append(origin.how)
        origin = origin.equation.origin
    how = " ".join(steps)
    return (how + " " if how else "") + describe(equation.source)
