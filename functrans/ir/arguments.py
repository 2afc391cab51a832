"""Where the inputs of a program stand in the user's arguments: `params['blocks'][0].w`; and its
outputs in what the user's function returns.

In: what a trace has at hand anyway, the tree definition of `(args, kwargs)` and the names of the
function's parameters. Out: names, worked out when something is drawn or written, never while
tracing. They belong to the variables, so a rewrite that keeps an input keeps its name, and one that
drops or adds inputs need not know of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax import tree_util


class Parameters(NamedTuple):
    """The names of a function's parameters that are not static.

    positional : of those that may be given by position
    rest       : of the one that takes all further ones, `*args`
    """

    positional: tuple[str, ...]
    rest: str = "args"


class Leaf(NamedTuple):
    """Where one input stands: in which parameter, and by which keys from there."""

    parameter: str
    keys: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.parameter + tree_util.keystr(self.keys)


class Arguments:
    """How a program is called: what `argument_names` is computed from.

    structure : the tree definition of `(args, kwargs)`
    inputs    : the variable of each leaf
    results   : the tree definition of what is returned; None where it is not known
    """

    __slots__ = ("inputs", "parameters", "results", "structure")

    def __init__(self, parameters: Parameters, structure: Any, inputs: Sequence[Any], results: Any):
        self.parameters: Parameters = parameters
        self.structure: Any = structure
        self.inputs: Sequence[Any] = inputs
        self.results: Any = results

    def moved(self, before: Sequence[Any], after: Sequence[Any]) -> Arguments:
        """The arguments of a program that was made of this one: inputs `after` for `before`."""
        return _Moved(self, before, after)

    def leaves(self) -> dict[Any, Leaf]:
        """Where each input stands, by its variable."""
        return {v: leaf for leaf, v in self._by_parameter()[1]}

    def given(self) -> list[str]:
        """The parameters that a call gives, in order; `*rest` if there are more by position."""
        return self._by_parameter()[0]

    def _by_parameter(self) -> tuple[list[str], list[tuple[Leaf, Any]]]:
        # A tree definition tells its paths only through a tree; a class whose tree may not hold
        # whatever stands for its arrays is without names.
        try:
            args, kwargs = tree_util.tree_unflatten(self.structure, self.inputs)
            n = len(self.parameters.positional)
            trees: dict[str, Any] = dict(zip(self.parameters.positional, args, strict=False))
            rest = {self.parameters.rest: args[n:]} if len(args) > n else {}
            found = [
                (Leaf(name, tuple(keys)), v)
                for name, x in (trees | rest | kwargs).items()
                for keys, v in tree_util.tree_flatten_with_path(x)[0]
            ]
        except Exception:
            return [], []
        if {v for _, v in found} != set(self.inputs):
            return [], []
        return [*trees, *[f"*{name}" for name in rest], *kwargs], found


class _Moved(Arguments):
    """The arguments of another program, whose inputs were `before` what they are now."""

    __slots__ = ("after", "before", "first")

    def __init__(self, first: Arguments, before: Sequence[Any], after: Sequence[Any]):
        self.first, self.before, self.after = first, before, after
        self.results = None

    def leaves(self) -> dict[Any, Leaf]:
        found = self.first.leaves()
        pairs = zip(self.before, self.after, strict=False)
        return {now: found[v] for v, now in pairs if v in found}

    def given(self) -> list[str]:
        return self.first.given()
