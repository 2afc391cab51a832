"""The text of a program that XLA compiled, and the mapping from its operations to equations.

In: a Program. `numbered` writes the number of each equation into the location names of its
operations, which XLA keeps. Out: a `Compiled`, read from XLA's text, whose operations have the
numbers of the equations that they compute: for a fusion, those inside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from functrans.ir.program import Equation, Program
from functrans.ir.source import Scoped, Source, scope_of
from functrans.passes.rewrite import children_first, with_programs

_NUMBER = re.compile(r"functrans_equation_(\d+)/")
# These only name or hold values, and take no time.
FREE = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast"))
LOOPS_AND_BRANCHES = frozenset(("while", "conditional"))


def numbered(program: Program) -> tuple[Program, list[Equation]]:
    """Return the program with each equation's number in its scope name, and the equations in that
    order, nested ones included."""
    equations: list[Equation] = []
    new: dict[Program, Program] = {}
    for p in children_first(program):
        made = []
        for e, original in zip(with_programs(p, new).equations, p.equations, strict=True):
            source = _numbered(e.source, len(equations))
            made.append(Equation(e.primitive, e.inputs, e.outputs, e.params, source, e.origin))
            equations.append(original)
        new[p] = p.replace(equations=made)
    return new[program], equations


def _numbered(source: Source | None, number: int) -> Source:
    place = source or (_numbered.__code__, 0)  # without a line there would be no name
    return Scoped(place, f"{scope_of(source)}functrans_equation_{number}/")


class Operation(NamedTuple):
    """An XLA operation: its name and kind, the number of its equation, the computations that it
    runs or fuses, and the computation that contains it."""

    name: str
    kind: str
    number: int | None
    computations: tuple[str, ...]
    within: str


class Compiled:
    """A program as XLA runs it.

    name       : of the module
    operations : by name
    """

    def __init__(self, text: str):
        self.operations: dict[str, Operation] = {}
        self._within: dict[str, list[Operation]] = {}
        self._runs: dict[str, Operation] = {}  # computation -> the operation that runs it
        self.name: str = ""
        computation = ""
        for line in text.splitlines():
            if (m := _COMPUTATION.match(line)) is not None:
                computation = m[1]
            elif (m := _OPERATION.match(line)) is not None:
                self._add(_operation(m[1], m[2], computation))
            elif (m := _MODULE.match(line)) is not None:
                self.name = m[1]

    def _add(self, found: Operation) -> None:
        self.operations[found.name] = found
        self._within.setdefault(found.within, []).append(found)
        for computation in found.computations:
            self._runs[computation] = found

    def directly_in(self, operation: Operation) -> list[Operation]:
        """Return the operations of the computations that it runs or fuses."""
        return [x for c in operation.computations for x in self._within.get(c, ())]

    def inside(self, operation: Operation) -> Iterator[Operation]:
        """Return `directly_in` and everything nested in it."""
        todo, seen = [operation], {operation.name}
        while todo:
            for x in self.directly_in(todo.pop()):
                if x.name not in seen:
                    seen.add(x.name)
                    todo.append(x)
                    yield x

    def around(self, operation: Operation) -> Iterator[Operation]:
        """Return the loops, branches, calls and fusions that contain it, innermost first."""
        found = self._runs.get(operation.within)
        while found is not None:
            yield found
            found = self._runs.get(found.within)

    def numbers(self, operation: Operation, holder: bool) -> tuple[int, ...]:
        """Return the equations that it computes: for a holder, whose inside is measured separately,
        the loop or branch itself; for what XLA adds to a loop (copies), the loop."""
        found: list[int | None] = []
        if holder or operation.kind not in ("fusion", "call"):
            found.append(operation.number)
        if not holder:
            found += [x.number for x in self.inside(operation) if x.kind not in FREE]
        known = [n for n in dict.fromkeys(found) if n is not None]
        outer = (x.number for x in (operation, *self.around(operation)) if x.number is not None)
        return tuple(known or [n for n in [next(outer, None)] if n is not None])


_MODULE = re.compile(r"HloModule ([\w.\-]+)")
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_OPERATION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_KIND = re.compile(r"\s([a-z][\w\-]*)\(")
_NAME = re.compile(r'op_name="([^"]*)"')
_RUNS = re.compile(
    r" (?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
    r"| (?:branch_computations|called_computations)=\{([^}]*)\}"
)


def _operation(name: str, text: str, within: str) -> Operation:
    kind, named = _KIND.search(text), _NAME.search(text)
    numbers = _NUMBER.findall(named[1]) if named else []
    runs = [x.strip(" %") for m in _RUNS.finditer(text) for x in (m[1] or m[2]).split(",")]
    number = int(numbers[-1]) if numbers else None  # the innermost, if XLA inlined a call
    return Operation(name, kind[1] if kind else "", number, tuple(runs), within)
