"""The user's line behind an equation.

While tracing only `(code, offset)` is stored (0.3 µs); file, line, columns and text are looked up
when a person asks.
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
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class _Internal(dict[str, bool]):
    """file name -> is it ours, JAX's, NumPy's, or the standard library's call machinery?"""

    def __missing__(self, filename: str) -> bool:
        inside = filename.startswith((_HERE, _JAX, _JAXLIB, _NUMPY)) or filename in (
            _STDLIB + "functools.py",
            _STDLIB + "contextlib.py",
            _STDLIB + "threading.py",
        )
        self[filename] = inside
        return inside


_INTERNAL = _Internal()

Source = tuple[CodeType, int]
_BINARY_OP = opmap["BINARY_OP"]


class _Scopes(threading.local):
    """The names of `named_scope` around what this thread runs, each with a slash behind it."""

    path = ""


scopes: _Scopes = _Scopes()


class Scoped(tuple[Any, ...]):
    """A `Source` inside of scopes."""

    path: str

    def __new__(cls, source: Source, path: str) -> Scoped:
        made = tuple.__new__(cls, source)
        made.path = path
        return made

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other) and self.path == scope_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.path, *self))

    def __reduce__(self) -> Any:
        return Scoped, (tuple(self), self.path)


def scope_of(source: Any) -> str:
    """The names around it, apart by slashes and with one at the end; "" if there are none."""
    return source.path if source.__class__ is Scoped else ""


def is_users(code: CodeType) -> bool:
    """Is it code of the user's: not ours, JAX's, NumPy's?"""
    return not _INTERNAL[code.co_filename]


def is_library(code: CodeType) -> bool:
    """Is it ours or JAX's?"""
    return code.co_filename.startswith((_HERE, _JAX, _JAXLIB))


def user_source() -> Source | None:
    """Where the innermost frame of the caller's that is the user's own stands now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _INTERNAL[code.co_filename]:
            source = code, frame.f_lasti
            return Scoped(source, scopes.path) if scopes.path else source
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
    return f"{code.co_filename}:{line_of(source)} ({scope_of(source)}{code.co_qualname})"


def text_of(source: Source | None) -> str:
    """The source text of the line, stripped; empty when the file cannot be read."""
    if source is None:
        return ""
    return linecache.getline(source[0].co_filename, line_of(source)).strip()


def line_text(source: Source | None) -> str:
    """`file.py:12 (loss)  y = jnp.tanh(x @ w)`: the line in one line."""
    return f"{location(source)}  {text_of(source)}".rstrip()


def columns_of(source: Source) -> tuple[int, int] | None:
    """First column of the expression in its line and the column after its last, in characters; of
    one over several lines, up to the end of the first. None where Python kept none."""
    code, offset = source
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
    """The binary operator that runs there, `+` or `+=`; "" where something else does."""
    if source is None:
        return ""
    code, offset = source
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


def definition(code: CodeType) -> str:
    """`describe` of where a function is defined, with the caret below its name (of a lambda, its
    body)."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    for i, text in enumerate(lines[:50]):  # decorators come first
        named = re.match(rf"\s*(?:async\s+)?def\s+({re.escape(code.co_name)})\b", text)
        if named:
            at = f"{code.co_filename}:{code.co_firstlineno + i} ({code.co_qualname})"
            below = " " * (8 + named.start(1) - len(text) + len(text.lstrip()))
            return f"{at}\n        {text.strip()}\n{below}{'^' * len(code.co_name)}"
    for offset, (line, *_) in enumerate(code.co_positions()):
        source = code, 2 * offset
        if line == code.co_firstlineno and columns_of(source):
            return describe(source)
    return describe((code, 0))


def equation_source(equation: Any) -> str:
    """`describe`, with what transformations made it: `transpose of jvp of dot_general at ...`."""
    steps = []
    origin = equation.origin
    while origin is not None:
        steps.append(origin.how)
        origin = origin.equation.origin
    how = " ".join(steps)
    return (how + " " if how else "") + describe(equation.source)
