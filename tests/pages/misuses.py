"""A hundred misuses, as people commit them.

`python -m tests.pages.misuses` writes `docs/errors.md`, where JAX's message for the same misuse
stands beside ours. `misuse_table.py` says what a misuse is, `misused_arrays.py`,
`misused_operands.py` and `misused_transformations.py` hold them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import functrans as ft
import functrans.numpy
from tests.pages import misused_arrays as misused_arrays
from tests.pages import misused_operands as misused_operands
from tests.pages import misused_transformations as misused_transformations
from tests.pages.misuse_table import TABLE as TABLE
from tests.pages.misuse_table import Misuse

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"


def caught(run: Callable[[Any, Any], Any], library: Any) -> Exception | None:
    """The error of a misuse with functrans or jax."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(library, library.numpy)
        except Exception as error:
            return error
    return None


def marked_line(function: Callable[..., Any]) -> int | None:
    lines, first = inspect.getsourcelines(function)
    return next((first + i for i, line in enumerate(lines) if "# <-" in line), None)


def shown(error: Exception | None) -> str:
    """An error as the document has it: without directories, numbers of lines and addresses."""
    if error is None:
        return "(no error)"
    text = f"{type(error).__name__}: {error}"
    text = re.sub(r"(?:/[\w.\-]+)+/(\w+\.py)", r"\1", text)
    text = re.sub(r"\.py:\d+(:\d+)?", ".py", text)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    lines = text.rstrip().split("\n")
    return "\n".join(
        part
        for line in lines
        for part in (
            textwrap.wrap(line, 100, subsequent_indent=re.match(r" *", line).group())
            if len(line) > 100 and not set(line) <= {" ", "^"} else [line]
        )
    )  # fmt: skip


def source_of(run: Callable[..., Any]) -> str:
    lines = inspect.getsource(run).split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(lines[start:]).rstrip()


def section(row: Misuse) -> str:
    return "\n".join([
        f"## {row.title}", "",
        "```py", source_of(row.run), "```", "",
        "functrans:", "", "```text", shown(caught(row.run, ft)), "```", "",
        f"JAX {jax.__version__}:", "", "```text", shown(caught(row.run, jax)), "```", "",
    ])  # fmt: skip


HEAD = """# Misuses, and what they are told

Each function is run with `m, jnp = functrans, functrans.numpy` and with `m, jnp = jax, jax.numpy`;
`X` is `f32[3]`, `M` is `f32[2,3]`. Below it stand the two messages, long lines folded; paths and
numbers of lines are left out. Made by `python -m tests.pages.misuses`, from
`tests/pages/misused_*.py`; a test holds its functions and our messages to what they are now.
"""


def document() -> str:
    return "\n".join([HEAD, *[section(row) for row in TABLE]])


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document())
