"""What sums cost at least without the large values that they are sums of, seen from shapes alone.

In: a cluster of `contract`. Out: a lower bound on each of its sums in nanoseconds, by the costs of
passes/order.py. It ends most searches for a cheaper order before they begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from functrans.ir.program import Equation, Var
from functrans.passes.order import PER_BYTE_WRITTEN, per_flop
from functrans.passes.products import ALIASES
from functrans.primitives.base import bytes_of
from functrans.primitives.contraction import dot_general
from functrans.primitives.shape import reshape


class Least:
    """Lower bounds for the sums of one cluster.

    made_by : the equation that makes each variable of the program
    values  : of the cluster
    sources : the contractions that make some of these
    """

    def __init__(
        self, made_by: dict[Var, Equation], values: Iterable[Var], sources: Sequence[Equation]
    ):
        self.made_by = made_by
        self.values = frozenset(values)
        sizes = {e.outputs[0].type.size for e in sources}
        self.size = sizes.pop() if len(sizes) == 1 else 0  # 0: they differ
        self.times = min(map(self._summed, sources))

    def of(self, e: Equation) -> float:
        """Of one sum; 0 where nothing is seen.

        A sum of a[m,k] b[k,n] c[m,n] takes as many products as c has elements, k times, in
        whichever order `a b` is avoided, and as many as the result has, k times, in the step that
        sums over k. Where nothing else is joined it takes as many as `_in_pairs`, too.
        """
        if not self.times or not self.size or e.primitive is not dot_general:
            return 0.0
        factor = self._factor(e)
        if not factor:
            return 0.0
        t = e.outputs[0].type
        products = max(self.times * (factor + t.size), self._in_pairs(e))
        return 2 * per_flop(t.dtype) * products + PER_BYTE_WRITTEN * bytes_of(t)

    def _factor(self, e: Equation) -> int:
        """How many elements has a contraction's factor of a value of the cluster, itself none of
        it, along axes that the value or the result has? 0 if another axis can be summed first."""
        out = e.params["out"]
        for v, own, u, other in _sides(e):
            w = self._behind(v)
            if u not in self.values or w in self.values or u.type.size != self.size:
                continue
            if w.type.size == v.type.size and {*own, *out}.issuperset(other):
                axes = zip(own, v.type.shape, strict=True)
                return prod([n for name, n in axes if name in other or name in out])
        return 0

    def _in_pairs(self, e: Equation) -> int:
        """How many products it takes to contract c with one of a and b, then with the other, where
        `a b` is the cluster's only value but for a reshaped one. 0 where the axes are not seen.

        The first step has all axes of its two, the second those of the last operand and those of c
        that the result has."""
        if len(self.values) > 2:
            return 0
        out = e.params["out"]
        for c, own, u, other in _sides(e):
            by = self.made_by.get(u) if u in self.values else None
            if by is not None and by.primitive is reshape:
                by = self.made_by.get(by.inputs[0])
            if by is None or by.primitive is not dot_general:
                continue
            made = by.outputs[0].type.shape
            at = _places(u.type.shape, made, [i for i, name in enumerate(other) if name in own])
            if at is None:
                return 0
            joined = [(by.params["out"][i], made[i]) for i in at]
            alone = prod([
                n for name, n in zip(own, c.type.shape, strict=True)
                if name in out and name not in other
            ])  # fmt: skip
            sizes = [v.type.size for v in by.inputs]
            more = [
                prod([n for name, n in joined if name not in names])
                for names in (by.params["lhs"], by.params["rhs"])
            ]
            return alone * min(sizes[0] * more[0] + sizes[1], sizes[1] * more[1] + sizes[0])
        return 0

    def _summed(self, e: Equation) -> int:
        """Over how many products a contraction sums; 0 for what is none of two values that vary."""
        if e.primitive is not dot_general:
            return 0
        if any([self._behind(v).type.size != v.type.size for v in e.inputs]):
            return 0
        lhs, rhs, out = (e.params[name] for name in ("lhs", "rhs", "out"))
        sizes = zip(lhs, e.inputs[0].type.shape, strict=True)
        return prod([n for name, n in sizes if name in rhs and name not in out])

    def _behind(self, v: Any) -> Any:
        """What was moved, repeated or converted to v."""
        while (e := self.made_by.get(v)) is not None and e.primitive in ALIASES:
            v = e.inputs[0]
        return v


def _sides(e: Equation) -> tuple[tuple, tuple]:
    """Of a contraction each operand and its axes, and the other one and its axes."""
    x, y = e.inputs
    lhs, rhs = e.params["lhs"], e.params["rhs"]
    return (x, lhs, y, rhs), (y, rhs, x, lhs)


def _places(shape: Sequence[int], before: Sequence[int], axes: Sequence[int]) -> list[int] | None:
    """The axes before a reshape that are, together, just those axes after it; None if there are
    none such."""
    found: list[int] = []
    for i in axes:
        inner = prod(shape[i + 1 :])
        held = 1
        for k, n in enumerate(before):
            step = prod(before[k + 1 :])
            if n > 1 and inner <= step and step * n <= inner * shape[i]:
                found.append(k)
                held *= n
        if held != shape[i]:
            return None
    return found
