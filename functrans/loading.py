"""Packages whose attributes are loaded when they are first asked for (PEP 562).

In: a package's name, and where each of its attributes stands. Out: its `__getattr__`, `__dir__` and
`__all__`. An attribute found once is a plain one from then on. Python's import locks make this safe
in several threads. Type checkers and editors read the imports that the package has beside it under
`if TYPE_CHECKING:`; a test holds the two equal.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(
    package: str, where: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the `__getattr__`, `__dir__` and `__all__` of a package.

    Arguments:
      package: its full name.
      where: for each module the names that are taken from it, apart by spaces. Under the package's
        own name stand its modules. `name=here` is called `here` in the package.

    Returns: the three, for the package to assign.

    Example:
      >>> getattr_, dir_, all_ = lazily("functrans", {"math": "sqrt tau=turn", "functrans": "ir"})
      >>> all_, "turn" in dir_()
      (['sqrt', 'turn', 'ir'], True)
      >>> round(getattr_("turn"), 3)
      6.283
    """
    found: dict[str, tuple[str, str]] = {}
    for module, names in where.items():
        for word in names.split():
            name, _, shown = word.partition("=")
            found[shown or name] = (module, name)
    namespace = sys.modules[package].__dict__

    def load(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = found[name]
        if module == package:
            value = importlib.import_module(f"{package}.{attribute}")
        else:
            value = getattr(importlib.import_module(module), attribute)
        namespace[name] = value
        return value

    def listed() -> list[str]:
        return sorted({*namespace, *found})

    return load, listed, list(found)
