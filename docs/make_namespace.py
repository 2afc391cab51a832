"""`python docs/make_namespace.py` writes docs/namespace.md: for every public name of JAX's
libraries, whether functrans has it written natively, by JAX's program, as
JAX's own object, or not.

tests/test_namespace_table.py holds that none is absent, and that the file is up to date.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).parent / "namespace.md"

_DISTRIBUTIONS = """
bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r
laplace logistic multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform
vonmises wrapcauchy
"""
NAMESPACES = [
    "numpy", "numpy.linalg", "numpy.fft", "lax", "lax.linalg", "nn", "nn.initializers", "random",
    "image", "ops", "tree", "tree_util", "dtypes", "scipy.cluster.vq", "scipy.fft",
    "scipy.integrate", "scipy.interpolate", "scipy.linalg", "scipy.ndimage", "scipy.optimize",
    "scipy.signal", "scipy.sparse.linalg", "scipy.spatial.transform", "scipy.special",
    "scipy.stats", *[f"scipy.stats.{name}" for name in _DISTRIBUTIONS.split()],
]  # fmt: skip

# JAX's primitives (`lax.add_p`) are objects of its own interpreters; ours are in `ft.primitives`.
KINDS = ("native", "imported", "JAX's own", "absent")


def public(theirs: ModuleType) -> list[str]:
    """The names of a module of JAX that are for users, without modules and primitives."""
    return [
        name
        for name in dir(theirs)
        if not name.startswith("_")
        and not name.endswith("_p")
        and not inspect.ismodule(getattr(theirs, name))
    ]


def modules(namespace: str) -> tuple[ModuleType, ModuleType | None]:
    """JAX's and ours, which may be lacking."""
    theirs = importlib.import_module(f"jax.{namespace}")
    try:
        return theirs, importlib.import_module(f"functrans.{namespace}")
    except ModuleNotFoundError:
        return theirs, None


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
    """namespace -> kind -> names."""
    found = {}
    for namespace in NAMESPACES:
        theirs, ours = modules(namespace)
        kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for name in public(theirs):
            if ours is None or not hasattr(ours, name):
                kinds["absent"].append(name)
            else:
                kinds[kind_of(getattr(theirs, name), getattr(ours, name))].append(name)
        found[namespace] = kinds
    return found


def page(found: dict[str, dict[str, list[str]]]) -> str:
    """The Markdown text."""
    lines = [
        "# Native or imported",
        "",
        *textwrap.wrap(
            "Made by `python docs/make_namespace.py`. For every public name of JAX's libraries: "
            "*native* functions are written over functrans' operations; *imported* ones run JAX's "
            "own program, translated once for each signature (`ft.interop.from_jax`); *JAX's own* "
            "are the same object (constants, classes, functions of files and of no arrays); "
            "*absent* ones we lack. JAX's primitives (`lax.add_p`) are not counted: ours stand in "
            "`functrans.primitives`.",
            100,
        ),
        "",
        f"| namespace | {' | '.join(KINDS)} |",
        "|---|---:|---:|---:|---:|",
    ]
    for namespace, kinds in found.items():
        lines.append(f"| `{namespace}` | {' | '.join(str(len(kinds[k])) for k in KINDS)} |")
    total = [str(sum(len(kinds[k]) for kinds in found.values())) for k in KINDS]
    lines.append(f"| all | {' | '.join(total)} |")
    for namespace, kinds in found.items():
        lines += ["", f"## {namespace}"]
        for kind in KINDS:
            if kinds[kind]:
                names = " ".join(kinds[kind])
                lines += ["", *textwrap.wrap(f"{kind}: {names}", 100, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(survey()))
