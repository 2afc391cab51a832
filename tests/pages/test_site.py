"""The site is built without a warning, no link in it is broken, and nothing is left out."""

import functools
import importlib
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jax
import pytest

import functrans as ft
from tests.pages.test_docs import ROOT, blocks
from tests.support.versions import NEWER, QUICK_FLAGS

DOCS = ROOT / "docs"
README = ROOT / "README.md"
COMMAND = ["-m", "sphinx", "-W", "-n", "-b", "html", "docs"]  # of the README, and where to

# --- the built site -------------------------------------------------------------------------------


class Page(HTMLParser):
    """The ids of a page, and what it refers to."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.references: list[str] = []
        self.text = path.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.ids.add(value)
            if name in ("href", "src"):
                self.references.append(value)


Pages = dict[Path, Page]


def local(here: Path, reference: str) -> tuple[Path, str] | None:
    """The file and anchor that a reference on a page leads to; None if it leaves the site."""
    if re.match(r"[a-z]+:", reference) or reference.startswith("//"):
        return None
    path, _, anchor = unquote(reference).partition("#")
    path = path.partition("?")[0]
    return (here.parent / path).resolve() if path else here, anchor


def broken_links(site: Path, pages: Pages) -> Iterator[str]:
    for path, page in pages.items():
        for reference in page.references:
            to, anchor = local(path, reference) or (path, "")
            if not to.exists():
                yield f"{path.relative_to(site)}: {reference}"
            elif anchor and to in pages and anchor not in pages[to].ids:
                yield f"{path.relative_to(site)}: no anchor {reference}"


def fetched(site: Path, pages: Pages) -> Iterator[str]:
    """What a page would ask of the network."""
    for path, page in pages.items():
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.text):
            if re.search(r'(?:src|href)="(?:https?:)?//', tag) and 'rel="canonical"' not in tag:
                yield f"{path.relative_to(site)}: {tag}"


def unreached(site: Path, pages: Pages) -> Iterator[str]:
    """Pages to which no links lead from the index."""
    reached: set[Path] = set()
    left = [site / "index.html"]
    while left:
        here = left.pop()
        if here in pages and here not in reached:
            reached.add(here)
            places = (local(here, reference) for reference in pages[here].references)
            left += [place[0] for place in places if place]
    return (path.relative_to(site).as_posix() for path in pages.keys() - reached)


def not_built(site: Path, pages: Pages) -> Iterator[str]:
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS)
        made = {"_build", "_generated"} & {*name.parts}
        if not made and (site / name).with_suffix(".html") not in pages:
            yield str(name)


@functools.cache
def reference() -> Any:
    """The script that writes the reference."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("make_reference")
    finally:
        sys.path.remove(str(DOCS))


def pages_of_spaces(site: Path, pages: Pages) -> Iterator[tuple[str, Page]]:
    """Each namespace of the reference, and the page that it is on."""
    shown = {space: title for title, listed in reference().PAGES.items() for space in listed}
    for space in [*shown, *reference().others()]:
        yield space, pages[site / "reference" / f"{shown.get(space, 'others')}.html"]


def not_in_the_reference(site: Path, pages: Pages) -> Iterator[str]:
    """Public names that have no entry."""
    for space, page in pages_of_spaces(site, pages):
        names = {*reference().public(reference().module_of(space))}
        if not space:  # and what is loaded late, but for modules, which have pages of their own
            names |= {n for n in ft.__all__ if type(getattr(ft, n)).__name__ != "module"}
        for name in names:
            full = reference().full_name(space, name)
            if full not in page.ids:
                yield full


def entries(pages: Pages, *kinds: str) -> Iterator[tuple[str, str]]:
    """Each entry of the reference of these kinds: the name, and the HTML from there to the next entry."""
    for path, page in pages.items():
        if path.parent.name == "reference":
            for part in page.text.split('<dl class="py ')[1:]:
                if part.startswith(kinds):
                    yield part.partition(' id="')[2].partition('"')[0], part


NAMES = ("function", "class", "exception", "data")


def without_example(site: Path, pages: Pages) -> Iterator[str]:
    found = entries(pages, *NAMES, "method", "property")
    return (name for name, part in found if "&gt;&gt;&gt;" not in part)


# Classes that nobody calls (arrays come from elsewhere, of dtypes there are kinds), or without arguments.
NOT_CALLED = "Array ndarray Device PyTreeDef checkpoint_policies extended prng_key character complexfloating "
NOT_CALLED += "DebugEffect OrderedDebugEffect flexible floating generic inexact integer number "
NOT_CALLED += "signedinteger unsignedinteger"


def without_signature(site: Path, pages: Pages) -> Iterator[str]:
    for name, part in entries(pages, *NAMES):
        called = not part.startswith("data") and name.rpartition(".")[2] not in NOT_CALLED.split()
        if called and "sig-paren" not in part.partition("</dt>")[0]:
            yield name


CHECKS: tuple[Callable[[Path, Pages], Iterator[str]], ...] = (
    broken_links,
    fetched,
    unreached,
    not_built,
    not_in_the_reference,
    without_example,
    without_signature,
)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jax")
@pytest.mark.skipif(NEWER, reason="the pages are of JAX 0.10")
def test_the_site(tmp_path):
    """One test, because workers of pytest share nothing: the site is built once."""
    assert " ".join(["python", *COMMAND]) in README.read_text()
    site = (tmp_path / "html").resolve()
    # without the names that a page lists at its side, which Sphinx copies for every page anew
    quick = ["-q", "--keep-going", "-D", "toc_object_entries=0", "-d", str(tmp_path / "d")]
    command = [sys.executable, *COMMAND, str(site), *quick]
    offline = {"http_proxy": "http://localhost:9", "https_proxy": "http://localhost:9"}
    some = {"XLA_FLAGS": QUICK_FLAGS, "FUNCTRANS_ONE_EXAMPLE_IN": "10"}
    environment = {**os.environ, **offline, **some}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    pages = {path: Page(path) for path in site.rglob("*.html")}
    found = {check.__name__: sorted({*check(site, pages)}) for check in CHECKS}
    assert found == {check.__name__: [] for check in CHECKS}


@pytest.mark.smoke
def test_examples_of_the_reference():
    """One from each place where they are found; `test_the_site` runs all."""
    example = reference().reference_examples.example
    assert example("functrans.numpy.ndim") == [">>> print(jnp.ndim(jnp.ones((2, 3))))", "2"]
    assert example("functrans.numpy.int8") == [">>> print(jnp.int8(3), jnp.int8(3).dtype)", "3 int8"]
    assert example("functrans.numpy.pi", math.pi) == [">>> print(jnp.pi)", "3.141592653589793"]
    assert example("functrans.numpy.linalg.det", jax.numpy.linalg.det)[0].startswith(">>> ")
    said = example("functrans.errors.NegativeSize")
    assert "Traceback (most recent call last):" in said
    assert said[-1] == "Sizes must be >= 0."
    with pytest.raises(NameError):  # an example that is wrong fails, and the build with it
        reference().reference_examples.run(["jnp.ones(3)", "undefined"])


# --- the README -----------------------------------------------------------------------------------


@pytest.mark.smoke
def test_the_readme_is_two_screens():
    assert len(README.read_bytes()) <= 5000


@pytest.mark.smoke
def test_files_that_the_readme_names_exist():
    text = README.read_text()
    linked = r'\]\(([^)]+)\)|src="([^"]+)"'
    named = re.findall(linked + r"|((?:examples|benchmarks|tests)/[\w/]+\.\w+)", text)
    assert len(named) > 15
    for path in map("".join, named):
        assert (ROOT / path).exists(), path


@pytest.mark.smoke
def test_the_index_of_the_site_shows_the_table_of_the_readme():
    def table(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if line.startswith("|")]
        return [re.sub(r" \(`[^`]*`\)", "", line) for line in lines]

    shown = table(README.read_text())
    assert len(shown) == 13
    assert table((DOCS / "index.md").read_text()) == shown


@pytest.mark.smoke
@pytest.mark.skipif(NEWER, reason="the picture is of JAX 0.10")
def test_the_picture_of_the_readme_is_what_its_code_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for line, code in blocks(README):
        exec(compile("\n" * (line - 1) + code, str(README), "exec"), names)
    stale = "docs/_static/gradient.svg is stale: run python docs/make_pictures.py --readme"
    kept = (DOCS / "_static" / "gradient.svg").read_text()
    assert (tmp_path / "gradient.svg").read_text() == kept, stale


@pytest.mark.smoke
def test_the_table_of_private_steps_is_of_the_measurements():
    measured = (ROOT / "benchmarks" / "README.md").read_text()
    rows = re.findall(
        r"^\| (DP-SGD [^|]*) \| ([\d.]+) \| ([\d.]+) \|", (DOCS / "private-training.md").read_text(), re.M
    )
    assert len(rows) == 6
    for name, ours, theirs in rows:
        assert re.search(rf"^\| {re.escape(name)} \| [^|]* \| {ours} / {theirs} \|", measured, re.M), name
