"""Observe a program while it runs, equation by equation, including nested programs.

In: a program, values, a function that runs one equation, and hooks called before and after each.
Out: the results. The tools of this package that run programs use it: `compare`, `find_nan`,
`debug.step`.

A `Place` identifies an equation in a run: which equation, of which nested program, in which step of
which loop. Nested programs run through `primitive.interpret`, so this module is independent of the
primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from functrans.backends import eager, reference
from functrans.backends.reference import as_numpy
from functrans.caching import memo
from functrans.ir.program import Equation, Literal, Program, Var, argument_names
from functrans.ir.source import equation_source, line_text
from functrans.ir.text import Names, names_of, nested, show_equation
from functrans.ir.types import is_key_dtype
from functrans.records import NamedTuple
from functrans.tracer import CONCRETE

RunOne = Callable[[Equation, list[Any]], Sequence[Any]]


@dataclass(slots=True, eq=False)
class Frame:
    """One run of a program: its environment so far, and the enclosing equation (`holder`).

    label : which program of the holder ("body", "branches[1]"); "" at the top level
    step  : the step of the holder's loop, from 0; None outside of loops
    """

    program: Program
    holder: Place | None = None
    label: str = ""
    step: int | None = None
    env: dict[Var, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Place:
    """An equation that is being run: equation `index` of its frame's program."""

    frame: Frame
    index: int
    equation: Equation

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is unique in a run, and the same in every run of the program."""
        frame = self.frame
        around = () if frame.holder is None else (*frame.holder.key, frame.label, frame.step)
        return (*around, self.index)

    @property
    def steps(self) -> list[int]:
        """The steps of the enclosing loops, outermost first, each from 0."""
        return [f.step for f in self.frames if f.step is not None]

    @property
    def told(self) -> tuple[str, list[int], str, str]:
        """The first fields of a finding: place, steps, name of the primitive, text."""
        return str(self), self.steps, self.equation.primitive.name, self.text

    @property
    def frames(self) -> list[Frame]:
        """The enclosing frames, outermost first."""
        found = [self.frame]
        while found[-1].holder is not None:
            found.append(found[-1].holder.frame)
        return found[::-1]

    def __str__(self) -> str:
        """`equation 12 (scan) > program, step 6 > equation 3 (mul)`"""
        parts = []
        for f in self.frames:
            if f.holder is not None:
                parts.append(_named(f.holder))
                step = "" if f.step is None else f", step {f.step} (counted from 0)"
                parts.append(f"{f.label}{step}")
        return " > ".join([*parts, _named(self)])

    @property
    def names(self) -> Names:
        """The names of variables in the text of the whole program."""
        return names_of(self.frames[0].program)

    @property
    def text(self) -> str:
        """The equation as in the text of the whole program, without nested programs."""
        return show_equation(self.equation, self.names)

    @property
    def arguments(self) -> str:
        """The operands that are arguments of the function: `a is params['w'], b is x`."""
        known = argument_names(self.frame.program)
        given = [v for v in dict.fromkeys(self.equation.inputs) if v in known]
        return ", ".join([f"{self.names(v)} is {known[v]}" for v in given])

    @property
    def source(self) -> str:
        """The transformations that made it, and the user line: `transpose of mul at file.py:3`"""
        return equation_source(self.equation)

    @property
    def line(self) -> str:
        """The user's line and its text, in one line."""
        return line_text(self.equation.source)


def _named(place: Place) -> str:
    return f"equation {place.index} ({place.equation.primitive.name})"


def observe(
    program: Program,
    args: Sequence[Any],
    run_one: RunOne,
    *,
    before: Callable[[Place, list[Any]], Any] | None = None,
    after: Callable[[Place, list[Any], Sequence[Any]], Any] | None = None,
    keep: bool = False,
    given: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """Run a program, with one value per input, and return its results.

    run_one : `(equation, values) -> results` for an equation that holds no program
    before  : called with each place and its operand values before it runs; for an equation that holds
              programs, before their equations
    after   : called with the results too, after it has run
    keep    : keep the values of all variables in the frames; else free them after their last use
    given   : function applied to constants, arguments and literals before use
    """
    known = zip((*program.constants, *program.inputs), (*program.values, *args), strict=True)
    values = [as_numpy(x, v.type) for v, x in known]
    if given is not None:
        values = [given(x) for x in values]
    walk = _Walk(run_one, before, after, keep, given)
    return walk.run(Frame(program), values)


class _Walk(NamedTuple):
    run_one: RunOne
    before: Any
    after: Any
    keep: bool
    given: Any

    def run(self, frame: Frame, values: Sequence[Any]) -> list[Any]:
        """Run a frame's program, given its constants and inputs, and return its results."""
        env, program = frame.env, frame.program
        env.update(zip((*program.constants, *program.inputs), values, strict=True))
        done = None if self.keep else memo(program, _last_uses)
        literals = memo(program, _literals, self.given)
        for i, eqn in enumerate(program.equations):
            place = Place(frame, i, eqn)
            operands = [literals[v] if v.__class__ is Literal else env[v] for v in eqn.inputs]
            if self.before is not None:
                self.before(place, operands)
            if eqn.primitive.holds_programs:
                outs = self.inside(place, operands)
            else:
                outs = self.run_one(eqn, operands)
            env.update(zip(eqn.outputs, outs, strict=True))
            if self.after is not None:
                self.after(place, operands, outs)
            if done is not None:
                for v in done[i]:
                    del env[v]
        return [value_of(v, env) for v in program.outputs]

    def inside(self, place: Place, operands: list[Any]) -> Sequence[Any]:
        """Run an equation that holds programs, with a frame for each of their runs."""
        eqn = place.equation
        names = {program: name for name, program in nested(eqn.params)}
        calls: dict[Program, int] = {}

        def run_nested(program: Program, values: Sequence[Any], step: int | None = None) -> Any:
            name = names.get(program) or program.name or "program"
            n = calls[program] = calls.get(program, 0) + 1
            if step is None and n > 1:
                name = f"{name}, call {n}"
            frame = Frame(program, place, name.rstrip(": "), step)
            return self.run(frame, [on_host(x) for x in values])

        given = [on_host(x) for x in operands]
        if not names:  # a Python callback gets its declared dtypes, also in a float64 run
            given = narrowed(eqn, given)
        return eqn.primitive.interpret(run_nested, given, eqn.params)


def value_of(v: Any, env: dict[Var, Any]) -> Any:
    """Return the value of a variable; that of a literal as a broadcast view of a scalar."""
    if v.__class__ is Literal:
        return np.broadcast_to(np.asarray(v.value, v.type.dtype), v.type.shape)
    return env[v]


def _literals(program: Program, given: Callable[[Any], Any] | None) -> dict[Literal, Any]:
    """Return the values of the literal operands of a program; `given`: see `observe`."""
    found = {}
    for v in [v for eqn in program.equations for v in eqn.inputs if v.__class__ is Literal]:
        x = np.asarray(v.value, v.type.dtype)
        found[v] = np.broadcast_to(x if given is None else given(x), v.type.shape)
    return found


def on_host(x: Any) -> Any:
    """Return a value as a NumPy array; typed keys stay JAX key arrays."""
    return x if x.__class__ is np.ndarray or is_key(x) else np.asarray(x)


def narrowed(eqn: Equation, values: Sequence[Any]) -> list[Any]:
    """Return operands at the dtypes that an equation declares."""
    pairs = zip(values, eqn.inputs, strict=True)
    return [x if is_key(x) else np.asarray(x).astype(v.type.dtype, copy=False) for x, v in pairs]


def is_key(x: Any) -> bool:
    """Return whether x is an array of typed keys."""
    if x.__class__ is CONCRETE or x.__class__ is np.ndarray:  # key arrays have another class
        return False
    dtype = getattr(x, "dtype", None)
    return not isinstance(dtype, np.dtype) and isinstance(x, jax.Array) and is_key_dtype(dtype)


def _last_uses(program: Program) -> list[list[Var]]:
    """Return, per equation, the variables that are not used after it."""
    seen = {v for v in program.outputs if v.__class__ is Var}
    found = []
    for eqn in reversed(program.equations):
        mine = [v for v in (*eqn.inputs, *eqn.outputs) if v.__class__ is Var]
        found.append([v for v in dict.fromkeys(mine) if v not in seen])
        seen.update(mine)
    found.reverse()
    return found


# --- ways to run one equation ---------------------------------------------------------------------


def by_xla(eqn: Equation, values: list[Any]) -> Sequence[Any]:
    """Run one equation with XLA, compiled alone and cached, as in eager execution."""
    given = [v if v.__class__ is Literal else x for v, x in zip(eqn.inputs, values, strict=True)]
    out = eager.run_one(eqn.primitive, given, eqn.params)
    return out if eqn.primitive.multiple_results else [out]


def by_reference(eqn: Equation, values: Sequence[Any]) -> Sequence[Any]:
    """Run one equation with NumPy, at the same dtypes."""
    return reference.run_one(eqn.primitive, [on_host(x) for x in values], eqn.params)
