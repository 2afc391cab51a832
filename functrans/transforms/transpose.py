"""Reverse mode: a linear map walked backwards.

In: a list of linear equations (from `linearize`), the cotangents of its results. Out: the
cotangents of its inputs, computed where we stand: concrete arrays at once, under a trace as
equations of it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from functrans import errors
from functrans.ir.program import Equation, Origin, Program, Var
from functrans.ir.source import equation_source
from functrans.primitives.base import LinearInput, sum_of
from functrans.primitives.constants import closed
from functrans.primitives.custom import set_transpose
from functrans.primitives.parts import depending
from functrans.trace import literal, stage, state, typeof


class Transposition:
    """What primitives that hold programs ask of the running transposition."""

    def program(
        self, program: Program, linear: tuple[bool, ...], ct_active: tuple[bool, ...]
    ) -> Program:
        """`non-linear inputs, active cotangents -> cotangents of linear inputs`; cached."""
        key = ("transpose", linear, ct_active)
        if key not in program.cache:
            program.cache[key] = _transpose_program(program, linear, ct_active)
        return program.cache[key]


_RUNNING = Transposition()
set_transpose(_RUNNING.program)


def backward(
    equations: Sequence[Equation],
    inputs: Sequence[Var],
    outputs: Sequence[Var | None],
    cts: Sequence[Any],
) -> list[Any]:
    """The cotangents of `inputs`, None where zero, given those of `outputs`."""
    held: dict[Any, Any] = {}
    outer = state.derived
    try:
        for v, ct in zip(outputs, cts, strict=True):
            if v.__class__ is Var and ct is not None:
                held[v] = sum_of(held.get(v), ct)
        for eqn in reversed(equations):
            _backward_one(eqn, held)
    finally:
        state.derived = outer
    return [held.get(v) for v in inputs]


def _backward_one(eqn: Equation, held: dict[Any, Any]) -> None:
    primitive = eqn.primitive
    if primitive.multiple:
        ct: Any = [held.pop(v, None) for v in eqn.outputs]
        if all([c is None for c in ct]):
            return
    else:
        ct = held.pop(eqn.outputs[0], None)
        if ct is None:
            return
    state.derived = (eqn.source, Origin("transpose of", eqn))
    args = [LinearInput(v.type) if v.__class__ is Var else v for v in eqn.inputs]
    for v, c in zip(
        eqn.inputs, primitive.transpose_with(_RUNNING, ct, args, eqn.params), strict=True
    ):
        if c is not None and v.__class__ is Var:
            known = held.get(v)
            held[v] = c if known is None else sum_of(known, c)


def check_linear(equations: Sequence[Equation], tangents: Container[Var] | None = None) -> None:
    """Raise unless each equation is linear in its variables (in those among `tangents`, if given).
    Those that hold programs are checked when they are transposed."""
    for eqn in equations:
        primitive = eqn.primitive
        if primitive.holds_programs:
            continue
        moving = [
            i
            for i, v in enumerate(eqn.inputs)
            if v.__class__ is Var and (tangents is None or v in tangents)
        ]
        allowed = primitive.linear_positions(len(eqn.inputs))
        together = primitive.multilinear and len(moving) > 1
        if together or any(i not in allowed for i in moving):
            types = [v.type if v.__class__ is Var else typeof(v) for v in eqn.inputs]
            shown = ", ".join(map(str, types))
            raise errors.NotLinear(
                f"the function is not linear, so it has no transpose: {primitive.name}({shown}) is "
                f"not linear in operand {' and '.join(map(str, moving))}{' together' * together}, "
                f"at\n    {equation_source(eqn)}\n"
                "For the derivative at a point use vjp(f, x)[1], or linearize the function first."
            )


def _transpose_program(
    program: Program, linear: tuple[bool, ...], ct_active: tuple[bool, ...]
) -> Program:
    """Split a program that is linear in some inputs into the equations that depend on those and the
    rest, run the rest, and walk the first backwards."""
    known_in = [v for v, lin in zip(program.inputs, linear, strict=True) if not lin]
    linear_in = [v for v, lin in zip(program.inputs, linear, strict=True) if lin]
    tangents = depending(program.equations, linear_in)
    rest, moved = [], []
    for eqn in program.equations:
        if tangents.isdisjoint(eqn.inputs):
            rest.append(eqn)
        elif tangents.issuperset(eqn.outputs):
            moved.append(eqn)
        else:
            own = [v in tangents for v in eqn.outputs]
            rest.append(eqn.primitive.part(eqn, [not m for m in own]))
            moved.append(eqn.primitive.part(eqn, own))
    check_linear(moved, tangents)

    def back(*args: Any) -> list[Any]:
        env = dict(zip(known_in, args[: len(known_in)], strict=True))
        _run(rest, env)
        equations = [
            Equation(
                e.primitive,
                tuple([env.get(v, v) if v.__class__ is Var else v for v in e.inputs]),
                e.outputs, e.params, e.source, e.origin,
            )
            for e in moved
        ]  # fmt: skip
        cts = iter(args[len(known_in) :])
        out_cts = [next(cts) if a else None for a in ct_active]
        found = backward(equations, linear_in, program.outputs, out_cts)  # type: ignore[arg-type]
        return [
            literal(0, v.type) if ct is None else ct for v, ct in zip(linear_in, found, strict=True)
        ]

    ct_types = [v.type for v, a in zip(program.outputs, ct_active, strict=True) if a]
    return closed(stage(back, [*(v.type for v in known_in), *ct_types], program.name))


def _run(equations: Sequence[Equation], env: dict[Any, Any]) -> None:
    for eqn in equations:
        state.derived = (eqn.source, eqn.origin)
        outs = eqn.primitive(*[env.get(v, v) for v in eqn.inputs], **eqn.params)
        env.update(zip(eqn.outputs, outs if eqn.primitive.multiple else [outs], strict=True))
