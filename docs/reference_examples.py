"""The examples of the API reference that no docstring of functrans shows, with their results.

`example` looks in four places: more_examples.txt, the calls of benchmarks/namespace_calls.txt, for a
name of JAX's the first example in its own docstring, which runs here under functrans' names, and for a
class of errors the misuses of tests/pages. All run when the site is built, and what they print is what
the page shows. With FUNCTRANS_ONE_EXAMPLE_IN=10 one in ten of JAX's own runs, and nine are shown without
results: for tests of the site, since JAX tests its functions.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import fnmatch
import functools
import inspect
import io
import itertools
import os
import re
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import functrans as ft
from tests.pages import misuses

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
    "X": "np.array([1.0, 2.0, 3.0], np.float32)",
    "M": "np.ones((2, 3), np.float32)",
}


LONGEST = 20  # lines of an example, with what it prints
ONE_IN = int(os.environ.get("FUNCTRANS_ONE_EXAMPLE_IN", "1"))
_asked = itertools.count()


def example(full: str, value: Any = None) -> list[str]:
    """The lines of a doctest of a public name; none if there is nothing to show. `value` is given for
    what JAX defines."""
    by_hand = written(full)
    if value is None:
        ran = run(by_hand or called(full) or of_family(full))
        return lines_of(ran) if ran else of_error(full)
    itself = [] if callable(value) else [printed(short(full))]
    run_or_not = run if next(_asked) % ONE_IN == 0 else unrun
    for found in () if by_hand else (of_docstring(full, value), called(full), itself):
        with contextlib.suppress(Exception):  # one that does not run is none
            lines = lines_of(run_or_not(found))
            if 0 < len(lines) <= LONGEST and not any(re.search(r" at 0x|/tmp", line) for line in lines):
                return lines
    return lines_of(run_or_not(by_hand or of_family(full)))


def the_same(full: str, name: str) -> list[str]:
    """That a name is another name of `functrans` itself."""
    return lines_of(run([printed(f"{short(full)} is ft.{name}")]))


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
    *found, last = statements(code)
    return [*found, printed(last)]


def statements(code: str) -> list[str]:
    lines = code.split("\n")
    found = []
    for node in ast.parse(code).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        found.append("\n".join(lines[first - 1 : node.end_lineno]))
    return found


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
    return [*arrays(call), printed(call)] if call else []


def arrays(code: str) -> list[str]:
    """The arrays that code names."""
    words = dict.fromkeys(re.findall(r"\b\w+\b", code))
    return [f"{word} = {ARRAYS[word]}" for word in words if word in ARRAYS]


def of_error(full: str) -> list[str]:
    """The shortest misuse that leads to a class of functrans' errors, with its message."""
    error = getattr(ft.errors, full.removeprefix("functrans.errors."), None)
    rows = [misuses.source_of(row.run) for row in misuses.TABLE if row.error is error]
    for source in sorted(rows, key=len):
        body = textwrap.dedent(source.partition("\n")[2])
        code = re.sub(r"\bm\.", "ft.", re.sub(r" *# <-", "", body))
        modules = [f"import {name}" for name in ("jax", "tempfile") if f"{name}." in code]
        given = [line for line in arrays(code) if line[0] in "XM"]
        with contextlib.suppress(NameError):  # one that needs more than these
            ran = run([*modules, *given, *statements(code)], error)
            if "Traceback" in ran[-1][1]:
                return lines_of(ran)
    return []


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


def run(sources: list[str], error: Any = ()) -> list[tuple[str, str]]:
    """Each statement and what it prints, as at Python's prompt; up to the first that raises an `error`."""
    names: dict[str, Any] = {"jnp": ft.numpy, "lax": ft.lax, "nn": ft.nn, "np": np, "ft": ft}
    ran = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for source in sources:
            try:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(source + "\n", "<stdin>", "single"), names)
            except error as found:
                said = f"Traceback (most recent call last):\n  ...\nfunctrans.errors.{misuses.shown(found)}"
                return [*ran, (source, said)]
            ran.append((source, out.getvalue()))
    return ran


def unrun(sources: list[str]) -> list[tuple[str, str]]:
    """What `run` gives of statements that print nothing."""
    return [(source, "") for source in sources if compile(source + "\n", "<stdin>", "single")]


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
