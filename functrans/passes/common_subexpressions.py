"""Compute what is computed twice once.

Two equations are the same if operation, parameters and operands are. Left alone are those with
effects, calls of Python, and everything about `checkpoint`: its barriers and its calls stand for a
computation that is wanted again.
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

# Not max and min: which of 0.0 and -0.0 they give may depend on the order.
_COMMUTATIVE = frozenset([add, mul, and_, or_, xor, eq, ne])
_KEPT_APART = frozenset(
    [checkpoint, optimization_barrier, pure_callback, io_callback, debug_callback]
)


@program_pass
def common_subexpressions(program: Program) -> Program:
    """The program in which no two equations compute the same."""
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
        # equal for equations that do the same, apart from their parameters, to the same
        key = (primitive, frozenset(operands) if primitive in _COMMUTATIVE else operands)
        same = first.setdefault(key, e)
        if same is not e and e.params:  # only now it matters with which parameters
            try:
                first.setdefault((key, *_parameters(same)), same)
                same = first.setdefault((key, *_parameters(e)), e)
            except TypeError:  # one is not hashable
                same = e
        if same is e or not _interchangeable(same, e):
            equations.append(e)
            continue
        known.update(zip(e.outputs, same.outputs, strict=True))
        notes.append((e.primitive.name, (same, e)))
    if not known:
        return program
    made = replaced(program, equations, renamed_all(program.outputs, known), notes)
    made.mark(pruned=program.marks.pruned)  # whoever read one now reads the other
    return made


def _interchangeable(x: Any, y: Any) -> bool:
    """May the results of one stand for those of the other? Weak flags may differ."""
    if x.primitive.has_effects(x.params):
        return False
    return all([v.type is w.type for v, w in zip(x.outputs, y.outputs, strict=True)])


def _parameters(e: Any) -> tuple[Any, ...]:
    """Equal for equal parameters of one operation."""
    values = e.params.values()
    if e.primitive is constant or float in map(type, values):
        values = [repr(v) for v in values]  # 0.0 == -0.0, but they are two numbers
    return (*e.params, *values)


def _number(x: Literal) -> tuple[Any, ...]:
    value = x.value
    plain = value and value.__class__ is not complex  # 0.0 == -0.0, also as a part of another
    return (value if plain else repr(value), x.type)
