"""The table of misuses: how one is entered, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.pages.misuse_table import M as M
from tests.pages.misuse_table import Misuse
from tests.pages.misuse_table import X as X
from tests.pages.misuses import marked_line as marked_line

I = np.arange(3, dtype=np.int32)  # noqa: E741
TABLE: list[Misuse] = []


def misuse(error: type[Exception], *words: str, jax: bool = True) -> Callable[..., Any]:
    """Enter a function of (functrans or jax, functrans.numpy or jax.numpy) into the table. `jax`:
    does JAX raise an error, too?"""

    def enter(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        TABLE.append(Misuse(function, error, words, jax))
        return function

    return enter


def caught(run: Callable[[Any, Any], Any], library: Any, numpy: Any) -> Exception:
    with pytest.raises(Exception) as found:
        run(library, numpy)
    return found.value
