"""`python docs/make_namespace.py` writes docs/namespace.md: for every public name of JAX's modules
that functrans has a module for, whether it is written natively, by JAX's program, or JAX's own
object; and which modules are JAX's own. `python -m benchmarks namespace` counts all names.

tests/pages/test_namespace_table.py holds that none is absent, and that the file is up to date.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

PAGE = Path(__file__).parent / "namespace.md"
NOT_IMPORTED = ("collect_profile", "cloud_tpu_init", "tools")  # scripts

# JAX's primitives (`lax.add_p`) are JAX's own, and not listed; ours are in `ft.primitives`.
KINDS = ("native", "imported", "JAX's own", "absent")


def spaces(package: ModuleType = jax) -> Iterator[str]:
    """The public modules of JAX, without `jax.`, "" for itself; whether they can be loaded or not.
    Those of which we have none are not looked into."""
    yield package.__name__[4:]
    for found in sorted(pkgutil.iter_modules(package.__path__, package.__name__ + ".")):
        name = found.name[4:]
        if name.rpartition(".")[2].startswith("_") or name in NOT_IMPORTED:
            continue
        if found.ispkg and ours(name) is not None:
            yield from spaces(importlib.import_module(found.name))
        else:
            yield name


def ours(space: str) -> ModuleType | None:
    """Our own module of that name."""
    try:
        module = importlib.import_module(f"functrans.{space}".rstrip("."))
    except ImportError:
        return None
    return module if module.__name__.startswith("functrans") else None


def public(theirs: ModuleType) -> list[str]:
    """The names of a module of JAX that are for users, without modules and primitives."""
    return [
        name
        for name in dir(theirs)
        if not name.startswith("_")
        and not name.endswith("_p")
        and not inspect.ismodule(getattr(theirs, name))
    ]


def kind_of(theirs: Any, ours: Any) -> str:
    """How we have an object."""
    if ours is theirs:
        return "JAX's own"
    by_program = hasattr(ours, "clear_cache")  # else JAX's under another frame: of files and bytes
    while hasattr(ours, "__wrapped__"):  # what from_jax makes wraps the function of JAX's
        ours = ours.__wrapped__
        if str(getattr(ours, "__module__", "")).startswith("jax"):
            return "imported" if by_program else "JAX's own"
    return "native"


def survey() -> dict[str, dict[str, list[str]]]:
    """The names of the modules that we have: module -> kind -> names."""
    found = {}
    for space in spaces():
        module = ours(space)
        if module is None:
            continue
        theirs = importlib.import_module(f"jax.{space}".rstrip("."))
        kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for name in public(theirs):
            if not hasattr(module, name):
                kinds["absent"].append(name)
            else:
                kinds[kind_of(getattr(theirs, name), getattr(module, name))].append(name)
        found[space] = kinds
    return found


def covered(space: str) -> tuple[int, list[str]]:
    """How many public names a module of JAX has, modules and primitives too, and those we lack."""
    theirs = importlib.import_module(f"jax.{space}".rstrip("."))
    module = importlib.import_module(f"functrans.{space}".rstrip("."))
    names = [name for name in dir(theirs) if not name.startswith("_")]
    return len(names), [name for name in names if not hasattr(module, name)]


def coverage() -> tuple[list[str], bool]:
    """Lines that say how many of the names of JAX's modules can be had here; are all?"""
    warnings.simplefilter("ignore")
    lines, total, lacking = [], 0, 0
    for space in spaces():
        name = f"jax.{space}".rstrip(".")
        try:
            importlib.import_module(name)
        except ImportError as error:
            lines.append(f"| `{name}` | JAX cannot load it here: {str(error)[:60]} |")
            continue
        n, absent = covered(space)
        if n == 0:
            continue
        total, lacking = total + n, lacking + len(absent)
        said = f"{(n - len(absent)) / n:.1%} of {n}" + "; absent: " * bool(absent)
        lines.append(f"| `{name}` | {said}{' '.join(absent)} |")
    part = (total - lacking) / total
    return [*lines, f"| all | {part:.1%} of {total} |"], lacking == 0


def page(found: dict[str, dict[str, list[str]]]) -> str:
    """The Markdown text."""
    lines = [
        "# Native or imported",
        "",
        *_wrapped(
            "Made by `python docs/make_namespace.py`. For every public name of JAX's libraries: "
            "*native* functions are built from functrans' operations; *imported* ones run JAX's "
            "own program, translated once for each signature; *JAX's own* "
            "are the same object; called on values of functrans, they run its operations; "
            "*absent* ones are missing. JAX's primitives (`lax.add_p`) are not counted: ours stand in "
            "`functrans.primitives`, theirs are there too."
        ),
        "",
        f"| namespace | {' | '.join(KINDS)} |",
        "|---|---:|---:|---:|---:|",
    ]
    for space, kinds in found.items():
        counts = " | ".join(str(len(kinds[k])) for k in KINDS)
        lines.append(f"| `{space or 'functrans'}` | {counts} |")
    total = [str(sum(len(kinds[k]) for kinds in found.values())) for k in KINDS]
    lines.append(f"| all | {' | '.join(total)} |")
    whole = [f"`{space}`" for space in spaces() if space not in found]
    lines += ["", *_wrapped(f"Whole modules that are JAX's own, with theirs: {' '.join(whole)}.")]
    for space, kinds in found.items():
        lines += ["", f"## {space or 'functrans'}"]
        for kind in KINDS:
            if kinds[kind]:
                lines += ["", *_wrapped(f"{kind}: {' '.join(kinds[kind])}")]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> Iterable[str]:
    return textwrap.wrap(text, 100, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page(survey()))
