"""Write a value as a sum of products of other values with named axes.

In: the equations that compute a value, and which of them may be expanded. Out: `Term`s, each a
number times factors. An axis that occurs in the factors but not in the value is summed. Expanded
are dot_general, broadcasts, transpositions, reshapes that split axes, sums and squares; any other
value is a factor.

    g = dot_general["bi,bj->bij"] x d;  n = reduce_sum(g ** 2)      n[b] = x[bi] x[bi] d[bj] d[bj]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain
from typing import Any

from functrans.ir.program import Equation, Literal, Var
from functrans.ir.types import dtype_class
from functrans.primitives.base import is_zero
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.arithmetic import integer_pow
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, div, eq, mul, neg, square, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.scatter import scatter, scatter_add
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import broadcast_in_dim, reshape, slice_, squeeze, transpose
from functrans.records import NamedTuple

Axes = tuple[int, ...]
Dims = tuple[Axes, ...]  # for each dimension of a value the axes it consists of, major first

MOST_TERMS = 12
MOST_VALUES = 1000  # limit of the search for one sum; a squared value counts twice
MOST_DEEP = 100  # maximum depth of the expansion


class Factor(NamedTuple):
    """A value and the axes of its dimensions. `kind` is

    "value"    the value itself
    "inverse"  1 / it
    "one_hot"  1 where the index along the last axis equals the integer in the value, else 0; `mode`
               says how an integer out of range is handled, as in scatter
    "equal"    1 where the indices along its two dimensions are equal, else 0
    """

    value: Any
    dims: Dims
    kind: str = "value"
    mode: str = ""


SELECTING = ("one_hot", "equal")  # factors of zeros and ones


class Term(NamedTuple):
    """A number times factors."""

    number: float
    factors: tuple[Factor, ...]


class NotSeparable(Exception):
    """The value is not such a sum, or one of too many terms."""


class Expansion:
    """Axis names, and the expansion of values into terms. `through`: the values to expand.

    `multiplied_out` records whether a product of sums was written as a sum of products. Such a sum
    may cancel where the product did not. `squares` records whether the square of a product was
    written as a product of squares, which may leave the range of the dtype.
    """

    def __init__(self, made_by: dict[Var, Equation], through: Container[Var]):
        self.made_by = made_by
        self.through = through
        self.size: dict[int, int] = {}
        self.split: dict[int, Axes] = {}
        self.multiplied_out: bool = False
        self.squares: bool = False
        self.looked_at: int = 0
        self.deep: int = 0

    # --- axes

    def fresh(self, n: int) -> Axes:
        """Return a new dimension of n elements; one of a single element has no axis."""
        if n == 1:
            return ()
        axis = len(self.size)
        self.size[axis] = n
        return (axis,)

    def named(self, names: Axes, shape: Sequence[int], axes: dict[int, Axes]) -> list[Axes]:
        """Add and return new dimensions for those names of an operand's axes that have none."""
        new = {name: self.fresh(n) for name, n in zip(names, shape, strict=False) if name not in axes}
        axes.update(new)
        return list(new.values())

    def resolve(self, axes: Axes) -> Axes:
        """Return the axes that these were split into."""
        if not self.split or self.split.keys().isdisjoint(axes):
            return axes
        return tuple([b for a in axes for b in self.resolve(self.split.get(a, (a,)))])

    def flat(self, dims: Iterable[Axes]) -> Axes:
        """Return all axes of dimensions, in order."""
        return self.resolve(tuple(chain.from_iterable(dims)))

    def axes_of(self, factors: Sequence[Factor]) -> set[int]:
        return {a for f in factors for a in self.flat(f.dims)}

    # --- values

    def expand(self, v: Any, dims: Dims) -> list[Term]:
        """Return the terms of a value whose dimensions consist of these axes."""
        if v.__class__ is Literal:
            if not math.isfinite(abs(v.value)):
                raise NotSeparable
            return [Term(v.value, ())]  # type: ignore[arg-type]
        eqn = self.made_by.get(v)
        if eqn is not None:
            rule = _ALIASES.get(eqn.primitive)
            if rule is None and v in self.through:
                rule = _RULES.get(eqn.primitive)
            if rule is not None:
                return self._by(rule, eqn, dims)
        return [Term(1, (Factor(v, dims),))]

    def _by(self, rule: Rule, eqn: Equation, dims: Dims) -> list[Term]:
        """Return the terms that a rule finds, within the limits of the search."""
        self.looked_at += 1
        if self.looked_at > MOST_VALUES or self.deep > MOST_DEEP:
            raise NotSeparable
        self.deep += 1
        terms = rule(self, eqn, dims) or [Term(1, (Factor(eqn.outputs[0], dims),))]
        self.deep -= 1
        if len(terms) > MOST_TERMS or sum([len(t.factors) for t in terms]) > MOST_VALUES:
            raise NotSeparable
        return terms

    def whole(self, v: Var) -> tuple[Dims, list[Term]]:
        """Return the value's dimensions and its terms."""
        dims = tuple(map(self.fresh, v.type.shape))
        terms = self.expand(v, dims)
        dims = tuple(map(self.resolve, dims))
        own = set(self.flat(dims))
        return dims, [self._renamed(t, own) for t in terms]

    def _renamed(self, term: Term, own: set[int]) -> Term:
        """Return the term with its final axes. Two axes that must be equal are merged if one is summed."""
        made = list(term.factors)
        if self.split:
            made = [Factor(v, tuple(map(self.resolve, d)), *how) for v, d, *how in made]
        equal = [f for f in made if f.kind == "equal"]
        if not equal:
            return Term(term.number, tuple(made))
        left = self.axes_of(made) - own
        for f in equal:
            i, k = (axes for axes in next(g.dims for g in made if g.value is f.value))
            if own.isdisjoint(i):
                i, k = k, i
            if not own.isdisjoint(k) or [self.size[a] for a in i] != [self.size[a] for a in k]:
                raise NotSeparable
            if i != k:
                if not set(i).isdisjoint(k):
                    raise NotSeparable
                left.difference_update(k)
            same = dict(zip(k, i, strict=True))
            made = [
                g._replace(dims=tuple([tuple([same.get(a, a) for a in axes]) for axes in g.dims]))
                for g in made
                if g.value is not f.value
            ]
        nowhere = left - self.axes_of(made)  # axes of no factor: sums of ones
        number = term.number * math.prod([self.size[a] for a in nowhere])
        return Term(number, tuple(made))

    def product(self, xs: list[Term], ys: list[Term], dims: Dims) -> list[Term]:
        """Return the terms of a product of two values with these dimensions."""
        if len(xs) * len(ys) > MOST_TERMS:
            raise NotSeparable
        if not self.multiplied_out and self._sums(xs, dims) and self._sums(ys, dims):
            self.multiplied_out = True
        return [Term(x.number * y.number, (*x.factors, *y.factors)) for x in xs for y in ys]

    def _sums(self, terms: list[Term], dims: Dims) -> bool:
        """Return whether the terms are a sum, of several terms or over axes that the value does not have."""
        return len(terms) != 1 or not self.axes_of(terms[0].factors).issubset(self.flat(dims))

    def summed(self, terms: list[Term], dims: Sequence[Axes]) -> list[Term]:
        """Return the terms summed over dimensions; one without such an axis is multiplied by its size."""
        over = set(self.flat(dims))
        made = []
        for t in terms:
            nowhere = over - self.axes_of(t.factors)
            times = math.prod([self.size[a] for a in nowhere])
            made.append(Term(t.number * times, t.factors) if nowhere else t)
        return made

    def regrouped(self, dims: Dims, shape: Sequence[int]) -> Dims:
        """Return the dimensions of a value before it was reshaped; axes are split as necessary."""
        axes = list(self.flat(dims))
        if 0 in shape:
            raise NotSeparable  # the axes cannot be matched
        made: list[Axes] = []
        for n in shape:
            taken: list[int] = []
            while n > 1:
                if not axes:
                    raise NotSeparable
                a = axes.pop(0)
                size = self.size[a]
                if size > n:
                    if size % n:
                        raise NotSeparable
                    high, low = self.fresh(n), self.fresh(size // n)
                    self.split[a] = (*high, *low)
                    axes[:0] = low
                    a, size = high[0], n
                if n % size:
                    raise NotSeparable
                taken.append(a)
                n //= size
            made.append(tuple(taken))
        return tuple(made)


# --- the effect of operations on the axes ---------------------------------------------------------


def _transpose(self: Expansion, e: Equation, dims: Dims) -> list[Term]:
    order = e.params["permutation"]
    return self.expand(e.inputs[0], tuple([dims[order.index(i)] for i in range(len(order))]))


def _broadcast(self: Expansion, e: Equation, dims: Dims) -> list[Term]:
    return self.expand(e.inputs[0], tuple([dims[d] for d in e.params["dimensions"]]))


def _reshape(self: Expansion, e: Equation, dims: Dims) -> list[Term]:
    return self.expand(e.inputs[0], self.regrouped(dims, e.inputs[0].type.shape))


def _convert(self: Expansion, e: Equation, dims: Dims) -> list[Term] | None:
    if keeps_numbers(e):
        return self.expand(e.inputs[0], dims)
    if len(dims) == 2 and counts_alike(self.made_by, e.inputs[0]):
        return [Term(1, (Factor(Var(e.outputs[0].type), dims, "equal"),))]
    return None


def _select(self: Expansion, e: Equation, dims: Dims) -> list[Term] | None:
    """Expand a select_n that is x on a diagonal, else 0."""
    if not is_masked(self.made_by, e):
        return None
    equal = Factor(Var(e.outputs[0].type), dims, "equal")
    return [Term(t.number, (equal, *t.factors)) for t in self.expand(e.inputs[2], dims)]


def is_masked(made_by: dict[Var, Equation], e: Equation) -> bool:
    """Return whether the select_n keeps the diagonal of a matrix and sets the rest to zero."""
    return len(e.inputs) == 3 and is_zero(e.inputs[1]) and counts_alike(made_by, e.inputs[0])


def _slice(self: Expansion, e: Equation, dims: Dims) -> list[Term] | None:
    """Expand a slice that takes the diagonal of a flattened matrix."""
    if not is_diagonal(self.made_by, e):
        return None
    return self.expand(self.made_by[e.inputs[0]].inputs[0], (*dims, dims[-1]))


def keeps_numbers(e: Equation) -> bool:
    """Return whether a float is converted to its own dtype or a wider one."""
    before, after = e.inputs[0].type.dtype, e.outputs[0].type.dtype
    if before == after:
        return True
    floats = dtype_class(before) == dtype_class(after) == "float"
    return floats and before.itemsize < after.itemsize


def squared(made_by: dict[Var, Equation], e: Equation) -> Any:
    """Return the value whose squares the equation sums, or None if it is not such a sum."""
    if e.primitive is dot_general:
        by_itself = e.inputs[0] is e.inputs[1] and e.params["lhs"] == e.params["rhs"]
        return e.inputs[0] if by_itself else None
    if e.primitive is not reduce_sum:
        return None
    inside = made_by.get(e.inputs[0])
    if inside is not None and inside.primitive is convert_element_type and keeps_numbers(inside):
        inside = made_by.get(inside.inputs[0])  # jnp.sum sums narrow floats in float32
    if inside is None:
        return None
    by_itself = inside.primitive is mul and inside.inputs[0] is inside.inputs[1]
    power = inside.primitive is integer_pow and inside.params["y"] == 2
    return inside.inputs[0] if power or by_itself or inside.primitive is square else None


def counts_alike(made_by: dict[Var, Equation], v: Any) -> bool:
    """Return whether a value compares the row index with the column index of a matrix."""
    e = made_by.get(v)
    if e is None or e.primitive is not eq or len(v.type.shape) != 2:
        return False
    counts = [made_by.get(w) for w in e.inputs]
    along = [c.params["dimension"] for c in counts if c is not None and c.primitive is iota]
    return sorted(along) == [0, 1]


def is_diagonal(made_by: dict[Var, Equation], e: Equation) -> bool:
    """Return whether the slice takes the diagonal of the last two axes, which were flattened for it."""
    flat = made_by.get(e.inputs[0])
    if flat is None or flat.primitive is not reshape:
        return False
    full, shape = flat.inputs[0].type.shape, e.inputs[0].type.shape
    n, lead = full[-1] if full else 0, len(shape) - 1
    return (
        full == (*shape[:-1], n, n)
        and shape[-1] == n * n
        and e.params["start"] == (0,) * (lead + 1)
        and e.params["limit"] == shape
        and e.params["strides"] == (*[1] * lead, n + 1)
    )


def _mul(self: Expansion, e: Equation, dims: Dims) -> list[Term] | None:
    if e.inputs[0] is e.inputs[1]:
        return _square(self, e, dims)
    x, y = [self.expand(v, dims) for v in e.inputs]
    return self.product(x, y, dims)


def _square(self: Expansion, e: Equation, dims: Dims) -> list[Term] | None:
    if e.params.get("y", 2) != 2:
        return None
    x, y = [self.expand(e.inputs[0], dims) for _ in range(2)]
    if self._sums(x, dims):
        self.multiplied_out = True
    if any([len(t.factors) > 1 for t in x]):
        self.squares = True
    return [
        Term(s.number * t.number * (1 if i == k else 2), (*s.factors, *t.factors))
        for i, s in enumerate(x)
        for k, t in enumerate(y[: i + 1])
    ]


def _add(self: Expansion, e: Equation, dims: Dims) -> list[Term] | None:
    x, y = [self.expand(v, dims) for v in e.inputs]
    if _are_exact(x) and _are_exact(y):  # the difference is exact, and must stay so
        own = set(self.flat(dims))
        factors = [f for t in (*x, *y) for f in t.factors]
        if not any([f.kind == "one_hot" for f in factors]) and all(
            [own <= self.axes_of(t.factors) for t in (*x, *y)]
        ):
            return None
        self.multiplied_out = True
    return [*x, *(y if e.primitive is add else _negated(y))]


def _are_exact(terms: list[Term]) -> bool:
    """Return whether the terms are one value, not computed here, times a number."""
    return len(terms) == 1 and sum([f.kind not in SELECTING for f in terms[0].factors]) <= 1


def _negated(terms: list[Term]) -> list[Term]:
    return [Term(-t.number, t.factors) for t in terms]


def _neg(self: Expansion, e: Equation, dims: Dims) -> list[Term]:
    return _negated(self.expand(e.inputs[0], dims))


def _div(self: Expansion, e: Equation, dims: Dims) -> list[Term]:
    below = self.expand(e.inputs[1], dims)
    if len(below) != 1 or below[0].number == 0 or len(below[0].factors) > 1:
        raise NotSeparable
    if any([f.kind != "value" for f in below[0].factors]) or self._sums(below, dims):
        raise NotSeparable
    inverse = [f._replace(kind="inverse") for f in below[0].factors]
    return self.product(self.expand(e.inputs[0], dims), [Term(1 / below[0].number, tuple(inverse))], dims)


def _reduce_sum(self: Expansion, e: Equation, dims: Dims) -> list[Term]:
    shape, over = e.inputs[0].type.shape, e.params["axes"]
    kept = iter(dims)
    inner = [self.fresh(n) if i in over else next(kept) for i, n in enumerate(shape)]
    terms = self.expand(e.inputs[0], tuple(inner))
    return self.summed(terms, [inner[i] for i in over])


def _scatter_add(self: Expansion, e: Equation, dims: Dims) -> list[Term]:
    """Expand updates added to zeros: a product with the one-hot vectors of the indices, summed."""
    _, index, updates = e.inputs
    operand, indices, slices = (e.params[name] for name in ("operand", "indices", "slices"))
    (counted,) = e.params["indexed"]
    axes = dict(zip(operand, dims, strict=True))
    over = self.named(indices, index.type.shape, axes)
    places = (*[axes[name] for name in indices], axes[counted])
    rows = axes | {counted: ()}  # one row at a time
    terms = self.expand(updates, tuple([rows[name] for name in slices]))
    one_hot = Factor(index, places, "one_hot", e.params["mode"])
    return self.summed([Term(t.number, (one_hot, *t.factors)) for t in terms], over)


def adds_rows(e: Equation) -> bool:
    """Return whether rows are added to zeros at dynamic indices along one axis."""
    once = e.primitive is scatter and e.params.get("unique_indices", False)
    if not (once or e.primitive is scatter_add) or not is_zero(e.inputs[0]):
        return False
    indexed, sizes = e.params["indexed"], e.params["sizes"]
    return len(indexed) == 1 and sizes[e.params["operand"].index(indexed[0])] == 1


def _dot_general(self: Expansion, e: Equation, dims: Dims) -> list[Term] | None:
    if not plain_dot(e):
        return None
    lhs, rhs, out = (e.params[name] for name in ("lhs", "rhs", "out"))
    axes = dict(zip(out, dims, strict=True))
    over = self.named(lhs, e.inputs[0].type.shape, axes)
    x = self.expand(e.inputs[0], tuple([axes[name] for name in lhs]))
    y = self.expand(e.inputs[1], tuple([axes[name] for name in rhs]))
    every = tuple([axes[name] for name in axes])
    return self.summed(self.product(x, y, every), over)


def plain_dot(e: Equation) -> bool:
    """Return whether a dot_general computes in the dtype of its operands or a wider one, at the
    default precision."""
    return e.params.get("precision") is None and keeps_numbers(e)


Rule = Callable[[Expansion, Equation, Dims], list[Term] | None]  # None: the value is a factor

_ALIASES: dict[Any, Rule] = {
    transpose: _transpose,
    broadcast_in_dim: _broadcast,
    reshape: _reshape,
    squeeze: _reshape,
    convert_element_type: _convert,
    slice_: _slice,
}
_RULES: dict[Any, Rule] = {
    mul: _mul,
    square: _square,
    integer_pow: _square,
    add: _add,
    sub: _add,
    neg: _neg,
    div: _div,
    reduce_sum: _reduce_sum,
    dot_general: _dot_general,
    scatter_add: _scatter_add,
    scatter: _scatter_add,
    select_n: _select,
}

ALIASES = frozenset(_ALIASES)
POINTWISE = frozenset([mul, square, integer_pow, add, sub, neg, div, select_n])
