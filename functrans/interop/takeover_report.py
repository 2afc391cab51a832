"""The report on the functions that a program jitted while `jax.jit` was taken over.

In: functions, errors. Out: a record per function: its name, its location in the program, why it
stays JAX's or what the passes did to it; and its text.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
import weakref
from collections import Counter
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from functrans.caching import cached
from functrans.ir.source import is_users, line_of, text_of
from functrans.passes.explanation import Report, change, measured, short
from functrans.pytrees.functions import function_name

_INSTALLED = tuple(
    [
        os.path.join(path, "")
        for path in {
            *[sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")],
            *site.getsitepackages(),
            site.getusersitepackages(),
        }
    ]
)
_WIDTH = 200  # maximal length of a reason
_KINDS = 5  # kinds of rewrites shown per pass


class Function:
    """A function of the program, or all functions made at one location with one name.

    place   : the user's line
    called  : whether it was called, or lowered, while nothing was traced
    refused : why it stays JAX's; "" if it is ours
    reports : what the passes did to each program, if `explain` is set
    """

    def __init__(self, name: str, place: str):
        self.name = name
        self.place = place
        self.called = False
        self.refused: str = ""
        self.reports: list[Report] = []
        self._refused: weakref.WeakSet[Any] = weakref.WeakSet()

    def refuse(self, why: str, fun: Any) -> None:
        """Record that it stays JAX's, also when the same function is jitted again."""
        self.refused = self.refused or why
        if fun.__class__ is FunctionType:
            self._refused.add(fun)

    def refusal_of(self, fun: Any) -> str:
        """Return why a function was refused before, or ""."""
        return self.refused if fun.__class__ is FunctionType and fun in self._refused else ""

    def text(self, explain: bool) -> str:
        """Return its lines of the report."""
        lines = [f"    {self.name}, {self.place}"]
        if self.refused:
            lines.append(f"        run by JAX: {self.refused}")
        elif explain:
            lines.append("        taken over")
        for report, n in _counted(self.reports).items():
            lines += [f"        {line}" for line in report.split("\n")]
            lines[-1] += f" ({n} times)" if n > 1 else ""
        return "\n".join(lines)


def _counted(reports: list[Report]) -> Counter[str]:
    return Counter(map(_told, reports))


def _told(report: Report) -> str:
    """Summarize a report: the sizes, and the number of rewrites of each kind."""
    (n, *costs), (m, *later) = measured(report.before), measured(report.after)
    flops, moved = [change(short(a), short(b)) for a, b in zip(costs, later, strict=True)]
    lines = [f"equations {change(str(n), str(m))}, FLOPs {flops}, bytes {moved}"]
    for step in report.steps:
        found = Counter([what for what, _ in step.rewrites]).most_common()
        if found:
            more = ["..."] if len(found) > _KINDS else []
            kinds = [f"{n} x {what}" for what, n in found[:_KINDS]] + more
            lines.append(f"    {step.name}: {', '.join(kinds)}")
    return "\n".join(lines)


def record_of(fun: Any) -> tuple[str, str]:
    """Return the name of a function that is being jitted, and its location: where the program
    defines it, or else the innermost program line on the stack."""
    code = _code_of(fun)
    if code is None or not is_own(code):
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_own(frame.f_code):
            frame = frame.f_back
        if frame is not None:
            return function_name(fun), _shown(frame.f_code, frame.f_lineno)
    if code is None:
        return function_name(fun), "<unknown>"
    return function_name(fun), _shown(code, code.co_firstlineno)


def why(error: Exception) -> str:
    """Return an error as one line, with the innermost program line of its traceback."""
    said = (str(error).strip().split("\n")[0])[:_WIDTH].rstrip(".,: ").removesuffix(", at")
    text = f"{type(error).__name__}: {said}"
    tb, last = error.__traceback__, None
    while tb is not None:
        if is_own(tb.tb_frame.f_code):
            last = tb
        tb = tb.tb_next
    if last is None:
        return text
    source = last.tb_frame.f_code, last.tb_lasti
    return f"{text}, at {_shown(source[0], line_of(source))}  {text_of(source)}"


def is_own(code: CodeType) -> bool:
    """Return whether the code is in the program itself, not in a library."""
    return _is_own_file(code.co_filename)


@cached("files of the user's", 4096)
def _is_own_file(name: str) -> bool:
    return is_users(compile("", name, "exec")) and not name.startswith((*_INSTALLED, "<frozen ", "<string>"))


def _shown(code: CodeType, line: int) -> str:
    name = code.co_filename
    near = os.path.relpath(name) if os.path.isabs(name) else name
    return f"{name if near.startswith('..') else near}:{line}"


def _code_of(fun: Any) -> CodeType | None:
    """Return the code object that a callable runs, if it is a Python function."""
    while True:
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif isinstance(fun, MethodType):
            fun = fun.__func__
        elif isinstance(getattr(fun, "__wrapped__", None), FunctionType):
            fun = fun.__wrapped__
        else:
            break
    code = getattr(fun, "__code__", None) or getattr(type(fun).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
