"""The layout of the operands and results of a loop and of its body, and of what travels along with them.

    operands, inputs of the body    *consts  *carry  *arrays      (the body gets slices of arrays)
    results, outputs of the body    *carry   *written             (the loop's are stacked)

A `while` has two programs: the condition takes `*for_cond *carry`, the body `*for_body *carry`.

In forward mode the terms of a series travel along with each value: its tangent, or its Taylor
coefficients of orders 1, 2, ... (None: zero). A program is rewritten to take the terms of its inputs
after these, and to return those of its outputs after these, by the running transformation `t`:
`t.pushed(program, patterns, needed)` returns it, and the patterns of the outputs. So each primitive that
holds programs has one rule `push` for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from functrans.ir.program import Program
from functrans.records import NamedTuple
from functrans.trace import literal, typeof

T = TypeVar("T")
Made = TypeVar("Made")
Derive = Callable[[Program, tuple[T, ...], tuple[T, ...]], tuple[Made, Sequence[T]]]

Terms = tuple[Any, ...]
Pattern = tuple[bool, ...]  # which terms of a value are not None
Pushed = tuple[Sequence[Any], Sequence[Terms]]  # results, their terms


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


def joined(groups: Iterable[Sequence[T]], more: Iterable[Sequence[T]]) -> list[T]:
    """Concatenate groups, each followed by its group of `more`.

    Example:
      >>> joined(["n", "cc"], ["", "t"])
      ['n', 'c', 'c', 't']
    """
    return [x for pair in zip(groups, more, strict=True) for group in pair for x in group]


def while_operands(xs: Sequence[T], params: Mapping[str, Any]) -> tuple[list[T], list[T], list[T]]:
    """Split operands of a `while`: consts of the condition, consts of the body, carry."""
    n = params["cond_consts"]
    m = n + params["body_consts"]
    return list(xs[:n]), list(xs[n:m]), list(xs[m:])


# --- terms that travel along ----------------------------------------------------------------------


def pattern_of(terms: Terms) -> Pattern:
    """Return which terms are not None."""
    return tuple([c is not None for c in terms])


def nonzero(series: Iterable[Terms]) -> list[Any]:
    """Return all terms that are not None, concatenated."""
    return [c for terms in series for c in terms if c is not None]


def taken(patterns: Iterable[Pattern], values: Iterator[Any]) -> list[Terms]:
    """Split values into terms by the patterns; the inverse of `nonzero`."""
    return [tuple([next(values) if a else None for a in p]) for p in patterns]


def filled(terms: Terms, wanted: Pattern, type: Any) -> Terms:
    """Replace terms that are None but wanted by zeros."""
    return tuple([literal(0, type) if c is None and w else c for c, w in zip(terms, wanted, strict=True)])


def with_zero(xs: Sequence[Any], tangents: Sequence[Any], active: Sequence[bool]) -> list[Any]:
    """Return the tangents of operands, with zeros where they are active all the same."""
    rows = zip(xs, tangents, active, strict=True)
    return [literal(0, typeof(x)) if dx is None and a else dx for x, dx, a in rows]


def with_zeros(xs: Sequence[Any], series: Sequence[Terms], patterns: Sequence[Pattern]) -> list[Terms]:
    """`filled`, for the terms of each operand."""
    return [filled(c, p, typeof(x)) for x, c, p in zip(xs, series, patterns, strict=True)]


def settled(
    derive: Derive[T, Made], program: Program, patterns: Sequence[T], layout: LoopLayout
) -> tuple[Made, list[T], Sequence[T]]:
    """Return what `derive(program, patterns, needed)` makes of the body of a loop, and the patterns of its
    operands and results. The carry has the same pattern before and after a step."""
    consts, carry, arrays = layout.operands(patterns)
    while True:  # until no more terms of the carry become active
        patterns = [*consts, *carry, *arrays]
        made, after = derive(program, tuple(patterns), tuple(carry))
        ends = layout.results(after)[0]
        if ends == carry:
            return made, patterns, after
        carry = ends
