"""The layout of the operands and results of a loop and of its body.

    operands, inputs of the body    *consts  *carry  *arrays      (the body gets slices of arrays)
    results, outputs of the body    *carry   *written             (the loop's are stacked)

A `while` has two programs: the condition takes `*for_cond *carry`, the body `*for_body *carry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class LoopLayout(NamedTuple):
    """The numbers of constants, which are the same in all steps, and of carried values."""

    consts: int
    carry: int

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> LoopLayout:
        """Return the layout of a scan with these parameters."""
        return cls(params["consts"], params["carry"])

    @property
    def fixed(self) -> int:
        """The index of the first array among the operands."""
        return self.consts + self.carry

    def operands(self, xs: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
        """Split a list that is parallel to the operands into consts, carry and arrays.

        Example:
          >>> LoopLayout(1, 2).operands("nccaa")
          (['n'], ['c', 'c'], ['a', 'a'])
        """
        return list(xs[: self.consts]), list(xs[self.consts : self.fixed]), list(xs[self.fixed :])

    def results(self, ys: Sequence[T]) -> tuple[list[T], list[T]]:
        """Split a list that is parallel to the results into carry and written."""
        return list(ys[: self.carry]), list(ys[self.carry :])

    def with_more(self, xs: Sequence[T], more: Sequence[T | None]) -> list[T]:
        """Append to each group of operands the values of `more` that belong to it (None: no value),
        such as the tangents of the consts, the carry and the arrays.

        Example:
          >>> LoopLayout(1, 2).with_more("nccaa", [None, "t", None, "s", None])
          ['n', 'c', 'c', 't', 'a', 'a', 's']
        """
        return joined(self.operands(xs), map(_given, self.operands(more)))

    def results_with_more(self, ys: Sequence[T], more: Sequence[T | None]) -> list[T]:
        """`with_more` for results."""
        return joined(self.results(ys), map(_given, self.results(more)))


def _given(xs: Sequence[T | None]) -> list[T]:
    return [x for x in xs if x is not None]


def joined(groups: Iterable[Sequence[T]], more: Iterable[Sequence[T]]) -> list[T]:
    """Concatenate groups, each followed by its group of `more`.

    Example:
      >>> joined(["n", "cc"], ["", "t"])
      ['n', 'c', 'c', 't']
    """
    return [x for pair in zip(groups, more, strict=True) for group in pair for x in group]


def while_operands(xs: Sequence[T], params: Mapping[str, Any]) -> tuple[list[T], list[T], list[T]]:
    """Split operands of a `while` with these parameters into consts of the condition, consts of the
    body, and carry."""
    n = params["cond_consts"]
    m = n + params["body_consts"]
    return list(xs[:n]), list(xs[n:m]), list(xs[m:])
