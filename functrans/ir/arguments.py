"""The positions of a program's inputs in the user's arguments, `params['blocks'][0].w`, and of its
outputs in the user's result.

In: the tree definition of `(args, kwargs)` and the function's parameter names, which tracing has
anyway. Out: names, computed when a program is drawn or printed, never while tracing. Names belong
to variables: a rewrite that keeps an input keeps its name, and one that drops or adds inputs need
not update names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax import tree_util


class Parameters(NamedTuple):
    """The names of a function's parameters that are not static.

    positional : parameters that can be passed by position
    rest       : the variadic parameter, `*args`
    """

    positional: tuple[str, ...]
    rest: str = "args"


class Leaf(NamedTuple):
    """The position of one input: its parameter, and the key path inside that."""

    parameter: str
    keys: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.parameter + tree_util.keystr(self.keys)


class Arguments:
    """How a program is called; `argument_names` is computed from this.

    structure : the tree definition of `(args, kwargs)`
    inputs    : the variable of each leaf
    results   : the tree definition of the result; None if unknown
    """

    __slots__ = ("inputs", "parameters", "results", "structure")

    def __init__(self, parameters: Parameters, structure: Any, inputs: Sequence[Any], results: Any):
        self.parameters: Parameters = parameters
        self.structure: Any = structure
        self.inputs: Sequence[Any] = inputs
        self.results: Any = results

    def moved(self, before: Sequence[Any], after: Sequence[Any]) -> Arguments:
        """Return the arguments of a program derived from this one: inputs `after` replace
        `before`."""
        return _Moved(self, before, after)

    def leaves(self) -> dict[Any, Leaf]:
        """Return the position of each input, by variable."""
        return {v: leaf for leaf, v in self._by_parameter()[1]}

    def given(self) -> list[str]:
        """Return the parameters that a call passes, in order; `*rest` if there are further
        positional ones."""
        return self._by_parameter()[0]

    def _by_parameter(self) -> tuple[list[str], list[tuple[Leaf, Any]]]:
        # A tree definition gives its paths only through a tree. A class that cannot be unflattened
        # with arbitrary leaves gets no names.
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
    """The arguments of a derived program: its inputs `after` were `before`."""

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
