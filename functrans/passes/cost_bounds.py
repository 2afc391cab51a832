"""Lower bounds on the cost of sums without their large operands, from shapes alone.

In: a cluster of `contract`. Out: a lower bound for each of its sums in nanoseconds, with the costs
of passes/machines.py. It prunes most searches for a cheaper order before they start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from functrans.ir.program import Equation, Literal, Var
from functrans.passes.machines import Machine
from functrans.passes.sums_of_products import ALIASES
from functrans.primitives.base import bytes_of
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.families import add, div, mul, neg, sub
from functrans.primitives.shape.moving import reshape

_SUMS = frozenset([add, sub])
_PRODUCTS = frozenset([mul, div])
_ALONG = _SUMS | _PRODUCTS | {neg}  # operations that preserve the terms of a sum


class Least:
    """Lower bounds for the sums of one cluster.

    made_by : the equation that computes each variable of the program
    values  : those of the cluster
    sources : the contractions that compute some of these
    cost    : the cost of an equation as it is
    machine : what work costs
    """

    def __init__(
        self,
        made_by: dict[Var, Equation],
        values: Iterable[Var],
        sources: Sequence[Equation],
        cost: Callable[[Equation], float],
        machine: Machine,
    ):
        self.machine = machine
        self.made_by = made_by
        self.cost = cost
        self.values: frozenset[Var] = frozenset(values)
        sizes = {e.outputs[0].type.size for e in sources}
        self.size: int = sizes.pop() if len(sizes) == 1 else 0  # 0: they differ
        self.times: int = min(map(self._summed, sources))

    def of(self, e: Equation) -> float:
        """Return the bound of one sum; 0 if nothing is known.

        A sum of a[m,k] b[k,n] c[m,n] takes size(c) times k products in any order that avoids `a b`,
        and size(result) times k in the step that sums over k. If the cluster has nothing else it
        also takes as many as `_in_pairs` says.
        """
        if e.primitive is not dot_general:
            return 0.0
        t = e.outputs[0].type
        known = self.cost(e) if self._stays(e) else 0.0
        if not self.times or not self.size:
            return known
        factor = self._factor(e)
        if not factor:
            return known
        products = max(self.times * (factor + t.size), self._in_pairs(e))
        written = self.machine.written * bytes_of(t)
        return (known or written) + 2 * self.machine.per_flop(t.dtype) * products

    def _stays(self, e: Equation) -> bool:
        """Return whether the contraction has a term, with as many products, without the cluster's
        large values.

        A sum over k of (a[m,k] b[k,n] + w[m,n]) c[n,p] takes the products of w and c anyway."""
        for c, _, u, _ in _sides(e):
            if u in self.values and c not in self.values and self._is_whole(c):
                return self._has_whole_term(u)
        return False

    def _has_whole_term(self, u: Var) -> bool:
        """Return whether a value of the cluster is a sum, or a multiple of one, with a whole
        term."""
        at: Any = u
        while at in self.values:
            e = self.made_by[at]
            if e.primitive in _SUMS and any([self._is_whole(v) for v in e.inputs]):
                return True
            inside = [v for v in e.inputs if v in self.values]
            at = inside[0] if inside and e.primitive in _ALONG else None
        return False

    def _is_whole(self, v: Any) -> bool:
        """Return whether a value is outside the cluster and not broadcast, or a product of such
        values."""
        if v.__class__ is Literal:
            return False
        if v not in self.values:
            return bool(self._behind(v).type.size == v.type.size)
        e = self.made_by[v]
        return (
            e.primitive in _PRODUCTS
            and self.values.isdisjoint(e.inputs)
            and any([self._is_whole(w) for w in e.inputs])
        )

    def _factor(self, e: Equation) -> int:
        """Return the size of a contraction's factor, itself outside the cluster, of a value of the
        cluster, along axes that the value or the result has; 0 if another axis can be summed
        first."""
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
        """Return the number of products to contract c first with one of a and b, then with the
        other, if `a b`, possibly reshaped, is the cluster's only value. 0 if the axes are unknown.

        The first step has all axes of its operands, the second those of the last operand and those
        of c that the result has."""
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
            alone = prod(
                [n for name, n in zip(own, c.type.shape, strict=True) if name in out and name not in other]
            )
            sizes = [v.type.size for v in by.inputs]
            more = [
                prod([n for name, n in joined if name not in names])
                for names in (by.params["lhs"], by.params["rhs"])
            ]
            return alone * min(sizes[0] * more[0] + sizes[1], sizes[1] * more[1] + sizes[0])
        return 0

    def _summed(self, e: Equation) -> int:
        """Return the number of products that a contraction sums; 0 unless its two operands vary
        along all axes."""
        if e.primitive is not dot_general:
            return 0
        if any([self._behind(v).type.size != v.type.size for v in e.inputs]):
            return 0
        lhs, rhs, out = (e.params[name] for name in ("lhs", "rhs", "out"))
        sizes = zip(lhs, e.inputs[0].type.shape, strict=True)
        return prod([n for name, n in sizes if name in rhs and name not in out])

    def _behind(self, v: Any) -> Any:
        """Return the smallest value that was moved, broadcast or converted to v."""
        least = v
        while (e := self.made_by.get(v)) is not None and e.primitive in ALIASES:
            v = e.inputs[0]
            if v.type.size <= least.type.size:  # the operand of a slice is larger
                least = v
        return least


def _sides(e: Equation) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return, for each operand of a contraction, it and its axes, and the other one and its
    axes."""
    x, y = e.inputs
    lhs, rhs = e.params["lhs"], e.params["rhs"]
    return (x, lhs, y, rhs), (y, rhs, x, lhs)


def _places(shape: Sequence[int], before: Sequence[int], axes: Sequence[int]) -> list[int] | None:
    """Return the axes before a reshape that together are exactly those axes after it; None if there
    are none."""
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
