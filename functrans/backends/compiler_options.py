"""Options of XLA's compiler, chosen by what a program does.

XLA:CPU hands parts of a program to a library (YNNPACK); which kinds of parts is an option of each
compilation, and no choice is best for all programs: the wrong one costs up to three times the time.
A set of options has a name here, and a rule says which programs surely win by it; all others are
compiled by JAX's default. The options are experimental and differ between versions, so this jaxlib
is asked once for each set whether it takes it. Measured by `python -m benchmarks options`.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from functrans import errors
from functrans.caching import cached
from functrans.ir.program import Program
from functrans.ir.source import describe, user_source
from functrans.passes.compiler_options import wanted

_LIBRARY = "xla_cpu_experimental_ynn_fusion_type"  # which kinds of parts the library gets
_KIND = "LIBRARY_FUSION_TYPE_"
DEFAULT = "default"
SETS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "products and sums": {_LIBRARY: f"{_KIND}DOT,{_KIND}REDUCE"},
    "all but convolutions": {_LIBRARY: f"{_KIND}DOT,{_KIND}REDUCE,{_KIND}ELTWISE"},
}


def choice(program: Program) -> str:
    """The name of the set for an optimised program that is compiled for this process's devices."""
    found = wanted(program) if jax.default_backend() == "cpu" else None
    return found.name if found is not None and _is_taken(found.name) else DEFAULT


@cached("options of the compiler", 64)
def _is_taken(name: str) -> bool:
    """Does this jaxlib take the options of a set?"""
    try:
        with jax.ensure_compile_time_eval():
            jax.jit(lambda x: x, compiler_options=SETS[name])(0.0)
    except RuntimeError:
        return False
    return True


def explain_option(error: Exception, known: Callable[[], Sequence[str]]) -> None:
    """Raise our own error if XLA's is about an option that the user gave; `known` lists some."""
    said = re.search(
        r"No such compile option: '(\w+)'|While setting option (\w+), '([^']*)'", str(error)
    )
    if said is None:
        return
    name = said[1] or said[2]
    problem = f"does not take {said[3]!r}" if said[2] else "does not exist"
    names = [x for x in (*known(), _LIBRARY) if x != name]
    shown = difflib.get_close_matches(name, names, 5, 0.5) or names[:9]
    raise errors.InvalidArgument(
        f"jit: the compiler option {name} {problem} (JAX {jax.__version__}), at\n"
        f"    {describe(user_source())}\nSome that exist: {', '.join(shown)}."
    ) from None


# --- switching to them ----------------------------------------------------------------------------


class Other(Exception):
    """Raised while `jax.jit` traces a function for a set of options that is not the one for its
    program. Holds what was traced, which is not traced again."""

    def __init__(self, name: str, staged: Any):
        super().__init__(name)
        self.name = name
        self.staged = staged


class _Local(threading.local):
    fixed = False  # may `Other` not be raised?
    staged: Any = None  # what the last one holds


local: _Local = _Local()


@contextmanager
def fixed() -> Iterator[None]:
    """Compile with the options that are set."""
    outer, local.fixed = local.fixed, True
    try:
        yield
    finally:
        local.fixed = outer
