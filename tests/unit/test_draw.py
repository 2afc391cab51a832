"""Pictures of programs: their boxes and arrows, the SVG, the page, what a notebook shows."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from benchmarks.models import OURS, transformer_loss, transformer_params
from functrans import errors, lax
from functrans.inspect import draw
from functrans.inspect.draw import of_equations, of_lines, size
from functrans.ir.program import Program

pytestmark = pytest.mark.smoke

SVG = "{http://www.w3.org/2000/svg}"


def loss(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)  # a line </script> of source
    return jnp.sum(h * h)


def looped(x: Any) -> Any:
    total, _ = lax.scan(lambda c, y: (c + jnp.sin(y), None), 0.0, x)
    return lax.cond(total > 0, jnp.sin, jnp.cos, total)


GRADIENT = ft.make_ir(ft.grad(loss))(np.ones((3, 2), np.float32), np.ones((4, 3), np.float32))
LOOP = ft.make_ir(looped)(np.ones(5, np.float32))


def long_program() -> Program:
    params = transformer_params(2, 16)
    return ft.make_ir(ft.grad(transformer_loss(OURS)))(params, np.arange(9))


def test_a_box_for_each_equation_and_an_arrow_for_each_value():
    graph = of_equations(GRADIENT)
    assert size(graph) == len(GRADIENT.equations)
    nodes = {n["id"]: n for n in graph["nodes"]}
    backward = [n for n in nodes.values() if n["kind"] == "backward"]
    assert any(n["label"].startswith("dot_general") for n in backward)
    arrows = {(nodes[e["from"]]["label"], nodes[e["to"]]["label"], e["label"]) for e in graph["edges"]}
    assert ("dot_general ik,kj->ij", "tanh", "f32[4,2]") in arrows
    assert {n["kind"] for n in nodes.values()} == {"input", "forward", "backward", "output"}


def test_nested_programs_are_named_in_their_equation():
    cond = next(n for n in of_equations(LOOP)["nodes"] if n["label"].startswith("cond"))
    assert [part["label"] for part in cond["inside"]] == ["branches.0", "branches.1"]


def test_long_programs_by_lines():
    program = long_program()
    graph = of_lines(program)
    assert 10 < len(graph["nodes"]) < 80
    below = [n["below"] for n in graph["nodes"] if n["below"]]
    assert sum([int(b.split(" · ")[1].split()[0]) for b in below]) == len(program.equations)
    both = [n["kind"] for n in graph["nodes"] if n["label"].startswith("scores = jnp.einsum")]
    assert sorted(both) == ["backward", "forward"]


@pytest.fixture
def engine() -> None:
    pytest.importorskip("py_mini_racer", reason="an SVG is laid out by the extra functrans[draw]")


@pytest.mark.parametrize("program", [GRADIENT, LOOP], ids=["gradient", "loop"])
def test_svg(program: Program, tmp_path: Path, engine: None):
    root = xml.parse(program.draw(tmp_path / "p.svg")).getroot()
    wide, tall = float(root.get("width", 0)), float(root.get("height", 0))
    boxes = [g for g in root.iter(SVG + "g") if "data-id" in g.attrib]
    kinds = [g.attrib["class"].split()[1] for g in boxes]
    assert kinds.count("forward") + kinds.count("backward") == size(of_equations(program))
    places = []
    for g in boxes:
        rect = next(iter(g.iter(SVG + "rect")))
        x, y, w, h = (float(rect.get(k, 0)) for k in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= wide
        assert y + h <= tall
        for a, b, c, d in places:  # no box lies on another
            assert x + w <= a or a + c <= x or y + h <= b or b + d <= y
        places.append((x, y, w, h))
    text = xml.tostring(root, encoding="unicode")
    assert "prefers-color-scheme:dark" in text
    assert text.count("marker-end") >= len(of_equations(program)["edges"])


def test_html(tmp_path: Path):
    html = LOOP.draw(tmp_path / "p.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data == {"graph": of_equations(LOOP), "closed": []}
    plain = html.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|<link|src=|@import|url\((?!#)", plain)
    assert html.count("</script>") == 2
    assert "{{" not in html
    assert len(html) < 120_000
    assert "grouped by source line" in long_program().draw(tmp_path / "q.html").read_text()


def test_a_notebook_shows_coloured_text():
    html = GRADIENT._repr_html_()
    plain = re.sub(r"<[^>]*>", "", html)
    assert plain.replace("&gt;", ">") == str(GRADIENT)
    assert ">tanh</span>" in html


def test_the_backward_rule_of_a_custom_function_is_backward():
    @ft.custom_vjp
    def clipped(x):
        return jnp.sin(x)

    clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (-g * jnp.cos(x),))
    graph = of_equations(ft.make_ir(ft.grad(lambda x: clipped(x) ** 2))(1.0))
    kinds = {n["label"].partition(" ")[0]: n["kind"] for n in graph["nodes"]}
    assert (kinds["sin"], kinds["neg"], kinds["cos"]) == ("forward", "backward", "backward")


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    GRADIENT.draw(tmp_path / "P.HTML")
    monkeypatch.setitem(sys.modules, "py_mini_racer", None)
    draw._engine.cache_clear()
    with pytest.raises(errors.NotSupported, match=r"pip install functrans\[draw\]"):
        GRADIENT.draw(tmp_path / "p.svg")


@pytest.mark.skipif(sys.version_info < (3, 13), reason="there the engine waited for the interpreter's end")
def test_a_process_that_has_drawn_a_picture_ends(tmp_path):
    pytest.importorskip("py_mini_racer", reason="an SVG is laid out by the extra functrans[draw]")
    code = "import functrans as ft; ft.make_ir(ft.numpy.sin)(1.0).draw('x.svg')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "x.svg").exists()
