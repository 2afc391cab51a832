"""The page of stages: what is in it, that it needs nothing else, and that a browser shows it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.inspect.explore import explore, stages

pytestmark = pytest.mark.smoke

COLUMNS = ("text", "depth", "source", "how", "flops", "bytes", "inside", "ms")
Stages = dict[str, dict[str, list[Any]]]


def read(path: Path) -> tuple[Stages, dict[str, Any], str]:
    """The stages by name, all of the page's data, and its text."""
    html = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    stages = {s["name"]: dict(zip(COLUMNS, s["columns"], strict=True)) for s in data["stages"]}
    return stages, data, html


def loss(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)  # a line </script> of source
    return jnp.sum(h * h)


W, X = np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)


@pytest.fixture(scope="module")
def gradient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return explore(ft.grad(loss), tmp_path_factory.mktemp("explore") / "page.html")(W, X)


def test_lines_and_costs_in_all_stages(gradient: Path):
    stages, data, _ = read(gradient)
    assert list(stages) == ["source", "traced", "differentiated", "optimized", "StableHLO"]
    assert any("stablehlo.tanh" in line for line in stages["StableHLO"]["text"])
    assert not any("loc(" in line for line in stages["StableHLO"]["text"])
    line = loss.__code__.co_firstlineno + 1
    number = data["places"].index(f"test_explore.py:{line}")
    for name, stage in stages.items():
        rows = [t for t, s in zip(stage["text"], stage["source"], strict=True) if s == number]
        assert any("tanh" in row for row in rows), name
        assert all("reduce_sum" not in row for row in rows), name
    hows = {data["hows"][i] for i in stages["differentiated"]["how"]}
    assert any(how.startswith("transpose of") for how in hows)
    assert {data["hows"][i] for i in stages["traced"]["how"]} == {""}
    product, both = 2 * 4 * 3 * 2, [("traced", "dot_general"), ("source", "jnp.tanh")]
    flops = [stages[n]["flops"][next(i for i, t in enumerate(stages[n]["text"]) if w in t)] for n, w in both]
    assert flops[0] == product
    assert flops[1] > product  # forward and backward


def test_it_stands_alone(gradient: Path):
    _, _, html = read(gradient)
    assert not re.search(r"https?://|<link|src=|@import|url\(", html)
    assert "prefers-color-scheme: dark" in html
    assert html.count("</script>") == 2  # the source line that holds one did not end the data
    assert "{{" not in html


def test_nested_programs_fold(tmp_path: Path):
    def run(x: Any) -> Any:
        return lax.scan(lambda c, y: (c * y, jnp.sin(c)), 1.0, x)

    stages, _, _ = read(explore(run, tmp_path / "p.html")(np.ones(5, np.float32)))
    assert list(stages) == ["source", "traced", "optimized", "StableHLO"]
    traced = stages["traced"]
    at = next(i for i, t in enumerate(traced["text"]) if "= scan" in t)
    inside = slice(at + 1, at + 1 + traced["inside"][at])
    assert any("= sin" in t for t in traced["text"][inside])
    sin = next(i for i, t in enumerate(traced["text"]) if "= sin" in t)
    assert traced["flops"][sin] == 5 * 10  # five steps
    assert min(traced["depth"][inside]) > traced["depth"][at]


def test_many_arguments_fold(tmp_path: Path):
    params = {"w": [W] * 9}
    stages, _, html = read(explore(lambda p: sum(p["w"]), tmp_path / "p.html")(params))
    traced = stages["traced"]
    assert traced["text"][1] == "9 arguments"
    assert traced["inside"][1] == 9
    assert traced["text"][10] == "i: f32[3,2] = p['w'][8]"
    assert traced["depth"][10] > traced["depth"][11]
    assert r"^\d+ arguments$" in html  # by which the page knows the row


def nested(params: Any, x: Any) -> Any:
    return x @ params["w"][0] @ params["w"][1]


def power(x: Any, n: int, mode: str = "sum") -> Any:
    return getattr(x**n, mode)()


TRACED = ["source", "traced", "optimized", "StableHLO"]
MORE = {  # a function, arguments, the names of the stages
    "vmap": (
        ft.vmap(ft.grad(loss), (None, 0)),
        (W, X[None]),
        ["source", "differentiated and batched", *TRACED[2:]],
    ),
    "jit": (ft.jit(loss), (W, X), TRACED),
    "a program": (ft.make_ir(loss)(W, X), (W, X), TRACED),
    "static arguments": (ft.jit(power, static_argnames=("n", "mode")), (X, 3, "prod"), TRACED),
    "of a derivative": (
        ft.jit(ft.grad(power), static_argnums=1),
        (X, 3),
        ["source", "traced", "differentiated", *TRACED[2:]],
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_which_stages_there_are(name: str, tmp_path: Path):
    """Below vmap, what is traced is not guessed."""
    f, args, expected = MORE[name]
    made, _, _ = read(explore(f, tmp_path / "p.html")(*args))
    assert list(made) == expected
    assert any("reduce_prod" in line for line in made["optimized"]["text"]) == (name == "static arguments")


def test_the_gradient_of_a_jitted_function_is_not_taken_for_that_function():
    f = ft.jit(lambda x: jnp.sum(jnp.sin(x)))
    optimized = stages(ft.grad(f), (np.ones(3, np.float32),), {})[0][-2]
    assert optimized.name == "optimized"
    rows = [row[0] for row in optimized.rows][1:]
    assert rows == ["a: f32[3] = x", "b: f32[3] = cos a", "return b"]
