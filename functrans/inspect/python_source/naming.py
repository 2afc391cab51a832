"""Names in the written file: the user's own where they are known, else short letters.

A variable is named by the user's line that made it, `h = jnp.tanh(x @ w)`; an input by its place
in the function's arguments, `params['w']` as `params_w`.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from itertools import count
from types import CodeType
from typing import Any

from functrans.ir.program import Equation, Program, Var, argument_names
from functrans.ir.source import line_of, text_of

_ASSIGNED = re.compile(r"([A-Za-z]\w*)\s*(?::[^=]*)?=(?!=)")
_NOT_LETTERS = frozenset({"l", "O", "I"})


class Names:
    """Names not given away yet, in the file or in one of its functions.

    outer : the names of the file, for those of a function: neither may hide the other
    kept  : names that values will want, so they are no letters
    """

    def __init__(self, outer: Names | None = None, kept: Any = ()):
        self.taken: set[str] = {"np", "ml_dtypes", "scipy", "base64"}
        self._inside: set[str] = set()  # what the functions of this file have given away
        self._outer = outer
        self._kept = frozenset(kept)
        self._letters = _letters()

    def _free(self, name: str) -> bool:
        used = self.taken | self._inside if self._outer is None else self._outer.taken
        return not (
            name in used or name in self.taken or keyword.iskeyword(name) or hasattr(builtins, name)
        )

    def _give(self, name: str) -> str:
        self.taken.add(name)
        if self._outer is not None:
            self._outer._inside.add(name)
        return name

    def new(self, wanted: str) -> str:
        """The wanted name, with a number if it is taken."""
        wanted = re.sub(r"\W+", "_", wanted).strip("_") or "f"
        if wanted[0].isdigit():
            wanted = f"f_{wanted}"
        for n in count(1):
            name = wanted if n == 1 else f"{wanted}_{n}"
            if self._free(name):
                return self._give(name)
        raise AssertionError

    def letter(self) -> str:
        """The next short name."""
        for name in self._letters:
            if name not in self._kept and self._free(name):
                return self._give(name)
        raise AssertionError


def _letters() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    for width in count(1):
        stack = [""]
        for _ in range(width):
            stack = [s + c for s in stack for c in letters]
        yield from [s for s in stack if s not in _NOT_LETTERS]


def is_backward(e: Equation) -> bool:
    """Did a transposition make it?"""
    return "transpose of" in _steps(e)


def is_derived(e: Equation) -> bool:
    """Did a differentiation make it?"""
    steps = _steps(e)
    return "transpose of" in steps or "jvp of" in steps


def _steps(e: Equation) -> list[str]:
    steps, origin = [], e.origin
    while origin is not None:
        steps.append(origin.how)
        origin = origin.equation.origin
    return steps


def function_code(program: Program) -> CodeType | None:
    """The code of the function that a program is named after, if an equation stands in it."""
    wanted = program.name.rpartition(".")[2]
    for e in program.equations:
        if e.source is not None and e.source[0].co_name == wanted:
            return e.source[0]
    return None


def input_names(program: Program) -> list[str]:
    """Where the inputs stand in the function's arguments; its arguments, where that is not known
    and there is one per input; else no names."""
    names = argument_names(program)
    if names:
        return [names.get(v, "") for v in program.inputs]
    code = function_code(program)
    if code is None or code.co_argcount + code.co_kwonlyargcount != len(program.inputs):
        return [""] * len(program.inputs)
    return [n.strip("_") for n in code.co_varnames[: len(program.inputs)]]


def result_names(program: Program) -> dict[Var, str]:
    """Names for the values that the user's lines assign: the last of those that a line makes.

    Equations of a function follow its bytecode; an offset that falls back is another time round.
    """
    epochs: dict[Any, tuple[int, int]] = {}
    last: dict[Any, Equation] = {}
    for e in program.equations:
        if e.source is None or is_derived(e):
            continue
        code, offset = e.source
        before, epoch = epochs.get(code, (-1, 0))
        epoch += offset < before
        epochs[code] = offset, epoch
        last[code, line_of(e.source), epoch] = e
    found = {}
    for e in last.values():
        match = _ASSIGNED.match(text_of(e.source))
        if match and len(e.outputs) == 1:
            found[e.outputs[0]] = match[1].strip("_") or "value"
    return found
