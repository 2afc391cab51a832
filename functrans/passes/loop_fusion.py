"""Fuse loops over the same examples that each compute a sum of squares.

In: a Program that `contract` rewrote. Out: one in which independent loops of
passes/example_loops.py with the same number of steps are one loop. Values that they have in common,
such as the Gram matrix of a layer's inputs for each weight that reads these, are computed once, and
the overhead of a step is paid once.
"""

from __future__ import annotations

from typing import Any

from functrans.ir.program import Equation, Origin, Program, Var, copied
from functrans.passes.example_loops import NAME
from functrans.passes.rewrite import finished
from functrans.passes.subexpression_elimination import common_subexpressions
from functrans.primitives.control_flow.scan import scan

HOW = "side_by_side of"


def side_by_side(program: Program) -> Program:
    """Fuse such loops of a program."""
    loops = [e for e in program.equations if _is_by_example(e)]
    lengths = {e.params["length"] for e in loops}
    if len(loops) == len(lengths):
        return program
    if any([e.primitive.has_effects(e.params) for e in program.equations]):
        return program  # effects keep their order
    for length in sorted(lengths):
        program = _merged(program, length)
    return program


def _is_by_example(e: Equation) -> bool:
    return e.primitive is scan and e.params["program"].name == NAME and not e.params["carry"]


def _merged(program: Program, length: int) -> Program:
    """Fuse the loops of this length that do not depend on each other, before all equations that
    depend on them."""
    loops: list[Equation] = []
    before: list[Equation] = []
    behind: list[Equation] = []
    late: set[Any] = set()
    for e in program.equations:
        if not late.isdisjoint(e.inputs):
            behind.append(e)
        elif _is_by_example(e) and e.params["length"] == length:
            loops.append(e)
        else:
            before.append(e)
            continue
        late.update(e.outputs)
    if len(loops) < 2:
        return program
    notes = [(scan.name, tuple(loops))]
    return finished(program, [*before, _one(loops, length), *behind], program.outputs, notes)


def _one(loops: list[Equation], length: int) -> Equation:
    """Return one loop that computes the results of several."""
    consts: dict[Any, Var] = {}
    arrays: dict[Any, Var] = {}
    equations: list[Equation] = []
    results: list[Any] = []
    for e in loops:
        body, n = e.params["program"], e.params["consts"]
        names: dict[Any, Any] = {}
        for i, (v, x) in enumerate(zip(body.inputs, e.inputs, strict=True)):
            known = consts if i < n else arrays
            names[v] = known.setdefault(x, Var(v.type))
        equations += copied(body.equations, names)
        results += [names.get(v, v) for v in body.outputs]
    body = Program([*consts.values(), *arrays.values()], equations, results, name=NAME)
    first = loops[0]
    return Equation(
        scan, (*consts, *arrays), tuple([v for e in loops for v in e.outputs]),
        {**first.params, "program": common_subexpressions(body), "consts": len(consts)},
        first.source, Origin(HOW, first),
    )  # fmt: skip
