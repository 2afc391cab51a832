"""The gallery: each example at a tiny size, the claims of three at more; the notebooks by cells."""

import functools
import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

from tests.support.versions import QUICK

ROOT = Path(__file__).parents[2]
TINY = {  # module -> constants of a tiny problem
    "private_flax": {"BATCH": 32},
    "meta_learning": {"TASKS": 4, "WIDTHS": (1, 8, 1), "SHOWN": (0, 1, 2)},
}
GALLERY = ("private_flax", "equinox_kernel", "pinn", "meta_learning", "neural_ode", "fit_simulator")
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.fixture
def example(monkeypatch, request) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield importlib.import_module(request.param)
    sys.modules.pop(request.param, None)


@pytest.fixture
def quick(monkeypatch) -> None:
    """JAX's side of an example, which is only timed, is compiled quickly."""
    monkeypatch.setattr(jax, "jit", functools.partial(jax.jit, compiler_options=QUICK))


def result(example: ModuleType, steps: int, picture: Path, capsys: Any) -> Any:
    """What the example says of its result, after the checks of what all of them do."""
    found, times = example.main(steps, str(picture), rounds=1)
    assert {"jax.jit", "ft.jit"} <= {name.rpartition(", ")[2] for name in times}
    assert picture.read_bytes()[1:4] == b"PNG"
    said = capsys.readouterr().out
    assert all(f"{jit} " in said for jit in ("jax.jit", "ft.jit"))
    return found


@pytest.mark.rest
@pytest.mark.parametrize("example", TINY, indirect=True)
def test_an_example_of_the_gallery(example, monkeypatch, tmp_path, capsys):
    """Tiny; two more run below, and two in test_examples.py."""
    for name, value in TINY[example.__name__].items():
        monkeypatch.setattr(example, name, value)
    result(example, 3, tmp_path / "picture.png", capsys)


@pytest.mark.sweep
@pytest.mark.parametrize("example", ["pinn"], indirect=True)
def test_the_equation_is_solved(example, quick, tmp_path, capsys):
    assert result(example, 1500, tmp_path / "picture.png", capsys) < 0.03


@pytest.mark.sweep
@pytest.mark.parametrize("example", ["meta_learning"], indirect=True)
def test_adapting_is_learnt(example):
    before, once, often = example.errors(example.train(3000))
    assert once < 0.7 * before
    assert often < once


@pytest.mark.sweep
@pytest.mark.parametrize("example", ["neural_ode"], indirect=True)
def test_new_curves_are_met(example, quick, tmp_path, capsys):
    assert result(example, 300, tmp_path / "picture.png", capsys) < 4 * example.NOISE


def test_the_table_shows_every_example():
    text = (ROOT / "examples" / "README.md").read_text()
    for name in GALLERY:
        picture = ROOT / "docs" / "gallery" / f"{name}.png"
        assert f"python examples/{name}.py" in text
        assert f"../docs/gallery/{name}.png" in text
        assert picture.stat().st_size < 40_000
        usage = (ROOT / "examples" / f"{name}.py").read_text()
        assert re.search(rf"^    python examples/{name}\.py .*--out {name}\.png\]$", usage, re.M)
    for path in NOTEBOOKS:
        assert path.name in text


@pytest.mark.sweep
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, monkeypatch, tmp_path):
    """Without Jupyter: its code cells in order, with small numbers for its parameters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict = {"__name__": "__main__"}
    for i, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {i}", "exec"), names)
            if "parameters" in cell["metadata"].get("tags", ()):
                names.update(names["SMALL"])
    sys.modules["matplotlib.pyplot"].close("all")
