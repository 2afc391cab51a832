"""Root finding with implicit differentiation: the user's solver itself is not differentiated.

    custom_root[f, solve, tangent_solve, consts=n]
        *consts(n) *guess -> *x *aux        where f(*consts, *x) == 0

    f             : (consts, x) -> a value of the type of x
    solve         : (consts, guess) -> (x, aux)
    tangent_solve : (consts, x, y) -> dx with (df/dx)(consts, x) dx == y

The programs have no constants: values that the functions close over are operands.

    f(m, x(m)) = 0      df/dm dm + df/dx dx = 0      dx = -tangent_solve(df/dm dm)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.caching import memo
from functrans.ir.program import Program, Var
from functrans.primitives.base import Cost
from functrans.primitives.calls.jit import jit
from functrans.primitives.custom.linear_solve import Solver, tangents_of, with_zeros
from functrans.primitives.elementwise.families import neg
from functrans.trace import evaluate


class Root(Solver):
    """Find a root by `solve`, differentiate it by the implicit function theorem."""

    name = "custom_root"

    def differentiate(
        self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Any, Any]:
        n, f, tangent_solve = params["consts"], params["f"], params["tangent_solve"]
        outs = t.bind_primal(self, primals, params)
        k = len(f.outputs)
        at = [*primals[:n], *outs[:k]]
        rhs = tangents_of(t, f, at, [*tangents[:n], *[None] * k])
        if all(y is None for y in rhs):
            return outs, [None] * len(outs)
        values = [*at, *with_zeros(rhs, f.out_types)]
        if t.linear is None or _is_linear(tangent_solve, n + k):
            # equations that do not depend on the tangents are computed with the primals
            dx = evaluate(tangent_solve, values)
        else:  # forward mode still works; transposing raises an error that names the equation
            dx = jit(*values, program=tangent_solve)
        return outs, [*[neg(y) for y in dx], *[None] * (len(outs) - k)]

    def batch(self, t: Any, args: Any, dims: Any, *, consts: int, **programs: Any) -> Any:
        fixed = tuple(dims[:consts])
        k = len(programs["f"].outputs)
        all_of = [True] * k

        def batched(name: str, given: Sequence[int | None], forced: Sequence[bool]) -> Any:
            return t.program(programs[name], (*fixed, *given), forced)

        n_aux = len(programs["solve"].outputs) - k
        solve, out_dims = batched("solve", dims[consts:], [*all_of, *[False] * n_aux])
        outs = self(
            *args,
            f=batched("f", [0] * k, all_of)[0],
            solve=solve,
            tangent_solve=batched("tangent_solve", [0] * 2 * k, all_of)[0],
            consts=consts,
        )
        return outs, list(out_dims)

    def cost(self, in_types: Any, out_types: Any, *, solve: Program, **rest: Any) -> Cost:
        return jit.cost(in_types, out_types, program=solve)

    def has_effects(self, params: dict[str, Any]) -> bool:
        return jit.has_effects({"program": params["solve"]})


root: Root = Root()


def _is_linear(program: Program, n: int) -> bool:
    """Return whether each equation is linear in the values that depend on inputs n and up.
    Higher-order primitives count as linear; they are checked when they are transposed."""
    return memo(program, _looks_linear, n)


def _looks_linear(program: Program, n: int) -> bool:
    moving = set(program.inputs[n:])
    for e in program.equations:
        at = [i for i, v in enumerate(e.inputs) if v.__class__ is Var and v in moving]
        if not at:
            continue
        moving.update(e.outputs)
        if e.primitive.holds_programs:
            continue
        allowed = e.primitive.linear_positions(len(e.inputs))
        if any(i not in allowed for i in at) or (e.primitive.multilinear and len(at) > 1):
            return False
    return True
