"""The table of misuses: how one is entered, and how it is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

X = np.array([1.0, 2.0, 3.0], np.float32)
M = np.ones((2, 3), np.float32)
I = np.arange(3, dtype=np.int32)  # noqa: E741


class Misuse(NamedTuple):
    run: Callable[[Any, Any], Any]
    error: type[Exception]
    words: tuple[str, ...]
    jax: bool


TABLE: list[Misuse] = []


def misuse(error: type[Exception], *words: str, jax: bool = True) -> Callable[..., Any]:
    """Enter a function of (functrans or jax, functrans.numpy or jax.numpy) into the table. `jax`:
    does JAX raise an error, too?"""

    def enter(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        TABLE.append(Misuse(function, error, words, jax))
        return function

    return enter


def marked_line(function: Callable[..., Any]) -> int | None:
    lines, first = inspect.getsourcelines(function)
    return next((first + i for i, line in enumerate(lines) if "# <-" in line), None)


def caught(run: Callable[[Any, Any], Any], library: Any, numpy: Any) -> Exception:
    with pytest.raises(Exception) as found:
        run(library, numpy)
    return found.value
