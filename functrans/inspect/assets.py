"""HTML pages built from package files: a template with placeholders, scripts, styles and data."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from functrans.caching import cached


@cached("files of pages", 64)
def asset(package: str, name: str) -> str:
    """Return the text of a package file."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def filled(html: str, **parts: str) -> str:
    """Return a page with each `{{NAME}}` placeholder replaced."""
    for name, text in parts.items():
        html = html.replace("{{" + name + "}}", text)
    return html


def embedded(data: Any) -> str:
    """Return data as JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
