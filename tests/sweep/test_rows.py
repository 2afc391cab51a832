"""Each parameter of our functions is given in a row of the tables, which test_every_dtype.py evaluates."""

import ast
import importlib
import inspect
from typing import Any

import pytest

from tests.support.libraries import MODULES
from tests.sweep.test_every_dtype import GROUPS

# Parameters of many functions that change no number, or that other tests are about.
NO_NUMBERS = {"out", "out_sharding", "sharding", "device", "copy", "order", "precision"}
# Functions that take no arrays, or names of axes, or that JAX 0.11 alone has; tests/ has each
# elsewhere.
_ELSEWHERE = """all_gather all_to_all axis_index axis_size log2 one_minus_square pbroadcast pcast pmax pmean
pmin ppermute pshuffle psum psum_scatter pswapaxes ragged_all_to_all"""
ELSEWHERE = set(_ELSEWHERE.split())
# Functions whose parameter `where` JAX's own code refuses.
_WITHOUT_WHERE = """add bitwise_and bitwise_or bitwise_xor logaddexp logaddexp2 logical_and logical_or
logical_xor maximum minimum multiply negative subtract"""
WITHOUT_WHERE = set(_WITHOUT_WHERE.split())


def named(node: ast.expr) -> tuple[str, list[str]] | None:
    """The module and the attributes of a dotted name that begins with a module of the library."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in MODULES:
        return node.id, parts[::-1]
    return None


def signature(module: str, names: list[str], library: str) -> inspect.Signature | None:
    found: Any = importlib.import_module(f"{library}.{MODULES[module]}")
    try:
        for name in names:
            found = getattr(found, name)
        return inspect.signature(found)
    except (AttributeError, TypeError, ValueError):
        return None


def given(call: ast.Call, parameters: list[inspect.Parameter]) -> set[str]:
    """The parameters that a call gives."""
    ordered = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    names = set(ordered if starred else ordered[: len(call.args)])
    return names | {k.arg for k in call.keywords if k.arg}


def given_in_rows() -> dict[str, set[str]]:
    """function -> the parameters that a row gives it."""
    found: dict[str, set[str]] = {}
    for rows in GROUPS.values():
        for row in rows:
            for node in ast.walk(ast.parse(row, mode="eval")):
                path = named(node.func) if isinstance(node, ast.Call) else None
                of = path and signature(*path, "functrans")
                if path and of:
                    name = ".".join([path[0], *path[1]]).replace("jnp.linalg.", "linalg.")
                    found.setdefault(name, set()).update(given(node, [*of.parameters.values()]))
    return found


@pytest.mark.parametrize("module", ["jnp", "lax", "nn"])
def test_each_parameter_of_our_functions_is_given_in_a_row(module):
    rows, lacking = given_in_rows(), {}
    ours = importlib.import_module(f"functrans.{MODULES[module]}")
    for name in dir(ours):
        function = getattr(ours, name)
        if name.startswith("_") or inspect.isclass(function) or not inspect.isroutine(function):
            continue
        mine, theirs = [signature(module, [name], lib) for lib in ("functrans", "jax")]
        handed_on = hasattr(function, "clear_cache") or function is getattr(
            importlib.import_module(f"jax.{MODULES[module]}"), name, None
        )
        if handed_on or mine is None or theirs is None or name in ELSEWHERE:
            continue
        wanted = {p.name for p in mine.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        wanted = wanted & set(theirs.parameters) - NO_NUMBERS
        if name in WITHOUT_WHERE:
            wanted.discard("where")
        full = f"{module}.{name}"
        if full not in rows or wanted - rows[full]:
            lacking[full] = sorted(wanted - rows.get(full, set())) or "no row"
    assert not lacking
