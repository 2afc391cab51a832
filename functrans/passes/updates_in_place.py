"""Keep XLA:CPU from writing an array in place while it computes what it writes from other elements of it.

    v.at[1:].add(f(v[:-1]))   ->   v.at[1:].add(outlined(lambda v: f(v[:-1]))(v))

XLA fuses f into the loop that writes, and copies the array before if it sees that f reads it. It does not if
one of both is reshaped: with JAX 0.10 and 0.12, `jax.jit(lambda v: v.at[1:].set(v[:-1]).reshape(-1, 1))`
reads what it has written. To compute f in a function of its own takes no longer. Which arrays are the same is
asked as XLA may see them: it removes what changes nothing, and inlines calls, branches and loops of one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Literal, Program, Var
from functrans.passes.outlining import alone, fused_into, is_by_element, with_alone
from functrans.passes.rewrite import uses, with_equations
from functrans.primitives.calls.jit import outlined
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.cond import cond
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.elementwise.families import Elementwise, add, lt
from functrans.primitives.elementwise.selection import optimization_barrier, select_n
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.primitives.indexing.gather import gather
from functrans.primitives.indexing.scatter import Scatter
from functrans.primitives.indexing.sorting import sort
from functrans.primitives.reductions.cumulative import Cumulative
from functrans.primitives.reductions.folds import Reduction
from functrans.primitives.reductions.windows import WindowFold
from functrans.primitives.shape.joining import concatenate, pad
from functrans.primitives.shape.moving import Structural, rev, slice_, transpose

_FAMILIES = (Reduction, Cumulative, Scatter, WindowFold)
_FUSED = (
    concatenate,
    dot_general,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    optimization_barrier,  # JAX 0.10's XLA fuses operations across them
    pad,
)


def computed_first(program: Program) -> Program:
    """Return the program with what an array is updated with in a function of its own, if it is computed from
    other elements of the array; the same object if there is nothing of this kind."""
    updates = {e for e in program.equations if _is_update(e)}
    calls = {e for e in program.equations if _is_inlined(e) and _updated_operands(e)}
    if not updates and not calls:
        return program
    values = _Values(program)
    apart = {_written(e) for e in updates if values.reads_elsewhere(e)}
    copied = {v for v in apart if v not in values.makers or _vanishes(values.makers[v])}
    equations: list[Equation] = []
    for e in program.equations:
        places = [i for i, v in enumerate(e.inputs) if v in copied] if e in updates else []
        if e in calls:
            places = _related_operands(e, values)
        equations += _with_copies(e, places) if places else [e]
    if not apart and equations == program.equations:
        return program
    times, before = uses(program), {v: e for v, e in values.makers.items() if is_by_element(e)}
    apart -= copied
    program = with_equations(program, equations)
    return with_alone(program, lambda e: fused_into(e, before, times) if apart & {*e.outputs} else [])


def _with_copies(e: Equation, places: Sequence[int]) -> list[Equation]:
    """Return an equation that reads copies of some operands; before it, functions that make these."""
    equations, inputs = [], [*e.inputs]
    for i in places:
        inputs[i] = Var(e.inputs[i].type)
        copy = Equation(optimization_barrier, (e.inputs[i],), (inputs[i],), {}, e.source, e.origin)
        equations.append(alone([copy]))
    return [*equations, replace(e, inputs=tuple(inputs))]


# --- calls and branches that XLA inlines


def _is_inlined(e: Equation) -> bool:
    return _vanishes(e) and bool(e.programs) and not _is_loop(e)


def _is_loop(e: Equation) -> bool:
    return e.primitive is while_loop or (e.primitive is scan and e.params["length"] > 1)


def _updated_operands(e: Equation) -> set[int]:
    """Return the places of the operands that a call or branch updates."""
    fitting = [p for p in e.programs if len(p.inputs) <= len(e.inputs)]
    return {len(e.inputs) - len(p.inputs) + i for p in fitting for i in _updated_inputs(p)}


@memoized
def _updated_inputs(program: Program) -> frozenset[int]:
    values, found = _Values(program), set[Any]()
    for e in program.equations:
        if _is_update(e):
            found |= values.same(e.inputs[0])
        elif _is_inlined(e):
            found.update(*[values.same(e.inputs[i]) for i in _updated_operands(e)])
    return frozenset([i for i, v in enumerate(program.inputs) if v in found])


def _related_operands(e: Equation, values: _Values) -> list[int]:
    """Return the places of the operands that XLA can compute from one that the call updates."""
    arrays = {i: v for i, v in enumerate(e.inputs) if v.__class__ is not Literal and v.type.size > 1}
    updated = _updated_operands(e) & {*arrays}
    return [i for i, v in arrays.items() if any([values.reads(v, arrays[j]) for j in updated if j != i])]


# --- what XLA reads in a loop


def _is_update(e: Equation) -> bool:
    """Return whether an equation writes one window, of several elements but not all."""
    is_one = isinstance(e.primitive, Scatter) and e.inputs[1].type.size == len(e.params["indexed"])
    if not is_one and e.primitive is not dynamic_update_slice:
        return False
    return bool(1 < _written(e).type.size < e.inputs[0].type.size)


def _written(e: Equation) -> Any:
    return e.inputs[1 if e.primitive is dynamic_update_slice else 2]


class _Values:
    """What XLA can compute in a loop that reads it, by the equation, and which arrays are the same memory as
    others."""

    def __init__(self, program: Program) -> None:
        self.makers: dict[Any, Equation] = {}
        self._viewed: dict[Any, Any] = {}
        for e in program.equations:
            is_fused = is_by_element(e) or isinstance(e.primitive, _FAMILIES) or e.primitive in _FUSED
            if is_fused or _vanishes(e):
                self.makers.update(dict.fromkeys(e.outputs, e))
            self._viewed.update(_views(e))

    def _array(self, v: Any) -> Any:
        """Return the array of which a value is a view."""
        while v in self._viewed:
            v = self._viewed[v]
        return v

    def reads_elsewhere(self, update: Equation) -> bool:
        """Return whether XLA can compute what is written in the loop that writes it, and reads other elements
        of the array for that."""
        return self.reads(_written(update), update.inputs[0], self._place(update))

    def reads(self, v: Any, x: Any, place: list[Any] | None = None) -> bool:
        """Return whether XLA can compute a value in a loop that reads x: more than, for each element, the one
        in its place, if those are read at this one."""
        seen, same = set[Any](), self.same(x)
        waiting = [(v, True)]  # values, and whether each element is for the one in its place
        while waiting:
            v, in_place = waiting.pop()
            e = self.makers.get(v)
            if v in same:
                return True
            if e is None or (v, in_place) in seen:
                continue
            seen.add((v, in_place))
            if in_place and e.inputs and e.inputs[0] is x and None is not place == self._place(e):
                continue
            in_place = in_place and _keeps_places(e)
            waiting += [(u, in_place and _shape(u) == _shape(v)) for u in self._read(v, e)]
        return False

    def _read(self, v: Any, e: Equation) -> list[Any]:
        """Return what is read to compute a value, by the equation that makes it."""
        if e.primitive is optimization_barrier:
            return [self._viewed[v]]
        read = [u for u in e.inputs if u.__class__ is not Literal]
        is_apart = e.primitive is cond or _is_loop(e)  # but it may change nothing
        return [u for u in read if u.type.size == v.type.size] if is_apart else read

    def same(self, x: Any) -> set[Any]:
        """Return the values which may be the same memory if XLA removes what changes nothing."""
        found, waiting = set[Any](), [x]
        while waiting:
            v = waiting.pop()
            if v in found:
                continue
            found.add(v)
            e = self.makers.get(v)
            if e is not None and _may_change_nothing(e):
                waiting += self._read(v, e)
        return {v for v in found if v.type.size == x.type.size}

    def _place(self, e: Equation) -> list[Any] | None:
        """Return where the window of an update or a slice begins, by axis: numbers and variables; None if it
        is another operation."""
        shape: tuple[int, ...] = e.inputs[0].type.shape
        starts: Sequence[Any] = e.inputs[len(e.inputs) - len(shape) :]
        if e.primitive is slice_:
            return [*e.params["start"]] if max(e.params["strides"], default=1) == 1 else None
        if isinstance(e.primitive, Scatter) and len(e.params["indexed"]) == 1:
            starts = [e.inputs[1] if n in e.params["indexed"] else None for n in e.params["operand"]]
            sizes = e.params["sizes"]
        elif e.primitive in (dynamic_slice, dynamic_update_slice):
            sizes = e.params.get("sizes") or _written(e).type.shape
        else:
            return None
        places = [0 if s is None else self._index(s) for s in starts]
        return [0 if k == n else s for s, k, n in zip(places, sizes, shape, strict=True)]

    def _index(self, v: Any, depth: int = 2) -> Any:
        """Return a form of an index that is equal for equal ones: `i`, or `i + n` if that is negative."""
        v = self._array(v)
        e = self.makers.get(v)
        if depth and e is not None and e.primitive in (lt, add, select_n):
            return e.primitive, *[self._index(u, depth - 1) for u in e.inputs]
        return v.value if v.__class__ is Literal else v


def _vanishes(e: Equation) -> bool:
    """Return whether XLA may inline a call, branch or loop, or remove a sort."""
    sorts_one = e.primitive is sort and e.inputs[0].type.shape[e.params["dimension"]] == 1
    return sorts_one or (bool(e.primitive.holds_programs) and e.primitive is not outlined)


def _may_change_nothing(e: Equation) -> bool:
    """Return whether XLA may find that the result is an operand."""
    if isinstance(e.primitive, Elementwise) or e.primitive is dot_general:
        return len({v for v in e.inputs if v.__class__ is not Literal}) == 1
    return e.primitive is not dynamic_update_slice and not isinstance(e.primitive, Scatter)


def _views(e: Equation) -> list[tuple[Any, Any]]:
    """Return the results of a move for which XLA may compute nothing, each with the operand that it is."""
    if e.primitive is optimization_barrier:
        return [*zip(e.outputs, e.inputs, strict=True)]
    if not isinstance(e.primitive, Structural) or e.primitive is rev:
        return []
    x = e.inputs[0]  # of a split all of it may be in one part
    return [(y, x) for y in e.outputs if y.type.size == x.type.size]


def _keeps_places(e: Equation) -> bool:
    """Return whether each element is computed from those at its place, in operands of its shape."""
    if e.primitive is transpose:
        moved = [i for i in e.params["permutation"] if e.inputs[0].type.shape[i] > 1]
        return moved == sorted(moved)
    return e.primitive is optimization_barrier or (is_by_element(e) and e.primitive not in (rev, slice_))


def _shape(v: Any) -> list[int]:
    """Return the shape of a value without axes of size one."""
    return [n for n in v.type.shape if n > 1]
