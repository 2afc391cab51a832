"""The floors of the architecture and the plots of the measurements, as SVG files.

In: the order of the layers in tests/unit/test_house.py, the tables in benchmarks/README.md. Out: a
picture each, with its colours for light and dark pages.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
STYLE = """
text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#1c2430}.small{font-size:11px;fill:#5f6b7a}
.mono{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.ours{fill:#3f7bd0}.theirs{fill:#b4bdc9}.floor{fill:#e3edfb;stroke:#3f7bd0}.line{stroke:#8793a3}
@media (prefers-color-scheme:dark){text{fill:#e3e8ef}.small{fill:#9aa6b5}.ours{fill:#6fa4f2}
.theirs{fill:#5b6675}.floor{fill:#1c3152;stroke:#6fa4f2}.line{stroke:#76839a}}"""


def svg(width: int, height: int, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>'
    return "\n".join([head, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(words)}</text>"


# --- the floors -----------------------------------------------------------------------------------


def layers() -> list[set[str]]:
    """The order of imports that the test of the house holds."""
    tree = ast.parse((ROOT / "tests" / "unit" / "test_house.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return ast.literal_eval(node.value)
    raise SystemExit("tests/unit/test_house.py defines no LAYERS")


def summary(name: str) -> str:
    """The first sentence of a package's or file's docstring."""
    path = ROOT / "functrans" / name / "__init__.py"
    path = path if path.exists() else path.parent.with_suffix(".py")
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.split(r"(?<=\.)\s|:\n", " ".join(said.split()))[0].replace("`", "")


def floors() -> str:
    """One floor above the other; a folder may use its own floor and those below."""
    found = [names for names in layers() if not {"__main__", "__init__"} & names]
    width, step, y = 860, 40, 10
    parts = []
    for names in reversed(found):
        shown = [f"{n}/" if (ROOT / "functrans" / n).is_dir() else f"{n}.py" for n in sorted(names)]
        told = sorted(names) if len(names) < 3 else []
        folders = [n for n in told if (ROOT / "functrans" / n).is_dir()]
        said = ". ".join([summary(n) for n in folders or told if summary(n)])
        if len(folders) > 1:  # each in short
            said = "; ".join([re.split(r"[:.]", summary(n))[0] for n in folders])
        parts.append(f'<rect class="floor" x="10" y="{y}" width="{width - 20}" height="32" rx="4"/>')
        parts.append(text(22, y + 21, ", ".join(shown), "mono"))
        parts.append(text(200, y + 21, said if len(said) < 104 else said[:102] + "…"))
        y += step
    parts.append(text(10, y + 14, "A file imports from its own layer and from those below it.", "small"))
    return svg(width, y + 24, parts)


# --- the tables of the benchmarks -----------------------------------------------------------------


def rows(header: str, which: int = 0) -> list[list[str]]:
    """The cells of a table in benchmarks/README.md whose first line begins so: the first, or which
    of several."""
    lines = (ROOT / "benchmarks" / "README.md").read_text().splitlines()
    start = [i for i, line in enumerate(lines) if line.startswith(f"| {header}")][which]
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def number(cell: str) -> float:
    """The first number of a cell: `0.014 (0.010-0.030)`, `2.57 MB`."""
    return float(re.match(r"[\d.]+", cell.replace(",", ""))[0])  # type: ignore[index]


def ratios(bars: Sequence[tuple[str, float]], note: str) -> str:
    """A bar for each row: the time of functrans over that of JAX, on a logarithmic scale, from 1
    to the left if functrans takes less time. Narrow, with a name above its bar, for telephones."""
    left, right, width, step = 10, 400, 470, 31
    low, high = 0.001, 1.3

    def at(value: float) -> float:
        part = math.log(max(value, low) / low) / math.log(high / low)
        return left + part * (right - left)

    height = 40 + step * len(bars) + 24
    parts = []
    for tick in (0.001, 0.01, 0.1, 1):
        dashes = "" if tick == 1 else "2 4"
        line = f'd="M{at(tick):.1f} 24V{height - 24}"'
        parts.append(f'<path class="line" stroke-dasharray="{dashes}" {line}/>')
        name = "as JAX" if tick == 1 else f"1/{round(1 / tick)}"
        parts.append(text(at(tick), 16, name, "small", "middle" if tick > low else "start"))
    for i, (name, value) in enumerate(bars):
        y = 32 + i * step
        parts.append(text(left, y + 11, name.partition(" (")[0]))
        x, x1 = sorted((at(value), at(1.0)))
        kind = "ours" if value <= 1.02 else "theirs"
        size = f'width="{max(x1 - x, 1.5):.1f}" height="8" rx="2"'
        parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y + 16}" {size}/>')
        parts.append(text(max(x1, at(1)) + 6, y + 24, f"{value:.3g}", "small"))
    parts.append(text(left, height - 6, note, "small"))
    return svg(width, height, parts)


FIRST = "measurement | functrans, ms | JAX, ms | ratio"
TIME = "time of functrans / time of JAX; further left: functrans takes less"


def table(header: str, column: int, keep: str = "", which: int = 0) -> list[tuple[str, float]]:
    """(name, ratio) of the rows whose name matches and that have a ratio."""
    return [
        (row[0].replace("`", ""), number(row[column]))
        for row in rows(header, which)
        if re.search(keep, row[0]) and re.match(r"[\d.]+", row[column])
    ]


def plots() -> dict[str, str]:
    everyday = [(name, value) for name, value in table(FIRST, 3) if not name.startswith("gradient of 8")]
    optimized = [
        row
        for row in table(FIRST, 3, which=1)
        if re.match(r"DP-SGD|norms|noise|trace\(|\(A|sum\(|diag|training", row[0])
        and "temporaries" not in row[0]
    ]
    loops = table("program | functrans, ms | JAX, ms | plain", 4, "gradient")
    return {
        "floors": floors(),
        "tracing": ratios(everyday, TIME),
        "optimizer": ratios(optimized, TIME),
        "existing": ratios(table("program | first step", 3), TIME),
        "loops": ratios([(n.removesuffix(", gradient"), r) for n, r in loops], TIME),
        "training": ratios(table("training step | functrans", 3), TIME),
    }


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in plots().items():
        (folder / f"{name}.svg").write_text(picture)


if __name__ == "__main__":
    write(Path(__file__).parent / "_generated" / "plots")
