"""`python docs/make_reference.py` writes docs/reference: a page for each public namespace.

What functrans defines is documented by Sphinx from its docstrings; what JAX defines has its arguments
and the first sentence of JAX's docstring. A name whose docstring shows no example gets one by
reference_examples.py. conf.py calls `write` before a build, `docstring` and `error_page` while Sphinx
reads.

tests/pages/test_site.py holds that no public name is absent, and that none lacks an example.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import make_namespace
import numpy as np
import reference_examples

import functrans as ft

HERE = Path(__file__).parent
FOLDER = HERE / "reference"

# Pages, and the namespaces on each; those of JAX's that are named on no page come last.
PAGES = {
    "functrans": [""],
    "functrans.numpy": ["numpy", "numpy.linalg", "numpy.fft"],
    "functrans.lax": ["lax", "lax.linalg"],
    "functrans.nn": ["nn", "nn.initializers"],
    "functrans.random": ["random"],
    "functrans.tree": ["tree", "tree_util"],
    "functrans.ir": ["ir"],
    "functrans.passes": ["passes"],
    "functrans.interop": ["interop"],
    "functrans.errors": ["errors"],
    "functrans.debug": ["debug"],
}
JAX_MODULES = ["sharding", "export", "stages", "ref", "dlpack", "test_util"]
JAX_MODULES += ["experimental.checkify", "experimental.ode"]
ONLY_OURS = {"ir", "passes", "interop", "inspect", "errors"}  # JAX has none, or errors/index.md
# What the tools return; they are not made by users.
RESULTS = [
    "functrans.inspect.report.Report",
    "functrans.inspect.report.Finding",
    "functrans.inspect.report.Result",
    "functrans.inspect.nans.NanReport",
    "functrans.inspect.nans.NanFinding",
    "functrans.inspect.cost.CostReport",
    "functrans.inspect.cost.LineCost",
    "functrans.inspect.cost.EquationCost",
    "functrans.inspect.profile.report.ProfileReport",
    "functrans.inspect.profile.report.Measured",
    "functrans.inspect.profile.placing.Kernel",
    "functrans.inspect.cache.CacheReport",
]
GROUPS = {  # of the names of `functrans` itself
    "Derivatives": "grad value_and_grad vjp jvp linearize linear_transpose jacfwd jacrev jacobian "
    "hessian fwd_and_bwd custom_jvp custom_vjp checkpoint remat",
    "Compiling and mapping": "jit clear_caches vmap pmap shard_map keep_memory "
    "named_call named_scope ensure_compile_time_eval",
    "Programs": "make_ir make_jaxpr interpret evaluate eval_shape typeof to_python",
    "Looking at programs": "find_nan compare profile cost explore explain_cache doctor",
    "Callbacks": "pure_callback io_callback",
}


def public(module: ModuleType) -> list[str]:
    """The names of a module for users: no modules, no helpers that it imports."""
    found = []
    for name in DOCUMENTED.get(module.__name__, dir(module)):
        if name.startswith("_") or name.endswith("_p") or name in NOT_FOR_USERS:
            continue
        try:
            value = getattr(module, name)
        except AttributeError:  # scripts of JAX's that need more than is installed
            continue
        if not inspect.ismodule(value) and getattr(value, "__module__", "") not in _TYPING:
            found.append(name)
    return found


_TYPING = ("typing", "collections.abc")
DOCUMENTED = {  # of modules of JAX's that do not hide their helpers
    "functrans.experimental.jet": ["jet"],
    "jax.experimental.checkify": [
        *["Error", "check", "check_error", "checkify", "debug_check"],
        *["all_checks", "automatic_checks", "div_checks", "float_checks", "index_checks"],
        *["nan_checks", "user_checks"],
    ],
    "jax.experimental.ode": ["odeint"],
}
NOT_FOR_USERS = ("annotations", "TYPE_CHECKING", "describe", "user_source")


def is_ours(space: str, name: str) -> bool:
    """Is it written here, not JAX's under our error messages?"""
    value = getattr(module_of(space), name)
    if space in ONLY_OURS:
        return str(getattr(value, "__module__", "functrans")).startswith("functrans")
    theirs = getattr(theirs_of(space), name, None)
    if theirs is None:
        return str(getattr(value, "__module__", "")).startswith("functrans")
    return make_namespace.kind_of(theirs, value) == "native" and not isinstance(value, str | int | float)


def module_of(space: str) -> ModuleType:
    return importlib.import_module(f"functrans.{space}".rstrip("."))


@functools.cache
def theirs_of(space: str) -> Any:
    try:
        return importlib.import_module(f"jax.{space}".rstrip("."))
    except ImportError:
        return None


def full_name(space: str, name: str) -> str:
    return f"functrans.{space}.{name}".replace("..", ".")


# --- the pages ------------------------------------------------------------------------------------


def heading(words: str, line: str) -> list[str]:
    return [words, line * len(words), ""]


def entry(space: str, name: str) -> list[str]:
    """The directive that documents a name of ours."""
    full = full_name(space, name)
    value = getattr(module_of(space), name)
    if space and name in public(ft) and getattr(ft, name) is value:
        lines = [f".. py:{kind(value)}:: {full}{arguments(value)}", ""]
        lines += [f"   The same as :py:obj:`functrans.{name}`.", ""]
        return [*lines, *shown(reference_examples.the_same(full, name))]
    if inspect.isclass(value):
        if issubclass(value, Exception):
            untold = arguments(value) if UNTOLD in arguments(value) else ""  # else Sphinx says it
            return [f".. autoexception:: {full}{untold}", "   :show-inheritance:", ""]
        members = ["   :members:"] if space in ONLY_OURS else []
        return [f".. autoclass:: {full}", *members, ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {full}", ""]
    said = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("`", "``")
    lines = [f".. py:data:: {full}", "", f"   {' '.join(said.split())}", ""]
    return [*lines, *shown(reference_examples.example(full))]


def shown(example: list[str]) -> list[str]:
    """An example in an entry."""
    if not example:
        return []
    return ["   .. code-block:: pycon", "", *(f"      {line}".rstrip() for line in example), ""]


def handed_on(space: str, names: list[str]) -> list[str]:
    """What is JAX's: its arguments, the first sentence of its docstring, and an example."""
    if not names:
        return []
    lines = [
        f"These names are those of ``{f'jax.{space}'.rstrip('.')}``. Functions accept traced values and "
        "can be transformed like any other.",
        "",
    ]
    for name in names:
        full, value = full_name(space, name), getattr(module_of(space), name)
        lines += [f".. py:{kind(value)}:: {full}{arguments(value)}", "", f"   {first_sentence(value)}", ""]
        lines += shown(reference_examples.example(full, value))
    return lines


def kind(value: Any) -> str:
    """The directive for a value."""
    if inspect.isclass(value):
        return "exception" if issubclass(value, Exception) else "class"
    return "function" if callable(value) and not isinstance(value, types.GenericAlias) else "data"


def arguments(value: Any) -> str:
    """The arguments of what can be called, without types; of a long list those without a default."""
    if isinstance(value, enum.EnumMeta):
        return "(value)"
    if kind(value) == "data" or any(value is one for one in NOT_CALLED):
        return ""
    try:
        known = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return of_compiled(value)
    if not known and inspect.isclass(value) and issubclass(value, np.generic):  # a kind of dtypes
        return ""
    shown = [re.sub(r"=<.*", "=...", str(p.replace(annotation=p.empty))) for p in known]
    if len(", ".join(shown)) > 60:
        needed = [p.name for p in known if p.default is p.empty and p.kind < p.KEYWORD_ONLY]
        shown = [*(needed if len(needed) < 9 else needed[:3]), "..."]
    return f"({', '.join(shown)})"


NOT_CALLED = (jax.Array, jax.Device, jax.tree_util.PyTreeDef)  # others make them
UNTOLD = "*args"


def of_compiled(value: Any) -> str:
    """The arguments of a class that is written in C++, which says them in a docstring."""
    said = re.search(r"\(self, (.*)\) -> None", value.__init__.__doc__ or "")
    names = re.findall(r"(\w+):", said[1]) if said else [UNTOLD]
    return f"({', '.join(name for name in names if name[0] != '_')})"


def first_sentence(value: Any) -> str:
    """Of a docstring of JAX's, without its links."""
    if isinstance(value, str | int | float | complex | np.ndarray | jax.Array):
        return f"``{value!r}``"
    text = inspect.getdoc(value) or ""
    of_class = not inspect.isclass(value) and text == inspect.getdoc(type(value))
    if of_class or isinstance(value, types.GenericAlias):
        text = ""  # of its class, not its own
    if text == inspect.getdoc(enum.Enum) or re.match(r"\w+\(\w+: ", text):  # what Python writes
        text = ""
    text = " ".join(text.strip().partition("\n\n")[0].split())
    text = re.sub(r":[\w:]+:`~?([^`<]*?) *(?:<[^`]*)?`", r"`\1`", text)
    text = re.sub(r"(?<!`)`([^`<]*?) *<[^`]*>`__?", r"\1", text)
    return marked(re.split(r"(?<=[a-z)`\d]\.)\s|\.\. ", text.replace("``", "`"))[0], r"[\\*_|`]")


def of_space(space: str, line: str) -> list[str]:
    """The section of a namespace."""
    names = public(module_of(space))
    ours = [name for name in names if is_ours(space, name)]
    rest = [name for name in names if name not in ours]
    lines: list[str] = []
    if space == "":
        left = set(ours)
        for group, words in GROUPS.items():
            lines += heading(group, line)
            for name in words.split():
                lines += entry(space, name)
                left -= {name}
        lines += heading("More", line) if left else []
        lines += [x for name in sorted(left) for x in entry(space, name)]
    elif space == "errors":
        lines += ["Each class of functrans has :doc:`a page of its own </errors/index>`.", ""]
        lines += [x for name in ours for x in entry(space, name)]
    else:
        lines += [x for name in ours for x in entry(space, name)]
    if space in ONLY_OURS - {"errors"}:
        return lines
    return [*lines, *(heading("From JAX", line) if rest and ours else []), *handed_on(space, rest)]


def page(title: str, spaces: list[str]) -> str:
    lines = heading(title, "=")
    said = marked((inspect.getdoc(module_of(spaces[0])) or "").partition("\n\n")[0])
    lines += [said, ""] if title != "functrans" else []
    for i, space in enumerate(spaces):
        if i == 0:
            lines += of_space(space, "-")
        else:
            lines += [*heading(f"functrans.{space}", "-"), *of_space(space, "~")]
    return "\n".join(lines) + "\n"


def others() -> list[str]:
    """Namespaces that are on no other page and have public names; last, modules that are JAX's own."""
    named = {space for spaces in PAGES.values() for space in spaces}
    found = [space for space in make_namespace.spaces() if make_namespace.ours(space) is not None]
    return [*[space for space in found if space not in named and public(module_of(space))], *JAX_MODULES]


def results() -> str:
    lines = [*heading("What the tools return", "=")]
    for full in RESULTS:
        home, _, name = full.rpartition(".")
        fields = issubclass(getattr(importlib.import_module(home), name), tuple)
        members = [] if fields else ["   :members:", "   :inherited-members:"]  # as `save`
        lines += [f".. autoclass:: {full}", *members, ""]
    lines += [*heading("The base class of operations", "-")]
    lines += [".. automodule:: functrans.primitives.base", "   :no-members:", "   :no-index:", ""]
    lines += [".. autoclass:: functrans.primitives.base.Primitive", "   :members:", ""]
    return "\n".join(lines)


def documents() -> Iterator[tuple[str, str]]:
    """(name of the file, its text)."""
    warnings.simplefilter("ignore")
    for title, spaces in PAGES.items():
        yield title, page(title, spaces)
    yield "results", results()
    more = [*heading("Other namespaces", "=")]
    for space in others():
        more += [*heading(f"functrans.{space}", "-"), *of_space(space, "~")]
    yield "others", "\n".join(more)
    index = [
        *heading("API reference", "="),
        "Signatures and argument orders are JAX's. Below a function of functrans stands what it "
        "adds. Names that JAX defines have the first sentence of JAX's documentation and an example, often "
        "the first one of JAX's, as it runs with functrans. Every example is run. "
        ":doc:`/namespace` lists which is which for every name of JAX. Modules that are JAX's own and "
        "stand on none of these pages, such as ``ft.profiler`` and ``ft.experimental.pallas``, are "
        "documented by JAX.",
        "",
        "The short examples assume ``import functrans as ft``, ``import functrans.numpy as jnp``, "
        "``from functrans import lax, nn`` and ``import numpy as np``.",
        "",
        ".. toctree::",
        "   :maxdepth: 1",
        "",
        *[f"   {name}" for name in (*PAGES, "results", "others")],
    ]
    yield "index", "\n".join(index) + "\n"


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = set()
    for name, text in documents():
        path = FOLDER / f"{name}.rst"
        made.add(path)
        if not path.exists() or path.read_text() != text:  # else Sphinx reads it again
            path.write_text(text)
    for old in set(FOLDER.glob("*.rst")) - made:
        old.unlink()


# --- what Sphinx asks for -------------------------------------------------------------------------


def docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make a docstring of ours reStructuredText: in it a single backtick is code, and the fields of
    a class stand as `name : what it is`. What shows no example gets one."""
    if not name.startswith("functrans."):
        return
    text = "\n".join(lines)
    if what == "class":
        text = FIELD.sub(lambda m: f"- ``{m[1].strip()}``: {' '.join(m[2].split())}\n", text)
    parts = re.split(r"(?m)^(\s*(?:>>>|\.\.\.) .*(?:\n(?!\s*>>>).*\S.*)*)$", text)
    parts[::2] = [marked(part) for part in parts[::2]]
    text = re.sub(r"(?m)^Source: (.*)$", r"*As* \1", "".join(parts))
    if ">>>" not in text and what in ("function", "class", "exception"):
        example = reference_examples.example(name)
        text += "\n\nExample:\n\n" + "\n".join(shown(example)) if example else ""
    lines[:] = text.split("\n")


FIELD = re.compile(r"^(\w[\w, ]*?) *? : (.*(?:\n {6,}\S.*)*)\n?", re.MULTILINE)
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def marked(text: str, special: str = "[*|]") -> str:
    """Text with single backticks as reStructuredText."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(special, r"\\\g<0>", part) for part in parts[::2]]
    for i in range(1, len(parts), 2):
        after = parts[i + 1][:1]
        parts[i] = f"``{parts[i]}``" + ("\\ " if after.isalnum() else "")
    return "".join(parts)


def error_page(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """A class of errors that a docstring names leads to its page."""
    target = node.get("reftarget", "").rpartition(".")[2]
    if node.get("reftype") not in ("exc", "class", "obj") or f"errors/{target}" not in env.all_docs:
        return None
    from sphinx.util.nodes import make_refnode

    return make_refnode(app.builder, node["refdoc"], f"errors/{target}", "", contnode)


if __name__ == "__main__":
    write()
