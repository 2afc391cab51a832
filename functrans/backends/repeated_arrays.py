"""Rematerialization of large broadcasts: a separate copy for each equation that reads one.

XLA fuses a broadcast into each loop that reads it. XLA:CPU's library kernels for reductions fuse it
only if it has no other user. Otherwise it stays in memory from its first use to its last: for
example the scale and deviation of a layer norm, each as large as the activations, from the forward
to the backward pass. An optimization barrier keeps XLA's CSE from merging the copies again.
"""

from __future__ import annotations

from typing import Any

from functrans.caching import memo
from functrans.ir.program import Equation, Literal, Program, Var
from functrans.primitives.base import bytes_of
from functrans.primitives.elementwise.selection import optimization_barrier
from functrans.primitives.shape.moving import broadcast_in_dim

_LARGE = 2**20  # bytes; for smaller arrays, the extra compile time is not worth it
_TIMES = 8  # minimal ratio of the result's size to the operand's


def apart(program: Program) -> Program:
    """Return the program with a copy of each large broadcast per equation that reads it; the same
    object if each is read once."""
    return memo(program, _apart)


def _apart(program: Program) -> Program:
    broadcasts = [e for e in program.equations if e.primitive is broadcast_in_dim]
    repeated = {e.outputs[0]: e for e in broadcasts if _repeats(e)}
    if not repeated:
        return program
    equations: list[Equation] = []
    read: set[Any] = set()

    def own(v: Any, reader: Equation) -> Any:
        if v not in repeated or v not in read:
            read.add(v)
            return v
        e = repeated[v]
        behind, copy = Var(e.inputs[0].type), Var(v.type)
        about = reader.source, e.origin
        equations.append(Equation(optimization_barrier, e.inputs, (behind,), {}, *about))
        equations.append(Equation(broadcast_in_dim, (behind,), (copy,), e.params, *about))
        return copy

    for e in program.equations:
        inputs = [own(v, e) for v in e.inputs]
        if inputs != [*e.inputs]:
            e = Equation(e.primitive, tuple(inputs), e.outputs, e.params, e.source, e.origin)
        equations.append(e)
    made = len(equations) > len(program.equations)
    return program.replace(equations=equations) if made else program


def _repeats(e: Equation) -> bool:
    size = bytes_of(e.outputs[0].type)
    if size < _LARGE or e.inputs[0].__class__ is Literal:
        return False
    return size >= _TIMES * bytes_of(e.inputs[0].type)
