"""Shared tools of the passes: traversing nested programs, walking equations, replacing variables.

In: a Program and a rewrite. Out: the same object if nothing changed, else a new Program whose marks
list the equations that each rewrite replaced (passes/explanation.py).

New equations keep the user's line of the equation they replace, with an `Origin("<pass> of", that
equation)`. The types of inputs and outputs, including weak-type flags, do not change.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import chain
from typing import Any, TypeVar

import ml_dtypes

from functrans.caching import cached
from functrans.ir.check import check_program
from functrans.ir.program import (
    Equation,
    Literal,
    Origin,
    Program,
    Var,
    prune,
    renamed,
    renamed_all,
    with_programs,
)
from functrans.ir.text import with_nested
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.passes.machines import machine
from functrans.records import NamedTuple
from functrans.trace import out_types

Rewrite = tuple[str, tuple[Equation, ...]]
_Pass = TypeVar("_Pass", bound=Callable[..., Program])


def program_pass(run: _Pass) -> _Pass:
    """Wrap a pass for users: an argument that is not a Program raises an error at their line."""

    @wraps(run)
    def call(program: Program, *args: Any, **kwargs: Any) -> Program:
        check_program(program, f"passes.{run.__name__}", order=False)  # it runs in each compilation
        return run(program, *args, **kwargs)

    return boundary(call)  # type: ignore[return-value]


def nested_pass(rewrite: Callable[[Program], Program]) -> Callable[[Program], Program]:
    """Make a pass for users of a rewrite of one program, which nested programs get too."""

    @wraps(rewrite)
    def whole(program: Program) -> Program:
        return everywhere(rewrite, program, rewrite)

    return program_pass(whole)


# --- nested programs ------------------------------------------------------------------------------


def children_first(program: Program) -> list[Program]:
    """Return every program nested in this one, each once, and this one last."""
    return with_nested(program)[::-1]


def everywhere(rewrite: Callable[[Program], Program], program: Program, key: Any) -> Program:
    """Apply `rewrite` to a program and all programs nested in it, innermost first, each once.

    The result for a nested program is cached on it under `key`, which identifies the rewrite and
    its options, and the machine: twenty calls of a layer, also from other programs, are rewritten once.
    """
    if not program.children:
        return rewrite(program)
    new: dict[Program, Program] = {}
    name = everywhere, key, machine().name
    for p in children_first(program):
        made = p.known(name)
        if made is None:
            made = rewrite(with_programs(p, new))
            if p is not program:
                made = p.keep(name, made)
        new[p] = made
    return new[program]


def all_equations(program: Program) -> list[Equation]:
    """Return the equations of a program and of those nested in it."""
    return [e for p in with_nested(program) for e in p.equations]


# --- equations ------------------------------------------------------------------------------------


def appended(equations: list[Equation], origin: Origin, primitive: Any, *inputs: Any, **params: Any) -> Var:
    """Append an equation, at the line of the one that it is derived from, and return its result."""
    (t,) = out_types(primitive, tuple([v.type for v in inputs]), params)
    made = Var(t)
    equations.append(Equation(primitive, inputs, (made,), params, origin.equation.source, origin))
    return made


def renaming(equations: Iterable[Equation], known: dict[Var, Any]) -> Iterator[Equation]:
    """Return the equations, each `renamed` by the contents of `known` at that point."""
    stays = known.keys().isdisjoint  # asked here: most equations stay
    return (e if stays(e.inputs) else renamed(e, known) for e in equations)


def uses(program: Program) -> Counter[Any]:
    """Return how often each variable is read."""
    return Counter(chain(program.outputs, *[e.inputs for e in program.equations]))


def readers_of(program: Program) -> defaultdict[Any, list[Equation]]:
    """Return the equations that read each value, in order; one that reads it twice stands there twice."""
    readers = defaultdict[Any, list[Equation]](list)
    for e in program.equations:
        for v in e.inputs:
            readers[v].append(e)
    return readers


def behind(made_by: Mapping[Any, Equation], v: Any, moves: Container[Any]) -> Equation | None:
    """Return the equation that computes a value, before any moves of it."""
    e = made_by.get(v)
    while e is not None and e.primitive in moves:
        e = made_by.get(e.inputs[0])
    return e


class Replaced(NamedTuple):
    """The equations that replace one; the others that were merged into it; the name of the rewrite,
    if it is not that of the operation."""

    equations: Iterable[Equation]
    merged: Sequence[Equation] = ()
    name: str = ""


def replacing(
    program: Program,
    primitives: Container[Any],
    rule: Callable[[Equation, dict[Var, Any]], Replaced | None],
    prunes: bool = True,
) -> Program:
    """Replace equations of these primitives by what `rule(equation, known)` returns, which adds to
    `known` the new values of their results; None: no change. Return the same object if nothing
    changed. `prunes`: remove dead equations."""
    equations: list[Equation] = []
    known: dict[Var, Any] = {}
    notes: list[Rewrite] = []
    for e in renaming(program.equations, known):
        found = rule(e, known) if e.primitive in primitives else None
        if found is None:
            equations.append(e)
            continue
        equations += found.equations
        notes.append((found.name or e.primitive.name, (e, *found.merged)))
    if not notes:
        return program
    return rewritten(program, equations, renamed_all(program.outputs, known), notes, prunes)


def rewritten(
    program: Program,
    equations: Sequence[Equation],
    outputs: Sequence[Any],
    notes: list[Rewrite],
    prunes: bool = True,
) -> Program:
    """Return the program with other equations, and their notes. `prunes`: without dead equations."""
    made = program.replace(equations=prune(equations, outputs) if prunes else equations, outputs=outputs)
    made.mark(rewrites=notes, pruned=prunes)
    return made


def with_equations(program: Program, equations: Sequence[Equation]) -> Program:
    """Return the program with other equations; the same object if they are its own."""
    return program if equations == program.equations else program.replace(equations=equations)


def is_power_of_two(value: Any) -> bool:
    """Return whether a number is plus or minus a power of two, so that products with it do not round."""
    return math.isfinite(value) and value != 0 and abs(math.frexp(value)[0]) == 0.5


@cached("smallest numbers", 64)
def smallest_normal(dtype: Any) -> float:
    """Return the smallest positive normal number of a floating point dtype."""
    return float(ml_dtypes.finfo(dtype).smallest_normal)


# --- rewriting equation by equation ---------------------------------------------------------------


class Rewriter:
    """One pass over a program, from the first equation to the last.

    A rule takes the rewriter and an equation whose operands are already rewritten. It returns a
    value equal to the result (a Var or Literal; `make` adds equations; a tuple for several
    results), or None to leave the equation.
    """

    def __init__(
        self, program: Program, rules: dict[Any, Any], name: str, exact: bool = True, fast_math: bool = False
    ):
        self.program: Program = program
        self.rules: dict[Any, Any] = rules
        self.exact: bool = exact  # keep every rounding
        self.fast_math: bool = fast_math  # assume no NaN, infinities and negative zeros
        self.how: str = f"{name} of"
        self.known: dict[Var, Any] = {}
        self.made_by: dict[Var, Equation] = {}
        self.equations: list[Equation] = []
        self.notes: list[Rewrite] = []
        self.seen: list[Equation] = []  # the equations that the running rule matched
        self.joins: Any = None  # whether values are concatenated anywhere, see concatenations.py
        self.parts: dict[Var, Any] = {}  # the parts of concatenated values
        self._count: Counter[Any] | None = None
        self.at: Any = None

    def run(self) -> Program:
        """Apply all rules and return the program; the same object if nothing changed."""
        rules, known, made_by, equations = self.rules, self.known, self.made_by, self.equations
        for e in renaming(self.program.equations, known):
            rule = rules.get(e.primitive)
            if rule is not None:
                self.at = e
                if self.seen:
                    self.seen = []
                before = len(equations)
                found = rule(self, e)
                if found is not None and self._replace(e, found, before):
                    continue
            equations.append(e)
            for v in e.outputs:
                made_by[v] = e
        if not self.notes:
            return self.program
        outputs = renamed_all(self.program.outputs, known)
        return rewritten(self.program, equations, outputs, self.notes)

    def _replace(self, e: Equation, found: Any, before: int) -> bool:
        """Replace the results of an equation by equal values, if the types agree. `before` is the
        number of equations before its rule added new ones."""
        made = []
        for v, x in zip(e.outputs, found if found.__class__ is tuple else (found,), strict=True):
            if x.type is not v.type:
                if x.__class__ is not Literal or not x.type.same(v.type):
                    return False  # the weak-type flags differ, and users may depend on it
                x = Literal(x.value, v.type)
            made.append((v, x))
        self.notes.append((e.primitive.name, (e, *self.seen)))
        last = self.equations[-1] if len(self.equations) > before else None
        if last is not None and last.outputs[0] is found and not self.parts:
            last.outputs = e.outputs  # nothing refers to the new variable yet
            self.made_by[e.outputs[0]] = self.made_by.pop(found)
            return True
        for v, x in made:
            self.known[v] = x
            if self._count is not None:
                self._count[x] += self._count[v]
        return True

    # --- for rules

    def made(self, v: Any, primitive: Any) -> Equation | None:
        """Return the equation that computes v if its primitive is the given one, else None."""
        e = self.made_by.get(v)
        if e is None or e.primitive is not primitive:
            return None
        self.seen.append(e)
        return e

    def read_once(self, v: Any) -> bool:
        """Return whether the current equation is the only reader of v."""
        if self._count is None:
            self._count = uses(self.program)
        return self._count.get(v) == 1

    def make(self, primitive: Any, *inputs: Any, **params: Any) -> Any:
        """Add an equation, itself rewritten if a rule applies, and return its result."""
        types = tuple([v.type for v in inputs])
        (t,) = out_types(primitive, types, params)
        return self.make_typed(primitive, inputs, params, t)

    def make_typed(self, primitive: Any, inputs: Any, params: dict[str, Any], t: ArrayType) -> Any:
        """`make`, for a known result type."""
        var = Var(t)
        origin = Origin(self.how, self.at)
        e = Equation(primitive, tuple(inputs), (var,), params, self.at.source, origin)
        rule = self.rules.get(primitive)
        found = rule(self, e) if rule is not None else None
        if found is not None and found.type is t:
            return found
        self.equations.append(e)
        self.made_by[var] = e
        return var
