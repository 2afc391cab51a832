"""One page that shows a function at every stage, side by side."""

from __future__ import annotations

import inspect
import linecache
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from functrans import errors
from functrans import pytrees as tree
from functrans.api.jit import jit, jit_options
from functrans.api.programs import evaluate, make_ir
from functrans.inspect.page import file_to_write, filled
from functrans.inspect.profile.report import ProfileReport
from functrans.inspect.staged import check_given
from functrans.ir.program import Equation, Program, argument_names
from functrans.ir.source import brief_with_type, cut, here, history, is_users, line_of
from functrans.ir.text import Names, nested, show_equation, with_nested
from functrans.ir.tracebacks import boundary
from functrans.ir.types import same_types
from functrans.primitives.base import own_cost
from functrans.pytrees.functions import function_name
from functrans.records import NamedTuple
from functrans.typing import PyTree

# --- the stages, as lists of lines that know their source and their cost --------------------------
#
#     source          the user's functions that the equations stand in
#     traced          the function below the derivatives, where the wrappers say which it is
#     differentiated, batched     the program of the function as given
#     optimized       after the passes of `jit`
#     StableHLO       what XLA is given
#
# In: a function and arguments. Out: `Stage`s; `Lines` numbers the user's lines for all of them.

LONGEST = 400  # most characters of a line
_ARGUMENTS = 8  # more are folded


class Row(NamedTuple):
    """One line of a stage. `source`: its number in Lines, -1 for none; `how`: what made it;
    `inside`: the number of rows below that belong to it; `ms`: measured milliseconds."""

    text: str
    depth: int = 0
    source: int = -1
    how: str = ""
    flops: int = 0
    bytes: int = 0
    inside: int = 0
    ms: float = 0


class Stage(NamedTuple):
    """A named list of rows; `equations` counts the equations of programs."""

    name: str
    rows: list[Row]
    equations: int = 0


class Lines:
    """The user lines of equations, numbered by first use; `times`: milliseconds of equations, if measured."""

    def __init__(self, times: dict[Equation, float] | None = None) -> None:
        self.times: dict[Equation, float] = times or {}
        self.numbers: dict[tuple[str, int], int] = {}
        self.codes: dict[CodeType, None] = {}

    def of(self, e: Equation) -> int:
        if e.source is None:
            return -1
        self.codes[e.source[0]] = None
        return self.numbers.setdefault((e.source[0].co_filename, line_of(e.source)), len(self.numbers))

    def time(self, e: Equation) -> float:
        """Return the milliseconds of an equation and of the programs that it holds."""
        inner = [x for p in e.programs for q in with_nested(p) for x in q.equations]
        return sum([self.times.get(x, 0.0) for x in (e, *inner)]) if self.times else 0.0


def stages(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    profile: ProfileReport | None = None,
) -> tuple[list[Stage], Lines]:
    """Return all stages of a function for these arguments, and their shared lines. For a profiled
    function, the optimized program is the one that was run."""
    lines = Lines(None if profile is None else profile.times)
    jitted = jit_options(fun)
    whole: Any = jit(fun) if jitted is None else fun
    static = ((), ()) if jitted is None else (sorted(jitted.statics.numbers), jitted.statics.names)
    derived = make_ir(fun, *static)(*args, **kwargs)
    does, inner = _below(fun)
    found = []
    if inner is not None:
        found.append(of_program("traced", make_ir(inner, *static)(*args, **kwargs), lines))
    found.append(of_program(" and ".join(does) or "traced", derived, lines))
    optimized = whole.program(*args, **kwargs)
    if profile is not None:
        check_same(profile.program, optimized)
        optimized = profile.program
    found.append(of_program("optimized", optimized, lines))
    text = whole.lower(*args, **kwargs).as_text(debug_info=True)
    found.append(of_stablehlo(text, lines))
    return [of_source(lines, found[-3]), *found], lines


def check_same(profiled: Program, shown: Program) -> None:
    """Raise an error unless the profile is of a program with these inputs and results."""
    types = (profiled.in_types, profiled.out_types), (shown.in_types, shown.out_types)
    if not all(same_types(x, y) for x, y in zip(*types, strict=True)):
        was, now = (f"({', '.join(map(str, x))}) -> ({', '.join(map(str, y))})" for x, y in types)
        raise errors.InvalidArgument(
            f"explore: profile= is of a program {was}, but the function shown is {now}, "
            f"{here()}\n"
            "Profile the same function with the same arguments: ft.profile(f)(*args)."
        )


# --- which function is below ----------------------------------------------------------------------

# The files of the wrappers in `api`: what they do to a program, and which keep the arguments.
_DOES = {"derivatives.py": "differentiated", "jet.py": "differentiated", "vmap.py": "batched"}
_SAME_ARGUMENTS = ("derivatives.py", "jit.py", "checkpoint.py", "tracebacks.py", "staging.py")


def _below(fun: Any) -> tuple[list[str], Any]:
    """Return what the wrappers of a function do, innermost first; and the user's function below
    derivatives, jit and checkpoint, which takes the same arguments. It is None if there is none, or if
    another wrapper (vmap) changes the arguments."""
    outer: list[Any] = []
    while hasattr(fun, "__wrapped__"):
        outer.append(inspect.unwrap(fun.made) if hasattr(fun, "made") else fun)
        fun = fun.__wrapped__
    codes = [f.__code__ for f in reversed(outer) if hasattr(f, "__code__")]
    files = [os.path.basename(c.co_filename) for c in codes if not is_users(c)]
    does = list(dict.fromkeys([_DOES[f] for f in files if f in _DOES]))
    is_shown = does and hasattr(fun, "__code__") and is_users(fun.__code__)
    return does, fun if is_shown and set(files) <= set(_SAME_ARGUMENTS) else None


# --- programs -------------------------------------------------------------------------------------


def of_program(name: str, program: Program, lines: Lines) -> Stage:
    """Return a program's text with costs; nested programs are indented below their equation, and a
    repeated one is referred to by number."""
    rows: list[Row] = []
    seen: dict[Program, int] = {}

    def add(text: str, depth: int, **more: Any) -> None:
        rows.append(Row(cut(text, LONGEST), depth, -2, **more))

    def write(program: Program, label: str, depth: int, times: int) -> None:
        if program in seen:
            add(f"{label}the same as program ${seen[program]} above", depth)
            return
        seen[program] = len(seen) + 1
        names, at = Names(), len(rows)
        inputs = ", ".join([names.typed(v) for v in program.inputs])
        tag = f" ${seen[program]}" if depth else ""
        add(f"{label}program {program.name}{tag} ({inputs})", depth)
        arguments = argument_names(program)
        folded = len(arguments) > _ARGUMENTS
        if folded:  # page.js collapses this row at first
            add(f"{len(arguments)} arguments", depth + 1, inside=len(arguments))
        for v, place in arguments.items():
            add(f"{names.typed(v)} = {place}", depth + 1 + folded)
        for v, value in zip(program.constants, program.values, strict=True):
            add(f"{names(v)}: {getattr(value, 'type', None) or v.type} = a captured array", depth + 1)
        for e in program.equations:
            cost, here = own_cost(e), len(rows)
            text = cut(show_equation(e, names), LONGEST)
            costs = int(cost.flops) * times, int(cost.bytes) * times, 0, round(lines.time(e), 6)
            steps, first = history(e)
            how = " ".join([*steps, first.primitive.name]) if steps else ""  # transpose of jvp of sin
            rows.append(Row(text, depth + 1, lines.of(e), how, *costs))
            if e.primitive.holds_programs:
                for inner_label, inner in nested(e.params):
                    write(inner, inner_label, depth + 2, times * int(e.params.get("length", 1)))
                for line in e.primitive.listing(e.params):
                    add(line, depth + 2)
                rows[here] = rows[here]._replace(inside=len(rows) - here - 1)
        add(f"return {', '.join([names.atom(v) for v in program.outputs])}", depth + 1)
        rows[at] = rows[at]._replace(inside=len(rows) - at - 1)

    write(program, "", 0, 1)
    return Stage(name, rows, sum([r.source != -2 for r in rows]))


# --- the user's source ----------------------------------------------------------------------------


def of_source(lines: Lines, cost: Stage) -> Stage:
    """Return the source of the functions of all equations, with the costs of one stage."""
    flops: Counter[int] = Counter()
    moved: Counter[int] = Counter()
    took: defaultdict[int, float] = defaultdict(float)
    for e, ms in lines.times.items():
        took[lines.of(e)] += ms
    for r in cost.rows:
        if r.source >= 0 and not r.inside:
            flops[r.source] += r.flops
            moved[r.source] += r.bytes
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for code in lines.codes:
        try:
            block, first = inspect.getsourcelines(code)
        except (OSError, TypeError):
            continue
        first = max(first, 1)
        wanted[code.co_filename].update(range(first, first + len(block)))
    for file, line in lines.numbers:
        if linecache.getline(file, line):
            wanted[file].add(line)
    rows: list[Row] = []
    for file, numbers in wanted.items():
        rows.append(Row(file.rpartition("/")[2], 0, -2))
        at, before = len(rows) - 1, None
        for n in sorted(numbers):
            if before is not None and n > before + 1:
                rows.append(Row("⋯", 1, -2))
            text = linecache.getline(file, n).rstrip("\n").expandtabs(4)
            source = lines.numbers.get((file, n), -2)
            costs = flops[source], moved[source], 0, round(took[source], 6)
            rows.append(Row(f"{n:>4}  {cut(text, LONGEST)}", 1, source, "", *costs))
            before = n
        rows[at] = rows[at]._replace(inside=len(rows) - at - 1)
    return Stage("source", rows or [Row("(no source: the file cannot be read)", 0, -2)])


# --- StableHLO ------------------------------------------------------------------------------------

_AT = re.compile(r" loc\((#loc\d*|unknown|\"[^\"]*\"(?:\(#loc\d*\))?)\)")
_DEFINED = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE = re.compile(r"\"(.*)\":(\d+):\d+")
_OTHERS = re.compile(r"#loc\d*(?=[) ])")  # in `callsite(#loc1 at #loc2)` and `"name"(#loc1)`


def of_stablehlo(text: str, lines: Lines) -> Stage:
    """Return the text of a module, with its locations as line numbers."""
    found = [m for line in text.splitlines() if (m := _DEFINED.match(line))]
    defined = {m[1]: m[2] for m in found}
    known: dict[str, int] = {}
    rows: list[Row] = []
    opened: list[int] = []
    for line in text.splitlines():
        if line.startswith("#loc") or not line.strip():
            continue
        places = _AT.findall(line)
        plain = _AT.sub("", line).rstrip()
        inner = plain.strip()
        depth = (len(plain) - len(plain.lstrip())) // 2
        source = _place(places[-1], defined, lines, known) if places else -2
        if inner.startswith("}") and opened:
            start = opened.pop()
            rows[start] = rows[start]._replace(inside=len(rows) - start)
        if inner.endswith("{"):
            opened.append(len(rows))
        rows.append(Row(cut(inner, LONGEST), depth, source))
    return Stage("StableHLO", rows)


def _place(name: str, defined: dict[str, str], lines: Lines, known: dict[str, int]) -> int:
    """Return the user line of a location: the innermost that an equation has."""
    if name not in known:
        known[name] = -2  # for a circular location
        text = defined.get(name, "")
        if (m := _FILE.match(text)) is not None:
            known[name] = lines.numbers.get((m[1], int(m[2])), -2)
        else:
            inner = (_place(other, defined, lines, known) for other in _OTHERS.findall(text))
            known[name] = next((n for n in inner if n >= 0), -2)
    return known[name]


# --- entry ----------------------------------------------------------------------------------------


@boundary
def explore(
    fun: Callable[..., PyTree], path: str | Path, *, profile: ProfileReport | None = None
) -> Callable[..., Path]:
    """Make a function that writes a page about `fun` instead of running it.

    The page shows the user's source, the program as traced, as differentiated or batched, after
    the passes of `jit`, and as StableHLO, side by side. Hovering over a line highlights the lines
    of all stages from the same source line, a click scrolls to them; equations are coloured by
    cost; nested programs fold; a box searches all stages.

    Arguments:
      fun: function of pytrees of arrays; may itself be a transformed or jitted function; or a
        Program.
      path: the HTML file to write.
      profile: what `ft.profile` returned for the same function and arguments: source and optimized
        program can then also be coloured by milliseconds.

    Returns:
      A function of arrays, scalars, pytrees or `ft.ShapeDtypeStruct`s that returns the file's Path.
      The program as traced is shown if the underlying function is known; `vmap` hides it.

    Raises:
      NotAnArray: `fun` is not a function.
      InvalidArgument: the path does not end in `.html`; the profile is not one, or of other types.
      TypeMismatch: `fun` is a Program that takes other values.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp, tempfile
      >>> slope = ft.grad(lambda x: jnp.sin(x) * x)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     page = explore(slope, folder + "/slope.html")(1.0)
      ...     page.name, "StableHLO" in page.read_text()
      ('slope.html', True)
    """
    check_given(fun, "explore")
    written = file_to_write(path, "the page", ".html")
    if not isinstance(profile, ProfileReport | None):
        raise errors.InvalidArgument(
            f"explore: profile= must be a report of ft.profile, got {brief_with_type(profile)}, {here()}\n"
            "Write profile=ft.profile(f)(*args)."
        )
    shown = _running(fun) if isinstance(fun, Program) else fun

    @boundary
    def explored(*args: Any, **kwargs: Any) -> Path:
        made, lines = stages(shown, args, kwargs, profile)
        text = filled("explore.html", function_name(shown), "", _data(made, lines))
        written.write_text(text, encoding="utf-8")
        return written

    return explored


def _running(program: Program) -> Callable[..., Any]:
    """Return a function that runs a program and has its name."""

    def run(*args: Any) -> list[Any]:
        return evaluate(program, tree.leaves(args))

    run.__qualname__ = program.name or "program"
    return run


def _data(made: Sequence[Stage], lines: Lines) -> dict[str, Any]:
    """Return rows as columns, which take less space."""
    hows: dict[str, int] = {}
    shown = []
    for s in made:
        columns = [list(c) for c in zip(*s.rows, strict=True)]
        columns[3] = [hows.setdefault(h, len(hows)) for h in columns[3]]
        shown.append({"name": s.name, "equations": s.equations, "columns": columns})
    places = [f"{file.rpartition('/')[2]}:{line}" for file, line in lines.numbers]
    return {"stages": shown, "hows": list(hows), "places": places}
