"""A program's text in colours, as HTML: what a notebook shows of a Program by itself.

The colours are legible on white and on black, so that no theme need be known.
"""

from __future__ import annotations

import re
from html import escape

from functrans import runtime
from functrans.ir.program import Program
from functrans.ir.text import show

_LINES = 400  # that are shown

_NAME, _TYPE, _NUMBER, _WORD = "#3b82d6", "#8a8f98", "#c2662d", "#a256b8"
_PARTS = re.compile(
    r"(?P<number>-?(?:\d[\w.+-]*|inf|nan|True|False)(?=:~?\w+\[))"
    r"|(?P<type>:? ?~?(?:key&lt;\w+&gt;|[a-z]+\d*|bool)\[[\d,]*\])"
    r"|(?P<word>\b(?:program|return|with)\b)"
    r"|(?P<name>(?<== )\w+)"
)
_COLOURS = {"number": _NUMBER, "type": _TYPE, "word": _WORD, "name": _NAME}


@runtime.answers(runtime.coloured)
def coloured(program: Program) -> str:
    """The HTML of a program's text, cut after 400 lines.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> coloured(ft.make_ir(jnp.sin)(1.0))[:42]
      '<pre style="line-height:1.35"><span style='
    """
    lines = show(program).splitlines()
    text = escape("\n".join(lines[:_LINES]), quote=False)
    more = f"\n⋯ {len(lines) - _LINES} more lines" if len(lines) > _LINES else ""
    return f'<pre style="line-height:1.35">{_PARTS.sub(_span, text)}{more}</pre>'


def _span(match: re.Match[str]) -> str:
    return f'<span style="color:{_COLOURS[match.lastgroup or "name"]}">{match[0]}</span>'
