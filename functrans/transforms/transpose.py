"""Reverse mode: transpose a linear map.

In: linear equations (from `linearize`) and the cotangents of their results. Out: the cotangents of
their inputs, computed in the current trace: eagerly on concrete arrays, or recorded.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from functrans import errors, runtime
from functrans.caching import Cache, memo
from functrans.ir.program import Equation, Literal, Origin, Program, Var, copied, prune, renamed
from functrans.ir.source import equation_source
from functrans.ir.types import is_key_dtype
from functrans.primitives.base import LinearInput, sum_of
from functrans.primitives.calls.captured import closed, stage_with
from functrans.primitives.calls.jit import jit
from functrans.primitives.dependence import apart, nonlinearity
from functrans.trace import Tracer, derive_from, evaluate, literal, provenance, stage, state, typeof


@dataclass(eq=False, repr=False, slots=True)
class Linear:
    """A linear map, made by `linearize`: equations from tangents to tangents. Residuals are values
    among their operands. It may hold dead equations until it is `pruned`."""

    equations: list[Any]
    inputs: list[Any]
    outputs: list[Any]  # Var, or None where the tangent is zero
    out_types: list[Any]

    def pruned(self) -> Linear:
        """Return the map without dead equations, so that their residuals can be freed."""
        outputs = [v for v in self.outputs if v is not None]
        equations = prune(self.equations, outputs, values=True)
        return Linear(equations, self.inputs, self.outputs, self.out_types)

    def apart(self) -> tuple[Linear, list[Var], list[Any]]:
        """Return the map with variables in place of its residuals, the variables, and the residuals."""
        found: dict[Any, tuple[Var, Any]] = {}

        def named(x: Any) -> Any:
            if x.__class__ is Var or x.__class__ is Literal:
                return x
            if x.__class__ is Tracer and x.ref.__class__ is Literal:
                return x.ref
            key = x.ref if x.__class__ is Tracer else id(x)
            return found.setdefault(key, (Var(typeof(x)), x))[0]

        equations = [
            Equation(e.primitive, tuple(map(named, e.inputs)), e.outputs, e.params, e.source, e.origin)
            for e in self.equations
        ]
        linear = Linear(equations, self.inputs, self.outputs, self.out_types)
        return linear, [v for v, _ in found.values()], [x for _, x in found.values()]

    def filled(self, names: Sequence[Var], residuals: Sequence[Any]) -> Linear:
        """Return the map with residuals in place of their variables."""
        known = dict(zip(names, residuals, strict=True))
        equations = [renamed(e, known) for e in self.equations]
        return Linear(equations, self.inputs, self.outputs, self.out_types)

    def program(self) -> Program:
        """Return the map as a Program whose constants are the residuals."""
        linear, names, residuals = self.pruned().apart()
        known: dict[Any, Any] = {}  # result of a call of `LinearizedOperation` -> its value now
        equations = []
        for e in linear.equations:
            if known:
                e.inputs = tuple([known.get(x, x) for x in e.inputs])  # e is a copy
            if e.primitive.name == "jit" and e.params["program"].marks.one_operation:
                equations += _written_out(e, known)
            else:
                equations.append(e)
        outs = [
            _no_tangent(t) if v is None else known.get(v, v)
            for v, t in zip(self.outputs, self.out_types, strict=True)
        ]
        return Program(self.inputs, equations, outs, names, residuals)


def _no_tangent(t: Any) -> Literal:
    """Return a zero for the tangent of a result without one. That of a key is never read."""
    return Literal(0, t) if is_key_dtype(t.dtype) else literal(0, t)


def _written_out(call: Equation, known: dict[Any, Any]) -> list[Equation]:
    """Return the equations of the called program, with fresh variables."""
    program = call.params["program"]
    names = dict(zip(program.inputs, call.inputs, strict=True))
    made = copied(program.equations, names)
    for e in made:
        e.source, e.origin = call.source, call.origin
    known.update(zip(call.outputs, [names[v] for v in program.outputs], strict=True))
    return made


class Transposition:
    """The running transposition, as higher-order primitives see it."""

    def program(
        self, program: Program, linear: tuple[bool, ...], ct_active: tuple[bool, ...], called: bool = False
    ) -> Program:
        """Return `non-linear inputs, active cotangents -> cotangents of linear inputs`; cached.
        `called`: the program is called as a function, it is not the body of a loop."""
        return memo(program, _transpose_program, linear, ct_active, called)


_RUNNING = Transposition()
runtime.answers("transpose_program")(_RUNNING.program)


def backward(
    equations: Sequence[Equation],
    inputs: Sequence[Var],
    outputs: Sequence[Var | None],
    cts: Sequence[Any],
    nested: bool = False,
) -> list[Any]:
    """Return the cotangents of `inputs`, None where zero, given those of `outputs`.

    When cotangents of one value are summed, the latest is the first operand. XLA:CPU then works on
    the next ones while it computes the matrix product of a weight's cotangent (0.83 of the time for
    a weight used in twelve layers). In a `nested` program, which may be the body of a loop, it is
    the second operand: there the other order keeps one more activation live.
    """
    held: dict[Any, Any] = {}
    if any([e.primitive.transposes_zeros(e.params) for e in equations]):  # where results depend on them
        equations = prune(equations, compress(outputs, [ct is not None for ct in cts]), values=True)
    with provenance():
        for v, ct in zip(outputs, cts, strict=True):
            if v.__class__ is Var and ct is not None:
                held[v] = sum_of(held.get(v), ct)
        if state.trace is None:
            _backward_at_once(equations, held)
        else:
            for eqn in reversed(equations):
                _backward_one(eqn, held, nested)
    return [held.get(v) for v in inputs]


def _backward_one(eqn: Equation, held: dict[Any, Any], nested: bool = False) -> None:
    primitive = eqn.primitive
    if primitive.multiple_results:
        ct: Any = [held.pop(v, None) for v in eqn.outputs]
        if all([c is None for c in ct]) and not primitive.transposes_zeros(eqn.params):
            return
    else:
        ct = held.pop(eqn.outputs[0], None)
        if ct is None:
            return
    derive_from(eqn.source, Origin("transpose of", eqn))
    args = [LinearInput(v.type) if v.__class__ is Var else v for v in eqn.inputs]
    for v, c in zip(eqn.inputs, primitive.transpose_with(_RUNNING, ct, args, eqn.params), strict=True):
        if c is not None and v.__class__ is Var:
            known = held.get(v)
            pair = (known, c) if nested else (c, known)
            held[v] = c if known is None else sum_of(*pair)


# --- eager transposition --------------------------------------------------------------------------

# Intermediate values of the backward pass are not visible, so this many operations run as one
# dispatch. More would save little and compile longer for each new sequence of operations.
_TOGETHER = 8

_GROUPS = Cache("operations on the way back", 2048)


def _backward_at_once(equations: Sequence[Equation], held: dict[Any, Any]) -> None:
    """Transpose equations eagerly, a few at a time."""
    group: list[Equation] = []
    coming: set[Var] = set()  # the variables whose cotangents the group computes
    for eqn in reversed(equations):
        reached = any([v in held or v in coming for v in eqn.outputs])
        if not reached and not eqn.primitive.transposes_zeros(eqn.params):
            continue
        joins = _may_join(eqn)
        if not joins or len(group) == _TOGETHER:
            _backward_group(group, held)
            group, coming = [], set()
        if joins:
            group.append(eqn)
            coming.update([v for v in eqn.inputs if v.__class__ is Var])
        else:
            _backward_one(eqn, held)
    _backward_group(group, held)


def _may_join(eqn: Equation) -> bool:
    """Return whether it is a first-order operation, or a call of a program without effects."""
    primitive = eqn.primitive
    if primitive.holds_programs:
        return primitive is jit and not primitive.has_effects(eqn.params)
    return not primitive.runs_eagerly


def _backward_group(group: list[Equation], held: dict[Any, Any]) -> None:
    """Apply `_backward_one` to each equation in turn, as one operation."""
    if len(group) < 2:
        for eqn in group:
            _backward_one(eqn, held)
        return
    number: dict[Any, int] = {}  # of each variable
    values: list[Any] = []  # residuals, then known cotangents
    key: list[Any] = [_group_program]
    called: Any = None  # a called program, perhaps a user's function
    for eqn in group:
        if eqn.primitive is jit:
            called = eqn.params["program"]
        key.append(eqn.primitive)
        key += eqn.params.items()
        for v in (*eqn.outputs, *eqn.inputs):
            if v.__class__ is Var:
                i = number.get(v)
                if i is None:
                    i = number[v] = len(number)
                    key.append(v.type)
                key.append(i)
            elif _is_written(v):
                key += (v.value.__class__, str(v.value), v.type)
            else:
                key.append(typeof(v))
                values.append(v)
    for v in number:
        ct: Any = held.get(v)
        if _is_written(ct):
            key += (ct.value.__class__, str(ct.value), ct.type)
        else:
            key.append(None if ct is None else typeof(ct))
            if ct is not None:
                values.append(ct)
    signature = tuple(key)
    if called is not None:  # store the result on it, so that both are freed together
        found = called.known(signature) or called.keep(signature, _group_program(group, number, held))
    else:
        found = _GROUPS.get(signature) or _GROUPS.keep(signature, _group_program(group, number, held))
    program, places = found
    cts = jit(*values, program=program)
    for v in number:
        held.pop(v, None)
    names = list(number)
    held.update([(names[i], ct) for i, ct in zip(places, cts, strict=True)])


def _is_written(x: Any) -> bool:
    """Return whether a number is written into the program as a literal. Others are operands, so
    that a number that changes from call to call does not cause recompilation."""
    return x.__class__ is Literal and x.value in (0, 1, -1)


def _is_residual(x: Any) -> bool:
    return x.__class__ is not Var and not _is_written(x)


def _group_program(
    group: list[Equation], number: dict[Any, int], held: dict[Any, Any]
) -> tuple[Program, list[int]]:
    """Return the program residuals, known cotangents -> cotangents after the group; and their variables."""
    known = [v for e in group for v in e.inputs if _is_residual(v)]
    given = [v for v in number if held.get(v) is not None and not _is_written(held[v])]

    def run(*values: Any) -> tuple[list[Any], list[int]]:
        residuals = iter(values[: len(known)])
        now = {v: held[v] for v in number if _is_written(held.get(v))}
        now.update(zip(given, values[len(known) :], strict=True))
        for e in group:
            inputs = [next(residuals) if _is_residual(v) else v for v in e.inputs]
            named = Equation(e.primitive, tuple(inputs), e.outputs, e.params, e.source, e.origin)
            _backward_one(named, now)
        found = [v for v in number if now.get(v) is not None]
        return [now[v] for v in found], [number[v] for v in found]

    types = [typeof(x) for x in (*known, *[held[v] for v in given])]
    program, places = stage_with(run, types, "backward")
    return closed(program), places


# --- programs -------------------------------------------------------------------------------------


def check_linear(equations: Sequence[Equation], tangents: Container[Var] | None = None) -> None:
    """Raise unless each equation is linear in its variables (in those among `tangents`, if given).
    Higher-order primitives are checked when they are transposed."""
    for eqn in equations:
        primitive = eqn.primitive
        if primitive.holds_programs:
            continue
        moving = [
            i for i, v in enumerate(eqn.inputs) if v.__class__ is Var and (tangents is None or v in tangents)
        ]
        if problem := nonlinearity(primitive, eqn.inputs, moving):
            raise errors.NotLinear(
                f"the function is not linear, so it has no transpose: {problem}, "
                f"at\n    {equation_source(eqn)}\n"
                "For the derivative at a point use vjp(f, x)[1], or linearize the function first."
            )


def _first_operands_last(equations: list[Equation], tangents: set[Any]) -> list[Equation]:
    """Swap the two products of a product rule: `x dw` before `dx w`. The backward pass runs from
    last to first: it then computes the cotangent of x, on which the preceding calls depend, before
    that of w, which XLA:CPU computes in parallel."""
    made = list(equations)
    for i in range(len(made) - 1):
        a, b = made[i], made[i + 1]
        pair = a.primitive is b.primitive and a.primitive.multilinear
        ordered = a.inputs[0] in tangents and b.inputs[1] in tangents if pair else False
        if ordered and a.outputs[0] not in b.inputs:
            made[i], made[i + 1] = b, a
    return made


def _transpose_program(
    program: Program, linear: tuple[bool, ...], ct_active: tuple[bool, ...], called: bool
) -> Program:
    """Split a program that is linear in some inputs into the equations that depend on these and the
    others. Run the others forward, then transpose the first."""
    known_in = [v for v, lin in zip(program.inputs, linear, strict=True) if not lin]
    linear_in = [v for v, lin in zip(program.inputs, linear, strict=True) if lin]
    rest, moved, tangents = apart(program.equations, linear_in)
    check_linear(moved, tangents)
    if called:
        moved = _first_operands_last(moved, tangents)

    known = Program(known_in, rest, [v for e in rest for v in e.outputs])

    def back(*args: Any) -> list[Any]:
        given = args[: len(known_in)]
        env = dict(zip((*known_in, *known.outputs), (*given, *evaluate(known, given)), strict=True))
        equations = [renamed(e, env) for e in moved]
        cts = iter(args[len(known_in) :])
        out_cts = [next(cts) if a else None for a in ct_active]
        found = backward(equations, linear_in, program.outputs, out_cts, nested=True)  # type: ignore[arg-type]
        return [literal(0, v.type) if ct is None else ct for v, ct in zip(linear_in, found, strict=True)]

    ct_types = [v.type for v, a in zip(program.outputs, ct_active, strict=True) if a]
    return closed(stage(back, [*(v.type for v in known_in), *ct_types], program.name))
