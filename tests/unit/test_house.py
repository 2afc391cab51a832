"""The house rules that no reader of one file sees: who may import whom, how long a file is.

Each test looks at all files and lists every place that breaks its rule.
"""

import ast
import functools
import re
from importlib import import_module
from pathlib import Path

import pytest

import functrans as ft
from tests.faults.planted import FAULTS

pytestmark = pytest.mark.smoke

ROOT = Path(ft.__file__).parent
TEXTS = {path: path.read_text() for path in sorted(ROOT.rglob("*.py"))}

# A file may import from its own layer and from those before it.
LAYERS = [
    {"caching", "errors", "flags", "jax_trace", "loading", "mlir", "records", "runtime", "typing"},
    {"jax_names", "random"},  # which hand on JAX's names
    {"ir"},
    {"tracer"},
    {"pytrees"},
    {"trace"},
    {"primitives"},
    {"transforms"},
    {"passes"},
    {"backends"},
    {"lax"},
    {"numpy"},
    {"nn"},
    {"api"},
    {"interop", "inspect"},
    {"__init__"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# Public modules that only hand on names from other layers, as `tree_util` does.
FACADES = {
    "ad_checkpoint", "tree", "tree_util", "dtypes", "custom_derivatives", "util", "core", "stages", "debug",
    "custom_batching", "experimental",
}  # fmt: skip


MAY_USE_JAX_INTERNALS = ("backends/xla.py", "backends/lowering.py", "interop/", "jax_trace.py", "mlir.py")
MAX_LINES = 500


@functools.cache
def nodes() -> dict[Path, list[ast.AST]]:
    """All that a file consists of, the whole first."""
    return {path: [*ast.walk(ast.parse(text))] for path, text in TEXTS.items()}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer(path: Path) -> str:
    return layer_of(module_name(path))


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in TEXTS}


def imported(path: Path) -> list[tuple[ast.stmt, str]]:
    """Every module that a file imports, with the statement."""
    found: list[tuple[ast.stmt, str]] = []
    for node in nodes()[path]:
        if isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno}: a relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.append((node, full if full in MODULES else base))
    return found


@functools.cache
def imports() -> dict[Path, list[tuple[ast.stmt, str]]]:
    return {path: imported(path) for path in TEXTS}


def none(broken: list[str]) -> None:
    assert not broken, "\n" + "\n".join(broken)


def test_every_module_has_a_layer():
    assert {layer(path) for path in TEXTS} <= set(RANK) | FACADES


def test_imports_point_to_the_left():
    broken = []
    for path in TEXTS:
        here = RANK.get(layer(path), RANK["__init__"])
        for node, name in imports()[path]:
            if name == "functrans" or name.startswith("functrans."):
                there = layer_of(name)
                rank = RANK.get(there, RANK["interop"])
                beside = there != layer(path) and rank == here
                if rank > here or (beside and not {there, layer(path)} <= LAYERS[0]):
                    where = f"{relative(path)}:{node.lineno}"
                    broken.append(f"{where}: {layer(path)} may not import {there}")
    none(broken)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Modules that can be reached from themselves, together with those on the way."""
    reached: dict[str, set[str]] = {}
    for start in arrows:
        found, open_ = set(), [start]
        while open_:
            new = arrows.get(open_.pop(), set()) - found
            found |= new
            open_ += new
        reached[start] = found
    tied = {m: frozenset(n for n in found if m in reached.get(n, ())) for m, found in reached.items()}
    return sorted(sorted(group) for group in set(tied.values()) if group)


def test_no_circle_of_imports():
    arrows = {
        module_name(path): {name for _, name in imports()[path] if name in MODULES}
        for path in TEXTS
        if path.name != "__init__.py"  # a package shows what its modules define
    }
    assert not circles(arrows)
    assert circles({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}) == [["a", "b", "c"]]


def test_modules_are_imported_by_their_names_where_packages_load_them_late_only():
    """And where lower rooms ask upper ones, which runtime.py names."""
    broken = [
        f"{relative(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, found in nodes().items()
        if relative(path) not in ("loading.py", "runtime.py")
        for node in found
        if isinstance(node, ast.Call)
        if ast.unparse(node.func).endswith(("import_module", "__import__"))
        if not isinstance(node.args[0], ast.Constant) or node.args[0].value.startswith("functrans")
    ]
    none(broken)


def test_hooks_name_rooms_that_answer():
    tables = [n for n in nodes()[ROOT / "runtime.py"] if isinstance(n, ast.Dict)]
    answering, waiting = map(ast.literal_eval, tables)
    for name, module in answering.items():
        assert f'runtime.answers("{name}")' in Path(import_module(module).__file__).read_text(), name
    assert {module for modules in waiting.values() for module in modules.split()} <= set(MODULES)


def test_no_import_inside_a_function():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    broken = []
    for path, found in nodes().items():
        ours = {node: name for node, name in imports()[path] if name.startswith("functrans")}
        inside = {n for f in found if isinstance(f, functions) for n in ast.walk(f) if n in ours}
        broken += [f"{relative(path)}:{n.lineno}: {ours[n]} is imported inside a function" for n in inside]
    none(broken)


def test_who_may_use_the_internals_of_jax():
    none(
        [
            f"{relative(path)}:{node.lineno}: {name}"
            for path in TEXTS
            if not relative(path).startswith(MAY_USE_JAX_INTERNALS)
            for node, name in imports()[path]
            if re.match(r"jax\._src|jaxlib|jax\.interpreters", name)
        ]
    )


def test_files_are_short():
    tests = Path(__file__).parents[1]
    files = [*TEXTS, *tests.rglob("*.py"), *tests.rglob("*.txt")]
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    none([f"{path}: {n} lines" for path, n in lengths.items() if n > MAX_LINES])


def test_files_are_silent_and_evaluate_no_text():
    broken = []
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                where, name = f"{relative(path)}:{node.lineno}", node.func.id
                if name in ("print", "eval", "exec"):
                    broken.append(f"{where}: library code calls {name}")
    none(broken)


def test_planted_faults_fit_the_code_that_they_spoil():
    """At least three in each folder; each is one edit, and what it makes is Python."""
    folders = [fault.file.split("/")[1] for fault in FAULTS.values()]
    rooms = {layer(path) for path in TEXTS if path.parent != ROOT} - FACADES
    assert {room: 3 for room in rooms} == {room: min(3, folders.count(room)) for room in rooms}
    for fault in FAULTS.values():
        assert fault.applied() != TEXTS[ROOT.parent / fault.file], fault.name


def test_what_is_remembered_is_a_cache_of_caching():
    """Bounded, counted, emptied by clear_caches: no cache of another kind. What is computed once
    and takes no arguments may be a `functools.cache`."""
    broken = []
    for path, found in nodes().items():
        if path.name == "caching.py":
            continue
        for node in found:
            if isinstance(node, ast.FunctionDef) and node.args.args:
                names = [ast.unparse(d).split("(")[0] for d in node.decorator_list]
                if {"cache", "lru_cache"} & {name.split(".")[-1] for name in names}:
                    broken.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}")
    assert not broken
