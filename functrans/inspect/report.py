"""The report of `compare`, as text, HTML or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from functrans.inspect.observers import Place
from functrans.inspect.page import ROWS, Block, Row, Saved, Table, columns, curve, page, table, verdict
from functrans.ir.program import Program
from functrans.records import NamedTuple


class Finding(NamedTuple):
    """An equation and its error.

    place    : the equation, nested program, and loop step
    steps    : the steps of the enclosing loops, outermost first, each from 0
    primitive, equation : its primitive; its text
    line     : the user's file, line and function
    source   : the transformations that made it, the user line and its text
    ulps     : error of the worst element in ULPs, widened by the conditioning of the operation if
               it is above the limit otherwise
    limit    : the tolerance for its dtype and operation
    actual, expected : summaries of both results
    note     : a further remark
    arguments : the operands that are arguments of the function: "a is params['w']"
    """

    place: str
    steps: Sequence[int]
    primitive: str
    equation: str
    line: str
    source: str
    ulps: float
    limit: float
    actual: str
    expected: str
    note: str = ""
    arguments: str = ""

    @staticmethod
    def of(place: Place, ulps: float, limit: float, actual: str, expected: str, note: str = "") -> Finding:
        numbers = ulps, limit, actual, expected
        return Finding(*place.told, place.line, place.source, *numbers, note, place.arguments)

    def __str__(self) -> str:
        lines = [self.place, f"    {self.equation}", f"    {self.source}"]
        lines += [f"    where {self.arguments}"] if self.arguments else []
        lines += [f"    {self.note}"] if self.note else []
        lines += [f"    XLA       {self.actual}", f"    reference {self.expected}"]
        if self.ulps:
            lines.append(f"    off by {_short(self.ulps)} ULP, at most {_short(self.limit)} expected")
        return "\n".join(lines)


class Result(NamedTuple):
    """One result of the whole program.

    error     : error of the compiled program against the float64 reference, relative to the largest
                element
    stepwise  : the same error when XLA runs one equation at a time
    reference : the same error of the reference at the same dtypes; None if not needed
    """

    number: int
    type: str
    ok: bool
    error: float
    stepwise: float
    reference: float | None


@dataclass(eq=False, repr=False)
class Report(Saved):
    """The report of `compare`; printable.

    ok        : every equation is within its tolerance, and all results are as close as rounding
                allows
    first     : the first equation whose error is above its tolerance, a `Finding`, or None
    worst     : Findings of the equations with the largest errors, worst first; at most 20
    amplified : where the accumulated error grew most: `factor`, `before`, `after`, `finding`; None
                if it stayed near rounding level
    results   : a `Result` per result of the program
    count     : number of equations compared; each loop step counts
    curve     : the accumulated relative error of each equation's result, in order
    parted    : where the control flow of XLA and the float64 reference differs (branch, step count)
    """

    _saved = "ok verdict first amplified parted results worst"
    program: Program
    first: Finding | None
    worst: Sequence[Finding]
    amplified: Any
    results: Sequence[Result]
    count: int
    curve: Sequence[float]
    parted: str | None
    compiled: bool
    aligned: bool

    @property
    def ok(self) -> bool:
        return self.first is None and all(r.ok for r in self.results)

    @property
    def verdict(self) -> str:
        """Return the conclusion as one sentence.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> ft.compare(jnp.log)(2.0).verdict
          'XLA and the reference agree in each of 1 equations, also when compiled as a whole.'
        """
        n = f"{self.count} equations"
        if self.first is not None:
            return f"XLA and the reference diverge at {self.first.place}."
        if self.ok:
            how = ", also when compiled as a whole" if self.compiled else ""
            return f"XLA and the reference agree in each of {n}{how}."
        if not self.aligned:
            return "The results differ; the programs have different structures."
        if self.parted is not None:
            return (
                f"Each of {n} is correct by itself; the results differ because rounding makes the "
                f"runs take different paths at {self.parted}."
            )
        return (
            f"Each of {n} is correct by itself, but the results of the whole program differ by "
            "more than a different order of rounding explains. Suspect the compiler's fusion."
        )

    def __str__(self) -> str:
        parts = [self.verdict]
        if self.first is not None:
            parts.append(f"First outside its tolerance:\n{self.first}")
        if self.amplified is not None:
            parts.append(
                f"{self._growth()}\n{self.amplified.finding.place}\n    {self.amplified.finding.source}"
            )
        if self.parted is not None:
            parts.append(f"The runs take different paths at {self.parted}")
        parts += [columns(*self._results_table())]
        if self.worst:
            parts += [columns(*self._worst_table())]
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        compared = {"equations compared": self.count, "accumulated error": list(self.curve)}
        return super().as_dict() | compared | {"program": str(self.program)}

    def as_html(self) -> str:
        body: list[Block] = [verdict(self.verdict, self.ok)]
        if self.first is not None:
            body.append(("First outside its tolerance", str(self.first)))
        if self.amplified is not None:
            text = f"{self._growth()}\n{self.amplified.finding}"
            body.append(("Where the error grows most", text))
        body.append(table("Results", *self._results_table()))
        body.append(curve("Accumulated relative error, equation by equation", self.curve))
        body.append(table("Worst equations", *self._worst_table()))
        body.append(("Program", str(self.program)))
        return page("compare", *body)

    def _growth(self) -> str:
        g = self.amplified
        return (
            f"The accumulated error grows most, {_short(g.factor)} times, from {g.before:.1e} to "
            f"{g.after:.1e}, at"
        )

    def _results_table(self) -> Table:
        shown = sorted(self.results, key=lambda r: (r.ok, -r.error))[:ROWS]
        head = ["result", "type", "", "error", "one by one", "reference's own"]
        rows: list[Row] = []
        for r in shown:
            errors = ["" if x is None else f"{x:.1e}" for x in (r.error, r.stepwise, r.reference)]
            rows.append([str(r.number), r.type, "ok" if r.ok else "DIFFERS", *errors])
        width = 5 if all(r.reference is None for r in shown) else 6
        return head[:width], [row[:width] for row in rows]

    def _worst_table(self) -> Table:
        head = ("ULP", "expected", "operation", "place", "line")
        return head, [(_short(f.ulps), _short(f.limit), f.primitive, f.place, f.line) for f in self.worst]


def _short(x: float) -> str:
    return f"{x:.3g}" if x < 1e4 else f"{x:.1e}"
