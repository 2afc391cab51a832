"""Tracebacks of the user's own frames.

In: an exception on its way out of this package. Out: the same, its traceback without our frames and
those of JAX below us; `FUNCTRANS_TRACEBACK=full` in the environment keeps them, for debuggers.

Every function by which a user's code comes in ends with `except Exception as error:
hide_frames(error); raise`, which costs nothing until something is raised. Where that is not written
out, `boundary` puts it around.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import FunctionType, ModuleType, TracebackType
from typing import Any, TypeVar

from functrans.errors import FunctransError
from functrans.flags import flags
from functrans.ir.source import is_library, is_users

if os.environ.get("FUNCTRANS_TRACEBACK") == "full" and "JAX_TRACEBACK_FILTERING" not in os.environ:
    flags.update("jax_traceback_filtering", "off")

_F = TypeVar("_F", bound=Callable[..., Any])
_NOTE = "(frames of functrans and JAX are hidden: FUNCTRANS_TRACEBACK=full shows them)"
_NOTE_OF_JAX = "JAX has removed its internal frames"


def hide_frames(error: BaseException) -> None:
    """Take our frames out of the traceback of an error, and of those it was raised from."""
    if os.environ.get("FUNCTRANS_TRACEBACK") == "full":
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        e = waiting.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        waiting += [e.__cause__, e.__context__]
        _tell(e)
        e.__traceback__ = _of_users(e.__traceback__)


def _of_users(tb: TracebackType | None) -> TracebackType | None:
    """The frames that are neither ours nor JAX's, nor of machinery (functools, NumPy) that these
    called. What the user's code calls itself stays, whoever's it is."""
    kept = []
    hidden = True
    while tb is not None:
        code = tb.tb_frame.f_code
        hidden = is_library(code) or (hidden and not is_users(code))
        if not hidden:
            kept.append(tb)
        tb = tb.tb_next
    for t in reversed(kept):
        tb = TracebackType(tb, t.tb_frame, t.tb_lasti, t.tb_lineno)
    return tb


def _tell(error: BaseException) -> None:
    """Say that frames are hidden where that may matter: an error that is none of ours was raised in
    them. JAX's own note about its frames goes."""
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        notes[:] = [n for n in notes if _NOTE_OF_JAX not in n]
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if isinstance(error, FunctransError) or last is None or not is_library(last.tb_frame.f_code):
        return
    if notes is None or _NOTE not in notes:
        error.add_note(_NOTE)


def boundary(function: _F) -> _F:
    """A function by which the user's code comes in: what it raises shows none of our frames."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return call  # type: ignore[return-value]


def guard(package: ModuleType) -> None:
    """Put a `boundary` around the functions that a package shows to its users. Our own calls go to
    the modules that define them, and pay nothing."""
    made: dict[int, Any] = {}  # two names of one function stay one function
    for name, value in list(vars(package).items()):
        ours = isinstance(value, FunctionType) and value.__module__.startswith("functrans")
        if name.startswith("_") or not ours:
            continue
        if id(value) not in made:
            made[id(value)] = boundary(value)
            if value.__qualname__ == name:  # where pickle finds it
                made[id(value)].__module__ = package.__name__
        setattr(package, name, made[id(value)])
