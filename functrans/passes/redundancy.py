"""Elimination of common subexpressions and of dead code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.ir.program import Equation, Program, Var, prune, renamed_all
from functrans.passes.rewrite import Rewrite, nested_pass, renaming, rewritten
from functrans.primitives.dependence import operation_key, parameters_key

# --- common-subexpression elimination -------------------------------------------------------------
#
# Two equations are equal if their primitives, parameters and operands are. Not merged are equations
# with effects, Python callbacks, and everything about `checkpoint`: its barriers and calls mark a
# computation that is to be repeated (`Primitive.mergeable`).


@nested_pass
def common_subexpressions(program: Program) -> Program:
    """Eliminate common subexpressions."""
    first: dict[tuple[Any, ...], Any] = {}
    known: dict[Var, Any] = {}
    notes: list[Rewrite] = []
    equations = []
    for e in renaming(program.equations, known):
        primitive = e.primitive
        if not primitive.mergeable:
            equations.append(e)
            continue
        key = operation_key(primitive, e.inputs)
        same = first.setdefault(key, e)
        if same is not e and e.params:  # compare parameters only now, for speed
            try:
                first.setdefault((key, *parameters_key(same)), same)
                same = first.setdefault((key, *parameters_key(e)), e)
            except TypeError:  # a parameter is not hashable
                same = e
        if same is e or not _interchangeable(same, e):
            equations.append(e)
            continue
        known.update(zip(e.outputs, same.outputs, strict=True))
        notes.append((e.primitive.name, (same, e)))
    if not known:
        return program
    made = rewritten(program, equations, renamed_all(program.outputs, known), notes, prunes=False)
    made.mark(pruned=program.marks.pruned)  # no equation has become dead
    return made


def _interchangeable(x: Any, y: Any) -> bool:
    """Return whether the results of one can replace those of the other. Weak-type flags may differ."""
    if x.primitive.has_effects(x.params):
        return False
    return all([v.type is w.type for v, w in zip(x.outputs, y.outputs, strict=True)])


# --- dead-code elimination ------------------------------------------------------------------------


@nested_pass
def dead_code(program: Program) -> Program:
    """Remove equations that the outputs do not need, except those with effects, and unused constants."""
    if program.marks.pruned and not program.constants:
        return program
    equations = prune(program.equations, program.outputs)
    constants, values = program.constants, program.values
    if constants:
        used = _read(equations, program.outputs)
        kept = [(v, x) for v, x in zip(constants, values, strict=True) if v in used]
        constants, values = tuple([v for v, _ in kept]), tuple([x for _, x in kept])
    if len(equations) == len(program.equations) and len(constants) == len(program.constants):
        return program
    return program.replace(equations=equations, constants=constants, values=values)


def without_unused_inputs(program: Program) -> tuple[Program, list[int]]:
    """Return the program without unused inputs, and the positions of the remaining inputs."""
    used = _read(program.equations, program.outputs)
    kept = [i for i, v in enumerate(program.inputs) if v in used]
    if len(kept) == len(program.inputs):
        return program, kept
    return program.replace(inputs=[program.inputs[i] for i in kept]), kept


def _read(equations: Sequence[Equation], outputs: Sequence[Any]) -> set[Any]:
    return {v for e in equations for v in e.inputs}.union(outputs)
