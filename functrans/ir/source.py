"""The user's source line of an equation.

While tracing only `(code, offset, scope)` is stored (0.3 µs). File, line, columns and text are looked up
when they are shown.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import threading
from dis import get_instructions, opmap
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import jax
import numpy

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
_JAXLIB = os.path.join(os.path.dirname(os.path.dirname(_JAX)), "jaxlib") + os.sep
_NUMPY = os.path.dirname(os.path.abspath(numpy.__file__)) + os.sep
_DTYPES = os.path.join(os.path.dirname(os.path.dirname(_NUMPY)), "ml_dtypes") + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class _Internal(dict[str, bool]):
    """File name -> whether it is of functrans, JAX, NumPy, or the standard library's calls."""

    def __missing__(self, filename: str) -> bool:
        inside = filename.startswith((_HERE, _JAX, _JAXLIB, _NUMPY, _DTYPES)) or filename in (
            _STDLIB + "functools.py",
            _STDLIB + "contextlib.py",
            _STDLIB + "threading.py",
            _STDLIB + "concurrent/futures/_base.py",
            _STDLIB + "concurrent/futures/thread.py",
        )
        self[filename] = inside
        return inside


_INTERNAL = _Internal()

Source = tuple[CodeType, int, str]  # the last: the path of `named_scope`
_BINARY_OP = opmap["BINARY_OP"]


class _Scopes(threading.local):
    """The `named_scope` path of this thread; each name is followed by a slash."""

    path = ""


scopes: _Scopes = _Scopes()


def is_users(code: CodeType) -> bool:
    """Return whether a code object is the user's: not ours, JAX's or NumPy's."""
    return not _INTERNAL[code.co_filename]


def is_library(code: CodeType) -> bool:
    """Return whether a code object is ours or JAX's."""
    return code.co_filename.startswith((_HERE, _JAX, _JAXLIB))


def user_source() -> Source | None:
    """Return the current position in the innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _INTERNAL[code.co_filename]:
            return code, frame.f_lasti, scopes.path
        frame = frame.f_back
    return None


def line_of(source: Source) -> int:
    code, offset, _ = source
    for start, stop, line in code.co_lines():
        if start <= offset < stop and line is not None:
            return line
    return code.co_firstlineno


def location(source: Source | None) -> str:
    """Return `file.py:12 (loss)`, or `<unknown>`."""
    if source is None:
        return "<unknown>"
    code, _, scope = source
    return f"{code.co_filename}:{line_of(source)} ({scope}{code.co_qualname})"


def near(source: Source | None) -> str:
    """Return `location` without the folders and scopes."""
    if source is None:
        return "<unknown>"
    code = source[0]
    return f"{os.path.basename(code.co_filename)}:{line_of(source)} ({code.co_qualname})"


def text_of(source: Source | None) -> str:
    """Return the source text of the line, stripped; empty if the file cannot be read."""
    if source is None:
        return ""
    return linecache.getline(source[0].co_filename, line_of(source)).strip()


def line_text(source: Source | None) -> str:
    """Return location and text on one line: `file.py:12 (loss)  y = jnp.tanh(x @ w)`."""
    return f"{location(source)}  {text_of(source)}".rstrip()


def columns_of(source: Source) -> tuple[int, int] | None:
    """Return the first column of the expression and the column after its last, in characters. A
    multi-line expression ends at the end of its first line. None if Python did not record
    columns."""
    code, offset, _ = source
    _, last, start, stop = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
    if start is None or stop is None:
        return None
    line = line_of(source)
    text = linecache.getline(code.co_filename, line).rstrip().encode()  # columns count bytes
    if last != line:
        stop = len(text)
    found = len(text[:start].decode(errors="replace")), len(text[:stop].decode(errors="replace"))
    return found if found[0] < found[1] else None


def operator_at(source: Source | None) -> str:
    """Return the binary operator at a position, `+` or `+=`; "" if there is another instruction."""
    if source is None:
        return ""
    code, offset, _ = source
    found = (i.argrepr for i in get_instructions(code) if i.offset == offset)
    return next(found, "") if code.co_code[offset] == _BINARY_OP else ""


def describe(source: Source | None) -> str:
    """Location, text and a caret for an error message:

    file.py:12 (loss)
            y = jnp.tanh(x @ w)
                         ^^^^^
    """
    if source is None:
        return location(source)
    line = linecache.getline(source[0].co_filename, line_of(source)).rstrip()
    text = line.lstrip()
    if not text:
        return location(source)
    shown = f"{location(source)}\n        {text}"
    columns = columns_of(source)
    if columns is None:
        return shown
    start, stop = columns
    return f"{shown}\n{' ' * (8 + start - len(line) + len(text))}{'^' * (stop - start)}"


def here() -> str:
    """Return "at" and the user's source line, to end an error message."""
    return f"at\n    {describe(user_source())}"


def brief(value: Any) -> str:
    """Return the repr of a value in an error message on one line, its end replaced by … if it is long."""
    return cut(" ".join(line.strip() for line in repr(value).splitlines()), 80)


def brief_with_type(value: Any) -> str:
    """Return `brief(value)` and the type of the value."""
    return f"{brief(value)} of type {type(value).__qualname__}"


def cut(text: str, most: int) -> str:
    """Return a text, its end replaced by … if it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def definition(code: CodeType) -> str:
    """Describe where a function is defined; the caret is under its name, or a lambda's body."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    for i, text in enumerate(lines[:50]):  # skip decorators
        named = re.match(rf"\s*(?:async\s+)?def\s+({re.escape(code.co_name)})\b", text)
        if named:
            at = f"{code.co_filename}:{code.co_firstlineno + i} ({code.co_qualname})"
            below = " " * (8 + named.start(1) - len(text) + len(text.lstrip()))
            return f"{at}\n        {text.strip()}\n{below}{'^' * len(code.co_name)}"
    for offset, (line, *_) in enumerate(code.co_positions()):
        source = code, 2 * offset, ""
        if line == code.co_firstlineno and columns_of(source):
            return describe(source)
    return describe((code, 0, ""))


def history(equation: Any) -> tuple[list[str], Any]:
    """Return the transformations that made an equation, last first, and the user's equation that
    they began with: itself, if there are none."""
    steps = []
    while equation.origin is not None:
        steps.append(equation.origin.how)
        equation = equation.origin.equation
    return steps, equation


def equation_source(equation: Any) -> str:
    """Describe the source of an equation: `transpose of jvp of dot_general at ...`."""
    return " ".join([*history(equation)[0], describe(equation.source)])
