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


def scaled_sums(program: Program) -> Program:
    """Rewrite such sums as sums of the scaled rows; nested programs are unchanged."""
    if not any(map(_is_scaled, program.equations)):
        return program
    made_at: dict[Var, int] = {v: i for i, e in enumerate(program.equations) for v in e.outputs}

    def rows(e: Equation) -> tuple[Any, Any]:
        """The weights, and the value whose rows they scale."""
        return e.inputs[0], _origin(program, made_at, e.inputs[1])

    at = {rows(e): i for i, e in enumerate(program.equations) if _is_scaled(e)}
    equations: list[Equation] = []
    moved: set[int] = set()
    notes: list[Rewrite] = []
    for i, e in enumerate(program.equations):
        if i in moved:
            continue
        j = at.get(rows(e)) if _is_summed(e) else None
        if j is not None and all(made_at.get(v, -1) < i for v in program.equations[j].inputs):
            scaled = program.equations[j]
            if j > i and j not in moved:
                moved.add(j)
                equations.append(scaled)
            ones = literal(1, e.inputs[0].type)
            notes.append((e.primitive.name, (e, scaled)))
            e = derived(e, (ones, *scaled.outputs))
        equations.append(e)
    return replaced(program, equations, program.outputs, notes) if notes else program


def _is_scaled(e: Equation) -> bool:
    """Return whether an equation scales the rows of a matrix by a vector."""
    return _weights_rows(e) and e.params["out"] == e.params["rhs"]


def _is_summed(e: Equation) -> bool:
    """Return whether an equation is the weighted sum of the rows of a matrix."""
    return _weights_rows(e) and e.params["out"] == e.params["rhs"][1:]


def _weights_rows(e: Equation) -> bool:
    """Return whether an equation is a product of a vector and the rows of a matrix, of one
    dtype."""
    if e.primitive is not dot_general or e.inputs[0].__class__ is not Var:
        return False
    lhs, rhs = e.params["lhs"], e.params["rhs"]
    rows = len(rhs) == 2 and lhs == rhs[:1] and rhs[0] != rhs[1]
    return rows and len({v.type.dtype for v in (*e.inputs, *e.outputs)}) == 1


def _origin(program: Program, made_at: dict[Var, int], v: Any) -> Any:
    """Return the value of which `v` is a view: the same elements in the same order."""
    while v in made_at:
        e = program.equations[made_at[v]]
        ones = e.primitive is reduce_sum and e.inputs[0].type.size == v.type.size
        if e.primitive is not reshape and not ones:
            break
        (v,) = e.inputs
    return v
