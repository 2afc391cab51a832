"""Implicit differentiation of linear solves: the user's solver is not differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans import errors
from functrans.ir.program import Program
from functrans.ir.source import describe
from functrans.primitives.base import LinearInput, Params, Values, effects_inside, sum_of
from functrans.primitives.calls.jit import Expanded
from functrans.primitives.custom.tracing import standing
from functrans.primitives.dependence import or_zeros
from functrans.primitives.elementwise.families import neg
from functrans.trace import derived_here, evaluate, materialize

#
#     custom_linear_solve[matvec, vecmat, solve, transpose_solve, consts=n]
#         *consts(n) *b -> *x *aux        where matvec(*consts, *x) == b
#
# Each program maps (consts, vector) to a vector; the solvers also return aux. `vecmat` is the
# transpose of `matvec`, and `transpose_solve` solves it; both are None if no transpose_solve was
# given. The programs have no constants: values that the functions close over are operands.
#
#     A x = b         dA x + A dx = db        dx = solve(db - dA x)        ct of b = A^-T (ct of x)


class LinearSolve(Expanded):
    """Solve a linear equation by `solve`, differentiate it implicitly."""

    name = "custom_linear_solve"
    runs_eagerly = True
    push: Any = None

    def abstract_eval(self, *types: Any, solve: Program, consts: int, **programs: Any) -> Any:
        self.check_takes(types, types, "the solver", solve)
        return solve.out_types

    def expansion(self, types: Any, params: Params) -> Program:
        return params["solve"]

    def run_eagerly(self, values: Values, params: Params) -> Any:
        return [materialize(y) for y in super().run_eagerly(values, params)]

    def has_effects(self, params: dict[str, Any]) -> bool:
        return effects_inside(params["solve"])

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        n = params["consts"]
        fixed, b = primals[:n], primals[n:]
        outs = t.bind_primal(self, primals, params)
        x = outs[: len(b)]
        moved = [None] * len(b)  # dA x
        if any(dx is not None for dx in tangents[:n]):
            with standing(t):
                ys = evaluate(params["matvec"], [*map(t.pair, fixed, tangents[:n]), *x])
            moved = [t.parts(y)[1] for y in ys]
        rhs = [sum_of(db, None if y is None else neg(y)) for db, y in zip(tangents[n:], moved, strict=True)]
        if all(y is None for y in rhs):
            return outs, [None] * len(outs)
        dx = self(*fixed, *or_zeros(rhs, params["matvec"].out_types), **params)
        return outs, [*dx[: len(b)], *[None] * (len(outs) - len(b))]

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        n = params["consts"]
        k = len(args) - n
        if any(isinstance(x, LinearInput) for x in args[:n]) or any(c is not None for c in ct[k:]):
            raise errors.NotLinear(
                "custom_linear_solve is linear only in b and x, not in values that its functions "
                f"close over or in their aux, at\n    {describe(derived_here()[0])}\n"
                "For the derivative at a point use vjp, or linearize the function first."
            )
        if params["transpose_solve"] is None:
            raise errors.MissingArgument(
                "reverse mode through custom_linear_solve solves the transposed equation, which "
                f"needs transpose_solve, at\n    {describe(derived_here()[0])}\n"
                "Pass transpose_solve=(vecmat, b) -> x, or symmetric=True if the linear map is its "
                "own transpose."
            )
        found = self(
            *args[:n],
            *or_zeros(ct[:k], params["matvec"].in_types[n:]),
            matvec=params["vecmat"],
            vecmat=params["matvec"],
            solve=params["transpose_solve"],
            transpose_solve=params["solve"],
            consts=n,
        )
        return [*[None] * n, *found[:k]]

    def batch(self, t: Any, args: Any, dims: Any, *, consts: int, **programs: Any) -> Any:
        """Batch all vectors at axis 0, because the programs pass them to each other."""
        vectors = [t.at(x, d, 0) for x, d in zip(args[consts:], dims[consts:], strict=True)]
        inner = (*dims[:consts], *[0] * len(vectors))
        made = {name: p and t.program(p, inner, [True] * len(p.outputs))[0] for name, p in programs.items()}
        outs = self(*args[:consts], *vectors, **made, consts=consts)
        return outs, [0] * len(outs)


linear_solve: LinearSolve = LinearSolve()
