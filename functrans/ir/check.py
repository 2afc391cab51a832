"""Check that a program is well formed: every variable is assigned once, before it is used, and
every result has the type that its primitive computes. The test suite checks the output of every
transformation and pass."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.caching import memoized
from functrans.ir.program import Equation, Literal, Program, Var
from functrans.ir.source import brief_with_type, equation_source, here
from functrans.ir.text import Names, defaults, is_concrete, names_of, show_equation, show_value, with_nested
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType, is_key_dtype

AROUND = 2  # equations shown before and after the wrong one


@boundary
def check(program: Program) -> Program:
    """Raise unless a program is well formed.

    Arguments:
      program: any Program; nested ones are checked too.

    Returns:
      The program itself.

    Raises:
      CheckError: names the equation, what is wrong, and the user's line.
      InvalidArgument: `program` is not a Program.

    Example:
      >>> import functrans as ft
      >>> wrong = ft.ir.parse("program (x: f32[3]) { y: f32[4] = sin x; return y }")
      >>> ft.ir.check(wrong)
      Traceback (most recent call last):
      functrans.errors.CheckError: in equation 0 of the program: the result has type f32[3], ...
    """
    _check_kind(program, "check")
    for one in with_nested(program):
        _Checker(one, inner=one is not program).run()
    program.mark(unchecked=False)
    return program


def check_program(program: Any, name: str, order: bool = True) -> None:
    """Raise InvalidArgument unless it is a Program; CheckError if it was parsed and is ill-formed or, made
    otherwise, uses a variable that is not assigned yet (`order`)."""
    _check_kind(program, name)
    if program.marks.unchecked:
        check(program)
    elif order:
        _check_order(program)


@memoized
def _check_order(program: Program) -> None:
    for one in with_nested(program):
        _Checker(one, inner=one is not program, types=False).run()


def _check_kind(program: Any, name: str) -> None:
    if not isinstance(program, Program):
        make = "from a function: ft.make_ir(f)(*args)"
        if isinstance(program, str):
            make = "from its text: ft.ir.parse(text)"
        raise errors.InvalidArgument(
            f"{name} takes a Program, got {brief_with_type(program)}, {here()}\nMake one {make}."
        )


class _Checker:
    def __init__(self, program: Program, inner: bool, types: bool = True):
        self.program = program
        self.inner = inner
        self.types = types
        self.known: set[Var] = set()

    def run(self) -> None:
        p = self.program
        if self.inner and p.constants:
            raise self.error("a nested program has constants; they must be operands of its equation")
        if len(p.constants) != len(p.values):
            raise self.error(f"{len(p.constants)} constants have {len(p.values)} values")
        for v in (*p.constants, *p.inputs):
            self.define(v, None)
        for i, eqn in enumerate(p.equations):
            self.check_equation(i, eqn)
        for n, out in enumerate(p.outputs):
            self.check_used(out, f"output {n}", None)

    def check_equation(self, i: int, eqn: Equation) -> None:
        for n, v in enumerate(eqn.inputs):
            self.check_used(v, f"operand {n}", i)
        if self.types:
            self.check_types(i, eqn)
        for v in eqn.outputs:
            self.define(v, i)

    def check_types(self, i: int, eqn: Equation) -> None:
        given = tuple([v.type for v in eqn.outputs])
        try:
            found = eqn.primitive.result_types([v.type for v in eqn.inputs], eqn.params)
        except Exception as error:
            text = str(error).partition(", at\n")[0]  # drop the line that called `check`
            raise self.error(f"{eqn.primitive.name} cannot be applied: {text}", i) from error
        if len(found) != len(given):
            raise self.error(f"{eqn.primitive.name} has {len(found)} results, not {len(given)}", i)
        for n, (want, have) in enumerate(zip(found, given, strict=True)):
            if want is not have:
                which = f"result {n}" if len(found) > 1 else "the result"
                raise self.error(f"{which} has type {want}, but its variable has {have}", i)

    def check_used(self, v: Any, what: str, i: int | None) -> None:
        if v.__class__ is Literal:
            if v.value.__class__ not in (bool, int, float, complex):
                kind = type(v.value).__name__
                raise self.error(f"{what} is a literal of type {kind}, not a Python number", i)
        elif v.__class__ is not Var:
            raise self.error(f"{what} is a {type(v).__name__}, not a Var or Literal", i)
        elif v not in self.known:
            raise self.error(f"{what} is {names_of(self.program)(v)}, which is not assigned yet", i)

    def define(self, v: Any, i: int | None) -> None:
        if v.__class__ is not Var:
            raise self.error(f"a Var is assigned, not a {type(v).__name__}", i)
        if v in self.known:
            raise self.error(f"{names_of(self.program)(v)} is assigned twice", i)
        self.known.add(v)

    def error(self, what: str, i: int | None = None) -> errors.CheckError:
        """Return the error, with nearby equations."""
        p = self.program
        place = "the program" + (f" {p.name}" if p.name.isidentifier() else "")
        if i is None:
            return errors.CheckError(f"in {place}: {what}\nchecked {here()}")
        near = range(max(0, i - AROUND), min(i + AROUND + 1, len(p.equations)))
        shown = [f"    {'>' if n == i else ' '} {show_equation(p.equations[n], names_of(p))}" for n in near]
        wrong = p.equations[i]
        asked = f"made at\n    {equation_source(wrong)}" if wrong.source else f"checked {here()}"
        return errors.CheckError("\n".join([f"in equation {i} of {place}: {what}", *shown, asked]))


# --- equality up to names -------------------------------------------------------------------------


def equal(p: Program, q: Program) -> bool:
    """Return whether two programs have the same structure.

    Compares types (with weak-type flags), primitives, parameters with nested programs (a missing
    one equals its default), literals and constants (dtype and value; NaN equals NaN, 0.0 does not
    equal -0.0). Ignores names, source lines, origins.

    Arguments:
      p, q: the programs.

    Example:
      >>> import functrans as ft
      >>> p = ft.ir.parse("program (x: f32[3]) { y: f32[3] = sin x; return y }")
      >>> ft.ir.equal(p, ft.ir.parse(ft.ir.show(p)))
      True
    """
    if [e.primitive for e in p.equations] != [e.primitive for e in q.equations]:
        return False  # soon, for most
    number: dict[Any, int] = {}  # of each structure
    known: dict[Program, int] = {}
    for program in reversed([*with_nested(p), *with_nested(q)]):  # the innermost first
        known[program] = number.setdefault(_structure(program, known), len(number))
    return known[p] == known[q]


def _structure(program: Program, known: dict[Program, int]) -> tuple[Any, ...]:
    """Return a key: what the program's text says, with the numbers of nested programs."""
    names = Names()

    def of_parameter(x: Any) -> Any:
        if x.__class__ is tuple:
            return tuple([of_parameter(part) for part in x])
        return known[x] if x.__class__ is Program else show_value(x)

    made: list[Any] = [tuple([names.typed(v) for v in vs]) for vs in (program.inputs, program.constants)]
    made += [_constant(x, v.type) for v, x in zip(program.constants, program.values, strict=True)]
    for e in program.equations:
        params = {**defaults(e.primitive), **e.params}
        made.append(tuple([names.atom(v) for v in e.inputs]))
        made.append((e.primitive, frozenset([(name, of_parameter(x)) for name, x in params.items()])))
        made.append(tuple([names.typed(v) for v in e.outputs]))
    return *made, tuple([names.atom(v) for v in program.outputs])


def _constant(x: Any, type: ArrayType) -> Any:
    if not is_concrete(x):
        return id(x)  # a tracer equals only itself
    if is_key_dtype(type.dtype):
        return np.asarray(jax.random.key_data(x)).tobytes()
    array = np.asarray(x, type.dtype)
    return array.tobytes() if np.all(array == array) else repr(array.tolist())  # whatever NaNs hold
