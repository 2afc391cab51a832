"""Factor sums of products that share an operand.

    x @ a + x @ b   ->   x @ (a + b)

In: a Program. Out: one with fewer products. The gradient of a function that evaluates a network several
times with the same inputs, such as the loss of a physics-informed network, is the sum of what each
evaluation contributes, layer by layer. The sum moves backwards through linear operations as long as
its terms share the other operands; so the backward passes of the evaluations become one.

A product is moved behind a sum if that saves a contraction; any other linear operation if the sum of
its operands is computed anyway, or was made by this pass. No operand may be computed from another: the
states of a loop that is written out would all stay in memory until they are added.

Accuracy. Sums are taken in another order, and operands are added before they are multiplied: two of 2e38
overflow, whatever they are multiplied with.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import count
from operator import or_
from typing import Any

from functrans.ir.program import Equation, Origin, Program, Var, prune
from functrans.ir.types import dtype_class
from functrans.passes.rewrite import Rewrite, nested_pass, rewritten, uses
from functrans.primitives.base import is_zero, own_cost
from functrans.primitives.contractions.convolution import conv_general_dilated
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.dependence import operation_key, parameters_key
from functrans.primitives.elementwise.families import add, div, mul, neg
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.joining import pad
from functrans.primitives.shape.moving import Structural

_CONTRACTIONS = (dot_general, conv_general_dilated)
# Others are linear for derivatives only, as `reduce_precision`, or where they are for a reason.
_LINEAR = frozenset([*_CONTRACTIONS, mul, div, neg, select_n, reduce_sum, pad])
# A product of fewer operations for each element of its operand is not worth a sum of so many elements,
# which stay in memory until it is taken, unless that sum is factored in its turn.
_WORTH, _SMALL = 32, 2**16
_LARGEST = 10_000  # equations of a program
_MOST_ROUNDS = 4
_FAR = 32  # linear operations through which terms are followed

Key = tuple[Any, ...]  # equal for linear operations that differ in one operand only


@nested_pass
def factor(program: Program) -> Program:
    """Replace sums of products that share an operand by a product with a sum.

    Arguments:
      program: any Program; nested ones are rewritten too.

    Returns:
      A Program with the same inputs and outputs; the same object if nothing changed. Operands are added
      before they are multiplied, so large ones may overflow.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x, y: x @ jnp.sin(y) + x @ jnp.cos(y))(*jnp.ones((2, 3, 3)))
      >>> print(ft.passes.optimize(program, ("factor",)))
      program (a: f32[3,3], b: f32[3,3]) {
        c: f32[3,3] = sin b
        d: f32[3,3] = cos b
        e: f32[3,3] = add c d
        f: f32[3,3] = dot_general["ik,kj->ij"] a e
        return f
      }
    """
    if not _may_gain(program):
        return program
    made, notes = program, list[Rewrite]()
    for _ in range(_MOST_ROUNDS):  # a sum that one round makes is computed anyway in the next
        search = _Sums(made, bool(notes))
        search.run()
        if not search.notes:
            break
        notes += search.notes
        made = search.program()
    return rewritten(made, made.equations, made.outputs, notes) if notes else program


def _may_gain(program: Program) -> bool:
    """Return whether two contractions that share an operand are terms of sums."""
    if len(program.equations) > _LARGEST:
        return False
    summed = {v for e in program.equations if e.primitive is add for v in e.inputs}
    seen: set[Any] = set()
    for e in program.equations:
        if e.primitive in _CONTRACTIONS and e.outputs[0] in summed:
            for i, v in enumerate(e.inputs):
                key = (i, getattr(v, "value", v), e.outputs[0].type)
                if key in seen:
                    return True
                seen.add(key)
    return False


def _linear_forms(e: Equation) -> Iterator[tuple[Key, int]]:
    """Yield the place of each operand in which an equation is linear, with a key of all else."""
    p, t = e.primitive, e.outputs[0].type
    if p not in _LINEAR and not isinstance(p, Structural):
        return
    if dtype_class(t.dtype) not in ("float", "complex") or t.dtype.itemsize < 4:  # few digits, or none
        return
    linear = p.linear_positions(len(e.inputs))
    for i in linear:
        x, others = e.inputs[i], e.inputs[:i] + e.inputs[i + 1 :]
        if x.__class__ is not Var or x.type.dtype != t.dtype:
            continue
        if p.multilinear or all([is_zero(e.inputs[k]) for k in linear if k != i]):
            where = 0 if p is mul else i
            yield (*operation_key(p, others), where, x.type, parameters_key(e)), i


def _is_sum(e: Equation) -> bool:
    """Return whether an equation adds values of the type of its result, the weak-type flag included."""
    if e.primitive is not add:
        return False
    x, y = e.inputs
    return x.type is y.type is e.outputs[0].type


class _Sums:
    """The sums of a program, rewritten from the last to the first."""

    def __init__(self, program: Program, knows: bool):
        self._program = program
        self._made: dict[Any, Equation] = {}
        self._at: dict[Any, int] = {}  # when a value is computed
        self._from: dict[Any, int] = {}  # the equations from which it is computed, as bits
        for i, e in enumerate(program.equations):
            self._made.update(dict.fromkeys(e.outputs, e))
            self._at.update(dict.fromkeys(e.outputs, i))
            self._from.update(dict.fromkeys(e.outputs, reduce(or_, map(self._bits, e.inputs), 0)))
        self._uses = uses(program)
        self._known: dict[frozenset[Var], Var] = {}  # terms -> their sum
        self._knowing: dict[Var, list[frozenset[Var]]] = defaultdict(list)  # one of the terms -> these
        self._new: set[Var] = set()  # sums that were not in the program
        self._inner: set[Any] = set()  # sums that are part of another one
        self._queue: list[tuple[int, int, Var]] = []  # first the sum whose last term is the last
        self._number = count()
        self.notes: list[Rewrite] = []
        for e in reversed(program.equations):
            if _is_sum(e) and e.outputs[0] not in self._inner:
                terms, inner = self._terms(e.outputs[0])
                self._inner |= inner
                self._push(e.outputs[0], terms)
                if knows:
                    self._keep(terms, e.outputs[0])

    def run(self) -> None:
        while self._queue:
            *_, v = heapq.heappop(self._queue)
            if v not in self._inner:
                self._factor(v)

    def _bits(self, v: Any) -> int:
        """Return a value's own equation, and those from which it is computed, as bits."""
        at = self._at.get(v, -1)
        return self._from.get(v, 0) | (1 << at if at >= 0 else 0)

    def _push(self, v: Var, terms: Sequence[Any]) -> None:
        last = max([self._at.get(x, -1) for x in terms])
        heapq.heappush(self._queue, (-last, next(self._number), v))

    def _keep(self, terms: Sequence[Any], v: Var) -> None:
        key = frozenset(terms)
        if len(key) == len(terms) and self._has(key) is None:
            self._known[key] = v
            self._knowing[terms[0]].append(key)

    def _has(self, terms: Iterable[Any]) -> Var | None:
        """Return the sum of terms, if it is computed."""
        found = self._known.get(frozenset(terms))
        return None if found in self._inner else found

    def _terms(self, v: Var) -> tuple[list[Any], set[Any]]:
        """Return the terms of a sum, and the sums in it that nothing else reads."""
        found, inner, left = list[Any](), set[Any](), [v]
        while left:
            x = left.pop()
            if (x is v or self._uses[x] == 1) and x in self._made and _is_sum(self._made[x]):
                inner.add(x)
                left += self._made[x].inputs[::-1]
            else:
                found.append(x)
        return found, inner - {v}

    # --- one sum

    def _factor(self, v: Var) -> None:
        """Factor a sum where that gains, the most terms first."""
        terms, inner = self._terms(v)
        gone: set[Any] = set()
        products: list[Var] = []
        for shared in sorted(self._groups(terms).values(), key=len, reverse=True):
            group = {x: i for x, i in shared.items() if x not in gone}
            if len(group) > 1 and not self._gains(group, v in self._new):
                group = self._reaching(group)
            if len(group) > 1:
                gone.update(group)
                products.append(self._product(group))
        if not products:
            return
        self._inner |= inner
        terms = [*[x for x in terms if x not in gone], *products]
        if len(terms) > 1:
            self._add_up(v, terms, self._made[v])
        else:
            e = self._made[terms[0]]
            self._made[v] = Equation(e.primitive, e.inputs, (v,), e.params, e.source, e.origin)

    def _groups(self, terms: Iterable[Any]) -> dict[Key, dict[Any, int]]:
        """Return those of the terms that nothing else reads, by what is linear in their operands."""
        groups: dict[Key, dict[Any, int]] = defaultdict(dict)
        for x in terms:
            if x in self._made and self._uses[x] == 1:
                for key, i in _linear_forms(self._made[x]):
                    groups[key].setdefault(x, i)
        return groups

    def _gains(self, group: dict[Any, int], is_new: bool) -> bool:
        """Return whether one operation of a sum takes less time than a sum of several operations."""
        e = self._made[next(iter(group))]
        operands = self._operands(group)
        if e.primitive in _CONTRACTIONS:
            own = reduce(or_, [self._bits(x) & ~self._from.get(x, 0) for x in operands])
            if any([self._from.get(x, 0) & own for x in operands]):
                return False
            size, made = operands[0].type.size, all([x in self._made for x in operands])
            cheap = own_cost(e).flops < _WORTH * size and not (made and len(operands) * size <= _SMALL)
            return not cheap or self._are_alike(operands)
        return is_new and operands[0].type.size <= e.outputs[0].type.size

    def _are_alike(self, values: Sequence[Var]) -> bool:
        """Return whether values are results of one linear operation of different operands, so that their
        sum would be factored too."""
        forms = [{key for key, _ in _linear_forms(self._made[x])} for x in values if x in self._made]
        return len(forms) == len(values) and bool(set.intersection(*forms))

    def _operands(self, group: dict[Any, int]) -> list[Var]:
        return [self._made[x].inputs[i] for x, i in group.items()]

    def _reaching(self, group: dict[Any, int], steps: int = _FAR) -> dict[Any, int]:
        """Return those of a group of which the sum of the operands is known, or would be after so many
        such steps, or would save contractions."""
        of = dict(zip(self._operands(group), group, strict=True))
        sums = (known for x in of for known in self._knowing.get(x, ()))
        found: Iterable[Any] = next((k for k in sums if k <= of.keys() and self._has(k)), ())
        if not found and steps:
            inner = (g for g in self._groups(of).values() if len(g) > 1)
            deeper = (g if self._gains(g, False) else self._reaching(g, steps - 1) for g in inner)
            found = next(filter(None, deeper), ())
        return {of[x]: group[of[x]] for x in found}

    def _product(self, group: dict[Any, int]) -> Var:
        """Return the operation of the sum of the operands, which replaces those of a group."""
        replaced = [self._made[x] for x in group]
        self.notes.append((replaced[0].primitive.name, tuple(replaced)))
        e = max(replaced, key=lambda e: self._at[e.outputs[0]])
        total = self._sum(self._operands(group), e)
        for v in [v for old in replaced for v in old.inputs]:
            self._uses[v] -= 1
        i = group[e.outputs[0]]
        inputs = (*e.inputs[:i], total, *e.inputs[i + 1 :])
        self._uses.update(inputs)
        made = Var(e.outputs[0].type)
        self._made[made] = Equation(e.primitive, inputs, (made,), e.params, e.source, Origin("factor of", e))
        self._at[made], self._uses[made] = self._at[e.outputs[0]], 1
        self._from[made] = reduce(or_, map(self._bits, inputs), 0)
        return made

    def _sum(self, terms: Sequence[Var], e: Equation) -> Var:
        """Return the sum of operands; a new one is factored in its turn."""
        found = self._has(terms) if len({*terms}) == len(terms) else None
        if found is None:
            found = Var(terms[0].type)
            self._new.add(found)
            self._at[found] = max([self._at.get(x, -1) for x in terms])
            self._from[found] = reduce(or_, map(self._bits, terms), 0)
            self._uses.update(terms)
            self._add_up(found, terms, e)
            self._keep(terms, found)
            self._push(found, terms)
        return found

    def _add_up(self, v: Var, terms: Sequence[Any], e: Equation) -> None:
        """Make equations of which the last computes the sum `v` of the terms."""
        partial = terms[0]
        for i, x in enumerate(terms[1:], 2):
            made = v if i == len(terms) else Var(v.type)
            self._made[made] = Equation(add, (partial, x), (made,), {}, e.source, Origin("factor of", e))
            if made is not v:
                self._uses[made] = 1
            partial = made

    # --- the program

    def program(self) -> Program:
        """Return the program with the factored sums, each equation after those that it reads."""
        equations: list[Equation] = []
        done: set[Any] = {*self._program.inputs, *self._program.constants}
        for e in self._program.equations:
            left = [e if not e.outputs else self._made[e.outputs[0]]]
            while left:
                e = left[-1]
                missing = [v for v in e.inputs if v.__class__ is Var and v not in done]
                left += [self._made[v] for v in missing]
                if not missing:
                    left.pop()
                    if not e.outputs or e.outputs[0] not in done:
                        equations.append(e)
                        done.update(e.outputs)
        return self._program.replace(equations=prune(equations, self._program.outputs))
