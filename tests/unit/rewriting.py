"""Programs as text, before and after a pass."""

from __future__ import annotations

import re
from typing import Any

import functrans as ft
from functrans.ir import Program, check, parse, show
from functrans.passes import pipeline

ALONE = {p.name: p.run for p in pipeline.TABLE}
EXACT = {p.name: p.exact for p in pipeline.TABLE if p.exact is not None}


def rewritten(name: str, before: str, **options: Any) -> Program:
    program = parse(before)
    check(program)
    made = getattr(ft.passes, name)(program, **options)
    check(made)
    assert made.in_types == program.in_types
    assert made.out_types == program.out_types
    return made


def body(program: Program) -> list[str]:
    """The equations and the result of a program, without types of results."""
    lines = [re.sub(r"(\w+): [~\w]+\[[^]]*\]( =|,)", r"\1\2", x) for x in show(program).split("\n")]
    return [line.strip() for line in lines[1:-1]]


def becomes(name: str, before: str, after: str, **options: Any) -> None:
    """`before` and `after`: equations and result, separated by semicolons."""
    made = rewritten(name, f"{before.partition('{')[0]}{{ {before.partition('{')[2]} }}", **options)
    assert body(made) == [line.strip() for line in after.split(";")]


# --- simplify: before { equations }, after --------------------------------------------------------

X = "program (x: f32[3]) {"
XY = "program (x: f32[3], y: f32[3]) {"
