"""Replace a weighted sum of rows by a sum of the scaled rows, if these are computed anyway.

    s[k, j] = c[k] * x[k, j]                           s, as it was
    y[j] = sum over k of c[k] * x[k, j]       ->       y[j] = sum over k of 1 * s[k, j]

In differentially private training this is the gradient of a bias beside that of its weights. The
rows, as large as the activations of a layer, are then last read where they are scaled, and XLA
reuses their buffer for `s`: a fifth of the step's temporaries.
"""

from __future__ import annotations

from typing import Any

from functrans.ir.program import Equation, Program, Var
from functrans.passes.rewrite import Rewrite, derived, replaced
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import reshape
from functrans.trace import literal

_SCALED = ((0,), (0, 1), (0, 1))  # the axes of the weights, the rows and the result
_SUMMED = ((0,), (0, 1), (1,))


def scaled_sums(program: Program) -> Program:
    """Rewrite such sums as sums of the scaled rows; nested programs are unchanged."""
    made_at: dict[Var, int] = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
    at = {}
    for i, e in enumerate(program.equations):
        if _is(e, _SCALED):
            at[e.inputs[0], _origin(program, made_at, e.inputs[1])] = i
    if not at:
        return program
    equations: list[Equation] = []
    moved: set[int] = set()
    notes: list[Rewrite] = []
    for i, e in enumerate(program.equations):
        if i in moved:
            continue
        j = None
        if _is(e, _SUMMED):
            j = at.get((e.inputs[0], _origin(program, made_at, e.inputs[1])))
        if j is not None and all(made_at.get(v, -1) < i for v in program.equations[j].inputs):
            scaled = program.equations[j]
            if j > i:
                moved.add(j)
                equations.append(scaled)
            ones = literal(1, e.inputs[0].type)
            notes.append((e.primitive.name, (e, scaled)))
            e = derived(e, (ones, *scaled.outputs))
        equations.append(e)
    return replaced(program, equations, program.outputs, notes) if notes else program


def _is(e: Equation, axes: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether an equation is that product of a vector and a matrix, both in memory, of one
    dtype."""
    if e.primitive is not dot_general or e.inputs[0].__class__ is not Var:
        return False
    names = [e.params[name] for name in ("lhs", "rhs", "out")]
    order: dict[int, int] = {}
    for name in names[1]:
        order.setdefault(name, len(order))
    if any(name not in order for name in (*names[0], *names[2])):
        return False
    renamed = tuple([tuple([order[n] for n in of]) for of in names])
    return renamed == axes and len({v.type.dtype for v in (*e.inputs, *e.outputs)}) == 1


def _origin(program: Program, made_at: dict[Var, int], v: Any) -> Any:
    """Return the value of which `v` is a view: the same elements in the same order."""
    while v in made_at:
        e = program.equations[made_at[v]]
        ones = e.primitive is reduce_sum and e.inputs[0].type.size == v.type.size
        if e.primitive is not reshape and not ones:
            break
        (v,) = e.inputs
    return v
