"""XLA compiler options, chosen per program.

XLA:CPU offloads some kinds of operations to a library (YNNPACK). The kinds are a compiler option,
and no choice is best for all programs: a wrong one can be three times slower. XLA:GPU starts several
operations at once, as a graph of CUDA, if there are at least so many: a compiler option too.

Each option set has a name here, and a rule per platform picks the programs that surely benefit; all
others use JAX's default. The options are experimental and differ between versions, so each set is
tried once on this jaxlib. Measured by `python -m benchmarks options`, on a GPU by `accelerator`.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.caching import cached, memo
from functrans.ir.program import Equation, Program
from functrans.ir.source import here, location
from functrans.passes.kernels import LOOPS
from functrans.passes.rewrite import all_equations
from functrans.primitives.contractions.convolution import conv_general_dilated, is_group
from functrans.primitives.reductions.folds import Reduction
from functrans.records import NamedTuple

_LIBRARY = "xla_cpu_experimental_ynn_fusion_type"  # the kinds of operations that are offloaded
_KIND = "LIBRARY_FUSION_TYPE_"
DEFAULT = "default"
# The default without convolutions. Of products only single ones, not those that the library fuses with
# their operands (DOT): there a right operand that repeats its columns gives garbage (JAX 0.10 and 0.11).
PRODUCTS_AND_SUMS = "products and sums"
# XLA's default is 5. The steps of a loop are often fewer operations, each of which takes longer to start
# than to run. A graph is changed if the arrays lie elsewhere than in its last run: once, not in each step.
SMALL_GRAPHS = "small graphs"
SETS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    SMALL_GRAPHS: {"xla_gpu_graph_min_graph_size": 2},
    PRODUCTS_AND_SUMS: {_LIBRARY: f"{_KIND}INDIVIDUAL_DOT,{_KIND}REDUCE"},
}


def choice(program: Program) -> str:
    """Return the name of the option set for an optimized program on the default backend."""
    found = wanted(program, jax.default_backend())
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
    raise errors.UnknownOption(
        f"jit: the compiler option {name} {problem} (JAX {jax.__version__}), {here()}\n"
        f"Existing options: {', '.join(shown)}."
    ) from None


# --- which set a program wants --------------------------------------------------------------------

# Medians over the convolutions: their features, and elements of their largest operand or result. With
# fewer features the defaults are as fast; with fewer elements they are up to 1.4 times faster (0.11).
WIDE, BIG = 24, 3 * 2**16


class Wanted(NamedTuple):
    """The name of a set of options, the equation that decided, and the reason."""

    name: str
    equation: Equation
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}, at {location(self.equation.source)}"


def wanted(program: Program, platform: str) -> Wanted | None:
    """Return the options that are certainly faster than JAX's defaults on a platform, or None."""
    rule = _RULES.get(platform)
    return None if rule is None else memo(program, rule)


def _on_gpu(program: Program) -> Wanted | None:
    loop = next((e for e in all_equations(program) if e.primitive in LOOPS), None)
    return Wanted(SMALL_GRAPHS, loop, "a loop, whose steps are started as graphs") if loop else None


def _on_cpu(program: Program) -> Wanted | None:
    equations = all_equations(program)
    convolutions = [e for e in equations if e.primitive is conv_general_dilated]
    if not convolutions:
        return None
    if any(is_group(e.params, name) for e in convolutions for name in e.params["lhs"]):
        return None  # of groups: 1.5 times as long
    rank = convolutions[0].outputs[0].type.ndim
    sums = [e for e in equations if _is_statistic(e, rank)]
    features, elements = np.median([_sizes(e) for e in convolutions], axis=0)
    if features < WIDE or elements < BIG or len(sums) <= len(convolutions):
        return None
    return Wanted(PRODUCTS_AND_SUMS, convolutions[0], "normalized convolutions")


_RULES: dict[str, Callable[[Program], Wanted | None]] = {"cpu": _on_cpu, "gpu": _on_gpu}


def _is_statistic(e: Equation, rank: int) -> bool:
    """Return whether an equation reduces images to fewer numbers."""
    if not isinstance(e.primitive, Reduction):
        return False
    t = e.inputs[0].type
    return bool(t.ndim >= rank and e.outputs[0].type.size < t.size)


def _sizes(e: Equation) -> tuple[int, int]:
    """Return the number of features in the result of a convolution, and the number of elements of its
    largest operand or result."""
    kernel, result = e.params["rhs"], e.params["out"]
    sizes = zip(result, e.outputs[0].type.shape, strict=True)
    features = prod([n for name, n in sizes if name in kernel and name not in e.params["spatial"]])
    return features, max([v.type.size for v in (*e.inputs, *e.outputs)])


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
