"""A hundred misuses, as people commit them.

`python -m tests.pages.misuses` writes `docs/errors/`, a page per class of `functrans.errors`, where
JAX's message for the same misuse stands beside ours. `misuse_table.py` says what a misuse is,
the files `misused_*.py` hold them.
"""

import functools
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
from functrans import errors
from tests.pages import misused_arrays as misused_arrays
from tests.pages import misused_operands as misused_operands
from tests.pages import misused_others as misused_others
from tests.pages import misused_transformations as misused_transformations
from tests.pages.misuse_table import TABLE as TABLE
from tests.pages.misuse_table import Misuse

FOLDER = Path(__file__).parents[2] / "docs" / "errors"


@functools.cache
def caught(run: Callable[[Any, Any], Any], library: Any) -> Exception | None:
    """The error of a misuse with functrans or jax; without its frames, whose values would be kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(library, library.numpy)
        except Exception as error:
            return error.with_traceback(None)
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
    text = re.sub(r'  File "(<frozen runpy>|misuses\.py)".*\n', "", text)  # above the misuse
    lines = text.rstrip().split("\n")
    return "\n".join(
        part
        for line in lines
        for part in (
            textwrap.wrap(line, 100, subsequent_indent=re.match(r" *", line).group())
            if len(line) > 100 and not set(line) <= {" ", "^"}
            else [line]
        )
    )


def source_of(run: Callable[..., Any]) -> str:
    lines = inspect.getsource(run).split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(lines[start:]).rstrip()


def section(row: Misuse) -> str:
    return "\n".join(
        [
            f"## {row.title}",
            "",
            "```py",
            source_of(row.run),
            "```",
            "",
            "functrans:",
            "",
            "```text",
            shown(caught(row.run, ft)),
            "```",
            "",
            f"JAX {jax.__version__}:",
            "",
            "```text",
            shown(caught(row.run, jax)),
            "```",
            "",
        ]
    )


def classes() -> list[type[Exception]]:
    """Every class of `functrans.errors`, by name."""
    found = [c for c in vars(errors).values() if isinstance(c, type)]
    return sorted((c for c in found if issubclass(c, errors.FunctransError)), key=lambda c: c.__name__)


def also(error: type[Exception]) -> list[str]:
    """The classes of Python and JAX that it derives from, the nearest first, without those that
    another of them implies."""
    found: list[type] = []
    for base in error.__mro__[1:]:
        builtin = base.__module__ == "builtins" and base not in (Exception, BaseException, object)
        if (
            (builtin or _home(base))
            and not issubclass(base, errors.FunctransError)
            and not any(issubclass(other, base) for other in found)
        ):
            found.append(base)
    return [b.__name__ if b.__module__ == "builtins" else f"{_home(b)}.{b.__name__}" for b in found]


def _home(base: type) -> str:
    """The public module of JAX that has a class, or an empty string."""
    homes = (jax.errors, jax.dtypes)
    return next((m.__name__ for m in homes if getattr(m, base.__name__, None) is base), "")


SEE = {  # pages that say more
    "NotFinite": ("Find the line that makes the NaN", "nan.md"),
    "NotMeasured": ("Your CPU at its best", "cpu.md"),
    "MissingRule": ("Add an operation", "own-operation.md"),
    "UnboundAxis": ("More than one device", "devices.md"),
    "CheckError": ("Write your own pass", "own-pass.md"),
    "ParseError": ("See what XLA will run", "see-what-runs.md"),
}


def page(error: type[Exception]) -> str:
    """The page of a class."""
    caught_by = ", ".join(f"`{name}`" for name in also(error))
    rows = [row for row in TABLE if row.error is error]
    below = [c.__name__ for c in classes() if error in c.__bases__]
    lines = [f"# {error.__name__}", "", inspect.getdoc(error) or "", ""]
    if error.__name__ in SEE:
        lines += [f"See [{SEE[error.__name__][0]}](../{SEE[error.__name__][1]}).", ""]
    if caught_by:
        lines += [f"`except` clauses for {caught_by} catch it too.", ""]
    if below:
        said = "More specific" if rows else "What is raised is always one of the more specific classes"
        lines += [f"{said}: {', '.join(f'[{name}]({name}.md)' for name in below)}.", ""]
    if rows:
        lines += [
            "Each function below is one way to get it, with the message of functrans and that of "
            f"JAX {jax.__version__} for the same code. [How to read them](index.md).",
            "",
        ]
    return "\n".join([*lines, *map(section, rows)]).rstrip() + "\n"


INDEX = """# Errors

Every error that a program can cause is a class of `functrans.errors`. Each derives from the class
that JAX or Python raises for the same mistake, so the `except` clauses of existing code still work.
The message gives the cause with shapes and dtypes, your line with a caret, and what to write
instead. Tracebacks show your own frames; set `FUNCTRANS_TRACEBACK=full` in the environment to see
all of them.

Each class has a page with the mistakes that lead to it, {n} in all. Every example is a function
that was run twice: with `m, jnp = functrans, functrans.numpy` and with `m, jnp = jax, jax.numpy`.
`X` is an array `f32[3]` and `M` an array `f32[2,3]`. The two messages stand below it; long lines
are folded, paths and line numbers left out. The search box finds the words of a message.

In a message `f32[3]` is the type of a float32 array of shape (3,), `~f32[]` has the weak type of a
Python number, and `*` is a leaf of a pytree.

One class is a warning, as in JAX: `TruncatedDtype`, where a 64-bit dtype is requested while 64-bit types
are disabled.

| class | raised when | also caught as | examples |
|---|---|---|---:|
"""


def index() -> str:
    rows = []
    for error in classes():
        name, said = error.__name__, (inspect.getdoc(error) or "").replace("\n", " ")
        examples = sum(row.error is error for row in TABLE)
        caught_by = ", ".join(f"`{base.removeprefix('jax.errors.')}`" for base in also(error))
        rows.append(f"| [{name}]({name}.md) | {said} | {caught_by} | {examples or ''} |")
    listed = "\n".join(error.__name__ for error in classes())
    toctree = "```{toctree}\n:hidden:\n\n" + listed + "\n```"
    return INDEX.format(n=len(TABLE)) + "\n".join(rows) + f"\n\n{toctree}\n"


def documents() -> dict[str, str]:
    """The text of each page by its name."""
    pages = {f"{error.__name__}.md": page(error) for error in classes()}
    return {"index.md": index(), **pages}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for name, text in documents().items():
        (FOLDER / name).write_text(text)
