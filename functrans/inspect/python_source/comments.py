"""The user's lines as comments: one where the line changes."""

from __future__ import annotations

import os
from typing import Any

from functrans.inspect.python_source.naming import is_backward
from functrans.ir.program import Equation, Program
from functrans.ir.source import line_of, text_of
from functrans.passes.rewrite import children_first

_LONGEST = 76  # characters of a line that are shown


def is_one_file(program: Program) -> bool:
    """Do all lines of a program stand in one file, so that it need not be named?"""
    programs = children_first(program)
    return len({e.source[0].co_filename for p in programs for e in p.equations if e.source}) == 1


class Comments:
    """Which line the code written last came from."""

    def __init__(self, one_file: bool):
        self.one_file = one_file
        self._last: tuple[Any, ...] | None = None

    def of(self, e: Equation) -> str:
        """The comment above an equation; empty where it is the line of the one before."""
        if e.source is None:
            return ""
        here = (e.source[0].co_filename, line_of(e.source), is_backward(e))
        if here == self._last:
            return ""
        self._last = here
        where = f"{here[1]}" if self.one_file else f"{os.path.basename(here[0])}:{here[1]}"
        text = text_of(e.source)
        text = text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
        return f"# {where}{', backward' if here[2] else ''}" + (f":  {text}" if text else "")
