"""Implicit differentiation of linear solves and roots: the user's solver is not differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans import errors
from functrans.caching import memo
from functrans.ir.program import Program, Var
from functrans.ir.source import describe
from functrans.primitives.base import (
    Cost,
    HigherOrderPrimitive,
    LinearInput,
    Params,
    Primitive,
    Values,
    sum_of,
)
from functrans.primitives.calls.jit import jit
from functrans.primitives.custom.tracing import standing
from functrans.primitives.elementwise.families import neg
from functrans.trace import derived_here, evaluate, literal, materialize

# --- linear solves --------------------------------------------------------------------------------
#
#     custom_linear_solve[matvec, vecmat, solve, transpose_solve, consts=n]
#         *consts(n) *b -> *x *aux        where matvec(*consts, *x) == b
#
# Each program maps (consts, vector) to a vector; the solvers also return aux. `vecmat` is the
# transpose of `matvec`, and `transpose_solve` solves it; both are None if no transpose_solve was
# given. The programs have no constants: values that the functions close over are operands.
#
#     A x = b         dA x + A dx = db        dx = solve(db - dA x)        ct of b = A^-T (ct of x)


class Solver(HigherOrderPrimitive):
    """Base class: the result is computed by a program `solve` and differentiated implicitly."""

    in_kernel = True
    runs_eagerly = True

    def abstract_eval(self, *types: Any, solve: Program, consts: int, **programs: Any) -> Any:
        return solver_types(self, types, solve)

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        return run(params["solve"], values)

    def run_eagerly(self, values: Values, params: Params) -> Any:
        return [materialize(y) for y in evaluate(params["solve"], values)]

    def lower(self, ctx: Any, *operands: Any, solve: Program, **rest: Any) -> Any:
        return ctx.call(solve, operands)

    def cost(self, in_types: Any, out_types: Any, *, solve: Program, **rest: Any) -> Cost:
        return jit.cost(in_types, out_types, program=solve)

    def has_effects(self, params: dict[str, Any]) -> bool:
        return jit.has_effects({"program": params["solve"]})


class LinearSolve(Solver):
    """Solve a linear equation by `solve`, differentiate it implicitly."""

    name = "custom_linear_solve"

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        n = params["consts"]
        fixed, b = primals[:n], primals[n:]
        outs = t.bind_primal(self, primals, params)
        x = outs[: len(b)]
        moved = tangents_of(t, params["matvec"], [*fixed, *x], [*tangents[:n], *[None] * len(x)])  # dA x
        rhs = [sum_of(db, None if y is None else neg(y)) for db, y in zip(tangents[n:], moved, strict=True)]
        if all(y is None for y in rhs):
            return outs, [None] * len(outs)
        dx = self(*fixed, *with_zeros(rhs, params["matvec"].out_types), **params)
        return outs, [*dx[: len(b)], *[None] * (len(outs) - len(b))]

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        n = params["consts"]
        k = len(args) - n
        if any(isinstance(x, LinearInput) for x in args[:n]) or any(c is not None for c in ct[k:]):
            raise errors.NotLinear(
                "custom_linear_solve is linear only in b and x, not in values that its functions "
                f"close over or in their aux, at\n    {describe(_source())}\n"
                "For the derivative at a point use vjp, or linearize the function first."
            )
        if params["transpose_solve"] is None:
            raise errors.MissingArgument(
                "reverse mode through custom_linear_solve solves the transposed equation, which "
                f"needs transpose_solve, at\n    {describe(_source())}\n"
                "Pass transpose_solve=(vecmat, b) -> x, or symmetric=True if the linear map is its "
                "own transpose."
            )
        found = self(
            *args[:n],
            *with_zeros(ct[:k], params["matvec"].in_types[n:]),
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


# --- what both share ------------------------------------------------------------------------------


def solver_types(primitive: Primitive, types: Sequence[Any], solve: Program) -> Any:
    """Return the result types of a solver; raise if it does not accept the operand types."""
    wanted = solve.in_types
    if len(types) != len(wanted) or not all(t.same(want) for t, want in zip(types, wanted, strict=True)):
        raise primitive.mismatch(types, f"the solver takes ({', '.join(map(str, wanted))})")
    return solve.out_types


def tangents_of(t: Any, program: Program, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Return the tangents of a program's results under the running jvp or linearize."""
    if all(dx is None for dx in tangents):
        return [None] * len(program.outputs)
    with standing(t):
        outs = evaluate(program, [t.pair(x, dx) for x, dx in zip(primals, tangents, strict=True)])
    return [t.parts(y)[1] for y in outs]


def with_zeros(tangents: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Replace None by zeros of the given types."""
    return [literal(0, t) if x is None else x for x, t in zip(tangents, types, strict=True)]


def _source() -> Any:
    return derived_here()[0]


# --- roots ----------------------------------------------------------------------------------------
#
#     custom_root[f, solve, tangent_solve, consts=n]
#         *consts(n) *guess -> *x *aux        where f(*consts, *x) == 0
#
#     f             : (consts, x) -> a value of the type of x
#     solve         : (consts, guess) -> (x, aux)
#     tangent_solve : (consts, x, y) -> dx with (df/dx)(consts, x) dx == y
#
# The programs have no constants: values that the functions close over are operands.
#
#     f(m, x(m)) = 0      df/dm dm + df/dx dx = 0      dx = -tangent_solve(df/dm dm)


class Root(Solver):
    """Find a root by `solve`, differentiate it by the implicit function theorem."""

    name = "custom_root"

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
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
