"""Calls and marks that only transformations tell apart from what they do.

A program that is lowered is differentiated no more. So `resolve` makes plain calls of the calls
with a derivative of their own (custom rules, solvers, loops of tangents), writes out `softmax`, and
takes away marks that hand on their operand (`stop_gradient`, `name`, `only_where`, `copy`).
`inline_calls` puts the equations of short programs, and of programs called once, in place of their
calls, where the other passes see them together with what stands around. `checkpoint` stays: what it
computes again must not be found to be known already. `inline` does so where calls are nested too
deeply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from functrans.ir.program import Equation, Literal, Origin, Program, Var, copied
from functrans.passes.rewrite import (
    Rewrite,
    children_first,
    everywhere,
    finished,
    program_pass,
    renamed,
    renamed_all,
    renaming,
    with_programs,
)
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.calls.checkpoint import name
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.while_loop import tangent_loop
from functrans.primitives.custom.batching import custom_vmap_call
from functrans.primitives.custom.derivatives import CustomCall, CustomLin
from functrans.primitives.custom.linear_solve import Solver
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.selection import copy, stop_gradient
from functrans.primitives.random.bits import random_bits
from functrans.primitives.reductions.softmax import softmax

# Operations that hand an operand on, and which.
_MARKS = {stop_gradient: 0, name: 0, copy: 0, PRIMITIVES["only_where"]: 1}
SHORT = 1  # equations of programs that are put in place of each of their calls
DEEPEST = 64  # calls within calls


@program_pass
def resolve(program: Program) -> Program:
    """The program with plain calls for calls that have rules, and without marks.

    Its derivatives are those of what it computes, no longer those of the user's rules: for a
    program that is to be run, not transformed.
    """
    return everywhere(_resolved, program, "resolve")


def _resolved(program: Program) -> Program:
    equations: list[Equation] = []
    known: dict[Var, Any] = {}
    notes: list[Rewrite] = []
    for e in renaming(program.equations, known):
        if e.primitive in _MARKS:
            kept = e.inputs[_MARKS[e.primitive]]
            if kept.type is e.outputs[0].type:
                known[e.outputs[0]] = kept
                notes.append((e.primitive.name, (e,)))
                continue
        elif e.primitive.holds_programs and (called := _called(e)) is not None:
            params = {"program": called}
            equations.append(Equation(jit, e.inputs, e.outputs, params, e.source, e.origin))
            notes.append((e.primitive.name, (e,)))
            continue
        elif e.primitive is softmax and (parts := _parts(e, known)):
            equations += parts
            notes.append((e.primitive.name, (e,)))
            continue
        equations.append(e)
    if not notes:
        return program
    made = program.replace(equations=equations, outputs=renamed_all(program.outputs, known))
    made.mark(rewrites=notes)
    return made


def _parts(e: Equation, known: dict[Var, Any]) -> list[Equation]:
    """The equations that a softmax stands for; where its result is known then."""
    parts = softmax.parts(e.inputs[0].type, **e.params)
    (end,), (v,) = parts.outputs, e.outputs
    if end.type is not v.type:
        return []
    names: dict[Any, Any] = dict(zip(parts.inputs, e.inputs, strict=True))
    made = copied(parts.equations, names)
    for one in made:
        one.source, one.origin = e.source, e.origin
    known[v] = names[end]
    return made


def _called(e: Equation) -> Program | None:
    """The program that an operation with rules of its own runs, resolved."""
    primitive = e.primitive
    found: Program | None = None
    if isinstance(primitive, CustomCall) or primitive is custom_vmap_call:
        found = e.params["program"]
    elif isinstance(primitive, Solver):
        found = e.params["solve"]
    elif primitive is tangent_loop:
        found = resolve(tangent_loop.forwards(**e.params))
    elif isinstance(primitive, CustomLin):
        found = resolve(primitive.program([v.type for v in e.inputs], e.params))
    return found if found is not None and not found.constants else None


# --- inlining -------------------------------------------------------------------------------------


@program_pass
def inline_calls(program: Program) -> Program:
    """The program with the equations of short programs, and of those called once, in place of the
    calls."""
    return _inlined(
        children_first(program),
        lambda p, calls: (calls == 1 or len(p.equations) <= SHORT) and not _draws(p),
    )


@program_pass
def inline(program: Program, deepest: int = DEEPEST) -> Program:
    """The program with the equations of those called once in place of the calls, if it is nested
    deeper than `deepest`: XLA walks nested calls recursively and overflows its stack at a depth of
    a few hundred. No choice of the user's: what runs a program asks for it."""
    order = children_first(program)
    depth: dict[Program, int] = {}
    for p in order:
        depth[p] = 1 + max([depth[q] for q in p.children], default=0)
    if depth[program] <= deepest:
        return program
    return _inlined(order, lambda p, calls: calls == 1)


def _inlined(order: list[Program], opens: Callable[[Program, int], bool]) -> Program:
    """The last of the programs, with the equations of those that open in place of their calls;
    `opens` is asked with a program and how often it is called."""
    if len(order) == 1:
        return order[0]
    calls = Counter([e.params["program"] for p in order for e in p.equations if e.primitive is jit])
    new: dict[Program, Program] = {}
    open_: dict[Program, int] = {}  # how often it is called
    for p in order:
        made = new[p] = _spliced(with_programs(p, new), open_)
        if opens(made, calls[p]):
            open_[made] = calls[p]
    return new[order[-1]]


def _draws(program: Program) -> bool:
    """Does it make random numbers? These are to have JAX's bits, so the call stays, as in JAX:
    among the equations around it XLA would fold constants, with other last bits."""
    return any([e.primitive is random_bits for e in program.equations])


def _spliced(program: Program, open_: dict[Program, int]) -> Program:
    equations: list[Equation] = []
    known: dict[Var, Any] = {}  # results of calls, by what they are now
    notes: list[Rewrite] = []
    taken = {v for e in program.equations for v in e.outputs} if open_ else set()
    for e in renaming(program.equations, known):
        if e.primitive is not jit or e.params["program"] not in open_:
            equations.append(e)
            continue
        called = e.params["program"]
        names: dict[Any, Any] = {
            v: _at_type(x, v, e, equations) for v, x in zip(called.inputs, e.inputs, strict=True)
        }
        results = [v for one in called.equations for v in one.outputs]
        if open_[called] == 1 and taken.isdisjoint(results):  # its results keep their names
            taken.update(results)
            equations += [renamed(one, names) for one in called.equations]
        else:
            equations += copied(called.equations, names)
        known.update(zip(e.outputs, renamed_all(called.outputs, names), strict=True))
        notes.append((called.name or "jit", (e,)))
    if not notes:
        return program
    return finished(program, equations, renamed_all(program.outputs, known), notes)


def _at_type(x: Any, v: Var, e: Equation, equations: list[Equation]) -> Any:
    """An operand as the program takes it: they may differ in their weak flags."""
    if x.type is v.type:
        return x
    if x.__class__ is Literal:
        return Literal(x.value, v.type)
    made = Var(v.type)
    params = {"dtype": v.type.dtype, "weak_type": v.type.weak_type}
    origin = Origin("inline of", e)
    equations.append(Equation(convert_element_type, (x,), (made,), params, e.source, origin))
    return made
