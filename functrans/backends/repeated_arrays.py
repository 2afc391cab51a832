"""Large arrays that repeat a small one, made anew for each equation that reads them.

XLA fuses a broadcast with each loop that reads it. XLA:CPU's library kernels, which compute sums
with what stands around them, take it in only if nobody else reads it; else it stays in memory from
its first reader to its last: the scales and deviations of a layer norm, each as large as the
activations, from the way forth to the way back. A barrier keeps XLA from making one of them again.
"""

from __future__ import annotations

from typing import Any

from functrans.caching import memo
from functrans.ir.program import Equation, Literal, Program, Var
from functrans.primitives.base import bytes_of
from functrans.primitives.elementwise.selection import optimization_barrier
from functrans.primitives.shape.moving import broadcast_in_dim

_LARGE = 2**20  # bytes; what is smaller is made sooner than the module with it is compiled
_TIMES = 8  # so much smaller is what is repeated


def apart(program: Program) -> Program:
    """The program with large repeated arrays made for each equation that reads one; the same
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
