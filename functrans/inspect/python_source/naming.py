"""Names in the written file: the user's own if known, else short letters.

A variable is named after the user's assignment, `h = jnp.tanh(x @ w)`; an input after its path in
the function's arguments, `params['w']` as `params_w`.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import keyword
import os
import re
from collections.abc import Sequence
from typing import Any

from functrans import pytrees
from functrans.ir.program import Equation, Leaf, Program, Var, argument_names
from functrans.ir.source import history, line_of, text_of
from functrans.ir.text import letters
from functrans.records import NamedTuple

_ASSIGNED = re.compile(r"([A-Za-z]\w*)\s*(?::[^=]*)?=(?!=)")


class Names:
    """Unused names in the file or in one of its functions.

    outer : for a function, the names of the file: neither may shadow the other
    kept  : names reserved for values, not used as letters
    """

    def __init__(self, outer: Names | None = None, kept: Any = ()):
        self.taken: set[str] = {"np", "ml_dtypes", "scipy", "base64"}
        self._inside: set[str] = set()  # names used in the functions of this file
        self._outer = outer
        self._kept = frozenset(kept)
        self._letters = letters()

    def _free(self, name: str) -> bool:
        used = self.taken | self._inside if self._outer is None else self._outer.taken
        return not (name in used or name in self.taken or keyword.iskeyword(name) or hasattr(builtins, name))

    def _give(self, name: str) -> str:
        self.taken.add(name)
        if self._outer is not None:
            self._outer._inside.add(name)
        return name

    def new(self, wanted: str) -> str:
        """Return the wanted name, with a number if it is taken."""
        wanted = re.sub(r"\W+", "_", wanted).strip("_") or "f"
        if wanted[0].isdigit():
            wanted = f"f_{wanted}"
        names = itertools.chain([wanted], (f"{wanted}_{n}" for n in itertools.count(2)))
        return self._give(next(filter(self._free, names)))

    def letter(self) -> str:
        """Return the next short name."""
        free = (s for s in self._letters if s != "l" and s not in self._kept and self._free(s))
        return self._give(next(free))


def is_backward(e: Equation) -> bool:
    """Return whether the equation was made by a transposition."""
    return "transpose of" in history(e)[0]


def is_derived(e: Equation) -> bool:
    """Return whether the equation was made by a differentiation."""
    return not {"transpose of", "jvp of"}.isdisjoint(history(e)[0])


def result_names(program: Program) -> dict[Var, str]:
    """Return names for the values that the user's lines assign: the last value of each line.

    Equations of a function follow its bytecode; a smaller offset starts another iteration.
    """
    epochs: dict[Any, tuple[int, int]] = {}
    last: dict[Any, Equation] = {}
    for e in program.equations:
        if e.source is None or is_derived(e):
            continue
        code, offset, _ = e.source
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


# --- the user's lines as comments: one where the line changes -------------------------------------

_LONGEST = 76  # most characters of a line


def comment(e: Equation, one_file: bool) -> str:
    """Return the comment above the code of an equation; empty if it has no line."""
    if e.source is None:
        return ""
    file, line, backward = e.source[0].co_filename, line_of(e.source), is_backward(e)
    where = f"{line}" if one_file else f"{os.path.basename(file)}:{line}"
    text = text_of(e.source)
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
    return f"# {where}{', backward' if backward else ''}" + (f":  {text}" if text else "")


# --- the parameters of a written function, and what it returns ------------------------------------
#
# The one that a file is about takes what the user's function takes, trees and all, and names their
# leaves in its first lines; where a tree cannot be read in plain Python, its leaves are parameters.
# It returns what the user's function returns; where that cannot be written in plain Python, a tuple
# of the leaves.

_WIDEST = 80  # characters of parameters in one line


class Signature(NamedTuple):
    """parameters : as they stand between the parentheses
    locals      : the variable in the text of each input
    read        : the expression that each is of the parameters
    """

    parameters: list[str]
    locals: list[str]
    read: list[str]

    def __str__(self) -> str:
        line = f"({', '.join(self.parameters)}):"
        if len(line) <= _WIDEST:
            return line
        return "\n".join(["(", *[f"    {name}," for name in self.parameters], "):"])


def of_inputs(program: Program, names: Names) -> Signature:
    """Return one parameter per input: of its path in the arguments of the user's function, or, if that is
    unknown, of the function's own parameter, if there is one per input; else a letter."""
    paths, own = argument_names(program), program.name.rpartition(".")[2]
    wanted = [paths.get(v, "") for v in program.inputs]
    codes = (e.source[0] for e in program.equations if e.source)
    code = None if paths else next((c for c in codes if c.co_name == own), None)
    if code is not None and code.co_argcount + code.co_kwonlyargcount == len(wanted):
        wanted = [n.strip("_") for n in code.co_varnames[: len(wanted)]]
    made = [names.new(name) if name else names.letter() for name in wanted]
    return Signature(made, made, made)


def of_arguments(program: Program, names: Names) -> Signature:
    """Return the parameters of the user's function if they hold all inputs; else one each."""
    arguments = program.arguments
    leaves = {} if arguments is None else arguments.leaves()
    if arguments is None or not leaves or not set(program.inputs) <= leaves.keys():
        return of_inputs(program, names)
    by_parameter: dict[str, list[tuple[Var, Leaf]]] = {p: [] for p in arguments.given()}
    for v, leaf in leaves.items():
        name = leaf.parameter
        by_parameter[name if name in by_parameter else f"*{name}"].append((v, leaf))
    parameters: list[str] = []
    text: dict[Var, str] = {}
    for parameter, inside in by_parameter.items():
        name = parameter.lstrip("*")
        if name.isidentifier() and all(_is_plain(key) for _, leaf in inside for key in leaf.keys):
            given = names.new(name)
            parameters.append(parameter[: -len(name)] + given)
            text |= {v: given + leaf.name[len(name) :] for v, leaf in inside}
        else:
            found = {v: names.new(leaf.name) for v, leaf in inside}
            parameters += found.values()
            text |= found
    read = [text[v] for v in program.inputs]
    local = [
        x if x.isidentifier() else names.new(leaves[v].name)
        for v, x in zip(program.inputs, read, strict=True)
    ]
    return Signature(parameters, local, read)


def returned(program: Program | None, texts: Sequence[str]) -> str:
    """Return the expression of all outputs; for the program of a user's function, in the tree that
    it returns if that consists of dicts, lists and tuples."""
    arguments = None if program is None else program.arguments
    results = None if arguments is None else arguments.results
    if results is not None and results.num_leaves == len(texts):
        try:
            return _spelled(pytrees.unflatten(results, texts))
        except _NotPlain:
            pass
    return ", ".join(texts) if texts else "()"


class _NotPlain(Exception):
    """The tree contains a class other than dict, list and tuple."""


def _spelled(tree: Any) -> str:
    if tree is None or isinstance(tree, str):
        return str(tree)
    if type(tree) is dict and all(type(k) in (str, int, bool) for k in tree):
        return f"{{{', '.join([f'{k!r}: {_spelled(v)}' for k, v in tree.items()])}}}"
    if type(tree) in (list, tuple):
        inside = ", ".join(map(_spelled, tree))
        return f"[{inside}]" if type(tree) is list else f"({inside}{',' * (len(tree) == 1)})"
    raise _NotPlain


def _is_plain(key: Any) -> bool:
    """Return whether a key says in Python how a leaf is read: `['w']`, `[0]`, `.w`."""
    text = str(key)
    if text.startswith("."):
        return text[1:].isidentifier()
    try:
        return bool(ast.literal_eval(text[1:-1]) == getattr(key, "key", getattr(key, "idx", None)))
    except (ValueError, SyntaxError):
        return False
