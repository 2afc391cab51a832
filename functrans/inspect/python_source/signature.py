"""The parameters of a written function, and what it returns.

The one that a file is about takes what the user's function takes, trees and all, and names their
leaves in its first lines; where a tree cannot be read in plain Python, its leaves are parameters.
It returns what the user's function returns; where that cannot be written in plain Python, a tuple
of the leaves.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from functrans import pytrees
from functrans.inspect.python_source.naming import Names, input_names
from functrans.ir.arguments import Leaf
from functrans.ir.program import Program, Var

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
    """One parameter for each input."""
    wanted = input_names(program)
    made = [names.new(name) if name else names.letter() for name in wanted]
    return Signature(made, made, made)


def of_arguments(program: Program, names: Names) -> Signature:
    """The parameters of the user's function, if all inputs stand in them; else one per input."""
    arguments = program.arguments
    leaves = {} if arguments is None else arguments.leaves()
    if arguments is None or not leaves or not set(program.inputs) <= leaves.keys():
        return of_inputs(program, names)
    by_parameter: dict[str, list[tuple[Var, Leaf]]] = {p: [] for p in arguments.given()}
    for v, leaf in leaves.items():
        name = leaf.parameter
        by_parameter[name if name in by_parameter else f"*{name}"].append((v, leaf))
    parameters: list[str] = []
    text: dict[Var, str] = {}  # of inputs in trees
    whole: dict[Var, str] = {}  # of inputs that are parameters themselves
    for parameter, inside in by_parameter.items():
        name = parameter.lstrip("*")
        if not name.isidentifier() or not all(_is_plain(leaf.keys) for _, leaf in inside):
            found = {v: names.new(leaf.name) for v, leaf in inside}
            whole |= found
            parameters += found.values()
            continue
        given = names.new(name)
        parameters.append(parameter[: -len(name)] + given)
        for v, leaf in inside:
            if leaf.keys:
                text[v] = given + leaf.name[len(name) :]
            else:
                whole[v] = given
    local = [whole.get(v) or names.new(leaves[v].name) for v in program.inputs]
    read = [whole.get(v) or text[v] for v in program.inputs]
    return Signature(parameters, local, read)


def returned(program: Program | None, texts: Sequence[str]) -> str:
    """The expression of all outputs; of the program of a user's function in the tree that it
    returns, if that is one of dicts, lists and tuples."""
    arguments = None if program is None else program.arguments
    results = None if arguments is None else arguments.results
    if results is not None and results.num_leaves == len(texts):
        try:
            tree = pytrees.unflatten(results, [ast.parse(t, mode="eval").body for t in texts])
            return ast.unparse(_spelled(tree))
        except _NotPlain:
            pass
    return ", ".join(texts) if texts else "()"


class _NotPlain(Exception):
    """A tree that holds a class of its own."""


def _spelled(tree: Any) -> ast.expr:
    if tree is None:
        return ast.Constant(None)
    if isinstance(tree, ast.expr):
        return tree
    if type(tree) is dict:
        keys = [ast.Constant(k) for k in tree if type(k) in (str, int, bool)]
        if len(keys) == len(tree):
            return ast.Dict(keys, list(map(_spelled, tree.values())))  # type: ignore[arg-type]
    if type(tree) in (list, tuple):
        kind = ast.List if type(tree) is list else ast.Tuple
        return kind(list(map(_spelled, tree)), ast.Load())
    raise _NotPlain


def _is_plain(keys: Sequence[Any]) -> bool:
    """Do keys say in Python how a leaf is read: `['w']`, `[0]`, `.w`?"""
    return all(map(_is_plain_key, keys))


def _is_plain_key(key: Any) -> bool:
    text = str(key)
    if text.startswith("."):
        return text[1:].isidentifier()
    try:
        return bool(ast.literal_eval(text[1:-1]) == getattr(key, "key", getattr(key, "idx", None)))
    except (ValueError, SyntaxError):
        return False
