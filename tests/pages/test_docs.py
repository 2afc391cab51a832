"""What a reader copies from the documents works, and every public function shows an example."""

import ast
import doctest
import inspect
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import functrans as ft
from tests.support.versions import NEWER
from tests.support.wide import each

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).parents[2]
MADE = ("_build", "_generated", "reference", "errors")  # what is made has no code to be run
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not {*MADE} & {*path.relative_to(ROOT).parts}
)
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: Path) -> list[tuple[int, str]]:
    """The Python blocks of a document, with the line on which each begins."""
    text = document.read_text()
    return [(text.count("\n", 0, m.start()) + 2, m.group(1)) for m in BLOCK.finditer(text)]


class Anything(doctest.OutputChecker):
    """For JAX 0.11 and Python 3.12: programs and carets are those of 0.10 and 3.11."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return True


@pytest.fixture
def operations_of_its_own():
    """A page may add operations; the next test does not know them."""
    known = set(ft.ir.PRIMITIVES)
    yield
    for name in set(ft.ir.PRIMITIVES) - known:
        del ft.ir.PRIMITIVES[name]


def document(path: Path) -> Any:
    first = path.name in ("README.md", "start.md")
    return pytest.param(path, id=path.relative_to(ROOT).as_posix(), marks=() if first else pytest.mark.long)


@pytest.mark.parametrize("document", [document(path) for path in DOCUMENTS])
def test_the_code_of_a_document_runs_from_top_to_bottom(
    document, tmp_path, monkeypatch, operations_of_its_own
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict = {"__name__": "__main__"}
    assert not re.search(r"^ +```python", document.read_text(), re.MULTILINE), "it would not run"
    for line, code in blocks(document):
        where = f"{document.name}:{line}"
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, names, where, str(document), line - 1)
            flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            checker = Anything() if NEWER or sys.version_info[:2] != (3, 11) else None
            runner = doctest.DocTestRunner(checker, optionflags=flags)
            result = runner.run(test, clear_globs=False)
            assert result.failed == 0, where
            names = test.globs
        else:  # with the document's own lines in tracebacks
            exec(compile("\n" * (line - 1) + code, str(document), "exec"), names)


def test_the_examples_in_docstrings_are_run_by_the_suite():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in options["addopts"]
    assert "functrans" in options["testpaths"]


PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module, names in ((ft, ft.__all__), (ft.ir, vars(ft.ir)))
    for name in names
    if inspect.isfunction(getattr(module, name))
    and getattr(module, name).__module__.startswith("functrans")
    and not name.startswith("_")
}


def test_public_functions_have_an_example():
    def check(name):
        text = inspect.getdoc(PUBLIC[name]) or ""
        assert ">>>" in text, "a docstring with an example"
        assert text[0].isupper()
        assert text.partition("\n")[0].endswith((".", ":"))

    each(PUBLIC, check)


def test_every_module_says_what_it_is():
    for path in Path(ft.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), path
