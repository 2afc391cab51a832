"""The table of misuses: how a function is entered into it.

Each is a small function of (functrans or jax, its numpy): it says which class of error functrans
raises, and which words the message must hold: what was given, what was expected, what to do. The
line that the message must name is marked `# <-`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

X = np.array([1.0, 2.0, 3.0], np.float32)
M = np.ones((2, 3), np.float32)


class Misuse(NamedTuple):
    run: Callable[[Any, Any], Any]
    error: type[Exception]
    words: tuple[str, ...]
    jax: bool

    @property
    def title(self) -> str:
        words = self.run.__name__.split("_")
        return " ".join([words[0].capitalize(), *(NAMES.get(word, word) for word in words[1:])])


NAMES = {"numpy": "NumPy", "python": "Python", "nan": "NaN", "none": "None"}  # as titles write them
TABLE: list[Misuse] = []


def misuse(error: type[Exception], *words: str, jax: bool = True) -> Callable[..., Any]:
    """Enter a function into the table. `jax`: is JAX's error of a class that ours derives from?
    False where JAX raises none, or an `AssertionError` or the like."""

    def enter(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        TABLE.append(Misuse(function, error, words, jax))
        return function

    return enter
