"""The site is built without a warning, no link in it is broken, and nothing is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import functrans as ft
from tests.pages.test_docs import ROOT, blocks
from tests.support.versions import NEWER

DOCS = ROOT / "docs"
README = ROOT / "README.md"


class Page(HTMLParser):
    """The ids of a page, and what it refers to."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.references: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.ids.add(value)
            if name in ("href", "src"):
                self.references.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built by the command of the README without a network."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html",
               "-d", str(out / "doctrees"), "docs", str(out / "html")]  # fmt: skip
    offline = {"http_proxy": "http://localhost:9", "https_proxy": "http://localhost:9"}
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **offline}, capture_output=True,
                         text=True, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return out / "html"


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def local(here: Path, reference: str) -> tuple[Path, str] | None:
    """The file and anchor that a reference on a page leads to; None if it leaves the site."""
    if re.match(r"[a-z]+:", reference) or reference.startswith("//"):
        return None
    path, _, anchor = unquote(reference).partition("#")
    path = path.partition("?")[0]
    return ((here.parent / path).resolve() if path else here.resolve()), anchor


pytestmark_site = [
    pytest.mark.sweep,
    pytest.mark.skipif(NEWER, reason="the pages are of JAX 0.10"),
]


class TestSite:
    pytestmark = pytestmark_site

    def test_no_link_is_broken(self, site, pages):
        known = {path.resolve(): page for path, page in pages.items()}
        broken = []
        for path, page in pages.items():
            for reference in page.references:
                found = local(path, reference)
                if found is None:
                    continue
                to, anchor = found
                if not to.exists():
                    broken.append(f"{path.relative_to(site)}: {reference}")
                elif anchor and to in known and anchor not in known[to].ids:
                    broken.append(f"{path.relative_to(site)}: no anchor {reference}")
        assert not broken, "\n".join(sorted(set(broken)))

    def test_nothing_is_fetched(self, site, pages):
        for path in pages:
            for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", path.read_text()):
                fetched = re.search(r"(?:src|href)=\"(?:https?:)?//", tag)
                assert not fetched or 'rel="canonical"' in tag, f"{path.relative_to(site)}: {tag}"

    def test_every_page_can_be_reached(self, site, pages):
        reached, left = set(), [(site / "index.html").resolve()]
        known = {path.resolve(): page for path, page in pages.items()}
        while left:
            here = left.pop()
            if here in reached or here not in known:
                continue
            reached.add(here)
            found = (local(here, reference) for reference in known[here].references)
            left += [place[0] for place in found if place]
        assert not {p.relative_to(site.resolve()).as_posix() for p in known.keys() - reached}

    def test_every_markdown_page_is_there(self, site):
        for path in DOCS.rglob("*.md"):
            name = path.relative_to(DOCS)
            if not {"_build", "_generated"} & {*name.parts}:
                assert (site / name).with_suffix(".html").exists(), name

    def test_the_reference_names_every_public_name(self, site):
        sys.path.insert(0, str(DOCS))
        try:
            import make_reference as reference
        finally:
            sys.path.remove(str(DOCS))
        spaces = [s for listed in reference.PAGES.values() for s in listed] + reference.others()
        text = {path.stem: path.read_text() for path in (site / "reference").glob("*.html")}
        page = {s: title for title, listed in reference.PAGES.items() for s in listed}
        absent = []
        for space in spaces:
            module = reference.module_of(space)
            names = {*reference.public(module)}
            names |= {n for n in getattr(ft, "__all__", ()) if not space} - SUBMODULES
            for name in names:
                full = f"functrans.{space}.{name}".replace("..", ".")
                shown = text[page.get(space, "others")]
                if f'id="{full}"' not in shown and f">{name}<" not in shown:
                    absent.append(full)
        assert not absent

    def test_functions_of_the_reference_show_an_example(self, site):
        lacking = []
        for path in (site / "reference").glob("*.html"):
            parts = re.split(r'<dl class="py function">', path.read_text())[1:]
            for part in parts:
                name = re.search(r'id="([^"]+)"', part)
                if "&gt;&gt;&gt;" not in part and name is not None:
                    lacking.append(name[1])
        assert not lacking


SUBMODULES = {
    name for name in ft.__all__ if type(getattr(ft, name)).__name__ == "module"
}  # each has a page of its own


@pytest.mark.smoke
def test_the_readme_is_two_screens():
    assert len(README.read_bytes()) <= 5000


@pytest.mark.smoke
def test_files_that_the_readme_names_exist():
    text = README.read_text()
    named = re.findall(
        r"\]\(([^)]+)\)|src=\"([^\"]+)\"|`((?:examples|benchmarks|tests)/[\w./]+)`", text
    )
    for path in map("".join, named):
        assert (ROOT / path).exists(), path


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
