"""Common-subexpression elimination.

Two equations are equal if their primitives, parameters and operands are. Not merged are equations
with effects, Python callbacks, and everything about `checkpoint`: its barriers and calls mark a
computation that is to be repeated.
"""

from __future__ import annotations

from typing import Any

from functrans.ir.program import Literal, Program, Var
from functrans.passes.rewrite import (
    Rewrite,
    everywhere,
    program_pass,
    renamed_all,
    renaming,
    replaced,
)
from functrans.primitives.calls.callback import debug_callback, io_callback, pure_callback
from functrans.primitives.calls.captured import constant
from functrans.primitives.calls.checkpoint import checkpoint
from functrans.primitives.elementwise.bitwise import and_, or_, xor
from functrans.primitives.elementwise.families import add, eq, mul, ne
from functrans.primitives.elementwise.selection import optimization_barrier

# Not max and min: for 0.0 and -0.0 the result may depend on the order of the operands.
_COMMUTATIVE = frozenset([add, mul, and_, or_, xor, eq, ne])
_KEPT_APART = frozenset(
    [checkpoint, optimization_barrier, pure_callback, io_callback, debug_callback]
)


@program_pass
def common_subexpressions(program: Program) -> Program:
    """Eliminate common subexpressions."""
    return everywhere(_once, program, "common_subexpressions")


def _once(program: Program) -> Program:
    first: dict[tuple[Any, ...], Any] = {}
    known: dict[Var, Any] = {}
    notes: list[Rewrite] = []
    equations = []
    for e in renaming(program.equations, known):
        primitive, operands = e.primitive, e.inputs
        if primitive in _KEPT_APART:
            equations.append(e)
            continue
        for v in operands:
            if v.__class__ is Literal:
                operands = tuple([v if v.__class__ is Var else _number(v) for v in operands])
                break
        # equal if primitive and operands are
        key = (primitive, frozenset(operands) if primitive in _COMMUTATIVE else operands)
        same = first.setdefault(key, e)
        if same is not e and e.params:  # compare parameters only now, for speed
            try:
                first.setdefault((key, *_parameters(same)), same)
                same = first.setdefault((key, *_parameters(e)), e)
            except TypeError:  # a parameter is not hashable
                same = e
        if same is e or not _interchangeable(same, e):
            equations.append(e)
            continue
        known.update(zip(e.outputs, same.outputs, strict=True))
        notes.append((e.primitive.name, (same, e)))
    if not known:
        return program
    made = replaced(program, equations, renamed_all(program.outputs, known), notes)
    made.mark(pruned=program.marks.pruned)  # no equation has become dead
    return made


def _interchangeable(x: Any, y: Any) -> bool:
    """Return whether the results of one can replace those of the other. Weak-type flags may
    differ."""
    if x.primitive.has_effects(x.params):
        return False
    return all([v.type is w.type for v, w in zip(x.outputs, y.outputs, strict=True)])


def _parameters(e: Any) -> tuple[Any, ...]:
    """Return a key that is equal for equal parameters of one primitive."""
    values = e.params.values()
    if e.primitive is constant or float in map(type, values):
        values = [repr(v) for v in values]  # 0.0 == -0.0, but they must not be merged
    return (*e.params, *values)


def _number(x: Literal) -> tuple[Any, ...]:
    value = x.value
    plain = value and value.__class__ is not complex  # 0.0 == -0.0, also in complex numbers
    return (value if plain else repr(value), x.type)
