"""How the error of a run accumulates from equation to equation.

In: XLA's run, with each equation on XLA's own values; then the float64 reference's run, on its own
values. Out: the relative error of each result (see `_distance`), and the equation that amplifies it
most.

At most `SAMPLE` evenly spaced elements of each value of the first run are stored, and the errors
here are of these elements. The verdict on each equation (inspect/closeness.py) uses all elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

import numpy as np

from functrans.inspect.closeness import plain, relative
from functrans.inspect.observers import Place
from functrans.inspect.report import Finding
from functrans.inspect.staged import summary
from functrans.ir.program import Equation, Program, Var
from functrans.ir.types import is_inexact
from functrans.primitives.shape.moving import broadcast_in_dim, reshape, rev, squeeze, transpose
from functrans.records import NamedTuple

# The result has exactly the elements of the operand, so it has the operand's error.
_MOVES = frozenset([broadcast_in_dim, reshape, rev, squeeze, transpose])
SAMPLE = 512
MOST_BYTES = 2**28  # limit on the stored samples
_VISIBLE = 2.0**-18  # the growth of smaller errors is ignored
_NOTABLE = 8.0  # minimal factor that counts as growth


class Growth(NamedTuple):
    """The equation that amplifies the relative error of its operands most."""

    factor: float
    before: float
    after: float
    finding: Finding


class Drift:
    """The error of a first run against a second run, of the same program or of one with the same shape."""

    def __init__(self, same: bool) -> None:
        self._same = same
        self._made: set[Var] = set()  # results of the remembered equations
        self.curve: list[float] = []  # the relative error of each equation's results, in order
        self.parted: str | None = None  # where the control flow of the runs first differs
        self.sampled: bool = True
        self._kept: dict[tuple[Any, ...], list[Any] | None] = {}  # None: of an op in _MOVES
        self._bytes = 0
        self._errors: dict[Var, float] = {}  # error of the latest value of each variable
        self._carried: dict[Program, float] = {}  # largest error inside a nested program so far
        self._largest: dict[Var, float] = {}  # largest error of each variable over all steps
        self._grown: dict[Equation, Growth] = {}

    def remember(self, place: Place, outs: Sequence[Any]) -> None:
        """Store samples of the results of the first run at a place."""
        if self._bytes > MOST_BYTES:
            self.sampled = False
            return
        eqn = place.equation
        if self._same and eqn.primitive in _MOVES and eqn.inputs[0] in self._made:
            self._made.add(eqn.outputs[0])
            self._kept[place.key] = None
            return
        self._made.update(eqn.outputs)
        kept = list(map(_sample, outs))
        self._kept[place.key] = kept
        self._bytes += 200 + sum([y.nbytes for y in kept])

    def follow(self, place: Place, values: Sequence[Any], outs: Sequence[Any]) -> None:
        """Compare with the results of the second, exact run at the same place."""
        kept = self._kept.pop(place.key, ())
        if kept == ():
            if self.parted is None and self.sampled:
                self.parted = str(place)
            return
        eqn = place.equation
        if kept is None:
            errors = [self._errors.get(eqn.inputs[0], 0.0)]
        else:
            each = zip(eqn.outputs, kept, outs, strict=True)
            errors = [_distance(y, _some(x)) if is_inexact(v.type.dtype) else 0.0 for v, y, x in each]
        for v, error in zip(eqn.outputs, errors, strict=True):
            self._errors[v] = error
            self._largest[v] = max(error, self._largest.get(v, 0.0))
        after = max(errors, default=0.0)
        self.curve.append(after)
        if place.frame.holder is not None:
            self._carried[place.frame.program] = max(self._carried.get(place.frame.program, 0.0), after)
        if kept is None or after <= _VISIBLE or eqn.primitive.holds_programs:
            return
        before = max(self._before(place), float(np.finfo(np.float32).eps) / 2)
        factor = after / before
        if factor > max(_NOTABLE, self._grown[eqn].factor if eqn in self._grown else 0.0):
            k = errors.index(after)
            texts = [summary(x[k], eqn.outputs[k].type) for x in (kept, outs)]
            self._grown[eqn] = Growth(factor, before, after, Finding.of(place, 0.0, 0.0, *texts))

    def growth(self, program: Program) -> Growth | None:
        """Return where the error grew most; None if it stayed near rounding level everywhere.

        Only the part of an error that reaches a result counts: the error of a nearly zero value
        that is added to a larger one does not."""
        if not self._grown:
            return None
        largest = self._largest
        reaches = {v: largest.get(v, 0.0) for v in program.outputs if isinstance(v, Var)}
        todo, found = [program], []
        while todo:
            p = todo.pop()
            for eqn in reversed(p.equations):
                out = max([reaches.get(v, 0.0) for v in eqn.outputs], default=0.0)
                if eqn in self._grown:
                    g = self._grown[eqn]
                    after = min(g.after, out)
                    found.append(g._replace(factor=after / g.before, after=after))
                read = eqn.inputs
                if eqn.primitive.holds_programs:
                    inside = eqn.programs
                    read = (*read, *[v for q in inside for v in q.outputs])
                    todo += inside
                for v in read:
                    through = min(largest.get(v, 0.0), out)
                    if through > reaches.get(v, 0.0):
                        reaches[v] = through
        best = max(found, key=lambda g: g.factor, default=None)
        return None if best is None or best.factor < _NOTABLE or best.after < _VISIBLE else best

    def _before(self, place: Place) -> float:
        """Return the error of an equation's operands. Inputs of a nested program have the error of
        the operands of the enclosing equation, or of the previous step."""
        known = [self._errors[v] for v in place.equation.inputs if v in self._errors]
        frame = place.frame
        if frame.holder is not None and any(v in frame.program.inputs for v in place.equation.inputs):
            given = [self._errors.get(v, 0.0) for v in frame.holder.equation.inputs]
            known += [*given, self._carried.get(frame.program, 0.0)]
        return max(known, default=0.0)


def _distance(y: Any, ref: Any) -> float:
    """Return the relative error of a float32 result in the root-mean-square norm. For other dtypes,
    or if squares overflow or underflow, use the maximum norm (`relative`)."""
    if y.dtype == np.float32 and ref.dtype == np.float64:
        apart = y - ref
        squares = float(apart.dot(apart))
        if squares == 0.0 and not apart.any():
            return 0.0
        size = float(ref.dot(ref))
        if _LEAST < squares < inf and _LEAST < size < inf:
            return sqrt(squares / size)
    return relative(y, ref)


_LEAST = 1e-280  # smaller squares lose precision


def _some(x: Any) -> Any:
    """Return at most SAMPLE evenly spaced elements."""
    x = plain(x).reshape(-1)
    return x[:: -(-x.size // SAMPLE)] if x.size > SAMPLE else x


def _sample(x: Any) -> Any:
    """Return the same elements as a copy, so that the full array can be freed."""
    some = _some(x)
    return some.copy() if some.size < x.size else some
