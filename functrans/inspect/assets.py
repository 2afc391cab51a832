"""Pages made of files of a package: HTML with named holes, scripts, styles and data."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from functrans.caching import cached


@cached("files of pages", 64)
def asset(package: str, name: str) -> str:
    """A file of a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def filled(html: str, **parts: str) -> str:
    """A page with each `{{NAME}}` replaced."""
    for name, text in parts.items():
        html = html.replace("{{" + name + "}}", text)
    return html


def embedded(data: Any) -> str:
    """Data as JSON inside a script element, which nothing in it can end."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
