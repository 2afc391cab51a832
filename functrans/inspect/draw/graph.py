"""A program as boxes and arrows.

In: a Program. Out: `{"nodes": [...], "edges": [...]}` of plain values, for picture.js. A node that
holds programs has them under `"inside"`, as graphs of the same form. Two levels of detail:

    equations   a box for each equation
    lines       a box for each of the user's lines, forwards and backwards apart: for long programs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from functrans.ir.program import Equation, Literal, Program, argument_names
from functrans.ir.source import line_of, text_of
from functrans.ir.text import Names, nested, provenance, show_equation, show_type

Node = dict[str, Any]
Graph = dict[str, list[Any]]

_LONGEST = 34  # characters of a label
_LISTED = 30  # inputs that are told of one box


def of_equations(program: Program, counter: list[int] | None = None) -> Graph:
    """A box per input, constant, equation and output; nested programs inside theirs."""
    counter = counter if counter is not None else [0]
    names = Names()
    nodes: list[Node] = []
    edges: list[dict[str, Any]] = []
    made: dict[Any, int] = {}

    def add(kind: str, label: str, below: str = "", about: str = "", **more: Any) -> int:
        counter[0] += 1
        nodes.append({"id": counter[0], "kind": kind, "label": _cut(label), "below": _cut(below),
                      "about": about, **more})  # fmt: skip
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
        inside: list[dict[str, Any]] = [
            {"label": label.rstrip(": ") or inner.name, "graph": of_equations(inner, counter)}
            for label, inner in nested(e.params)
        ] if e.primitive.holds_programs else []  # fmt: skip
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
    """A box per user's line and direction; arrows for the values that go from one to another."""
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
        nodes.append({"id": number[group], "kind": _direction(first), "label": _cut(label),
                      "below": below, "about": f"{label}\n{provenance(first)}\n{about}",
                      "inside": []})  # fmt: skip
        made.update({v: number[group] for e in equations for v in e.outputs})
    edges = []
    ends: Sequence[tuple[str, Sequence[Any]]] = (
        ("input", program.inputs), ("output", program.outputs),
    )  # fmt: skip
    for kind, given in ends:
        if given:
            at = len(groups) + 1 + (kind == "output")
            nodes.append({"id": at, "kind": kind, "label": f"{len(given)} {kind}s", "below": "",
                          "about": _listed(program) if kind == "input" else kind,
                          "inside": []})  # fmt: skip
            if kind == "input":
                made.update(dict.fromkeys(given, at))
            else:
                edges += [_edge(made[v], at, v) for v in dict.fromkeys(given) if v in made]
    for e in program.equations:
        here = number[_group(e)]
        edges += [_edge(made[v], here, v) for v in dict.fromkeys(e.inputs) if v in made]
    return {"nodes": nodes, "edges": _merged([e for e in edges if e["from"] != e["to"]])}


def size(graph: Graph) -> int:
    """Boxes of equations, nested ones too."""
    inner = [i["graph"] for n in graph["nodes"] for i in n.get("inside", ())]
    own = sum([n["kind"] in ("forward", "backward") for n in graph["nodes"]])
    return own + sum([size(g) for g in inner])


def _edge(source: int, to: int, v: Any) -> dict[str, Any]:
    return {"from": source, "to": to, "label": show_type(v.type)}


def _merged(edges: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One arrow between two boxes: `f32[3] x 2`, `f32[3], f32[4]`, `f32[3] and 5 more`."""
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
    """Did a transposition make it?"""
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
    """The operation, its short parameters, and the numbers among its operands."""
    short, _ = e.primitive.short_params(e.params)
    numbers = [str(v.value) for v in e.inputs if isinstance(v, Literal)]
    return " ".join([e.primitive.name, *([short] if short else []), *numbers])


def _place(e: Equation) -> str:
    if e.source is None:
        return ""
    return f"{e.source[0].co_name}:{line_of(e.source)}"


def _listed(program: Program) -> str:
    """The inputs by their places in the function's arguments, one a line."""
    places = argument_names(program)
    lines = [f"{places[v]}: {show_type(v.type)}" for v in program.inputs if v in places]
    more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join(["input", *lines[:_LISTED], *more])


def _end(path: str) -> str:
    """The end of a path, which tells it from others, where it is long."""
    return path if len(path) <= _LONGEST else "…" + path[1 - _LONGEST :]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
