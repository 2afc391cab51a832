"""Record the equations of a library function again without running the function.

    operands, result of a call   -> Replay: its equations, with indices instead of variables
    Replay, operands of another  -> the same equations in another program, at the line of that call

Recording a library function takes Python time: checking arguments, promoting types, comparing
shapes. The outcome is the same whenever types and options are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans import pytrees as tree
from functrans.flags import decisive
from functrans.ir.program import Equation, Literal, Var, prune
from functrans.trace import AnyTracer, Recording, Tracer, derived_here

_SMALL = 1024  # largest size of a constant that is kept
OPTIONS: set[type[Any]] = {bool, int, str, type(None), type(tree.structure(0))}


def signature(trace: Recording, values: Sequence[Any]) -> tuple[list[Any], list[Tracer]] | None:
    """Return the cache key that determines the equations of a call, and its operands. None if they
    depend on more than types and options: an operand is a literal, a concrete array or another
    trace's value."""
    key: list[Any] = [decisive()]
    operands = []
    for x in values:
        kind = x.__class__
        if kind is Tracer:
            if x.owner is not trace or x.ref.__class__ is Literal:
                return None
            operands.append(x)
            key.append(x.type)
            continue
        key.append(kind)
        if kind in OPTIONS:
            key.append(x)
        elif kind is float:  # 0.0 == -0.0, NaN != NaN
            key.append(repr(x))
        elif kind is tuple and all([i.__class__ is int for i in x]):
            key.append(x)
        else:
            return None
    return key, operands


class Replay:
    """The equations of a call. Values are numbered: the operands first, then the constants that the
    function created, then each result in turn."""

    __slots__ = ("constants", "out_tree", "outs", "steps")

    def __init__(self, constants: list[Any], steps: list[Any], outs: list[Any], out_tree: Any):
        self.constants: list[Any] = constants
        self.steps: list[Any] = steps
        self.outs: list[Any] = outs
        self.out_tree: Any = out_tree

    @staticmethod
    def of(trace: Recording, start: int, operands: Sequence[Tracer], out: Any) -> Replay | None:
        """Return what `trace` recorded from equation `start` on, for a call of distinct operands.
        None if it reads values of other traces or large constants, which must not be kept, or holds
        programs, whose equations have source lines of their own."""
        leaves, out_tree = tree.flatten(out)
        if not all([y.__class__ is Tracer and y.owner is trace for y in leaves]):
            return None
        places: dict[Any, int] = {x.ref: i for i, x in enumerate(operands)}
        refs = [y.ref for y in leaves]
        equations = prune(trace.equations[start:], refs)
        read = {v for e in equations for v in e.inputs if v.__class__ is Var}
        constants = []
        for v, x in trace.captures.values():
            made_here = v in read and v not in places  # an operand may be a capture too
            if made_here and not isinstance(x, AnyTracer) and v.type.size <= _SMALL:
                places[v] = len(places)
                constants.append(x)
        steps = []
        for e in equations:
            if e.primitive.holds_programs:
                return None
            ins = [places.get(v) if v.__class__ is Var else v for v in e.inputs]
            if None in ins:
                return None
            for v in e.outputs:
                places[v] = len(places)
            steps.append((e.primitive, ins, [v.type for v in e.outputs], e.params))
        outs = [places.get(v) if v.__class__ is Var else v for v in refs]
        return None if None in outs else Replay(constants, steps, outs, out_tree)

    def run(self, trace: Recording, operands: Sequence[Tracer]) -> Any:
        """Record the equations and return the result."""
        source, origin = derived_here()
        values: list[Any] = [x.ref for x in operands]
        values += [trace.capture(x) for x in self.constants]
        record = trace.equations.append
        for primitive, ins, types, params in self.steps:
            inputs = tuple([values[i] if i.__class__ is int else i for i in ins])
            made = tuple([Var(t) for t in types])
            record(Equation(primitive, inputs, made, params, source, origin))
            values += made
        refs = [values[i] if i.__class__ is int else i for i in self.outs]
        return tree.unflatten(self.out_tree, [Tracer(trace, v.type, v) for v in refs])
