"""The names of `jax.scipy`. Its modules are loaded when they are first asked for."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "cluster", "fft", "integrate", "linalg", "ndimage", "signal", "special", "stats",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"functrans.scipy.{name}")
    raise AttributeError(f"module 'functrans.scipy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
