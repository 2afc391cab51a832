"""XLA compiler options, chosen per program.

XLA:CPU offloads some kinds of operations to a library (YNNPACK). The kinds are a compiler option,
and no choice is best for all programs: a wrong one can be three times slower. Each option set has a
name here, and a rule picks the programs that surely benefit; all others use JAX's default. The
options are experimental and differ between versions, so each set is tried once on this jaxlib.
Measured by `python -m benchmarks options`.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from functrans import errors, passes
from functrans.caching import cached
from functrans.ir.program import Program
from functrans.ir.source import describe, user_source

_LIBRARY = "xla_cpu_experimental_ynn_fusion_type"  # the kinds of operations that are offloaded
_KIND = "LIBRARY_FUSION_TYPE_"
DEFAULT = "default"
SETS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "products and sums": {_LIBRARY: f"{_KIND}DOT,{_KIND}REDUCE"},
    "all but convolutions": {_LIBRARY: f"{_KIND}DOT,{_KIND}REDUCE,{_KIND}ELTWISE"},
}


def choice(program: Program) -> str:
    """Return the name of the option set for an optimized program on the default backend."""
    found = passes.compiler_options.wanted(program) if jax.default_backend() == "cpu" else None
    return found.name if found is not None and _is_taken(found.name) else DEFAULT


@cached("options of the compiler", 64)
def _is_taken(name: str) -> bool:
    """Return whether this jaxlib accepts the options of a set."""
    try:
        with jax.ensure_compile_time_eval():
            jax.jit(lambda x: x, compiler_options=SETS[name])(0.0)
    except RuntimeError:
        return False
    return True


def explain_option(error: Exception, known: Callable[[], Sequence[str]]) -> None:
    """Raise our error if XLA's error is about a user's option; `known` lists option names."""
    said = re.search(r"No such compile option: '(\w+)'|While setting option (\w+), '([^']*)'", str(error))
    if said is None:
        return
    name = said[1] or said[2]
    problem = f"does not accept {said[3]!r}" if said[2] else "does not exist"
    names = [x for x in (*known(), _LIBRARY) if x != name]
    shown = difflib.get_close_matches(name, names, 5, 0.5) or names[:9]
    raise errors.InvalidArgument(
        f"jit: the compiler option {name} {problem} (JAX {jax.__version__}), at\n"
        f"    {describe(user_source())}\nExisting options: {', '.join(shown)}."
    ) from None


# --- switching between sets -----------------------------------------------------------------------


class Other(Exception):
    """Raised while `jax.jit` traces a function whose program needs another option set. Holds the
    traced program, so that it is not traced again."""

    def __init__(self, name: str, staged: Any):
        super().__init__(name)
        self.name = name
        self.staged = staged


class _Local(threading.local):
    fixed = False  # if True, never raise `Other`
    staged: Any = None  # the traced program of the last `Other`


local: _Local = _Local()


@contextmanager
def fixed() -> Iterator[None]:
    """Keep the current options: never raise `Other` inside this context."""
    outer, local.fixed = local.fixed, True
    try:
        yield
    finally:
        local.fixed = outer
