"""Reorder contractions so that large intermediates that are only multiplied and summed are not
materialized.

In: a Program. Out: one without large values that reach only sums (a `reduce_sum`, a `dot_general`)
through products, binary sums, negations, transpositions, reshapes and broadcasts. Each of these
sums is computed from the factors of the large values. A per-example gradient `g[b,i,j] = x[b,i]
d[b,j]` that is squared and summed, or weighted and summed, becomes

    sum_ij g[b,i,j]**2      ->  (sum_i x[b,i]**2) (sum_j d[b,j]**2)
    sum_b  c[b] g[b,i,j]    ->  dot_general["bi,bj->ij"] (c x) d

Accuracy. Sums are taken in another order, as in any matrix library. If a product of sums is
multiplied out (`sum_ij (sum_t x[t,i] d[t,j])**2`, by Gram matrices), the new sum may cancel where
the old one could not. It is accumulated in float64: with unit roundoffs u (of the operands) and v =
1.1e-16, n products in a sum and k = (sum_t |x_t| |d_t|)**2 / result, its relative error is at most
n v k, while that of the original program is of the order of u sqrt(k). For float32 the first is
smaller for all k up to 1e14 / n, where the second has no correct digit left. Float64 operands are
never multiplied out. Squares that are factored, as in the norm above, are float64 too: 1e22 squared
times 1e-22 squared is 1, which overflows in float32. bfloat16 values that end in float32 sums (as
those of `jnp.sum` do) are multiplied in float32: the intermediate roundings to bfloat16 are
dropped, as XLA drops them inside a fusion. float16 is left alone, because an overflow must stay
one.

Source: the per-example norms are Goodfellow's (2015, arXiv:1510.01799), the Gram form is that of
ghost clipping (Li et al. 2022, arXiv:2110.05679); here they are instances of one rewrite.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from functrans.ir.program import Equation, Origin, Program, Var, renamed, renamed_all
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.contraction_order import Order, Plan
from functrans.passes.example_loops import ByExample
from functrans.passes.loop_sums import accumulated
from functrans.passes.machines import Machine, machine
from functrans.passes.redundancy import common_subexpressions
from functrans.passes.rewrite import Replaced, nested_pass, readers_of, replacing
from functrans.passes.sums_of_products import (
    ALIASES,
    MOST_VALUES,
    POINTWISE,
    Expansion,
    NotSeparable,
    adds_rows,
    is_diagonal,
    is_masked,
    keeps_numbers,
    plain_dot,
    squared,
)
from functrans.primitives.base import bytes_of
from functrans.primitives.contractions.dot_general import dot_general, flops
from functrans.primitives.dependence import depending
from functrans.primitives.elementwise.arithmetic import max_
from functrans.primitives.elementwise.families import div, mul
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.scatter import scatter, scatter_add
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import broadcast_in_dim, slice_
from functrans.records import NamedTuple
from functrans.trace import literal, provenance, stage, typeof

LARGE = 1 << 20  # bytes
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
MOST_ROUNDS = 5
_SINKS = frozenset([reduce_sum, dot_general, slice_])
SOURCES = frozenset([dot_general, scatter, scatter_add])
SEEN_THROUGH = POINTWISE | ALIASES


@nested_pass
def contract(program: Program) -> Program:
    """Reorder contractions to cheaper ones, also in nested programs."""
    program = accumulated(program)
    for _ in range(MOST_ROUNDS):
        made = _Search(program).rewritten()
        if made is program:
            break
        program = common_subexpressions(made)  # the sums of a cluster often share their first steps
    return program


class WholeBatch:
    """A sum computed as a sum of products in the cheapest order."""

    def __init__(self, expansion: Expansion, e: Equation, limit: float, known: Any):
        (v,) = e.outputs
        dims, terms = expansion.whole(v)
        if expansion.multiplied_out and v.type.dtype.itemsize > 4:
            raise NotSeparable  # there is nothing wider than float64 to accumulate in
        wide = expansion.multiplied_out or expansion.squares
        self.order: Order = Order(expansion.size, dims, v.type.dtype, wide, known=known)
        self.plans: list[Plan] = [self.order.plan(t, self.order.groups(t), limit) for t in terms]
        self.leaves: list[Any] = list(dict.fromkeys([f.value for t in terms for f in t.factors]))
        joining = self.order.machine.operation * (len(self.plans) - 1)
        self.cost: float = sum([p.cost for p in self.plans]) + joining
        self.positive: bool = expansion.multiplied_out and squared(expansion.made_by, e) is not None

    def emit(self, values: dict[Var, Any], t: ArrayType) -> Any:
        x = self.order.emit(self.plans, values, t)
        return max_(x, literal(0, typeof(x))) if self.positive else x  # for its square root


class Sink(NamedTuple):
    """A sum, and the way to compute it without the removed values."""

    equation: Equation
    way: WholeBatch | ByExample


Plans = dict[Var, tuple[Sink, list[Equation]]]  # the result of a sum -> how, and what that removes


class Cluster(NamedTuple):
    """Values connected by elementwise operations, and the sums that they end in."""

    values: dict[Var, None]
    sinks: dict[Equation, None]


class _Search:
    """A search over all large values of a program."""

    def __init__(self, program: Program):
        self.program = program
        self.machine: Machine = machine()
        self.made_by: dict[Var, Equation] = {}
        self.read_by: dict[Any, list[Equation]] = {}
        self.outputs = set(program.outputs)
        self.settled: set[Var] = set()  # values that belong to a cluster or cannot be removed
        self.multiplied: set[Var] = set()  # values whose Gram matrices loops compute
        self.costs: dict[Equation, float] = {}
        self.scaled: set[tuple[Any, Any]] = set()  # values that are multiplied by a broadcast one

    def rewritten(self) -> Program:
        """Return the program with all profitable rewrites; the same object if there is none."""
        equations = self.program.equations
        sources = [e for e in equations if e.primitive in SOURCES and _is_source(e)]
        large = [e for e in sources if self.cost(e) > self.machine.worth]
        if not large:
            return self.program
        self.made_by.update([(v, e) for e in equations for v in e.outputs])
        self.read_by = readers_of(self.program)
        for e in equations:
            if e.primitive is mul or e.primitive is div:
                for scaled, scale in (e.inputs, e.inputs[::-1]):
                    by = self.made_by.get(scale)
                    if by is not None and by.primitive is broadcast_in_dim:
                        self.scaled.add((scaled, by.inputs[0]))
        plans: Plans = {}
        for e in sorted(large, key=self.cost, reverse=True):
            cluster = self.cluster(e.outputs[0])
            if cluster is None:
                continue
            self.settled.update(cluster.values)
            sinks = self.cheaper(cluster)
            if sinks and plans.keys().isdisjoint([s.equation.outputs[0] for s in sinks]):
                removed = [self.made_by[v] for v in cluster.values]
                plans.update([(s.equation.outputs[0], (s, removed)) for s in sinks])
                ways = [s.way for s in sinks if isinstance(s.way, ByExample) and s.way.gram]
                self.multiplied.update([v for way in ways for v in way.leaves])
        return replacing(self.program, _SINKS, partial(_by_plan, plans)) if plans else self.program

    def cost(self, e: Equation) -> float:
        if e not in self.costs:
            self.costs[e] = _cost(self.machine, e)
        return self.costs[e]

    # --- values that can be removed

    def cluster(self, v: Var) -> Cluster | None:
        """Return the cluster of elementwise results of a value and the sums that they end in; None
        if one of them has another use or belongs to another cluster."""
        values: dict[Var, None] = {}
        sinks: dict[Equation, None] = {}
        reached: dict[Var, Var | None] = {v: None}  # value -> the value it was reached from
        stack = [v]
        while stack:
            u = stack.pop()
            if u in values:
                continue
            if u in self.outputs or u in self.settled:
                return self.refused(u, reached)
            values[u] = None
            for e in self.read_by[u]:
                if self._is_seen_through(e):
                    near = [w for w in e.inputs if w is not u and self._may_join(w, u)]
                    for w in (e.outputs[0], *near):
                        stack.append(w)
                        reached.setdefault(w, u)
                elif self._is_sink(e):
                    sinks[e] = None
                else:
                    return self.refused(u, reached)
        return Cluster(values, sinks)

    def refused(self, u: Var, reached: dict[Var, Var | None]) -> Cluster | None:
        """Return None, and settle the values that lead to one that has another use."""
        at: Var | None = u
        while at is not None:
            self.settled.add(at)
            at = reached[at]
        return None

    def _is_sink(self, e: Equation) -> bool:
        """Return whether an equation is a sum in float32 or wider. A narrower one rounds, and
        squares overflow."""
        if e.primitive not in _SINKS or e.outputs[0].type.dtype.itemsize < 4:
            return False
        if e.primitive is slice_:
            return is_diagonal(self.made_by, e)
        return e.primitive is reduce_sum or plain_dot(e)

    def _is_seen_through(self, e: Equation) -> bool:
        if e.primitive not in SEEN_THROUGH or e.primitive is slice_:
            return False
        if e.primitive is select_n:
            return is_masked(self.made_by, e)
        return keeps_numbers(e) and e.params.get("y", 2) == 2

    def _may_join(self, v: Any, u: Var) -> bool:
        """Return whether a value is, as u is, large and removable."""
        e = self.made_by.get(v)
        if e is None or v.type.size < u.type.size or v in self.outputs:
            return False
        return _is_source(e) or e.primitive in POINTWISE

    def cheaper(self, cluster: Cluster) -> list[Sink] | None:
        """Return the sums without the cluster's values, if that is much cheaper."""
        made = sum([self.cost(self.made_by[v]) for v in cluster.values])
        most = 0.8 * (made + sum([self.cost(e) for e in cluster.sinks])) - self.machine.worth
        kept = 0.8 * self.machine.written * self.bytes_made(cluster) if self.may_wait(cluster) else 0.0
        left = most + kept
        if left < 0:
            return None
        sinks = []
        for e in sorted(cluster.sinks, key=self.cost, reverse=True):  # most likely to fail first
            way = self.cheapest(e, cluster, left)
            if way is None:
                return None
            left -= way.cost
            sinks.append(Sink(e, way))
        return sinks if left > kept or self.waits(cluster) else None

    def cheapest(self, e: Equation, cluster: Cluster, limit: float) -> WholeBatch | ByExample | None:
        """Return the cheapest way to compute a sum from the operands of the cluster's values,
        within the limit."""
        through = {e.outputs[0], *cluster.values}
        ways: list[WholeBatch | ByExample] = []
        with suppress(NotSeparable):
            ways.append(WholeBatch(Expansion(self.made_by, through), e, limit, self.scaled))
        loops = self.machine.by_example and squared(self.made_by, e) is not None
        for gram in (False, True) if loops else ():
            with suppress(NotSeparable):
                ways.append(ByExample(Expansion(self.made_by, through), e, gram, self.readers))
        way = min(ways, key=lambda way: way.cost, default=None)
        return way if way is not None and way.cost <= limit else None

    def readers(self, v: Any) -> int:
        """Return in how many sums a value's products with itself are used: a large number if they
        are computed anyway; else the contractions, or sums of rows, that read it or a move of
        it."""
        if v in self.multiplied:
            return MOST_VALUES
        read = list(self.read_by[v])
        for e in read:  # extended in the loop
            if e.primitive in ALIASES:
                read += self.read_by[e.outputs[0]]
        return sum(map(_is_source, read))

    def bytes_made(self, cluster: Cluster) -> int:
        """Return the memory of the values that are not fused into their users."""
        return sum([bytes_of(v.type) for v in cluster.values if _is_source(self.made_by[v])])

    def may_wait(self, cluster: Cluster) -> bool:
        return len(cluster.sinks) > 1 and self.bytes_made(cluster) >= LARGE

    def waits(self, cluster: Cluster) -> bool:
        """Return whether one of the sums depends on another, as a clipped gradient does on its
        norm. Until then the values stay in memory."""
        after = depending(self.program.equations, [v for e in cluster.sinks for v in e.outputs])
        return self.may_wait(cluster) and not all([after.isdisjoint(e.inputs) for e in cluster.sinks])


def _by_plan(plans: Plans, e: Equation, known: dict[Var, Any]) -> Replaced | None:
    """Replace a sum that there is a plan for."""
    if e.outputs[0] not in plans:
        return None
    sink, removed = plans[e.outputs[0]]
    made = _emitted(sink)
    names = dict(zip(made.inputs, renamed_all(sink.way.leaves, known), strict=True))
    equations = [renamed(n, names) for n in made.equations]
    (known[e.outputs[0]],) = renamed_all(made.outputs, names)
    return Replaced(equations, removed)


def _emitted(sink: Sink) -> Program:
    """Return the program of a sum, from its leaves to its value."""
    e = sink.equation

    def run(*leaves: Any) -> list[Any]:
        values = dict(zip(sink.way.leaves, leaves, strict=True))
        with provenance(e.source, Origin("contract of", e)):
            return [sink.way.emit(values, e.outputs[0].type)]

    return stage(run, [v.type for v in sink.way.leaves])


def _is_source(e: Equation) -> bool:
    """Return whether an equation computes a value from smaller ones, or from fewer products."""
    if e.primitive not in SOURCES:
        return False
    dtype = e.outputs[0].type.dtype
    if dtype_class(dtype) != "float" or (dtype.itemsize < 4 and dtype != BFLOAT16):
        return False  # integers have no inverses; other narrow floats have a smaller range
    return plain_dot(e) if e.primitive is dot_general else adds_rows(e)


def _cost(m: Machine, e: Equation) -> float:
    """Estimate the cost of an equation as it is. Elementwise ones are fused into their users."""
    t = e.outputs[0].type
    if e.primitive is dot_general:
        x, y = [v.type for v in e.inputs]
        products = flops(x.shape, y.shape, e.params["lhs"], e.params["rhs"])
        moved = m.read * bytes_of(x, y) + m.written * bytes_of(t)
        return m.operation + m.per_flop(t.dtype) * products + moved
    if e.primitive in (scatter, scatter_add):
        return m.operation + m.written * bytes_of(t, e.inputs[2].type)
    if e.primitive is reduce_sum:
        return m.operation + m.read * bytes_of(e.inputs[0].type)
    return 0.0
