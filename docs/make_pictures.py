"""`python docs/make_pictures.py` makes what the pages show, in docs/_generated.

A page that shows `_generated/<page>/x.svg` or `live/<page>/x.html` has code that writes `x.svg` or
`x.html`: the page's Python blocks are run from top to bottom, as tests/pages/test_docs.py runs
them, in the folder that is shown. A page is run again when its text or the library has changed.
The floors of the architecture and the plots of the measurements come from make_plots.py.
`--readme` draws the picture of the README anew instead, which is kept in docs/_static.
"""

from __future__ import annotations

import doctest
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
MADE = HERE / "_generated"
EXTRA = MADE / "extra"  # which the site carries as it is: live/<page>/<name>.html
LIVE = EXTRA / "live"
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"(?:_generated|live)/([\w-]+)/([\w-]+\.(?:svg|png|html))")


def shown(page: Path) -> set[str]:
    """The files that a page shows and its own code writes."""
    return {name for folder, name in SHOWN.findall(page.read_text()) if folder == page.stem}


def pages() -> Iterator[Path]:
    for page in sorted(HERE.glob("*.md")):
        if shown(page):
            yield page


def fingerprint(page: Path) -> str:
    """Of the page and of every file of the library."""
    digest = hashlib.sha256(page.read_bytes())
    for path in sorted((HERE.parent / "functrans").rglob("*")):
        if path.suffix in (".py", ".js", ".css", ".html"):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run(page: Path) -> None:
    """Run the code of a page in its folder of docs/_generated."""
    folder = MADE / page.stem
    stamp, now = folder / "fingerprint", fingerprint(page)
    if stamp.exists() and stamp.read_text() == now:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = Path.cwd()
    os.chdir(folder)
    names: dict = {"__name__": "__main__"}
    text = page.read_text()
    if str(page.parent) not in sys.path:
        sys.path.append(str(page.parent))  # there the lines are looked up: reports hold no folders
    sys.stdout, out = open(os.devnull, "w"), sys.stdout  # noqa: SIM115
    try:
        for match in BLOCK.finditer(text):
            code, line = match.group(1), text.count("\n", 0, match.start()) + 1
            if ">>>" in code:
                code = "".join(e.source for e in doctest.DocTestParser().get_examples(code))
            exec(compile("\n" * line + code, page.name, "exec"), names)
    finally:
        sys.stdout = out
        os.chdir(begun)
    lacking = shown(page) - {path.name for path in folder.iterdir()}
    if lacking:
        raise SystemExit(f"{page.name} shows {sorted(lacking)}, and its code does not write them")
    for path in folder.glob("*.html"):
        (LIVE / page.stem).mkdir(parents=True, exist_ok=True)
        path.replace(LIVE / page.stem / path.name)
    stamp.write_text(now)


def readme() -> None:
    """Draw the picture of the README anew."""
    run(HERE.parent / "README.md")
    shutil.copy(MADE / "README" / "gradient.svg", HERE / "_static" / "gradient.svg")


def main() -> None:
    if sys.argv[1:] == ["--readme"]:
        readme()
        return
    LIVE.mkdir(parents=True, exist_ok=True)
    for page in pages():
        run(page)
    import make_plots

    make_plots.write(MADE / "plots")


if __name__ == "__main__":
    main()
