"""The order in which to multiply the factors of a sum of products, and its cost.

In: terms with named axes. Out: an estimate in nanoseconds, and the operations.

The estimate counts operations, FLOPs, and bytes read and written (passes/machines.py).
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from functrans.ir.program import Var
from functrans.ir.types import ArrayType
from functrans.passes.machines import Machine, machine
from functrans.passes.sums_of_products import Dims, Factor, NotSeparable, Term
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.bitwise import and_
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, div, eq, ge, lt, mul
from functrans.primitives.elementwise.selection import clamp
from functrans.primitives.indexing.gather import CLIP
from functrans.primitives.indexing.scatter import scatter_add
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import broadcast_in_dim, reshape, transpose
from functrans.records import NamedTuple
from functrans.trace import literal, typeof

CACHE = 1 << 20  # bytes; smaller values stay in the cache
MOST_FACTORS = 7  # limit of the search; factors over equal axes count once

Names = frozenset[int]
Groups = list[tuple[Names, list[Factor]]]


class Leaf(NamedTuple):
    """Factors over the same axes, multiplied elementwise."""

    factors: tuple[Factor, ...]
    axes: Names  # the remaining axes: those of no other factor are summed first
    own: Names


class OneHot(NamedTuple):
    """One-hot vectors, which are not materialized: `at` are the axes of the integers, `counted` the
    one-hot axis."""

    factor: Factor
    at: tuple[int, ...]
    counted: int
    axes: Names


class Pair(NamedTuple):
    """The contraction of two tensors."""

    left: Any
    right: Any
    axes: Names


class Plan(NamedTuple):
    """The number and the contraction tree of a term, and its cost."""

    number: float
    tree: Any
    cost: float


class Order:
    """Plans for terms over axes of these sizes; the result has the axes `out`. `wide`: in float64;
    `cached`: for a loop step, whose small values stay in the cache; `known`: pairs of a value and one
    with fewer axes whose product, or quotient, the program computes anyway."""

    def __init__(
        self,
        size: dict[int, int],
        out: Dims,
        dtype: Any,
        wide: bool,
        cached: bool = False,
        known: Container[tuple[Any, Any]] = (),
    ):
        self.cached = cached
        self.known = known
        self.size = size
        self.out: tuple[int, ...] = tuple([a for axes in out for a in axes])
        self.wide: bool = wide and np.dtype(dtype).itemsize < 8
        self.dtype: np.dtype = np.dtype(np.float64 if self.wide else dtype)
        self.bytes: int = 8 if self.wide else np.dtype(dtype).itemsize
        self.machine: Machine = machine()
        self.per_flop: float = self.machine.per_flop(self.dtype)

    def volume(self, axes: Any) -> int:
        return math.prod(map(self.size.__getitem__, axes))

    def written(self, axes: Any) -> float:
        """Return the cost of writing a tensor."""
        n = self.bytes * self.volume(axes)
        return n * (self.machine.read if self.cached and n <= CACHE else self.machine.written)

    def plan(self, term: Term, groups: Groups, limit: float = math.inf) -> Plan:
        """Return the cheapest tree for a term; raise NotSeparable if there is none below the limit."""
        n = len(groups)
        names = [axes for axes, _ in groups]
        outside = [set(self.out) for _ in range(1 << n)]
        for s in range(1 << n):
            for i in range(n):
                if not s >> i & 1:
                    outside[s].update(names[i])
        best: dict[int, tuple[float, Any]] = {}
        made = set()
        for i, (axes, factors) in enumerate(groups):
            cost, leaf = self._first(axes, factors, axes & outside[1 << i])
            values = tuple([(f.value, f.kind) for f in factors])
            best[1 << i] = 0.0 if values in made else cost, leaf  # equal leaves are computed once
            made.add(values)
        for s in range(1, 1 << n):
            if s not in best:
                best[s] = self._best_pair(s, best, outside[s], limit)
        cost, tree = best[(1 << n) - 1]
        if tree is None:
            raise NotSeparable
        return Plan(term.number, tree, cost)

    @staticmethod
    def groups(term: Term) -> Groups:
        """Group the factors by their axes; one-hot vectors are separate."""
        dense: dict[Names, list[Factor]] = {}
        hot: dict[Any, tuple[Names, list[Factor]]] = {}
        for f in term.factors:
            axes = [a for d in f.dims for a in d]
            if len(set(axes)) != len(axes):
                raise NotSeparable
            if f.kind == "one_hot":  # it equals its square
                hot[f] = frozenset(axes), [f]
            else:
                dense.setdefault(frozenset(axes), []).append(f)
        found = [*dense.items(), *hot.values()]
        if not found or len(found) > MOST_FACTORS:
            raise NotSeparable
        return found

    def _first(self, axes: Names, factors: list[Factor], kept: Names) -> tuple[float, Any]:
        """Return the cost and the node of a group of factors."""
        (f, *_) = factors
        if f.kind != "one_hot":
            leaf = Leaf(tuple(factors), kept, axes)
            return self.leaf_cost(leaf), leaf
        if len(f.dims[-1]) != 1 or any([a not in kept for d in f.dims[:-1] for a in d]):
            raise NotSeparable
        (counted,) = f.dims[-1]
        return 0.0, OneHot(f, tuple([a for d in f.dims[:-1] for a in d]), counted, kept)

    def leaf_cost(self, leaf: Leaf) -> float:
        volume = self.volume(leaf.own)
        cost = 0.0
        if len(leaf.factors) > 1 or self.wide:
            cost += self.machine.operation + self.bytes * volume * self.machine.read * len(leaf.factors)
            if leaf.axes == leaf.own:
                cost += self.written(leaf.own)
        if leaf.axes != leaf.own:
            cost += self.machine.operation + self.bytes * volume * self.machine.read
        return cost

    def _best_pair(self, s: int, best: dict[int, Any], outside: set[int], limit: float) -> tuple[float, Any]:
        found: tuple[float, Any] = (limit, None)
        low = s & -s
        a = (s - 1) & s
        while a:
            if a & low:
                (cost_a, x), (cost_b, y) = best[a], best[s & ~a]
                if cost_a + cost_b < found[0]:
                    axes = (x.axes | y.axes) & outside
                    cost = cost_a + cost_b + self.pair_cost(x, y, axes)
                    if cost < found[0]:
                        found = cost, Pair(x, y, frozenset(axes))
            a = (a - 1) & s
        return found

    def pair_cost(self, left: Any, right: Any, axes: Any) -> float:
        """Return the cost of a contraction, or of a product if nothing is summed."""
        x, y = left.axes, right.axes
        if isinstance(left, OneHot) or isinstance(right, OneHot):
            return self._one_hot_cost(left, right, axes)
        if self.known and len(axes) == len(x | y) and self._is_known(left, right):
            return 0.0
        every = self.volume(x | y)
        flops = 2 * every if len(axes) < len(x | y) else every
        cost = self.machine.operation + self.per_flop * flops
        cost += self.bytes * self.machine.read * (self.volume(x) + self.volume(y))
        cost += self.written(axes)
        if flops > every:
            cost += self.machine.batched * self.volume(x & y & frozenset(axes))
        return cost

    def _is_known(self, x: Any, y: Any) -> bool:
        """Return whether the program computes the product of two tensors anyway."""
        if not isinstance(x, Leaf) or not isinstance(y, Leaf) or len(x.factors) + len(y.factors) > 2:
            return False
        values = x.factors[0].value, y.factors[0].value
        return not self.wide and (values in self.known or values[::-1] in self.known)

    def _one_hot_cost(self, x: Any, y: Any, axes: Any) -> float:
        """Two with the same one-hot axis, which is summed, compare their integers; one with an
        array is a scatter. No other combination is possible."""
        if not isinstance(x, OneHot):
            x, y = y, x
        written = self.machine.operation + self.written(axes)
        if x.counted not in x.axes:  # the one-hot axis is already summed
            return math.inf if isinstance(y, OneHot) or not set(x.at) <= y.axes else written
        if isinstance(y, OneHot):
            same = x.counted == y.counted and x.counted not in axes
            return written if same and axes >= {*x.at, *y.at} else math.inf
        if x.counted in y.axes or x.counted not in axes or not set(x.at) <= y.axes:
            return math.inf
        if not y.axes <= axes | set(x.at):
            return math.inf
        return written + self.written(y.axes)

    # --- the operations

    def emit(self, plans: Sequence[Plan], values: dict[Var, Any], t: ArrayType) -> Any:
        """Emit the sum of the terms, of type t."""
        total = None
        for p in plans:
            x, names = self._emit(p.tree, values, self.out)
            own = [a for a in self.out if a in names]
            x = _ordered(x, names, own)
            if p.number != 1:
                x = mul(x, literal(p.number, typeof(x)))
            x = self._along(x, own, self.out)
            total = x if total is None else add(total, x)
        if typeof(total).shape != t.shape:
            total = reshape(total, shape=t.shape)
        if typeof(total) is not t:
            total = convert_element_type(total, dtype=t.dtype, weak_type=t.weak_type)
        return total

    def _emit(self, node: Any, values: dict[Var, Any], order: Sequence[int]) -> tuple[Any, list[Any]]:
        """Emit a tensor; return it and its axes, in that order as far as possible."""
        if isinstance(node, Leaf):
            return self._emit_leaf(node, values)
        for hot, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(hot, OneHot):
                return self._emit_one_hot(hot, other, node.axes, values, order)
        node = self._weighted(node, order)
        for x, y in ((node.left, node.right), (node.right, node.left)):
            if x.axes == node.axes and y.axes <= x.axes:
                return self._emit_scaled(x, y, values, order)
        wanted = [a for a in order if a in node.axes]
        if isinstance(node.right, Leaf) and not isinstance(node.left, Leaf):
            # the order of a leaf is fixed, the other operand can follow it
            y, rhs = self._emit(node.right, values, order)
            x, lhs = self._emit(node.left, values, [*rhs, *[a for a in order if a not in rhs]])
        else:
            x, lhs = self._emit(node.left, values, order)
            y, rhs = self._emit(node.right, values, [*lhs, *[a for a in order if a not in lhs]])
        if len(wanted) < len(node.axes):  # inside the tree: the order without a transposition
            both = [a for a in lhs if a in rhs and a in node.axes]
            wanted = [*both, *[a for a in (*lhs, *rhs) if a in node.axes and a not in both]]
        made = dot_general(x, y, lhs=tuple(lhs), rhs=tuple(rhs), out=tuple(wanted))
        return made, wanted

    def _emit_scaled(
        self, node: Any, scale: Any, values: dict[Var, Any], order: Sequence[int]
    ) -> tuple[Any, list[Any]]:
        """Emit the product of a tensor and one with fewer axes: elementwise, as a program has it, unless
        the axes are wanted in another order."""
        x, names = self._emit(node, values, order)
        wanted = [a for a in order if a in node.axes]
        if len(wanted) == len(names) and wanted != names:
            y, own = self._emit(scale, values, names)
            return dot_general(x, y, lhs=tuple(names), rhs=tuple(own), out=tuple(wanted)), wanted
        inverse = None
        if isinstance(scale, Leaf) and scale.axes == scale.own and len(scale.factors) == 1:
            (f,) = scale.factors
            inverse = f._replace(kind="value") if f.kind == "inverse" else None
        if inverse is None:
            y, own = self._emit(scale, values, names)
        else:
            y, own = self._emit_factor(inverse, values)
        y = self._along(y, own, names)
        return mul(x, y) if inverse is None else div(x, y), names

    @staticmethod
    def _weighted(node: Pair, order: Sequence[int]) -> Pair:
        """Move weights of the summed elements to the operand whose axes come first, if several
        summed axes lead there. XLA:CPU transposes that operand, so it multiplies by the weights in
        the transposition, and only once they are known; otherwise the transposed copy would stay in
        memory until then."""
        first = next((a for a in order if a in node.axes), None)
        for x, scaled in ((node.left, node.right), (node.right, node.left)):
            if not isinstance(x, Leaf) or not isinstance(scaled, Pair) or first not in x.axes:
                continue
            names = [a for axes in x.factors[0].dims for a in axes]
            summed = (x.axes | scaled.axes) - node.axes
            if len(summed) < 2 or set(names[: len(summed)]) != summed:
                continue
            for w, y in ((scaled.left, scaled.right), (scaled.right, scaled.left)):
                alone = isinstance(w, Leaf) and isinstance(y, Leaf) and y.axes == scaled.axes
                if alone and w.axes < summed:
                    return Pair(Pair(x, w, x.axes), y, node.axes)
        return node

    def _emit_one_hot(
        self, hot: OneHot, other: Any, axes: Names, values: dict[Var, Any], order: Sequence[int]
    ) -> tuple[Any, list[int]]:
        index = values[hot.factor.value]
        t = typeof(index)
        if isinstance(other, OneHot):
            names = [*hot.at, *[a for a in other.at if a not in hot.at]]
            x, y = [self._spread(self._integers(h, values), h.at, names) for h in (hot, other)]
            where = eq(x, y)
            if hot.factor.mode != CLIP:
                where = and_(where, self._inside(x, hot.counted))
            return convert_element_type(where, dtype=self.dtype, weak_type=False), names
        x, names = self._emit(other, values, order)
        if hot.counted not in hot.axes:
            if hot.factor.mode != CLIP:
                inside = self._inside(self._spread(index, hot.at, names), hot.counted)
                x = mul(x, convert_element_type(inside, dtype=self.dtype, weak_type=False))
            return self._summed(x, names, axes)
        rows = [a for a in names if a not in hot.at]
        made = [a for a in order if a in axes]
        if len(made) < len(axes):
            made = [*[a for a in hot.at if a in axes], hot.counted, *rows]
        kept = [a for a in made if a in rows]
        slices = [*hot.at, *kept]
        x = _ordered(x, names, slices)
        shape = tuple([self.size[a] for a in made])
        index = reshape(index, shape=(*[self.size[a] for a in hot.at], t.shape[-1]))
        total = scatter_add(
            literal(0, ArrayType(shape, self.dtype)),
            index,
            x,
            operand=tuple(made),
            indices=hot.at,
            slices=tuple(slices),
            indexed=(hot.counted,),
            sizes=tuple([self.size[a] if a in kept else 1 for a in made]),
            mode=hot.factor.mode,
        )
        return total, made

    def _integers(self, hot: OneHot, values: dict[Var, Any]) -> Any:
        index = values[hot.factor.value]
        if hot.factor.mode != CLIP:
            return index
        t = typeof(index)
        return clamp(literal(0, t), index, literal(self.size[hot.counted] - 1, t))

    def _along(self, x: Any, names: Sequence[int], wanted: Sequence[int]) -> Any:
        """Return x with all wanted axes, in that order, broadcast along those that it does not have."""
        x = _ordered(x, names, [a for a in wanted if a in names])
        if len(names) == len(wanted):
            return x
        at = tuple([i for i, a in enumerate(wanted) if a in names])
        return broadcast_in_dim(x, shape=tuple([self.size[a] for a in wanted]), dimensions=at)

    def _spread(self, index: Any, at: Sequence[int], names: Sequence[int]) -> Any:
        """Broadcast integers over some axes along the others."""
        return self._along(reshape(index, shape=tuple([self.size[a] for a in at])), at, names)

    def _inside(self, x: Any, counted: int) -> Any:
        t = typeof(x)
        return and_(ge(x, literal(0, t)), lt(x, literal(self.size[counted], t)))

    def _emit_leaf(self, leaf: Leaf, values: dict[Var, Any]) -> tuple[Any, list[int]]:
        total, names = self._emit_factor(leaf.factors[0], values)
        for i, f in enumerate(leaf.factors[1:], 2):
            x, own = self._emit_factor(f, values)
            if own != names and i == len(leaf.factors) and len(leaf.axes) < len(own):
                kept = [a for a in names if a in leaf.axes]  # contracted without aligning the axes
                return dot_general(total, x, lhs=tuple(names), rhs=tuple(own), out=tuple(kept)), kept
            total = mul(total, _ordered(x, own, names))
        return self._summed(total, names, leaf.axes)

    def _emit_factor(self, f: Factor, values: dict[Var, Any]) -> tuple[Any, list[int]]:
        x, names = values[f.value], [a for axes in f.dims for a in axes]
        shape = tuple([self.size[a] for a in names])
        if typeof(x).shape != shape:
            x = reshape(x, shape=shape)
        if typeof(x).dtype != self.dtype:
            x = convert_element_type(x, dtype=self.dtype, weak_type=False)
        return (div(literal(1, typeof(x)), x) if f.kind == "inverse" else x), names

    @staticmethod
    def _summed(x: Any, names: list[int], axes: Names) -> tuple[Any, list[int]]:
        over = tuple([i for i, a in enumerate(names) if a not in axes])
        return (reduce_sum(x, axes=over) if over else x), [a for a in names if a in axes]


def _ordered(x: Any, names: Sequence[int], wanted: Sequence[int]) -> Any:
    """Return x with its axes in the wanted order."""
    order = tuple([names.index(a) for a in wanted])
    return x if order == tuple(range(len(order))) else transpose(x, permutation=order)
