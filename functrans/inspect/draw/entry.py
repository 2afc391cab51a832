"""The computation graph of a program as a picture.

In: a Program. Out: an SVG file, or an HTML page in which nested programs open and close.

The layout is dagre's (github.com/dagrejs/dagre, MIT, version 3.1.3, one file of 50 kB in this
package): layered, knows frames within frames, needs no network, and runs where the page does, so
that the page can lay out anew when a box is opened. For an SVG the same two scripts run in V8
(`mini-racer`, the extra `draw`), which keeps one layout and one drawing for both. Graphviz would
need a binary, elkjs is 1.5 MB under the EPL, grandalf knows no frames.

dagre takes a second for 200 boxes and a minute for 1,000, and no one can read such a picture: a
longer program is drawn by the user's lines (graph.py). `ft.explore` shows each equation.
"""

from __future__ import annotations

import functools
import importlib
from html import escape
from pathlib import Path
from typing import Any

from functrans import errors, runtime
from functrans.inspect.assets import asset, embedded, filled
from functrans.inspect.draw.graph import Graph, of_equations, of_lines, size
from functrans.inspect.page import file_to_write
from functrans.ir.check import check_program
from functrans.ir.program import Program
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import boundary
from functrans.passes.rewrite import children_first

BOXES = 200  # equations of a picture that has a box for each


@runtime.answers(runtime.draw)
@boundary
def draw(program: Program, path: str | Path) -> Path:
    """Draw the computation graph of a program; also `program.draw(path)`.

    Arguments:
      program: from `make_ir`, `parse` or a jitted function's `.program`.
      path: a file that ends in `.svg`, or in `.html`: there nested programs open and close. Forward
        and backward have two colours, arrows bear types. Of more than 200 equations, nested ones
        counted only as far as they are open, the user's lines are drawn.

    Returns:
      The file's Path.

    Raises:
      InvalidArgument: the path ends otherwise; `program` is not a Program.
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
    """The picture of a graph, the boxes `closed` not opened."""
    return _engine().call("picture", graph, closed)


def page(title: str, note: str, graph: Graph, closed: list[int]) -> str:
    """The page of a graph, which draws itself."""
    return filled(
        asset(__package__, "page.html"), TITLE=escape(title), NOTE=escape(note),
        DATA=embedded({"graph": graph, "closed": closed}), DAGRE=asset(__package__, "dagre.min.js"),
        PICTURE=asset(__package__, "picture.js"), SCRIPT=asset(__package__, "page.js"),
    )  # fmt: skip


# Browsers have it, bare V8 has not; dagre copies plain objects with it.
_CLONE = """globalThis.structuredClone = (x) => Array.isArray(x) ? x.map(structuredClone)
  : x && typeof x === "object" ? Object.fromEntries(
      Object.entries(x).map(([k, v]) => [k, structuredClone(v)])) : x;"""


@functools.cache
def _engine() -> Any:
    """A JavaScript engine that knows `picture`."""
    try:
        racer = importlib.import_module("py_mini_racer")  # of an extra, and 20 MB
    except ImportError:
        raise errors.NotSupported(
            "draw: an SVG needs the package mini-racer for its layout, at\n"
            f"    {describe(user_source())}\n"
            "Run `pip install functrans[draw]`, or write an .html file, which needs no package."
        ) from None
    engine = racer.MiniRacer()
    engine.eval(_CLONE)
    for name in ("dagre.min.js", "picture.js"):
        text = asset(__package__, name)
        engine.eval(text.replace('"use strict";', "", 1))  # which would hide what it defines
    return engine


def _holding(graph: Graph) -> list[int]:
    """The boxes that hold programs, at all depths."""
    found = []
    for n in graph["nodes"]:
        if n.get("inside"):
            found += [n["id"], *[i for part in n["inside"] for i in _holding(part["graph"])]]
    return found
