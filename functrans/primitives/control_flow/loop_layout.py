"""Where what a loop takes and gives stands, in its equation and in the program of a step.

    operands, inputs of a step    *consts  *carry  *arrays      (of a step: a slice of each array)
    results, outputs of a step    *carry   *written             (of the loop: stacked)

A `while` has two programs: the condition takes `*for_cond *carry`, the body `*for_body *carry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class LoopLayout(NamedTuple):
    """How many operands are the same in all steps, and how many are carried from step to step."""

    consts: int
    carry: int

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> LoopLayout:
        """That of a scan with these parameters."""
        return cls(params["consts"], params["carry"])

    @property
    def fixed(self) -> int:
        """Where the arrays begin among the operands."""
        return self.consts + self.carry

    def operands(self, xs: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
        """Consts, carry and arrays among what goes with the operands.

        Example:
          >>> LoopLayout(1, 2).operands("nccaa")
          (['n'], ['c', 'c'], ['a', 'a'])
        """
        return list(xs[: self.consts]), list(xs[self.consts : self.fixed]), list(xs[self.fixed :])

    def results(self, ys: Sequence[T]) -> tuple[list[T], list[T]]:
        """Carry and written among what goes with the results."""
        return list(ys[: self.carry]), list(ys[self.carry :])

    def with_more(self, xs: Sequence[T], more: Sequence[T | None]) -> list[T]:
        """Operands with others behind those of their group that they go with (None: none does), as
        tangents behind the consts, the carry and the arrays.

        Example:
          >>> LoopLayout(1, 2).with_more("nccaa", [None, "t", None, "s", None])
          ['n', 'c', 'c', 't', 'a', 'a', 's']
        """
        return _joined(zip(self.operands(xs), self.operands(more), strict=True))

    def results_with_more(self, ys: Sequence[T], more: Sequence[T | None]) -> list[T]:
        """`with_more` of results."""
        return _joined(zip(self.results(ys), self.results(more), strict=True))


def _joined(groups: Iterable[tuple[Sequence[T], Sequence[T | None]]]) -> list[T]:
    made: list[T] = []
    for group, more in groups:
        made += group
        made += [x for x in more if x is not None]
    return made
