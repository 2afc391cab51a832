"""`find_nan`: find the equation, and the user line, that produces the first NaN or infinity.

In: a function and arguments. Out: a `NanReport`. XLA runs the program one equation at a time, also
inside loops and branches (inspect/observers.py). An equation is at fault if it produces a NaN from
operands without NaNs, or an infinity from finite operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import numpy as np

from functrans import errors, runtime
from functrans.flags import flags, unchecked
from functrans.inspect.closeness import plain
from functrans.inspect.observers import Place, by_xla, observe
from functrans.inspect.page import Saved, page, verdict
from functrans.inspect.python_source.naming import is_derived
from functrans.inspect.staged import summary, tool
from functrans.ir.program import Equation, Program, argument_names
from functrans.ir.source import describe, here, history, location
from functrans.ir.tracebacks import boundary
from functrans.ir.types import is_inexact
from functrans.passes.pipeline import Choice
from functrans.records import NamedTuple
from functrans.typing import PyTree

MOST = 50  # limit on findings


class NanFinding(NamedTuple):
    """An equation that produces a NaN or an infinity.

    kind    : "NaN" or "infinity"
    place   : the equation, nested program, and loop step
    steps   : the steps of the enclosing loops, outermost first, each from 0
    primitive, equation : its primitive; its text
    line    : the user's file, line and function
    source  : the transformations that made it ("transpose of jvp of ..."), the user line, its text
    forward : the operation and user line that it is a derivative of; "" if it is not a derivative
    inputs  : a summary per operand, with the names of the function's arguments
    outputs : a summary per result
    """

    kind: str
    place: str
    steps: Sequence[int]
    primitive: str
    equation: str
    line: str
    source: str
    forward: str
    inputs: Sequence[str]
    outputs: Sequence[str]

    def __str__(self) -> str:
        made = f"{self.kind} made by {self.place}"
        lines = [made, f"    {self.equation}"]
        if self.line != location(None):  # an eager operation has no line of its own
            lines.append(f"    {self.source}")
        if self.forward and lines[2:]:
            lines.append(f"    as a derivative of {self.forward}")
        lines += [f"    operand {i}  {text}" for i, text in enumerate(self.inputs)]
        lines += [f"    result  {text}" for text in self.outputs]
        return "\n".join(lines)


@dataclass(eq=False, repr=False)
class NanReport(Saved):
    """The report of `find_nan`; printable.

    first    : the first equation at fault, a `NanFinding`, or None
    findings : the first equations at fault, in order; each equation once, in its first step
    inputs   : argument index -> name and summary, for arguments that are not finite
    results  : indices of the results that are not finite
    """

    _saved = "verdict findings results"
    findings: Sequence[NanFinding]
    inputs: dict[int, str]
    results: Sequence[int]
    count: int

    @property
    def first(self) -> NanFinding | None:
        return self.findings[0] if self.findings else None

    @property
    def verdict(self) -> str:
        """Return the conclusion as one sentence.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> ft.find_nan(lambda x: jnp.log(x - 1))(0.5).verdict
          'NaN first made by equation 1 (log); result 0 is not finite.'
        """
        which = ", ".join(map(str, self.results))
        several = f"results {which} are" if len(self.results) > 1 else f"result {which} is"
        reach = f"{several} not finite" if self.results else "no result is affected"
        if self.first is not None:
            return f"{self.first.kind} first made by {self.first.place}; {reach}."
        if self.inputs:
            given = ", ".join([text.partition(": ")[0] for text in self.inputs.values()])
            return f"The arguments {given} are not finite; no equation makes a NaN or infinity."
        if self.results:
            return f"No equation makes a NaN or infinity; {reach} because of constants."
        return f"All values are finite ({self.count} equations run)."

    def __str__(self) -> str:
        parts = [self.verdict]
        if self.first is not None:
            parts.append(str(self.first))
        parts += [f"argument {text}" for text in self.inputs.values()]
        rest = self.findings[1:]
        if rest:
            lines = [f"  {f.kind} by {f.place}, {f.line}" for f in rest[:10]]
            lines += [f"  and {len(rest) - 10} more"] if len(rest) > 10 else []
            parts.append("then\n" + "\n".join(lines))
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"arguments": {str(i): text for i, text in self.inputs.items()}}

    def as_html(self) -> str:
        good = not self.findings and not self.results
        blocks = [(f.line, str(f)) for f in self.findings]
        return page("find_nan", verdict(self.verdict, good), *blocks)


@boundary
def find_nan(
    fun: Callable[..., PyTree] | Program, *, infinities: bool = True, passes: Choice | None = None
) -> Callable[..., NanReport]:
    """Return a function that finds the first equation of `fun` that produces a NaN or an infinity.

    Arguments:
      fun: function of pytrees of arrays, which may be jitted, a gradient, ...; or a Program.
      infinities: also look for infinities produced from finite operands, not only for NaNs.
      passes: as in `ft.jit`: search the program after these passes. Left out: those of `fun` if it
        is jitted, else none, so that every equation is one of the user's.

    Returns:
      A function of the arguments of `fun` that returns a printable `NanReport`: `report.first`,
      `report.findings`. Each finding has the user line, the operands, the loop step and, in a
      backward pass, the operation and line that it is the derivative of.

    Raises:
      TypeMismatch: the arguments do not match the Program `fun`.
      NotAnArray: `fun` is not a function; an argument has no concrete value.
      InvalidArgument: `passes` has an unknown name.

    Source: `jax.debug_nans`, which stops at the first operation that returns a NaN.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> report = ft.find_nan(ft.grad(lambda x: jnp.sqrt(x)))(0.0)
      >>> report.first.kind, report.first.primitive
      ('infinity', 'div')
      >>> print(ft.find_nan(jnp.sin)(0.0))
      All values are finite (1 equations run).
    """
    return tool("find_nan", fun, passes, (), lambda made: _report(made.program, made.leaves, infinities))


def _report(program: Program, values: Sequence[Any], infinities: bool) -> NanReport:
    search = Search(infinities)
    with unchecked():
        outs = observe(program, values, by_xla, after=search.look)
    names = argument_names(program)
    inputs = {
        i: f"{names.get(v, i)}: {summary(x, v.type)}"
        for i, (x, v) in enumerate(zip(values, program.inputs, strict=True))
        if search.badness(x, v.type) > 0
    }
    results = [
        i for i, (y, t) in enumerate(zip(outs, program.out_types, strict=True)) if search.badness(y, t) > 0
    ]
    return NanReport(search.findings, inputs, results, search.count)


@runtime.answers("stop_at_first")
def stop_at_first(program: Program, values: Sequence[Any]) -> NoReturn:
    """Raise NotFinite with the equation that produces the first NaN or infinity of a program;
    called for `debug_nans` and `debug_infs` when its results contain one."""
    flag = "jax_debug_infs" if flags.jax_debug_infs else "jax_debug_nans"
    with jax.disable_jit():  # JAX is inside the call of a jitted operation, which refuses a second one
        report = _report(program, values, flags.jax_debug_infs)
    raise errors.NotFinite(
        f"{report}\n{here()}\n"
        f"The flag {flag} raised this error. ft.find_nan(f)(*args) shows all such equations."
    )


class Search:
    """An observer that checks one equation after the other."""

    def __init__(self, infinities: bool):
        self.infinities = infinities
        self.findings: list[NanFinding] = []
        self.seen: set[Equation] = set()
        self.count: int = 0

    def look(self, place: Place, values: Sequence[Any], outs: Sequence[Any]) -> None:
        """Record an equation that has just run, if it is at fault for the first time."""
        if place.equation.programs:  # its inner equations were checked
            return
        self.count += 1
        if place.equation in self.seen or len(self.findings) >= MOST:
            return
        kind = self.made(place, values, outs)
        if kind:
            self.seen.add(place.equation)
            self.findings.append(_finding(place, values, outs, kind))

    def made(self, place: Place, values: Sequence[Any], outs: Sequence[Any]) -> str:
        """Return what an equation newly produces: "NaN", "infinity" or ""."""
        eqn = place.equation
        made = zip(outs, eqn.outputs, strict=True)
        worst = max([self.badness(y, v.type) for y, v in made], default=0)
        if not worst:
            return ""
        given = zip(values, eqn.inputs, strict=True)
        known = max([self.badness(x, v.type) for x, v in given], default=0)
        return ("", "infinity", "NaN")[worst] if worst > known else ""

    def badness(self, x: Any, type: Any) -> int:
        """Return 0 if x is finite, 1 if it has an infinity, 2 if it has a NaN."""
        if not is_inexact(type.dtype):
            return 0
        x = plain(x)
        if np.isfinite(x).all():
            return 0
        return 2 if np.isnan(x).any() else int(self.infinities)


def _finding(place: Place, values: Sequence[Any], outs: Sequence[Any], kind: str) -> NanFinding:
    eqn = place.equation
    names = {v: f"{name}: " for v, name in argument_names(place.frame.program).items()}
    first = history(eqn)[1]  # the user's operation, perhaps the one that this is a derivative of
    return NanFinding(
        kind,
        *place.told,
        location(eqn.source),
        place.source,
        f"{first.primitive.name} at {describe(first.source)}" if is_derived(eqn) else "",
        [names.get(v, "") + summary(x, v.type) for x, v in zip(values, eqn.inputs, strict=True)],
        [summary(y, v.type) for y, v in zip(outs, eqn.outputs, strict=True)],
    )
