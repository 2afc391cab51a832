"""Saving reports as one self-contained HTML file, light and dark, or as one JSON file."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from functrans import errors
from functrans.caching import cached
from functrans.ir.source import brief_with_type, here
from functrans.ir.tracebacks import boundary
from functrans.passes.explanation import short

# --- files of this package ------------------------------------------------------------------------


@cached("files of pages", 64)
def asset(name: str) -> str:
    """Return the text of a file of `assets/`."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def filled(name: str, title: str, note: str, data: Any) -> str:
    """Return a page: an asset, with what replaces `{{TITLE}}` and the like, and the assets it names."""
    html = re.sub(r"\{\{([a-z.]+)\}\}", lambda m: asset(m[1]), asset(name))
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    in_script = text.replace("<", "\\u003c")
    for place, part in (("TITLE", escape(title)), ("NOTE", escape(note)), ("DATA", in_script)):
        html = html.replace("{{" + place + "}}", part)
    return html


# --- pages ----------------------------------------------------------------------------------------

ROWS = 20  # rows of a table, at most

Block = str | tuple[str, str]
Row = Sequence[str | float]
Table = tuple[Sequence[str], Sequence[Row]]  # the names of its columns, and its rows

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --soft: #5b6675; --line: #d8dee6;
  --box: #f5f7fa; --good: #1a7f4b; --bad: #b3261e; --mark: #2f6fde; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ef; --paper: #14181e; --soft: #9aa6b5;
  --line: #303945; --box: #1c222b; --good: #5fce96; --bad: #ff8a80; --mark: #82aaff; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; padding: .7rem;
  overflow: auto; max-height: 32rem; font: 13px/1.45 ui-monospace, monospace; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; } th { color: var(--soft); font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .verdict { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui; }
svg path { fill: none; stroke: var(--mark); stroke-width: 1.3; } svg line { stroke: var(--line); }
"""


def page(title: str, *blocks: Block) -> str:
    """Return a page of blocks, each HTML or (heading, text)."""
    body = [b if isinstance(b, str) else f"<h2>{escape(b[0])}</h2><pre>{escape(b[1])}</pre>" for b in blocks]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<body><main><h1>{escape(title)}</h1>{''.join(body)}</main></body></html>\n"
    )


def verdict(text: str, good: bool) -> str:
    """Return a sentence in green or red, as HTML."""
    return f'<p class="verdict {"good" if good else "bad"}">{escape(text)}</p>'


def table(heading: str, head: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a heading and a table, as HTML."""
    cells = "".join([f"<th>{escape(c)}</th>" for c in head])
    lines = ["".join([f"<td>{escape(_cell(c))}</td>" for c in row]) for row in rows]
    body = "".join([f"<tr>{line}</tr>" for line in lines])
    return f'<h2>{escape(heading)}</h2><div class="wide"><table><tr>{cells}</tr>{body}</table></div>'


def curve(heading: str, values: Sequence[float]) -> str:
    """Plot positive numbers over their index on a logarithmic scale, as SVG. Zeros and infinities
    are left out; long sequences are reduced to the maximum of each interval."""
    stretch = max(1, math.ceil(len(values) / 800))
    shown = [max(values[i : i + stretch]) for i in range(0, len(values), stretch)]
    points = [(i, math.log10(y)) for i, y in enumerate(shown) if 0 < y < math.inf]
    if len(points) < 2:
        return ""
    low, high = (math.floor(min(y for _, y in points)), math.ceil(max(y for _, y in points)))
    high = max(high, low + 1)
    at = [(50 + 840 * i / (len(shown) - 1), 10 + 180 * (high - y) / (high - low)) for i, y in points]
    line = "M" + "L".join([f"{x:.1f},{y:.1f}" for x, y in at])
    grid = []
    for power in range(low, high + 1, max(1, (high - low) // 6)):
        y = 10 + 180 * (high - power) / (high - low)
        grid.append(f'<line x1="50" x2="890" y1="{y:.1f}" y2="{y:.1f}"/>')
        grid.append(f'<text x="8" y="{y + 4:.1f}">1e{power}</text>')
    return (
        f'<h2>{escape(heading)}</h2><svg viewBox="0 0 900 215" role="img">{"".join(grid)}'
        f'<path d="{line}"/><text x="50" y="208">first</text>'
        f'<text x="890" y="208" text-anchor="end">last</text></svg>'
    )


def columns(head: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a table as text with aligned columns."""
    lines = [head, *[[_cell(c) for c in row] for row in rows]]
    widths = [max([len(r[i]) for r in lines]) for i in range(len(head))]
    return "\n".join(
        ["  ".join([c.ljust(w) for c, w in zip(r, widths, strict=True)]).rstrip() for r in lines]
    )


def _cell(x: str | float) -> str:
    """Return a number with three digits: 1234567 as `1.23 M`, 0.12345 as `0.123`."""
    if isinstance(x, str):
        return x
    return short(x) if isinstance(x, int) else f"{x:.3g}"


class Saved(ABC):
    """Base class of reports that can be saved: as data and as a page.

    _saved : the names of the attributes that are the data
    """

    _saved: str

    def __repr__(self) -> str:
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as lists, dicts, strings and numbers.

        Example (of the report of `ft.cost`):
          >>> import functrans as ft, functrans.numpy as jnp
          >>> ft.cost(jnp.matmul)(jnp.ones((8, 8)), jnp.ones((8, 8))).as_dict()["flops"]
          1024
        """
        return {name: _data(getattr(self, name)) for name in self._saved.split()}

    @abstractmethod
    def as_html(self) -> str:
        """Return the report as an HTML page.

        Example (of the report of `ft.cost`):
          >>> import functrans as ft, functrans.numpy as jnp
          >>> ft.cost(jnp.sin)(1.0).as_html()[:15]
          '<!doctype html>'
        """

    @boundary
    def save(self, path: str | Path) -> None:
        """Write the report to one file: `.html`, a self-contained page, or `.json`.

        Raises:
          InvalidArgument: another suffix, or not a path.

        Example (of the report of `ft.cost`):
          >>> import os, tempfile, functrans as ft, functrans.numpy as jnp
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     ft.cost(jnp.sin)(1.0).save(f"{folder}/cost.html")
          ...     print(os.listdir(folder))
          ['cost.html']
        """
        file = file_to_write(path, "a report", ".html", ".json")
        page_wanted = file.suffix.lower() == ".html"
        text = self.as_html() if page_wanted else json.dumps(_data(self.as_dict(), _finite), indent=1)
        file.write_text(text if page_wanted else text + "\n", encoding="utf-8")


def file_to_write(path: Any, what: str, *suffixes: str) -> Path:
    """Return the path of a file to write; raise InvalidArgument unless its suffix is allowed."""
    try:
        file = Path(path)
    except TypeError:
        file = Path()
    if file.suffix.lower() not in suffixes:
        given = repr(file.name) if file.name else brief_with_type(path)
        raise errors.InvalidArgument(
            f"{what} is written to a {' or '.join(suffixes)} file, got {given}, {here()}\n"
            f"Pass a path such as 'out{suffixes[0]}'."
        )
    return file


def _data(x: Any, number: Callable[[Any], Any] = lambda n: n) -> Any:
    """Return named tuples as dicts, sequences as lists, and `number` of what they hold."""
    if hasattr(x, "_asdict"):
        x = x._asdict()
    if isinstance(x, dict):
        return {k: _data(v, number) for k, v in x.items()}
    return [_data(v, number) for v in x] if isinstance(x, (list, tuple)) else number(x)


def _finite(x: Any) -> Any:
    """Return a number for JSON, which has no infinity and no NaN."""
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x
