"""Simplify loops: less to compute, carry and write.

The pass removes from `scan` and `while`
- what a step computes again that the step before did: it is carried (predictive_commoning.py);
- outputs and carries that are not used;
- carries that no step changes: they become constants of the loop;
- carries that begin and go on as another;
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
from functrans.passes.rewrite import Replaced, nested_pass, replacing, uses
from functrans.primitives.calls.captured import constant
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.predictive_commoning import commoned
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.dependence import is_pure
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import Structural

HOW = "loops of"
_SMALL_CONSTANT = 64  # elements


@nested_pass
def loops(program: Program) -> Program:
    """Simplify all loops of a program."""
    if not any([e.primitive in _SIMPLER for e in program.equations]):
        return program
    read = uses(program)

    def simpler(e: Equation, known: dict[Var, Any]) -> Replaced | None:
        start, loop = _commoned(e)
        wanted = [read[v] > 0 for v in loop.outputs]
        kept = loop if all(wanted) else loop.primitive.part(loop, wanted)
        before, made, replaced = _SIMPLER[e.primitive](kept)
        before = [*start, *before]
        same = (len(made.inputs), len(made.outputs)) == (len(e.inputs), len(e.outputs))
        if same and not before and loop is e:
            return None
        known.update(replaced)
        return Replaced([*before, made], [n.origin.equation for n in before if n.origin])

    return replacing(program, _SIMPLER, simpler)


# The rewritten loop: equations before it, the loop, and replacements for results of the old one.
Simpler = tuple[list[Equation], Equation, dict[Var, Any]]
Const = tuple[Var, Any]  # (input of the body, operand)


class Loop:
    """The columns of a loop and its body, which a pass changes.

    consts, arrays : (input of the body, operand)
    carry   : (input of the body, operand, output of the body, result)
    written : (output of the body, result)
    """

    def __init__(self, body: Program, layout: LoopLayout, operands: Sequence[Any], results: Sequence[Var]):
        inputs, given = layout.operands(body.inputs), layout.operands(operands)
        outputs, made = layout.results(body.outputs), layout.results(results)
        self.name: str = body.name
        self.consts: list[Const] = list(zip(inputs[0], given[0], strict=True))
        carry = zip(inputs[1], given[1], outputs[0], made[0], strict=True)
        self.carry: list[tuple[Var, Any, Any, Var]] = list(carry)
        self.arrays: list[Const] = list(zip(inputs[2], given[2], strict=True))
        self.written: list[tuple[Any, Var]] = list(zip(outputs[1], made[1], strict=True))

    @staticmethod
    def of(e: Equation) -> Loop:
        """Return the columns of a scan."""
        return Loop(e.params["program"], LoopLayout.of(e.params), e.inputs, e.outputs)

    @property
    def operands(self) -> list[Any]:
        return [x for _, x, *_ in (*self.consts, *self.carry, *self.arrays)]

    @property
    def outputs(self) -> list[Any]:
        return [y for *_, y, _ in (*self.carry, *self.written)]

    @property
    def results(self) -> list[Var]:
        return [v for *_, v in (*self.carry, *self.written)]

    def body(self, equations: Sequence[Equation], outputs: Iterable[Any]) -> Program:
        inputs = [v for v, *_ in (*self.consts, *self.carry, *self.arrays)]
        return Program(inputs, equations, outputs, name=self.name)

    def scan(self, e: Equation, how: str, equations: Sequence[Equation], outputs: Iterable[Any]) -> Equation:
        """Return the scan e with these columns and this body."""
        sizes = {"consts": len(self.consts), "carry": len(self.carry)}
        params = {**e.params, "program": self.body(equations, outputs), **sizes}
        return Equation(scan, tuple(self.operands), tuple(self.results), params, e.source, Origin(how, e))


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
    before = _before(found.start.equations, names)
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


def _scan(e: Equation) -> Simpler:
    loop = Loop.of(e)
    replaced = _unchanged(loop)
    alike = _alike(loop, replaced)
    loop.consts += [a for a in loop.arrays if a[1].__class__ is Literal]
    loop.arrays = [a for a in loop.arrays if a[1].__class__ is not Literal]
    body, length = e.params["program"].equations, e.params["length"]
    before, equations, ends, loop.consts = _simplified(
        body, loop.outputs, loop.consts, alike, lambda e: length > 0 and is_pure(e)
    )
    live = {v for e in equations for v in e.inputs}.union(ends)
    loop.arrays = [a for a in loop.arrays if a[0] in live]
    return before, loop.scan(e, HOW, equations, ends), replaced


def _while(e: Equation) -> Simpler:
    n, m, cond, body = (e.params[k] for k in ("cond_consts", "body_consts", "cond", "body"))
    loop = Loop(body, LoopLayout(m, len(body.inputs) - m), e.inputs[n:], e.outputs)
    tested = dict(zip(body.inputs[m:], cond.inputs[n:], strict=True))
    replaced = _unchanged(loop)
    alike = _alike(loop, replaced)
    first = list(zip(cond.inputs[:n], e.inputs[:n], strict=True))
    first += [(tested[v], x) for v, x in loop.consts[m:]]
    before, equations, ends, loop.consts = _simplified(
        body.equations, loop.outputs, loop.consts, alike, _may_leave_while
    )
    alike = {tested[v]: tested[u] for v, u in alike.items()}
    early, test, answer, first = _simplified(cond.equations, cond.outputs, first, alike, _may_leave_while)
    asks = Program(
        [*[v for v, _ in first], *[tested[v] for v, *_ in loop.carry]], test, answer, name=cond.name
    )
    programs = {"cond": asks, "body": loop.body(equations, ends)}
    params = {**e.params, **programs, "cond_consts": len(first), "body_consts": len(loop.consts)}
    operands = [*[x for _, x in first], *loop.operands]
    return [*before, *early], _again(e, operands, loop.results, params), replaced


_SIMPLER: dict[Any, Callable[[Equation], Simpler]] = {scan: _scan, while_loop: _while}


def _again(e: Equation, operands: Iterable[Any], outs: Iterable[Any], params: dict[str, Any]) -> Equation:
    return Equation(e.primitive, tuple(operands), tuple(outs), params, e.source, Origin(HOW, e))


def _before(equations: Sequence[Equation], names: dict[Any, Any]) -> list[Equation]:
    """Return equations of a body to be done before the loop; add what they compute to `names`."""
    return [_again(b, b.inputs, b.outputs, b.params) for b in copied(equations, names)]


# --- shared by both -------------------------------------------------------------------------------


def _unchanged(loop: Loop) -> dict[Var, Any]:
    """Make constants of the carries that no step changes; return what replaces their results."""
    replaced: dict[Var, Any] = {}
    kept = []
    for v, x, y, out in loop.carry:
        if y is v and x.type.same(v.type) and (x.type is out.type or x.__class__ is Literal):
            loop.consts.append((v, x))
            replaced[out] = Literal(x.value, out.type) if x.__class__ is Literal else x
        else:
            kept.append((v, x, y, out))
    loop.carry = kept
    return replaced


def _alike(loop: Loop, replaced: dict[Var, Any]) -> dict[Var, Var]:
    """Keep one of the carries that begin and go on alike; return what replaces the others in a step, and add
    to `replaced` what replaces their results."""
    kept, alike = dict[Any, Any](), dict[Var, Var]()
    for v, x, y, out in loop.carry:
        begins = repr(x) if x.__class__ is Literal else x
        first = kept.setdefault((begins, y, v.type, out.type), (v, x, y, out))
        if first[0] is not v:
            alike[v], replaced[out] = first[0], first[-1]
    loop.carry = [*kept.values()]
    return alike


def _simplified(
    equations: Sequence[Equation],
    outputs: Sequence[Any],
    consts: Sequence[Const],
    alike: dict[Var, Var],
    may_leave: Callable[[Equation], bool],
) -> tuple[list[Equation], list[Equation], list[Any], list[Const]]:
    """Put the literals among the constants of a body into it, read carries that are alike as one, and move
    loop-invariant equations before the loop: return these, the others, the outputs and the constants."""
    known: dict[Any, Any] = {v: Literal(x.value, v.type) for v, x in consts if x.__class__ is Literal}
    known.update(alike)
    outputs = renamed_all(outputs, known)
    rest = prune([renamed(b, known) for b in equations], outputs)
    names: dict[Any, Any] = {v: x for v, x in consts if v not in known and x.type is v.type}
    fixed, invariant, small = set(names), [], set[Any]()
    for b in rest:
        read = [v for v in b.inputs if v.__class__ is Var]
        if fixed.issuperset(read) and may_leave(b):
            invariant.append(b)
            fixed.update(b.outputs)
            if small.issuperset(read) and _is_small_constant(b):
                small.update(b.outputs)
    gone = dict.fromkeys([b for b in invariant if not (_stays_cheap(b) or small.issuperset(b.outputs))])
    made = [v for b in gone for v in b.outputs]
    before = _before(prune(invariant, made), names)
    rest = prune([b for b in rest if b not in gone], outputs)
    live = {v for b in rest for v in b.inputs}.union(outputs)
    consts = [*[c for c in consts if c[0] not in known], *[(v, names[v]) for v in made]]
    return before, rest, outputs, [c for c in consts if c[0] in live]


def _may_leave_while(e: Equation) -> bool:
    return not e.primitive.holds_programs and is_pure(e)


def _is_small_constant(e: Equation) -> bool:
    """Return whether an equation of literals, such as a one-hot seed, is one that a kernel should know."""
    cheap = _stays_cheap(e) or (isinstance(e.primitive, Elementwise) and e.primitive.flops <= 1)
    return cheap and e.outputs[0].type.size <= _SMALL_CONSTANT


def _stays_cheap(e: Equation) -> bool:
    """Return whether an equation is cheap enough to stay in the body."""
    return isinstance(e.primitive, Structural) or e.primitive is iota or e.primitive is constant
