"""Options of XLA's compiler, chosen by what a program does.

XLA:CPU hands parts of a program to a library (YNNPACK); which kinds of parts is an option of each
compilation, and no choice is best for all programs: the wrong one costs up to three times the time.
A set of options has a name here, and a rule says which programs surely win by it; all others are
compiled by JAX's default. The options are experimental and differ between versions, so this jaxlib
is asked once for each set whether it takes it.
"""

from __future__ import annotations

import difflib
import functools
import re
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

from functrans import errors
from functrans.ir.program import Equation, Program
from functrans.ir.source import describe, location, user_source
from functrans.ir.text import with_nested
from functrans.primitives.contraction import dot_general
from functrans.primitives.convolution import conv_general_dilated

_LIBRARY = "xla_cpu_experimental_ynn_fusion_type"  # which kinds of parts the library gets
DEFAULT = "default"
SETS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "no library": {_LIBRARY: ""},
    "products and sums": {_LIBRARY: "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_REDUCE"},
}

SMALL_PRODUCT = 200_000  # floating point operations; below, the library takes longer to be called
MANY = 8  # products


class Choice(NamedTuple):
    """A set of options by its name, the equation that decided, and why."""

    name: str
    equation: Equation | None = None
    why: str = "no set is known to be faster"

    @property
    def options(self) -> dict[str, Any]:
        """As `jax.jit` takes them."""
        return SETS[self.name]

    def __str__(self) -> str:
        where = "" if self.equation is None else f", at {location(self.equation.source)}"
        return f"{self.name}: {self.why}{where}"


def choice(program: Program) -> Choice:
    """The options for an optimised program, where it is compiled for this process's CPU."""
    found = program.cache.get("options")
    if found is None:
        found = Choice(DEFAULT)
        if jax.default_backend() == "cpu":
            found = next((c for c in _candidates(program) if _is_taken(c.name)), found)
        program.cache["options"] = found
    return found


def _candidates(program: Program) -> Iterator[Choice]:
    equations = [e for p in with_nested(program) for e in p.equations]
    for e in equations:
        if e.primitive is conv_general_dilated:
            yield Choice("products and sums", e, "convolutions, which the library slows down")
            return
    products = [e for e in equations if e.primitive is dot_general]
    if len(products) >= MANY and statistics.median(map(_flops, products)) < SMALL_PRODUCT:
        yield Choice("no library", products[0], "small products, sooner done than handed over")


def _flops(e: Equation) -> int:
    types = ([v.type for v in values] for values in (e.inputs, e.outputs))
    return e.primitive.cost(*types, **e.params).flops


@functools.cache
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


local = _Local()


@contextmanager
def fixed() -> Iterator[None]:
    """Compile with the options that are set."""
    outer, local.fixed = local.fixed, True
    try:
        yield
    finally:
        local.fixed = outer
