"""`debug.step`: step through a program in the terminal, equation by equation.

In: a function and arguments; commands, typed or given as a list. Out: the function's result. XLA
runs the equations one at a time (observers.py); the debugger stops before an equation and reads a
command.
"""

from __future__ import annotations

import bdb
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, TextIO

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.static_arguments import Staged
from functrans.flags import unchecked
from functrans.inspect.closeness import plain
from functrans.inspect.nans import Search
from functrans.inspect.observers import Frame, Place, by_xla, observe
from functrans.inspect.python_source.naming import result_names
from functrans.inspect.staged import output_stream, summary, tool
from functrans.ir.program import Equation, Program, Var, argument_names
from functrans.ir.source import brief, here, line_of
from functrans.ir.text import show_equation, with_nested
from functrans.ir.tracebacks import boundary
from functrans.passes.pipeline import Choice
from functrans.primitives.custom.calls import as_type
from functrans.records import NamedTuple
from functrans.typing import PyTree

HELP = """\
next [n]     n      run this equation (or n of them), stepping over nested programs
into         s      step into the nested program of this equation
out          o      run to the end of this program
continue     c      run to the next breakpoint
break WHERE  b      stop at LINE, FILE:LINE or an operation's name; no WHERE: list breakpoints
clear WHERE         delete a breakpoint; no WHERE: delete all
nan                 run until an equation makes a NaN or an infinity
print NAME   p      the value of a variable: its letter in `list`, its name in your code, or an
                    argument: params['w']
args         a      the arguments: their names here and in the function
list [n]     l      the equations around this one
where        w      the equations that contain this one, with your lines
quit         q      stop
An empty line repeats the last command."""

_MOST_NAMES = 12  # limit on the letters, and on the names, that are listed as printable

_COMMANDS = ("args", "next", "out", "continue", "break", "print", "list", "where", "quit", "help")
_SHORT = {name[0]: name for name in _COMMANDS} | {"s": "into", "step": "into", "?": "help"}


class Stop(NamedTuple):
    """Where the program stops next: at the `nth` equation from here with at most `depth` frames."""

    depth: float
    nth: int = 1


@boundary
def step(
    fun: Callable[..., PyTree] | Program,
    *,
    commands: Iterable[str] | None = None,
    input: TextIO | None = None,
    output: TextIO | None = None,
    passes: Choice | None = None,
) -> Callable[..., PyTree]:
    """Return a function that runs `fun` under an interactive debugger, equation by equation.

    Arguments:
      fun: function of pytrees of arrays, which may be jitted, a gradient, ...; or a Program.
      commands: commands to run instead of prompting; after the last one the program runs to its
        end. `help` lists them: next, into, out, continue, break, clear, nan, print, args, list,
        where, quit.
      input, output: text streams; left out: the terminal.
      passes: as in `ft.jit`: step through the program after these passes. Left out: those of `fun`
        if it is jitted, else none, so that every equation is one of the user's.

    Returns:
      A function of the arguments of `fun` that returns the result of `fun`.

    Raises:
      bdb.BdbQuit: the command was `quit`, as in Python's debugger.
      TypeMismatch: the arguments do not match the Program `fun`.
      NotAnArray: `fun` is not a function.
      InvalidArgument: `commands` is a string instead of a list of strings.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> y = ft.debug.step(lambda x: jnp.sin(x) * 2, commands=["next", "print b"])(0.0)
      equation 0 (sin)  <doctest ...
          b: ~f32[] = sin a
      (step) next
          b = ~f32[] 0.
      equation 1 (mul)  <doctest ...
          c: ~f32[] = mul b 2.0:~f32[]
      (step) print b
      b = ~f32[] 0.
      (step) continue
          c = ~f32[] 0.
      >>> print(y)
      0.0
    """
    if isinstance(commands, str):  # which would be one command per letter
        raise errors.InvalidArgument(
            f"debug.step: commands must be a list of strings, got {brief(commands)}, {here()}\n"
            f"Write commands={brief(commands.split(';'))}."
        )

    output_stream(output, "debug.step")  # raises now if it is none

    @unchecked()
    def stepped(made: Staged) -> Any:
        stream = output_stream(output, "debug.step")  # the terminal may be redirected by now
        walker = _Walker(_asked(commands, input, stream), stream)
        outs = observe(made.program, made.leaves, by_xla, before=walker.before, after=walker.after, keep=True)
        walker.ended()
        pairs = zip(map(jax.numpy.asarray, outs), made.program.out_types, strict=True)
        typed = [as_type(y, t) for y, t in pairs]  # NumPy's arrays have no weak types
        return tree.unflatten(made.out_tree, typed)

    return tool("debug.step", fun, passes, (), stepped)


def _asked(commands: Iterable[str] | None, source: TextIO | None, output: TextIO) -> Iterator[str]:
    """Yield the given or typed commands, echoed after a prompt; then `continue` forever."""
    if commands is not None:
        for command in commands:
            output.write(f"(step) {command}\n")
            yield command
    else:
        while True:
            output.write("(step) ")
            output.flush()
            line = (source or sys.stdin).readline()
            if not line:
                output.write("\n")
                break
            yield line.strip()
    while True:
        output.write("(step) continue\n")
        yield "continue"


class _Walker:
    """The debugger: reads commands, and stops at or prints equations."""

    def __init__(self, commands: Iterator[str], output: TextIO):
        self.commands = commands
        self.output = output
        self.breaks: list[str] = []
        self.search = Search(infinities=True)
        self.to_nan = False
        self.stop = Stop(inf)
        self.shown: Place | None = None  # the place stopped at, not yet run
        self.last = ""
        self.previous: Place | None = None

    def say(self, text: str) -> None:
        self.output.write(text + "\n")

    # --- hooks of `observe`

    def before(self, place: Place, values: Sequence[Any]) -> None:
        """Stop here, if a breakpoint or the last command says so."""
        at_break = self._at_break(place)
        self.previous = place
        if len(place.frames) <= self.stop.depth:
            self.stop = self.stop._replace(nth=self.stop.nth - 1)
        if at_break or self.stop.nth <= 0:
            self.shown = place
            self._show(place)
            self._ask(place)

    def after(self, place: Place, values: list[Any], outs: Sequence[Any]) -> None:
        """Print the results of an equation stopped at; stop after one that produced a NaN."""
        if place is self.shown:
            self.shown = None
            for v, y in zip(place.equation.outputs, outs, strict=True):
                self.say(f"    {place.names(v)} = {summary(y, v.type)}")
        if self.to_nan and (made := self.search.made(place, values, outs)):
            self.to_nan = False
            self.say(f"{made} made by")
            self._show(place)
            eqn = place.equation
            for x, v in zip(values, eqn.inputs, strict=True):
                self.say(f"    operand  {summary(x, v.type)}")
            for y, v in zip(outs, eqn.outputs, strict=True):
                self.say(f"    result   {summary(y, v.type)}")
            self._ask(place)

    def ended(self) -> None:
        if self.to_nan:
            self.say("no equation made a NaN or an infinity")

    # --- commands: those that resume the program return where it stops next

    def _ask(self, place: Place) -> None:
        """Run commands until one resumes the program."""
        stop: Stop | None = None
        while stop is None:
            line = next(self.commands) or self.last
            self.last = line
            word, _, argument = line.partition(" ")
            command = getattr(self, f"do_{_SHORT.get(word, word)}", None)
            if command is None:
                self.say(f"no command {word!r}; `help` lists them")
            else:
                stop = command(place, argument.strip())
        self.stop = stop

    def do_next(self, place: Place, argument: str) -> Stop:
        return Stop(len(place.frames), int(argument) if argument.isdigit() else 1)

    def do_into(self, place: Place, argument: str) -> Stop:
        return Stop(inf)

    def do_out(self, place: Place, argument: str) -> Stop:
        return Stop(len(place.frames) - 1)

    def do_continue(self, place: Place, argument: str) -> Stop:
        return Stop(0)

    def do_nan(self, place: Place, argument: str) -> Stop:
        self.to_nan = True
        return self.do_continue(place, "")

    def do_quit(self, place: Place, argument: str) -> None:
        raise bdb.BdbQuit

    def do_break(self, place: Place, argument: str) -> None:
        if argument and not self._has(place.frames[0].program, argument):
            self.say(f"no equation at {argument}; `list` shows operations, and `where` lines")
        elif argument and argument not in self.breaks:
            self.breaks.append(argument)
        self.say("breakpoints: " + (", ".join(self.breaks) or "none"))

    def do_clear(self, place: Place, argument: str) -> None:
        self.breaks = [b for b in self.breaks if argument and b != argument]
        self.say("breakpoints: " + (", ".join(self.breaks) or "none"))

    def do_print(self, place: Place, argument: str) -> None:
        found = _variables(place, argument)
        for v, value, note in found:
            self.say(f"{argument}{note} = {summary(value, v.type)}")
            if plain(value).size > 4:
                self.say(np.array2string(plain(value), threshold=60, edgeitems=3))
        if not found:
            known = ", ".join(_names(place)) or "none"
            self.say(f"no variable {argument!r} has a value here; known: {known}")

    def do_args(self, place: Place, argument: str) -> None:
        found = argument_names(place.frame.program)
        for v, name in found.items():
            self.say(f"{place.names(v)} = {name}: {v.type}")
        if not found:
            self.say("the arguments of this program have no names")

    def do_list(self, place: Place, argument: str) -> None:
        around = int(argument) if argument.isdigit() else 5
        equations = place.frame.program.equations
        for i in range(max(0, place.index - around), min(len(equations), place.index + around + 1)):
            mark = "->" if i == place.index else "  "
            self.say(f"{mark} {i:4}  {show_equation(equations[i], place.names)}")

    def do_where(self, place: Place, argument: str) -> None:
        for frame in place.frames[1:]:
            holder = frame.holder
            assert holder is not None
            inside = f"{frame.label}" + ("" if frame.step is None else f", step {frame.step}")
            self.say(f"equation {holder.index} ({holder.equation.primitive.name}) > {inside}")
            self.say(f"    {holder.line}")
        self._show(place)

    def do_help(self, place: Place, argument: str) -> None:
        self.say(HELP)

    # --- where we are

    def _show(self, place: Place) -> None:
        self.say(f"{place}  {place.line}")
        self.say(f"    {place.text}")

    def _at_break(self, place: Place) -> bool:
        """Is it the first equation of a line, or one of an operation, with a breakpoint?"""
        if place.equation.primitive.name in self.breaks:
            return True
        here, before = _line(place.equation), self.previous
        is_first = before is None or before.frame is not place.frame or _line(before.equation) != here
        return is_first and any(_is_line(at, here) for at in self.breaks)

    def _has(self, program: Program, at: str) -> bool:
        """Is there an equation at a line or of an operation, also in nested programs?"""
        return any(
            at == e.primitive.name or _is_line(at, _line(e))
            for p in with_nested(program)
            for e in p.equations
        )


def _line(e: Equation) -> tuple[str, int] | None:
    return None if e.source is None else (e.source[0].co_filename, line_of(e.source))


def _is_line(at: str, here: tuple[str, int] | None) -> bool:
    """Return whether `12` or `file.py:12` means this file and line."""
    file, _, number = at.rpartition(":")
    if here is None or not number.isdigit() or int(number) != here[1]:
        return False
    return not file or here[0] == os.path.abspath(file) or here[0].endswith(os.sep + file)


def _named(frame: Frame) -> list[dict[str, Var]]:
    """Return the variables with a value: arguments, and those that user lines assign, the last of a name."""
    kinds = argument_names(frame.program), result_names(frame.program)
    return [{known[v]: v for v in frame.env if v in known} for known in kinds]


def _names(place: Place) -> list[str]:
    """Return the names that `print` accepts: letters, arguments and assigned names."""
    letters = [place.names(v) for frame in place.frames for v in frame.env]
    named = dict.fromkeys([name for frame in place.frames for kind in _named(frame) for name in kind])
    return [*letters[-_MOST_NAMES:], *list(named)[-_MOST_NAMES:]]


def _variables(place: Place, name: str) -> list[tuple[Var, Any, str]]:
    """Return the variables with this name that have a value in this or an enclosing frame, each
    with a note on its letter. A name is a letter, an argument, or a name that a user line assigns.
    """
    letter, spelled = place.names, name.replace('"', "'")
    found: dict[Var, tuple[Var, Any, str]] = {}
    for frame in reversed(place.frames):
        meant = [kind.get(spelled) for kind in _named(frame)]
        for v, value in frame.env.items():
            if letter(v) == name:
                found.setdefault(v, (v, value, ""))
            elif v in meant:
                found.setdefault(v, (v, value, f", which is {letter(v)} here,"))
    return list(found.values())
