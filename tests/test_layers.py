"""The house rules that no reader of one file sees: who may import whom, how long a file is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "functrans"
FILES = sorted(ROOT.rglob("*.py"))

# A file may import from its own layer and from those before it.
LAYERS = [
    {"errors", "flags", "loading", "pytrees"},
    {"ir"},
    {"tracer", "tree_checks"},
    {"flat"},
    {"trace"},
    {"primitives"},
    {"transforms"},
    {"passes"},
    {"backends"},
    {"lax"},
    {"numpy"},
    {"random", "ops"},
    {"nn", "image"},
    {"api", "flatten_util"},
    {"interop", "inspect"},
    {"scipy"},  # its long tail is imported from JAX
    {"__init__", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# Public modules that only hand on names from other layers, as `tree_util` does.
FACADES = {
    "ad_checkpoint",
    "tree",
    "tree_util",
    "dtypes",
    "custom_derivatives",
    "typing",
    "util",
    "core",
    "stages",
    "debug",
    "custom_batching",
    "experimental",
}

MAY_USE_JAX_INTERNALS = ("backends/xla.py", "interop/")
MAX_LINES = 500
# Runs pieces of the library's own references with what is known of their arguments.
EVALUATES = "inspect/python_source/expressions.py"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer(path: Path) -> str:
    return relative(path).partition("/")[0].removesuffix(".py")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in FILES}


def imported(path: Path) -> list[tuple[ast.stmt, str]]:
    """Every module that a file imports, with the statement."""
    found: list[tuple[ast.stmt, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno}: a relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.append((node, full if full in MODULES else base))
    return found


def test_every_module_has_a_layer():
    known = set(RANK) | FACADES
    assert {layer(path) for path in FILES} <= known


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_imports_point_to_the_left(path):
    here = RANK.get(layer(path), RANK["__init__"])
    for node, name in imported(path):
        if name == "functrans" or name.startswith("functrans."):
            there = name.split(".")[1] if "." in name else "__init__"
            rank = RANK.get(there, RANK["interop"])
            where = f"{relative(path)}:{node.lineno}: {layer(path)} may not import {there}"
            assert rank <= here, where
            if there != layer(path) and rank == here:
                assert {there, layer(path)} <= LAYERS[0], where


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_import_inside_a_function(path):
    tree = ast.parse(path.read_text())
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for node in ast.walk(function):
                ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                    "functrans"
                )
                ours = ours or (
                    isinstance(node, ast.Import)
                    and any(alias.name.startswith("functrans") for alias in node.names)
                )
                assert not ours, f"{relative(path)}:{node.lineno}: an import inside a function"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_who_may_use_the_internals_of_jax(path):
    if relative(path).startswith(MAY_USE_JAX_INTERNALS):
        return
    for node, name in imported(path):
        where = f"{relative(path)}:{node.lineno}: {name}"
        assert not re.match(r"jax\._src|jaxlib|jax\.interpreters", name), where


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_files_are_short_and_silent(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            where = f"{relative(path)}:{node.lineno}"
            assert node.func.id != "print", f"{where}: library code does not print"
            evaluates = node.func.id in ("eval", "exec") and relative(path) != EVALUATES
            assert not evaluates, f"{where}: library code evaluates no text"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_nothing_is_left_to_do(path):
    left = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())
    assert left is None, f"{relative(path)}: {left.group()}"
