"""What the rows of the tables give: each function with each of its parameters, beside JAX.

A row is an expression of library_expressions.txt or of the tables of functrans.numpy;
test_every_dtype.py evaluates it. Here: no parameter is left out, and a number in a row may be
traced wherever JAX takes it traced.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import functrans as ft
from tests.matrix import test_numpy
from tests.support.libraries import ARRAYS, MODULES, function_of
from tests.support.versions import EXPRESSIONS
from tests.sweep.test_every_dtype import GROUPS, difference, result

# --- each parameter -------------------------------------------------------------------------------

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


# --- traced numbers -------------------------------------------------------------------------------

# Where JAX takes a traced number and we do not, on purpose.
UNTRACED = [
    "lax.conv_shape_tuple",  # a shape is of numbers
    "lax.fori_loop(0, 3, lambda k, c: c * c, u, unroll=True)",  # JAX's does not unroll it
]


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def is_numbers(node: ast.AST) -> bool:
    elements = getattr(node, "elts", ()) if isinstance(node, (ast.Tuple, ast.List)) else ()
    return bool(elements) and all(is_number(e) for e in elements)


def with_one_traced(row: str) -> Iterator[tuple[str, Any]]:
    """The row with one of its numbers, or one list of them, named `t`; and what t stands for."""
    for accept in (is_number, is_numbers):
        for i in range(sum(map(accept, ast.walk(ast.parse(row, mode="eval"))))):
            tree = ast.parse(row, mode="eval")
            chosen = [n for n in ast.walk(tree) if accept(n)][i]
            for parent in ast.walk(tree):
                for field, value in ast.iter_fields(parent):
                    if value is chosen:
                        setattr(parent, field, ast.Name("t", ast.Load()))
                    elif isinstance(value, list) and chosen in value:
                        value[value.index(chosen)] = ast.Name("t", ast.Load())
            yield ast.unparse(tree), ast.literal_eval(chosen)


def traced_differences(rows: list[str]) -> list[str]:
    found = []
    for k, row in enumerate(rows):
        if row in EXPRESSIONS or any(row.startswith(r) for r in UNTRACED):
            continue
        if k % 16 == 15:
            ft.clear_caches()
        for changed, number in with_one_traced(row):
            values = {"t": jnp.asarray(number)} | {
                n: jnp.asarray(ARRAYS[n]) for n in test_numpy.names_in(row, ARRAYS)
            }
            runs: list[Callable[..., Any]] = [
                jit(function_of(changed, library, [*values]))
                for jit, library in ((ft.jit, "functrans"), (jax.jit, "jax"))
            ]
            theirs = result(runs[1], [*values.values()])
            if not isinstance(theirs, Exception):
                differs = difference(result(runs[0], [*values.values()]), theirs)
                found += [f"{changed}: {differs}"] if differs else []
    return found


QUICK = [
    "jnp.trace(q, 1, 2, 0, dtype='float32')",
    "jnp.roll(x, (1, 2), axis=(0, 1))",
    "jnp.clip(x, 0, 1)",
    "jnp.pad(x, 1, constant_values=((1, 2), (3, 4)))",
    "jnp.linspace(x, 1, 4, axis=1)",
    "jnp.eye(3, k=1)",
]


def test_numbers_may_be_traced():
    assert not traced_differences(QUICK)


@pytest.mark.heavy
@pytest.mark.parametrize("group", GROUPS)
def test_all_numbers_may_be_traced(group):
    assert not traced_differences(GROUPS[group])
