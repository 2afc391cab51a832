"""Lower bounds on the cost of sums without their large operands, from shapes alone.

In: a cluster of `contract`. Out: a lower bound for each of its sums in nanoseconds, with the costs
of passes/machines.py. It prunes most searches for a cheaper order before they start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod
from typing import Any

from functrans.ir.program import Equation, Var
from functrans.passes.machines import Machine
from functrans.passes.sums_of_products import ALIASES
from functrans.primitives.base import bytes_of
from functrans.primitives.contractions.dot_general import dot_general

MadeBy = dict[Var, Equation]


def least(
    made_by: MadeBy, values: Collection[Var], sources: list[Equation], sinks: Iterable[Equation], m: Machine
) -> dict[Equation, float]:
    """Return the bound of each sum (`sinks`) of a cluster; 0 if nothing is known.

    A sum of a[m,k] b[k,n] c[m,n] takes size(c) times k products in any order that avoids `a b`, and
    size(result) times k in the step that sums over k.

    Arguments:
      made_by: the equation that computes each variable of the program.
      values: those of the cluster.
      sources: the contractions that compute some of these.
    """
    bounds = dict.fromkeys(sinks, 0.0)
    size, *others = {e.outputs[0].type.size for e in sources}
    times = min([_summed(made_by, e) for e in sources])
    if not times or others:
        return bounds
    for e in bounds:
        if e.primitive is dot_general and (factor := _factor(made_by, values, size, e)):
            t = e.outputs[0].type
            products = times * (factor + t.size)
            bounds[e] = m.written * bytes_of(t) + 2 * m.per_flop(t.dtype) * products
    return bounds


def _factor(made_by: MadeBy, values: Collection[Var], size: int, e: Equation) -> int:
    """Return the size of a contraction's factor, itself outside the cluster, of a value of the
    cluster, along axes that the value or the result has; 0 if another axis can be summed first."""
    (x, y), (lhs, rhs, out) = e.inputs, (e.params[name] for name in ("lhs", "rhs", "out"))
    for v, own, u, other in ((x, lhs, y, rhs), (y, rhs, x, lhs)):
        w = _behind(made_by, v)
        if u not in values or w in values or u.type.size != size:
            continue
        if w.type.size == v.type.size and {*own, *out}.issuperset(other):
            axes = zip(own, v.type.shape, strict=True)
            return prod([n for name, n in axes if name in other or name in out])
    return 0


def _summed(made_by: MadeBy, e: Equation) -> int:
    """Return the number of products that a contraction sums; 0 unless its two operands vary along
    all axes."""
    if e.primitive is not dot_general:
        return 0
    if any([_behind(made_by, v).type.size != v.type.size for v in e.inputs]):
        return 0
    lhs, rhs, out = (e.params[name] for name in ("lhs", "rhs", "out"))
    sizes = zip(lhs, e.inputs[0].type.shape, strict=True)
    return prod([n for name, n in sizes if name in rhs and name not in out])


def _behind(made_by: MadeBy, v: Any) -> Any:
    """Return the smallest value that was moved, broadcast or converted to v."""
    smallest = v
    while (e := made_by.get(v)) is not None and e.primitive in ALIASES:
        v = e.inputs[0]
        if v.type.size <= smallest.type.size:  # the operand of a slice is larger
            smallest = v
    return smallest
