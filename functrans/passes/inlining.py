"""Remove calls and markers that matter only to transformations, and inline calls.

A program that is lowered is not differentiated any more. So `resolve` turns calls with rules of
their own (custom rules, solvers, tangent loops, operations of libraries that JAX lowers as a
function) into plain calls, expands `softmax`, and removes identities that mark their operand
(`stop_gradient`, `name`, `only_where`, `copy`). `inline_calls` inlines short programs and programs
that are called once, so that other passes see them together with the surrounding equations.
`checkpoint` stays: CSE must not merge what it recomputes. `inline` does the same for calls that are
nested too deeply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from functrans.ir.program import (
    Equation,
    Literal,
    Origin,
    Program,
    Var,
    copied,
    renamed,
    renamed_all,
    with_programs,
)
from functrans.passes.rewrite import Replaced, appended, children_first, nested_pass, program_pass, replacing
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.calls.checkpoint import name
from functrans.primitives.calls.jax_call import jax_call
from functrans.primitives.calls.jit import Expanded, jit
from functrans.primitives.custom.calls import RuleCall
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.selection import copy, stop_gradient
from functrans.primitives.random.bits import random_bits
from functrans.primitives.reductions.folds import softmax

# Identities, and the position of the operand that they return.
_MARKS = {stop_gradient: 0, name: 0, copy: 0, PRIMITIVES["only_where"]: 1}
SHORT = 1  # programs of up to this many equations are inlined at each call
DEEPEST = 64  # maximum nesting depth of calls


@nested_pass
def resolve(program: Program) -> Program:
    """Replace calls with custom rules by plain calls, and remove markers.

    The result is for running: its derivatives are those of the computation, not those of the user's
    rules.
    """
    holders = {e.primitive for e in program.equations if e.primitive.holds_programs}
    return replacing(program, {*_MARKS, softmax, *holders}, _plainer, prunes=False)


def _plainer(e: Equation, known: dict[Var, Any]) -> Replaced | None:
    if e.primitive in _MARKS:
        kept = e.inputs[_MARKS[e.primitive]]
        if kept.type is not e.outputs[0].type:
            return None
        known[e.outputs[0]] = kept
        return Replaced([])
    if e.primitive is softmax:
        return _parts(e, known)
    called = _called(e) if e.primitive.holds_programs else None
    if called is None:
        return None
    return Replaced([_call(e, called)])


def _call(e: Equation, program: Program) -> Equation:
    """Return a call of a program in place of an equation."""
    return Equation(jit, e.inputs, e.outputs, {"program": program}, e.source, e.origin)


def _parts(e: Equation, known: dict[Var, Any]) -> Replaced | None:
    """Return the equations that a softmax expands to, and record its new result in `known`."""
    parts = softmax.parts(e.inputs[0].type, **e.params)
    (end,), (v,) = parts.outputs, e.outputs
    if end.type is not v.type:
        return None
    names: dict[Any, Any] = dict(zip(parts.inputs, e.inputs, strict=True))
    made = copied(parts.equations, names)
    for one in made:
        one.source, one.origin = e.source, e.origin
    known[v] = names[end]
    return Replaced(made)


def _called(e: Equation) -> Program | None:
    """Return the resolved program that a primitive with custom rules runs, or None."""
    primitive = e.primitive
    found: Program | None = None
    if isinstance(primitive, RuleCall):
        found = e.params["program"]
    elif isinstance(primitive, Expanded):
        found = resolve(primitive.expansion([v.type for v in e.inputs], e.params))
    elif primitive is jax_call:
        found = e.params["body"].lowered()
        found = None if found is None else resolve(found)
    return found if found is not None and not found.constants else None


def opened(program: Program) -> Program:
    """Return the program with each `shard_map` as a program of whole arrays: for tools, which see into it."""

    def whole(e: Equation, known: dict[Var, Any]) -> Replaced | None:
        called = e.params["body"].whole()
        return None if called is None else Replaced([_call(e, called)])

    return replacing(program, {jax_call}, whole, prunes=False)


# --- inlining -------------------------------------------------------------------------------------


@program_pass
def inline_calls(program: Program) -> Program:
    """Inline short programs, and programs that are called once."""
    return inlined(program, lambda p, calls: (calls == 1 or len(p.equations) <= SHORT) and not _draws(p))


@program_pass
def inline(program: Program, deepest: int = DEEPEST) -> Program:
    """Inline programs that are called once if calls are nested deeper than `deepest`: XLA traverses
    nested calls recursively and overflows its stack at a depth of a few hundred. Always run before
    lowering; it is not an option."""
    depth: dict[Program, int] = {}
    for p in children_first(program):
        depth[p] = 1 + max([depth[q] for q in p.children], default=0)
    if depth[program] <= deepest:
        return program
    return inlined(program, lambda p, calls: calls == 1)


def inlined(program: Program, opens: Callable[[Program, int], bool]) -> Program:
    """Return the program with calls inlined; `opens(called program, number of calls)` decides which."""
    order = children_first(program)
    if len(order) == 1:
        return program
    calls = Counter([e.params["program"] for p in order for e in p.equations if e.primitive is jit])
    new: dict[Program, Program] = {}
    open_: dict[Program, int] = {}  # program to inline -> number of calls
    for p in order:
        made = new[p] = _spliced(with_programs(p, new), open_)
        if opens(made, calls[p]):
            open_[made] = calls[p]
    return new[order[-1]]


def _draws(program: Program) -> bool:
    """Return whether a program draws random bits. Its call stays, as in JAX, so that the bits are
    the same: inlined, XLA would constant-fold with its surroundings and round differently."""
    return any([e.primitive is random_bits for e in program.equations])


def _spliced(program: Program, open_: dict[Program, int]) -> Program:
    taken = {v for e in program.equations for v in e.outputs} if open_ else set()

    def opened(e: Equation, known: dict[Var, Any]) -> Replaced | None:
        called = e.params["program"]
        if called not in open_:
            return None
        equations: list[Equation] = []
        names: dict[Any, Any] = {
            v: _at_type(x, v, e, equations) for v, x in zip(called.inputs, e.inputs, strict=True)
        }
        results = [v for one in called.equations for v in one.outputs]
        if open_[called] == 1 and taken.isdisjoint(results):  # reuse its variables
            taken.update(results)
            inside = [renamed(one, names) for one in called.equations]
        else:
            inside = copied(called.equations, names)
        # A library's own lines are not kept: its equations are at the line of the call.
        equations += [one if one.source is not None else replace(one, source=e.source) for one in inside]
        known.update(zip(e.outputs, renamed_all(called.outputs, names), strict=True))
        return Replaced(equations, name=called.name or "jit")

    return replacing(program, (jit,), opened)


def _at_type(x: Any, v: Var, e: Equation, equations: list[Equation]) -> Any:
    """Convert an operand to the type of the program's input; they may differ in the weak-type flag."""
    if x.type is v.type:
        return x
    if x.__class__ is Literal:
        return Literal(x.value, v.type)
    how = {"dtype": v.type.dtype, "weak_type": v.type.weak_type}
    return appended(equations, Origin("inline of", e), convert_element_type, x, **how)
