"""Pictures of programs: the computation graph as SVG or HTML, the text in colours."""

from __future__ import annotations

import atexit
import functools
import importlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from functrans import errors, runtime
from functrans.inspect.page import asset, file_to_write, filled
from functrans.inspect.python_source.naming import is_backward
from functrans.ir.check import check_program
from functrans.ir.program import Equation, Literal, Program, argument_names
from functrans.ir.source import cut, here, line_of, text_of
from functrans.ir.text import Names, nested, provenance, show, show_equation
from functrans.ir.tracebacks import boundary
from functrans.passes.rewrite import children_first

# --- text in colours, as HTML: what a notebook shows of a Program by itself -----------------------
#
# The colours are legible on white and on black, so that no theme need be known.

_LINES = 400  # lines that are shown

_NAME, _TYPE, _NUMBER, _WORD = "#3b82d6", "#8a8f98", "#c2662d", "#a256b8"
_PARTS = re.compile(
    r"(?P<number>-?(?:\d[\w.+-]*|inf|nan|True|False)(?=:~?\w+\[))"
    r"|(?P<type>:? ?~?(?:key&lt;\w+&gt;|[a-z]+\d*|bool)\[[\d,]*\])"
    r"|(?P<word>\b(?:program|return|with)\b)"
    r"|(?P<name>(?<== )\w+)"
)
_COLOURS = {"number": _NUMBER, "type": _TYPE, "word": _WORD, "name": _NAME}


@runtime.answers("coloured")
def coloured(program: Program) -> str:
    """Return a program's text as HTML, cut after 400 lines.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> coloured(ft.make_ir(jnp.sin)(1.0))[:42]
      '<pre style="line-height:1.35"><span style='
    """
    lines = show(program).splitlines()
    text = escape("\n".join(lines[:_LINES]), quote=False)
    more = f"\n⋯ {len(lines) - _LINES} more lines" if len(lines) > _LINES else ""
    text = _PARTS.sub(lambda m: f'<span style="color:{_COLOURS[m.lastgroup or ""]}">{m[0]}</span>', text)
    return f'<pre style="line-height:1.35">{text}{more}</pre>'


# --- the graph: boxes and arrows ------------------------------------------------------------------
#
# In: a Program. Out: `{"nodes": [...], "edges": [...]}` of plain values, for picture.js. A node
# that holds programs has them under `"inside"`, as graphs of the same form. Two levels of detail:
#
#     equations  a box for each equation
#     lines      a box for each of the user's lines, forwards and backwards apart: for long programs

Node = dict[str, Any]
Graph = dict[str, list[Any]]

_LONGEST = 34  # most characters of a label
_LISTED = 30  # most inputs listed in one box


class _Making:
    """A graph in the making; `counter` numbers its boxes."""

    def __init__(self, counter: Iterator[int]):
        self.counter = counter
        self.nodes: list[Node] = []
        self.edges: list[dict[str, Any]] = []
        self.made: dict[Any, int] = {}  # a value -> the box that computes it

    def add(self, kind: str, label: str, below: str, about: str, inside: Sequence[Any] = ()) -> int:
        """Add a box; return its number."""
        n = next(self.counter)
        node: Node = {"id": n, "kind": kind, "label": cut(label, _LONGEST), "below": below, "about": about}
        self.nodes.append(node | {"inside": [*inside]})
        return n

    def join(self, values: Iterable[Any], to: int) -> None:
        """Add an arrow from the box of each value, if it is another one."""
        for v in values:
            if self.made.get(v, to) != to:
                self.edges.append({"from": self.made[v], "to": to, "label": f"{v.type}"})

    def graph(self) -> Graph:
        return {"nodes": self.nodes, "edges": _merged(self.edges)}


def of_equations(program: Program, counter: Iterator[int] | None = None) -> Graph:
    """Return a box per input, constant, equation and output, with nested programs inside theirs."""
    g = _Making(counter or itertools.count(1))
    names = Names()
    used = {v for e in program.equations for v in e.inputs} | set(program.outputs)
    places = argument_names(program)
    for kind, given in (("input", program.inputs), ("constant", program.constants)):
        for v in given:
            typed, place = names.typed(v), places.get(v)
            shown = (_end(place), cut(typed, _LONGEST), f"{kind} {place}") if place else (typed, "", kind)
            if v in used:
                g.made[v] = g.add(kind, *shown)
    for e in program.equations:
        told = [show_equation(e, names), provenance(e), text_of(e.source)]
        about = "\n".join([*told, *e.primitive.listing(e.params)]).strip()
        inside: list[dict[str, Any]] = [
            {"label": label.rstrip(": ") or inner.name, "graph": of_equations(inner, g.counter)}
            for label, inner in (nested(e.params) if e.primitive.holds_programs else ())
        ]
        count = sum([size(i["graph"]) for i in inside])
        below = f"{count} inside" if inside else cut(_place(e), _LONGEST)
        here = g.add(_direction(e), _label(e), below, about, inside)
        g.join(e.inputs, here)
        g.made.update(dict.fromkeys(e.outputs, here))
    for i, out in enumerate(program.outputs):
        label = f"result {i}" if len(program.outputs) > 1 else "result"
        g.join([out], g.add("output", label, names.atom(out) if isinstance(out, Literal) else "", ""))
    return g.graph()


def of_lines(program: Program) -> Graph:
    """Return a box per user line and direction, with arrows for the values passed between them."""
    g = _Making(itertools.count(1))
    groups: dict[Any, list[Equation]] = {}
    for e in program.equations:
        line = (e.primitive.name, None) if e.source is None else (e.source[0].co_filename, line_of(e.source))
        groups.setdefault((*line, _direction(e)), []).append(e)
    boxes = []
    for equations in groups.values():
        first = equations[0]
        kinds = Counter([e.primitive.name for e in equations]).most_common(8)
        about = ", ".join([f"{n} x {name}" if n > 1 else name for name, n in kinds])
        label = text_of(first.source) or _place(first) or first.primitive.name
        below = f"{_place(first)} · {len(equations)} equations"
        boxes.append(g.add(_direction(first), label, below, f"{label}\n{provenance(first)}\n{about}"))
        g.made.update({v: boxes[-1] for e in equations for v in e.outputs})
    if program.inputs:
        given = g.add("input", f"{len(program.inputs)} inputs", "", _listed(program))
        g.made.update(dict.fromkeys(program.inputs, given))
    if program.outputs:
        results = g.add("output", f"{len(program.outputs)} outputs", "", "output")
        g.join(dict.fromkeys(program.outputs), results)
    for box, equations in zip(boxes, groups.values(), strict=True):
        for e in equations:
            g.join(dict.fromkeys(e.inputs), box)
    return g.graph()


def _boxes(graph: Graph) -> Iterator[Node]:
    for node in graph["nodes"]:
        yield node
        for inner in node["inside"]:
            yield from _boxes(inner["graph"])


def size(graph: Graph) -> int:
    """Return the number of equation boxes, nested ones included."""
    return sum([n["kind"] in ("forward", "backward") for n in _boxes(graph)])


def _merged(edges: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge arrows between two boxes: `f32[3] x 2`, `f32[3], f32[4]`, `f32[3] and 5 more`."""
    labels: dict[tuple[int, int], Counter[str]] = {}
    for e in edges:
        labels.setdefault((e["from"], e["to"]), Counter())[e["label"]] += 1
    made = []
    for (source, to), counts in labels.items():
        shown = [f"{label} x {n}" if n > 1 else label for label, n in counts.items()]
        text = ", ".join(shown) if len(shown) < 3 else f"{shown[0]} and {len(shown) - 1} more"
        made.append({"from": source, "to": to, "label": text})
    return made


def _direction(e: Equation) -> str:
    return "backward" if is_backward(e) else "forward"


def _label(e: Equation) -> str:
    """Return the operation, its short parameters, and the literals among its operands."""
    short, _ = e.primitive.short_params(e.params)
    numbers = [str(v.value) for v in e.inputs if isinstance(v, Literal)]
    return " ".join([e.primitive.name, *([short] if short else []), *numbers])


def _place(e: Equation) -> str:
    if e.source is None:
        return ""
    return f"{e.source[0].co_name}:{line_of(e.source)}"


def _listed(program: Program) -> str:
    """Return the inputs by their paths in the function's arguments, one per line."""
    places = argument_names(program)
    lines = [f"{places[v]}: {v.type}" for v in program.inputs if v in places]
    more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join(["input", *lines[:_LISTED], *more])


def _end(path: str) -> str:
    """Return the end of a long path, which distinguishes it from others."""
    return path if len(path) <= _LONGEST else "…" + path[1 - _LONGEST :]


# --- entry ----------------------------------------------------------------------------------------

BOXES = 200  # most equations of a picture with a box for each


@runtime.answers("draw")
@boundary
def draw(program: Program, path: str | Path) -> Path:
    """Draw the computation graph of a program; also `program.draw(path)`.

    Arguments:
      program: from `make_ir`, `parse` or a jitted function's `.program`.
      path: a file that ends in `.svg`, or in `.html`, where nested programs expand and collapse.
        Forward and backward have different colours, arrows show types. A program of more than 200
        equations (collapsed ones not counted) is grouped by the user's lines.

    Returns:
      The file's Path.

    Raises:
      InvalidArgument: the path has another suffix; `program` is not a Program.
      NotSupported: an SVG without the package mini-racer (`pip install functrans[draw]`).

    Example:
      >>> import functrans as ft, functrans.numpy as jnp, tempfile
      >>> program = ft.make_ir(ft.grad(jnp.sin))(1.0)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     draw(program, folder + "/sin.html").read_text()[:15]
      '<!doctype html>'
    """
    check_program(program, "draw")
    file = file_to_write(path, "a picture", ".svg", ".html")
    lines = len(program.equations) > BOXES
    graph = of_lines(program) if lines else of_equations(program)
    closed = [n["id"] for n in _boxes(graph) if n["inside"]] if size(graph) > BOXES else []
    if file.suffix.lower() == ".svg":
        text = svg(graph, closed)
    else:
        n = sum([len(p.equations) for p in children_first(program)])
        note = f"{n} equations" + (", grouped by source line" if lines else "")
        data = {"graph": graph, "closed": closed}
        text = filled("draw.html", program.name or "program", note, data)
    file.write_text(text, encoding="utf-8")
    return file


def svg(graph: Graph, closed: list[int]) -> str:
    """Return the SVG of a graph; the boxes `closed` are collapsed."""
    return _engine().call("picture", graph, closed)


# Browsers have it, plain V8 does not; dagre copies plain objects with it.
_CLONE = """globalThis.structuredClone = (x) => Array.isArray(x) ? x.map(structuredClone)
  : x && typeof x === "object" ? Object.fromEntries(
      Object.entries(x).map(([k, v]) => [k, structuredClone(v)])) : x;"""


@functools.cache
def _engine() -> Any:
    """Return a JavaScript engine in which `picture` is defined."""
    try:
        racer = importlib.import_module("py_mini_racer")  # an optional dependency of 20 MB
    except ImportError:
        raise errors.NotSupported(
            f"draw: an SVG needs the package mini-racer for its layout, {here()}\n"
            "Run `pip install functrans[draw]`, or write an .html file, which needs no package."
        ) from None
    engine = racer.MiniRacer()
    atexit.register(engine.close)  # later, on Python 3.13, it waits forever for a thread of its own
    engine.eval(_CLONE)
    for name in ("dagre.min.js", "picture.js"):
        text = asset(name)
        engine.eval(text.replace('"use strict";', "", 1))  # which would hide its definitions
    return engine
