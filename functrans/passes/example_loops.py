"""Compute a sum of squares by a loop over the examples of a leading axis.

In: an equation `n[b] = sum u[b, ...]**2`, and u as a sum of products (sums_of_products.py). Out: a
loop over b. A step either computes u[b] as written, which keeps the accuracy of the original
program, or multiplies the squares out in float64 (see passes/contractions.py) by Gram matrices that
fit the cache. It takes the memory of one example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans.ir.program import Equation, Var
from functrans.ir.types import ArrayType
from functrans.passes.contraction_order import Leaf, Order, Pair, Plan
from functrans.passes.sums_of_products import Expansion, Factor, NotSeparable, Term, squared
from functrans.primitives.base import bytes_of
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.scan import scanned
from functrans.primitives.elementwise.arithmetic import max_
from functrans.primitives.elementwise.families import mul
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import transpose
from functrans.trace import literal


class ByExample:
    """The loop for a sum of squares; NotSeparable if the equation is not one over a leading axis.
    `gram`: multiply the squares out. `readers`: returns in how many sums a value's products with
    itself are used. These count once for all of them, though each loop computes them: counted in
    full, loops were refused that take 0.87 of the time and a sixth of the memory."""

    axis: int

    def __init__(self, expansion: Expansion, e: Equation, gram: bool, readers: Callable[[Any], int]):
        (v,) = e.outputs
        u = squared(expansion.made_by, e)
        if u is None or len(v.type.shape) != 1 or not _keeps_first(e):
            raise NotSeparable
        dims, terms = expansion.whole(v if gram else u)
        if expansion.multiplied_out != gram or len(dims[0]) != 1:
            raise NotSeparable
        if gram and v.type.dtype.itemsize > 4:
            raise NotSeparable  # there is nothing wider than float64 to accumulate in
        self.gram = gram
        (self.axis,) = dims[0]
        self.length: int = expansion.size[self.axis]
        self.sliced: dict[Var, int] = self._sliced(terms)
        inner = [Term(t.number, tuple([self._one(f) for f in t.factors])) for t in terms]
        self.order: Order = Order(expansion.size, dims[1:], v.type.dtype, gram, cached=True)
        self.plans: list[Plan] = [self.order.plan(t, self.order.groups(t)) for t in inner]
        self.leaves: list[Any] = list(dict.fromkeys([f.value for t in terms for f in t.factors]))
        self.type: ArrayType = ArrayType(tuple([expansion.size[a] for a in self.order.out]), v.type.dtype)
        shared = sum([self._shared(p.tree, readers) for p in self.plans]) if gram else 0.0
        m = self.order.machine
        one = sum([p.cost for p in self.plans]) - shared + 2 * m.operation
        self.cost: float = self.length * (one + m.read * bytes_of(self.type))

    def _one(self, f: Factor) -> Factor:
        """Return a factor for one example."""
        return f._replace(dims=tuple([axes for axes in f.dims if axes != (self.axis,)]))

    def _sliced(self, terms: Sequence[Term]) -> dict[Var, int]:
        """Return the values that depend on the example, and their example axes."""
        found: dict[Var, set[int | None]] = {}
        for t in terms:
            for f in t.factors:
                if any([self.axis in axes and len(axes) > 1 for axes in f.dims]):
                    raise NotSeparable
                at = [i for i, axes in enumerate(f.dims) if axes == (self.axis,)]
                counted = f.kind == "one_hot" and f.dims[-1] == (self.axis,)
                if len(at) > 1 or counted or f.kind == "equal":
                    raise NotSeparable
                found.setdefault(f.value, set()).add(at[0] if at else None)
        if any([len(places) > 1 for places in found.values()]):
            raise NotSeparable
        return {v: at for v, (at,) in found.items() if at is not None}

    def _shared(self, node: Any, readers: Callable[[Any], int]) -> float:
        """Return the share of other sums in the cost of a value's products with itself."""
        if not isinstance(node, Pair):
            return 0.0
        x, y = node.left, node.right
        leaves = isinstance(x, Leaf) and isinstance(y, Leaf)
        if leaves and [f.value for f in x.factors] == [f.value for f in y.factors]:
            cost = self.order.pair_cost(x, y, node.axes) + self.order.leaf_cost(x)
            return cost * (1 - 1 / max([1, *[readers(f.value) for f in x.factors]]))
        return self._shared(x, readers) + self._shared(y, readers)

    def emit(self, values: dict[Var, Any], t: ArrayType) -> Any:
        """Emit the loop; return its result, of type t."""
        moved = []
        for v, at in self.sliced.items():
            x = values[v]
            order = (at, *[i for i in range(len(v.type.shape)) if i != at])
            moved.append(x if at == 0 else transpose(x, permutation=order))

        def step(*slices: Any) -> list[Any]:
            inside = {**values, **dict(zip(self.sliced, slices, strict=True))}
            x = self.order.emit(self.plans, inside, self.type)
            if self.gram:
                return [max_(x, literal(0, self.type))]  # for its square root
            return [reduce_sum(mul(x, x), axes=tuple(range(len(self.type.shape))))]

        return scanned(step, [], moved, self.length, "by_example")[0]


def _keeps_first(e: Equation) -> bool:
    """Return whether the first axis of the operand is not summed."""
    if e.primitive is dot_general:
        return bool(e.params["lhs"][0] in e.params["out"])
    return 0 not in e.params["axes"]
