"""Pictures of programs: the computation graph as SVG or HTML, the text in colours."""

from __future__ import annotations

import atexit
import functools
import importlib
import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from functrans import errors, runtime
from functrans.inspect.page import asset, embedded, file_to_write, filled
from functrans.ir.check import check_program
from functrans.ir.program import Equation, Literal, Program, argument_names
from functrans.ir.source import cut, here, line_of, text_of
from functrans.ir.text import Names, nested, provenance, show, show_equation, show_type
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


@runtime.answers(runtime.coloured)
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
    return f'<pre style="line-height:1.35">{_PARTS.sub(_span, text)}{more}</pre>'


def _span(match: re.Match[str]) -> str:
    return f'<span style="color:{_COLOURS[match.lastgroup or "name"]}">{match[0]}</span>'


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


def of_equations(program: Program, counter: list[int] | None = None) -> Graph:
    """Return a box per input, constant, equation and output, with nested programs inside theirs."""
    counter = counter if counter is not None else [0]
    names = Names()
    nodes: list[Node] = []
    edges: list[dict[str, Any]] = []
    made: dict[Any, int] = {}

    def add(kind: str, label: str, below: str = "", about: str = "", **more: Any) -> int:
        counter[0] += 1
        nodes.append(
            {
                "id": counter[0],
                "kind": kind,
                "label": cut(label, _LONGEST),
                "below": cut(below, _LONGEST),
                "about": about,
                **more,
            }
        )
        return counter[0]

    used = {v for e in program.equations for v in e.inputs} | set(program.outputs)
    places = argument_names(program)
    for kind, given in (("input", program.inputs), ("constant", program.constants)):
        for v in given:
            typed = names.typed(v)
            if v in used and v in places:
                made[v] = add(kind, _end(places[v]), typed, f"{kind} {places[v]}")
            elif v in used:
                made[v] = add(kind, typed, about=kind)
    for e in program.equations:
        told = [show_equation(e, names), provenance(e), text_of(e.source)]
        about = "\n".join([*told, *e.primitive.listing(e.params)]).strip()
        inside: list[dict[str, Any]] = (
            [
                {"label": label.rstrip(": ") or inner.name, "graph": of_equations(inner, counter)}
                for label, inner in nested(e.params)
            ]
            if e.primitive.holds_programs
            else []
        )
        count = sum([size(i["graph"]) for i in inside])
        below = f"{count} inside" if inside else _place(e)
        here = add(_direction(e), _label(e), below, about, inside=inside)
        for v in e.inputs:
            if v in made:
                edges.append({"from": made[v], "to": here, "label": show_type(v.type)})
        made.update(dict.fromkeys(e.outputs, here))
    for i, out in enumerate(program.outputs):
        label = f"result {i}" if len(program.outputs) > 1 else "result"
        here = add("output", label, names.atom(out) if isinstance(out, Literal) else "")
        if out in made:
            edges.append({"from": made[out], "to": here, "label": show_type(out.type)})
    return {"nodes": nodes, "edges": _merged(edges)}


def of_lines(program: Program) -> Graph:
    """Return a box per user line and direction, with arrows for the values passed between them."""
    groups: dict[Any, list[Equation]] = {}
    for e in program.equations:
        groups.setdefault(_group(e), []).append(e)
    number = {group: i + 1 for i, group in enumerate(groups)}
    nodes: list[Node] = []
    made: dict[Any, int] = {}
    for group, equations in groups.items():
        first = equations[0]
        kinds = Counter([e.primitive.name for e in equations]).most_common(8)
        about = ", ".join([f"{n} x {name}" if n > 1 else name for name, n in kinds])
        label = text_of(first.source) or _place(first) or first.primitive.name
        below = f"{_place(first)} · {len(equations)} equations"
        nodes.append(
            {
                "id": number[group],
                "kind": _direction(first),
                "label": cut(label, _LONGEST),
                "below": below,
                "about": f"{label}\n{provenance(first)}\n{about}",
                "inside": [],
            }
        )
        made.update({v: number[group] for e in equations for v in e.outputs})
    edges = []
    ends: Sequence[tuple[str, Sequence[Any]]] = (("input", program.inputs), ("output", program.outputs))
    for kind, given in ends:
        if given:
            at = len(groups) + 1 + (kind == "output")
            nodes.append(
                {
                    "id": at,
                    "kind": kind,
                    "label": f"{len(given)} {kind}s",
                    "below": "",
                    "about": _listed(program) if kind == "input" else kind,
                    "inside": [],
                }
            )
            if kind == "input":
                made.update(dict.fromkeys(given, at))
            else:
                edges += [_edge(made[v], at, v) for v in dict.fromkeys(given) if v in made]
    for e in program.equations:
        here = number[_group(e)]
        edges += [_edge(made[v], here, v) for v in dict.fromkeys(e.inputs) if v in made]
    return {"nodes": nodes, "edges": _merged([e for e in edges if e["from"] != e["to"]])}


def size(graph: Graph) -> int:
    """Return the number of equation boxes, nested ones included."""
    inner = [i["graph"] for n in graph["nodes"] for i in n.get("inside", ())]
    own = sum([n["kind"] in ("forward", "backward") for n in graph["nodes"]])
    return own + sum([size(g) for g in inner])


def _edge(source: int, to: int, v: Any) -> dict[str, Any]:
    return {"from": source, "to": to, "label": show_type(v.type)}


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
    """Return whether the equation is forward or backward (made by a transposition)."""
    origin = e.origin
    while origin is not None:
        if origin.how == "transpose of":
            return "backward"
        origin = origin.equation.origin
    return "forward"


def _group(e: Equation) -> Any:
    if e.source is None:
        return None, e.primitive.name, _direction(e)
    return e.source[0].co_filename, line_of(e.source), _direction(e)


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
    lines = [f"{places[v]}: {show_type(v.type)}" for v in program.inputs if v in places]
    more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join(["input", *lines[:_LISTED], *more])


def _end(path: str) -> str:
    """Return the end of a long path, which distinguishes it from others."""
    return path if len(path) <= _LONGEST else "…" + path[1 - _LONGEST :]


# --- entry ----------------------------------------------------------------------------------------

BOXES = 200  # most equations of a picture with a box for each


@runtime.answers(runtime.draw)
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
    closed = _holding(graph) if size(graph) > BOXES else []
    if file.suffix.lower() == ".svg":
        text = svg(graph, closed)
    else:
        n = sum([len(p.equations) for p in children_first(program)])
        note = f"{n} equations" + (", grouped by source line" if lines else "")
        text = page(program.name or "program", note, graph, closed)
    file.write_text(text, encoding="utf-8")
    return file


def svg(graph: Graph, closed: list[int]) -> str:
    """Return the SVG of a graph; the boxes `closed` are collapsed."""
    return _engine().call("picture", graph, closed)


def page(title: str, note: str, graph: Graph, closed: list[int]) -> str:
    """Return an HTML page that draws the graph."""
    return filled(
        asset("draw.html"),
        TITLE=escape(title),
        NOTE=escape(note),
        DATA=embedded({"graph": graph, "closed": closed}),
        DAGRE=asset("dagre.min.js"),
        PICTURE=asset("picture.js"),
        SCRIPT=asset("draw.js"),
    )


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


def _holding(graph: Graph) -> list[int]:
    """Return the boxes that hold programs, at all depths."""
    found = []
    for n in graph["nodes"]:
        if n.get("inside"):
            found += [n["id"], *[i for part in n["inside"] for i in _holding(part["graph"])]]
    return found
