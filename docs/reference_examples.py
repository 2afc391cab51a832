"""The examples of the API reference that no docstring of functrans shows, with their results.

`example` looks in three places: more_examples.txt, the calls of benchmarks/namespace_calls.txt, and
for a function of JAX's the first example in its own docstring, which runs here under functrans'
names. All run when the site is built, and what they print is what the page shows.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import fnmatch
import functools
import inspect
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import functrans as ft

HERE = Path(__file__).parent
CALLS = HERE.parent / "benchmarks" / "namespace_calls.txt"
SHORT = {"functrans.numpy.": "jnp.", "functrans.lax.": "lax.", "functrans.nn.": "nn.", "functrans.": "ft."}

ARRAYS = {  # small ones, under the names that the calls use
    "x": "jnp.array([[1.0, -2.0], [0.5, 3.0]])",
    "y": "jnp.array([[2.0, 1.0], [4.0, -1.0]])",
    "p": "jnp.array([0.5, 1.0, 4.0])",
    "u": "jnp.array([-0.5, 0.0, 0.5])",
    "b": "jnp.array([True, False, True])",
    "b2": "jnp.array([True, True, False])",
    "i": "jnp.array([-3, 0, 5])",
    "j": "jnp.array([1, 2, 4])",
    "n8": "jnp.array([1, 2, 4], jnp.uint8)",
    "v": "jnp.array([1.0, -2.0, 3.0])",
    "v6": "jnp.arange(6.0)",
    "s": "0.5",
    "m": "jnp.array([[1.0, 2.0], [3.0, 4.0]])",
    "w": "jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])",
    "q": "jnp.arange(6.0).reshape(1, 2, 3)",
    "z": "jnp.array([1.0 + 2.0j, -3.0j])",
    "nans": "jnp.array([1.0, jnp.nan])",
    "inf": "jnp.array([1.0, jnp.inf])",
}


LONGEST = 20  # lines of an example, with what it prints


def example(full: str, value: Any = None) -> list[str]:
    """The lines of a doctest of a function, by its full name; none if there is nothing to show.
    `value` is given for what JAX defines."""
    by_hand = written(full)
    if by_hand or value is None:
        return lines_of(run(by_hand or called(full)))
    for found in (of_docstring(full, value), called(full)):
        with contextlib.suppress(Exception):  # one that does not run is none
            lines = lines_of(run(found))
            if 0 < len(lines) <= LONGEST and not any(re.search(r" at 0x|/tmp", line) for line in lines):
                return lines
    return lines_of(run(of_family(full)))


# --- where an example is found --------------------------------------------------------------------


@functools.cache
def blocks() -> dict[str, str]:
    """The code of more_examples.txt by name; a name may be a pattern."""
    found = {}
    for block in (HERE / "more_examples.txt").read_text().split("\n\n")[1:]:
        first, _, code = block.strip().partition("\n")
        found.update(dict.fromkeys(first.split(), code))
    return found


def written(full: str) -> list[str]:
    """By hand, for this name."""
    return filled(full, blocks()[full]) if full in blocks() else []


def of_family(full: str) -> list[str]:
    """By hand, for the first pattern of as many parts that the name matches."""
    for name, code in blocks().items():
        same = "*" in name and name.count(".") == full.count(".")
        if same and fnmatch.fnmatchcase(full, name):
            return filled(full, code)
    return []


def filled(full: str, code: str) -> list[str]:
    """The statements of code in which `{f}` is the function and `{n}` its last name."""
    code = code.replace("{f}", short(full)).replace("{n}", full.rpartition(".")[2])
    lines = code.split("\n")
    found = []
    for node in ast.parse(code).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        found.append("\n".join(lines[first - 1 : node.end_lineno]))
    return [*found[:-1], printed(found[-1])]


@functools.cache
def calls() -> dict[str, str]:
    """A small call of each native function, by its full name."""
    found = {}
    for line in CALLS.read_text().splitlines():
        match = re.match(r"(jnp|lax|nn)\.([\w.]+)\(", line)
        if match:
            space = {"jnp": "numpy"}.get(match[1], match[1])
            found[f"functrans.{space}.{match[2]}"] = line
    return found


def called(full: str) -> list[str]:
    """Its call, after the arrays that the call names."""
    call = calls().get(full, "")
    words = dict.fromkeys(re.findall(r"\b\w+\b", call))
    arrays = [f"{word} = {ARRAYS[word]}" for word in words if word in ARRAYS]
    return [*arrays, printed(call)] if call else []


def of_docstring(full: str, value: Any) -> list[str]:
    """From the docstring of a function of JAX's: up to the first result after its name."""
    name = full.rpartition(".")[2]
    try:
        parsed = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
    except ValueError:  # text that only looks like one
        return []
    bare = not any(re.search(rf"import .*\b{name}\b", e.source) for e in parsed)
    sources, named = [], False
    for e in parsed:
        source = as_ours(re.sub(r"[ ]*# doctest:.*", "", e.source.rstrip()))
        if re.match(r"import (jax|numpy as np)", e.source):
            continue
        if bare:
            source = re.sub(rf"(?<![\w.])(np\.)?{name}(?=\()", short(full), source)
        sources.append(source)
        named = named or re.search(rf"\b{name}\b", source) is not None
        if named and e.want:
            return sources
    return []


def as_ours(source: str) -> str:
    """Code for JAX under functrans' names."""
    if source.startswith("from jax"):
        return source.replace("jax", "functrans", 1)
    source = re.sub(r"\bjax\.numpy\b", "jnp", source)
    return re.sub(r"\bjax\b", "ft", re.sub(r"\bjax\.(?=(lax|nn)\b)", "", source))


def short(full: str) -> str:
    """A public name as the examples write it."""
    start = next(start for start in SHORT if full.startswith(start))
    return SHORT[start] + full.removeprefix(start)


# --- running it -----------------------------------------------------------------------------------


def run(sources: list[str]) -> list[tuple[str, str]]:
    """Each statement and what it prints, as at Python's prompt."""
    names: dict[str, Any] = {"jnp": ft.numpy, "lax": ft.lax, "nn": ft.nn, "np": np, "ft": ft}
    ran = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for source in sources:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(source + "\n", "<example>", "single"), names)
            ran.append((source, out.getvalue()))
    return ran


def printed(source: str) -> str:
    """An expression is printed; a statement is left alone."""
    try:
        compile(source, "<example>", "eval")
    except SyntaxError:
        return source
    return source if source.startswith("print(") else f"print({source})"


def lines_of(ran: list[tuple[str, str]]) -> list[str]:
    """A doctest."""
    lines = []
    for source, out in ran:
        if source.startswith("print(") and out.split("\n")[-2:] == ["None", ""]:  # as at the prompt
            source, out = source[len("print(") : -1], out.removesuffix("None\n")
        first, *rest = source.split("\n")
        lines += [f">>> {first}", *(f"... {line}".rstrip() for line in rest), *out.rstrip().splitlines()]
    return lines
