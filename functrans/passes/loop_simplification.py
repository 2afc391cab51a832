"""Simplify loops: less to compute, carry and write.

The pass removes from `scan` and `while`
- what a step computes again that the step before did: it is carried (predictive_commoning.py);
- outputs and carries that are not used;
- carries that no step changes: they become constants of the loop;
- literal constants, and arrays filled with one number: they move into the body;
- loop-invariant equations: they move before the loop.

    scan   *consts *carry *arrays -> *carry *written       body: consts, carry, slices -> carry, y
    while  *for_cond *for_body *carry -> *carry            body: for_body, carry -> carry

Loop-invariant data movement (broadcasts and the like) stays in the body: XLA fuses it with its
users, and an array broadcast before the loop takes memory. No higher-order equation is moved out of
a `while`, which may run no step at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from functrans.ir.program import Equation, Literal, Origin, Program, Var, copied, prune, renamed, renamed_all
from functrans.passes.rewrite import Replaced, everywhere, program_pass, replacing, uses
from functrans.primitives.calls.captured import constant
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.predictive_commoning import commoned
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.dependence import is_pure
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import Structural

HOW = "loops of"


@program_pass
def loops(program: Program) -> Program:
    """Simplify all loops of a program."""
    return everywhere(_each, program, "loops")


def _each(program: Program) -> Program:
    if not any([e.primitive in _SHRINK for e in program.equations]):
        return program
    read = uses(program)

    def simpler(e: Equation, known: dict[Var, Any]) -> Replaced | None:
        start, loop = _commoned(e)
        found = _SHRINK[e.primitive](loop, [read[v] > 0 for v in loop.outputs])
        if found is None and loop is e:
            return None
        before, made, replaced = found or ([], loop, {})
        known.update(replaced)
        before = [*start, *before]
        return Replaced([*before, made], [n.origin.equation for n in before if n.origin])

    return replacing(program, _SHRINK, simpler)


# The rewritten loop: equations before it, the loop, and replacements for results of the old one.
Shrunk = tuple[list[Equation], Equation, dict[Var, Any]] | None


def _commoned(e: Equation) -> tuple[list[Equation], Equation]:
    """Return the loop without what its steps compute twice, and the equations of the first step
    that come before it. The same loop if there are none."""
    if e.primitive is scan:
        n, layout, body = 0, LoopLayout.of(e.params), e.params["program"]
        may_leave = is_pure
        if e.params["length"] < 2:
            return [], e
    else:
        n, m, body = (e.params[k] for k in ("cond_consts", "body_consts", "body"))
        layout = LoopLayout(m, len(body.inputs) - m)
        may_leave = _may_leave_while
    found = commoned(body, layout)
    if found is None or not all(map(may_leave, found.start.equations)):
        return [], e
    names: dict[Any, Any] = dict(zip(found.start.inputs, e.inputs[n:], strict=False))
    before = [
        Equation(b.primitive, b.inputs, b.outputs, b.params, b.source, Origin(HOW, b))
        for b in copied(found.start.equations, names)
    ]
    start = [names[v] for v in found.start.outputs]
    more = [Var(v.type) for v in start]
    outs = [*e.outputs[: layout.carry], *more, *e.outputs[layout.carry :]]
    operands = [*e.inputs[:n], *found.operands(e.inputs[n:], start, layout)]
    if e.primitive is scan:
        params = {**e.params, "program": found.body, "carry": layout.carry + found.more}
    else:
        cond = e.params["cond"]
        unread = [Var(v.type) for v in start]
        params = {**e.params, "body": found.body, "cond": cond.replace(inputs=[*cond.inputs, *unread])}
    return before, _again(e, operands, outs, params)


# --- scan -----------------------------------------------------------------------------------------


def _scan(e: Equation, used: Sequence[bool]) -> Shrunk:
    layout, body = LoopLayout.of(e.params), e.params["program"]
    inputs, outputs = layout.operands(body.inputs), layout.results(body.outputs)
    operands, results = layout.operands(e.inputs), layout.results(e.outputs)
    consts = list(zip(inputs[0], operands[0], strict=True))
    carry = list(zip(inputs[1], operands[1], outputs[0], results[0], strict=True))
    arrays = list(zip(inputs[2], operands[2], strict=True))
    read = layout.results(used)[1]
    written = [(y, v) for y, v, u in zip(outputs[1], results[1], read, strict=True) if u]
    replaced: dict[Var, Any] = {}
    carry = _unchanged(consts, carry, replaced)
    asked = {v for _, _, _, v in carry} & {v for v, u in zip(e.outputs, used, strict=True) if u}
    carry = _needed(body, carry, asked, [y for y, _ in written])
    known, consts = _literals(consts)
    slices, arrays = _literals(arrays)
    known.update(slices)
    ends = renamed_all([*[y for *_, y, _ in carry], *[y for y, _ in written]], known)
    equations = prune([renamed(b, known) for b in body.equations], ends)
    may_leave = is_pure if e.params["length"] else None
    before, equations, more = _invariant(equations, ends, consts, may_leave)
    consts += more
    live = _live(equations, ends)
    consts = [c for c in consts if c[0] in live]
    arrays = [a for a in arrays if a[0] in live]
    sizes = len(consts) + len(carry) + len(arrays), len(ends)
    if sizes == (len(e.inputs), len(e.outputs)) and not before:
        return None
    made = Program(
        [*[v for v, _ in consts], *[v for v, *_ in carry], *[v for v, _ in arrays]],
        equations,
        ends,
        name=body.name,
    )
    given = [*[x for _, x in consts], *[x for _, x, *_ in carry], *[x for _, x in arrays]]
    outs = [*[v for *_, v in carry], *[v for _, v in written]]
    params = {**e.params, "program": made, "consts": len(consts), "carry": len(carry)}
    return before, _again(e, given, outs, params), replaced


# --- while ----------------------------------------------------------------------------------------


def _while(e: Equation, used: Sequence[bool]) -> Shrunk:
    n, m, cond, body = (e.params[k] for k in ("cond_consts", "body_consts", "cond", "body"))
    first = list(zip(cond.inputs[:n], e.inputs[:n], strict=True))
    consts = list(zip(body.inputs[:m], e.inputs[n : n + m], strict=True))
    carry = list(zip(body.inputs[m:], e.inputs[n + m :], body.outputs, e.outputs, strict=True))
    tested = dict(zip(body.inputs[m:], cond.inputs[n:], strict=True))
    replaced: dict[Var, Any] = {}
    changed = _unchanged(consts, carry, replaced)
    moved = {v for v, *_ in carry} - {v for v, *_ in changed}
    first += [(tested[v], x) for v, x, *_ in carry if v in moved]
    read = _live(cond.equations, cond.outputs)
    asked = {v for v, u in zip(e.outputs, used, strict=True) if u}
    asked |= {out for v, _, _, out in changed if tested[v] in read}
    carry = _needed(body, changed, asked, [])
    known, consts = _literals(consts)
    results = renamed_all([y for *_, y, _ in carry], known)
    equations = prune([renamed(b, known) for b in body.equations], results)
    before, equations, more = _invariant(equations, results, consts, _may_leave_while)
    consts = [c for c in [*consts, *more] if c[0] in _live(equations, results)]
    known, first = _literals(first)
    test = [renamed(b, known) for b in cond.equations]
    answer = renamed_all(cond.outputs, known)
    early, test, more = _invariant(test, answer, first, _may_leave_while)
    first = [c for c in [*first, *more] if c[0] in _live(test, answer)]
    before += early
    if len(first) + len(consts) + len(carry) == len(e.inputs) and not before:
        return None
    made = Program([*[v for v, _ in consts], *[v for v, *_ in carry]], equations, results, name=body.name)
    asks = Program([*[v for v, _ in first], *[tested[v] for v, *_ in carry]], test, answer, name=cond.name)
    operands = [*[x for _, x in first], *[x for _, x in consts], *[x for _, x, *_ in carry]]
    params = {**e.params, "cond": asks, "body": made, "cond_consts": len(first), "body_consts": len(consts)}
    return before, _again(e, operands, [v for *_, v in carry], params), replaced


_SHRINK: dict[Any, Callable[[Equation, Sequence[bool]], Shrunk]] = {scan: _scan, while_loop: _while}


def _again(e: Equation, operands: Iterable[Any], outs: Iterable[Any], params: dict[str, Any]) -> Equation:
    return Equation(e.primitive, tuple(operands), tuple(outs), params, e.source, Origin(HOW, e))


# --- shared by both -------------------------------------------------------------------------------

Const = tuple[Var, Any]  # (input of the body, operand)
Carry = tuple[Var, Any, Any, Var]  # (input of the body, operand, output of the body, result)


def _unchanged(consts: list[Const], carry: list[Carry], replaced: dict[Var, Any]) -> list[Carry]:
    """Return the carries that steps change; move the others to the constants."""
    kept = []
    for v, x, y, out in carry:
        if y is v and x.type.same(v.type) and (x.type is out.type or x.__class__ is Literal):
            consts.append((v, x))
            replaced[out] = Literal(x.value, out.type) if x.__class__ is Literal else x
        else:
            kept.append((v, x, y, out))
    return kept


def _needed(body: Program, carry: list[Carry], asked: set[Var], results: list[Any]) -> list[Carry]:
    """Return the carries that are used after the loop, or on which these or the other outputs
    depend."""
    if all([out in asked for *_, out in carry]):
        return carry
    producer = {v: b for b in body.equations for v in b.outputs}
    after = {v: y for v, _, y, _ in carry}
    todo = [*results, *[y for *_, y, out in carry if out in asked]]
    todo += [v for b in body.equations if b.primitive.has_effects(b.params) for v in b.inputs]
    seen = set()
    while todo:
        v = todo.pop()
        if v not in seen:
            seen.add(v)
            if v in producer:
                todo += producer[v].inputs
            elif v in after:
                todo.append(after[v])
    return [c for c in carry if c[0] in seen or c[3] in asked]


def _literals(consts: list[Const]) -> tuple[dict[Var, Any], list[Const]]:
    """Split operands into literals, by variable of the body, and the others."""
    known = {v: Literal(x.value, v.type) for v, x in consts if x.__class__ is Literal}
    return known, [c for c in consts if c[0] not in known]


def _live(equations: Iterable[Equation], outputs: Iterable[Any]) -> set[Any]:
    return {v for e in equations for v in e.inputs}.union(outputs)


# --- loop-invariant code motion -------------------------------------------------------------------


def _may_leave_while(e: Equation) -> bool:
    return not e.primitive.holds_programs and is_pure(e)


def _stays_cheap(e: Equation) -> bool:
    """Return whether an equation is cheap enough to stay in the body."""
    return isinstance(e.primitive, Structural) or e.primitive is iota or e.primitive is constant


def _invariant(
    equations: list[Equation],
    results: list[Any],
    consts: list[Const],
    may_leave: Callable[[Equation], bool] | None,
) -> tuple[list[Equation], list[Equation], list[Const]]:
    """Return the equations to move before the loop, those that stay, and the new constants."""
    leaving: list[Equation] = []
    fixed: dict[Any, Any] = {v: x for v, x in consts if x.type is v.type}
    found = set(fixed)
    for b in equations:
        if may_leave is None:
            break
        if found.issuperset([v for v in b.inputs if v.__class__ is Var]) and may_leave(b):
            leaving.append(b)
            found.update(b.outputs)
    wanted = [v for b in leaving if not _stays_cheap(b) for v in b.outputs]
    if not wanted:
        return [], equations, []
    leaving = prune(leaving, wanted)
    before, gone = [], set()
    for b in leaving:
        outs = tuple([Var(v.type) for v in b.outputs])
        inputs = tuple([fixed.get(v, v) for v in b.inputs])
        fixed.update(zip(b.outputs, outs, strict=True))
        before.append(Equation(b.primitive, inputs, outs, b.params, b.source, Origin(HOW, b)))
        if not _stays_cheap(b):
            gone.add(b)
    rest = prune([b for b in equations if b not in gone], results)
    return before, rest, [(v, fixed[v]) for b in leaving if b in gone for v in b.outputs]
