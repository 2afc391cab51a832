"""Functions with custom derivative rules, and with custom vmap rules.

    custom_jvp_call[program, rule]   captured, args -> results
    custom_vjp_call[program, rule]   captured, args -> results
    custom_lin[pullback, active]     residuals, tangents of active args -> tangents of results
    custom_vmap_call[program, rule]  captured, args -> results

With a derivative rule, `program` is a Python function of flat values until a trace records the
equation. Without `jit` it simply runs, and when differentiated its rule runs instead. When the
equation is recorded the function becomes a Program, with the `n_consts` values that it closes over as
leading operands. The rule stays Python (tracing.py) and runs when the program is differentiated.

`custom_lin` is the derivative of a custom_vjp function. Its transpose is the user's bwd rule. In
forward mode it is the transpose of the bwd rule, which is linear in the cotangent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import compress
from typing import Any

from functrans import errors, runtime
from functrans.caching import memo
from functrans.ir.program import Equation, Origin, Program, Var, hoist_constants
from functrans.ir.source import here
from functrans.ir.types import ArrayType, is_inexact
from functrans.primitives.base import LinearInput, Params, Primitive, Values
from functrans.primitives.calls.captured import closed, stage_with
from functrans.primitives.calls.jit import Expanded, Jit, jit
from functrans.primitives.custom.tracing import Pullback, check_not_moving, staged_call
from functrans.primitives.dependence import or_zeros, spread
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.shape.moving import broadcast_to_axis
from functrans.trace import (
    AnyTracer,
    Recording,
    bind,
    bind_in,
    derive_from,
    derived_here,
    evaluate,
    literal,
    state,
    typeof,
)

# whether a rule is staged, for the values that it closes over; it may call its own function
_closing: ContextVar[bool] = ContextVar("closing", default=False)


class RuleCall(Jit):
    """Base class of calls of `program` with a custom rule."""

    reached: Callable[..., Sequence[bool]] = Primitive.reached  # its rule computes all results
    part: Callable[..., Equation] = Primitive.part
    push: Any = None

    def abstract_eval(self, *types: Any, program: Program, rule: Any, n_consts: int = 0) -> Any:
        return super().abstract_eval(*types, program=program)

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        return jit.transpose_with(t, ct, args, {"program": params["program"]})


class CustomCall(RuleCall):
    """Base class of calls of `program` with a custom derivative rule."""

    runs_eagerly = holds_functions = True

    def run_eagerly(self, values: Values, params: Params) -> Any:
        program = params["program"]
        if program.__class__ is Program:
            return evaluate(program, values)
        return program(*values)

    def record(self, trace: Any, own: bool, args: Values, params: Params) -> Any:
        """Trace the function to a Program and bind with it. If no operand is a vmap's tracer the
        function may still run as Python, unless it closes over one."""
        if not own and getattr(trace, "axis_name", None) is None:
            try:
                return bind_in(trace.parent, self, args, params)
            except errors.LeakedTracer as error:
                if error.owner is not trace:
                    raise
        rule, operands = params["rule"], args
        program, captured = staged_call(params["program"], args, rule.name)
        n = len(captured)
        closes = not _closing.get() and any([isinstance(x, AnyTracer) for x in captured])
        if closes and is_differentiated(trace):
            # so does its rule, which runs when these tracers are no longer valid
            outside = _closing.set(True)
            try:
                rule, found = rule.closed(program.in_types[n:])
            finally:
                _closing.reset(outside)
            unread = [Var(typeof(x)) for x in found]
            program = program.replace(inputs=[*program.inputs[:n], *unread, *program.inputs[n:]])
            operands = [*found, *args]
        return bind(self, [*captured, *operands], {**params, "program": program, "rule": rule, "n_consts": n})

    def given(self, primals: Values, tangents: Values, params: Params) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the operands that the rule takes, and their tangents."""
        n = params.get("n_consts", 0)
        check_not_moving(tangents[:n], params["rule"].name)
        return primals[n:], tangents[n:]

    def conform(self, outs: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Convert the results of a rule to the types of the function's results."""
        program = params["program"]
        if program.__class__ is not Program:
            return list(outs)
        types = tuple([typeof(y) for y in outs])
        wanted = program.out_types
        if len(types) != len(wanted) or not all(t.same(w) for t, w in zip(types, wanted, strict=True)):
            raise errors.RuleMismatch(
                f"the {params['rule']} returned ({', '.join(map(str, types))}), but the function "
                f"itself returns ({', '.join(map(str, wanted))}), {here()}\n"
                "The first output of the rule must be what the "
                "function returns."
            )
        return [as_type(y, w) for y, w in zip(outs, wanted, strict=True)]

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        n, program = params.get("n_consts", 0), params["program"]
        args = [t.move(x, d, 0) for x, d in zip(args, dims, strict=True)]
        front = tuple([None if d is None else 0 for d in dims])
        batched, out_dims = t.program(program, front, (True,) * len(program.outputs))
        rule = params["rule"].batched(t, program.in_types[n:], front[n:])
        return bind(self, args, {**params, "program": batched, "rule": rule}), list(out_dims)

    def differentiated(self, params: dict[str, Any]) -> None:
        """Set the origin of the equations that follow to this call, which no program contains."""
        source, origin = derived_here()
        call = Equation(self, (), (), {}, source, origin)
        derive_from(source, Origin("jvp of", call))


class CustomJVP(CustomCall):
    """Run `program`; differentiate by `rule`, a JvpRule."""

    name = "custom_jvp_call"

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        primals, tangents = self.given(primals, tangents, params)
        self.differentiated(params)
        outs, moved = params["rule"].run(t, primals, tangents)
        return self.conform(outs, params), moved


class CustomVJP(CustomCall):
    """Run `program`; differentiate by `rule`, a VjpRule."""

    name = "custom_vjp_call"

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        primals, tangents = self.given(primals, tangents, params)
        active = tuple([dx is not None for dx in tangents])
        outs, residuals, pullback = params["rule"].run(t.parent, primals, active)
        outs = self.conform(outs, params)
        given = [dx for dx in tangents if dx is not None]
        self.differentiated(params)
        how = {"pullback": pullback, "active": active}
        moved = bind_in(t.rules_in, custom_lin, [*residuals, *given], how)
        return outs, spread(moved, [is_inexact(typeof(y).dtype) for y in outs])

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        rule, n = params["rule"], params.get("n_consts", 0)
        if not rule.linear:
            return super().transpose_with(t, ct, args, params)
        moving = tuple([x.__class__ is LinearInput for x in args[n:]])
        primals = [literal(0, x.type) if a else x for x, a in zip(args[n:], moving, strict=True)]
        _, residuals, pullback = rule.run(state.trace, primals, moving)
        return [*[None] * n, *pullback.run(residuals, ct)]


class CustomLin(Expanded):
    """The derivative of a custom_vjp function."""

    name: str = "custom_lin"
    runs_eagerly: bool = True

    def abstract_eval(self, *types: Any, pullback: Pullback, active: tuple[bool, ...]) -> Any:
        return tuple([t for t in pullback.out_types if is_inexact(t.dtype)])

    def expansion(self, types: Sequence[ArrayType], params: Params) -> Program:
        """Return the transpose of the bwd rule: `residuals, tangents of active -> out tangents`."""
        pullback, active = params["pullback"], params["active"]
        residuals = tuple(types[: len(types) - sum(active)])
        return memo(pullback, forwards, residuals, active)

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        pullback, active = params["pullback"], params["active"]
        n = len(primals) - sum(active)
        if any(dx is not None for dx in tangents[:n]):
            return super().differentiate(t, primals, tangents, params)
        outs = t.bind_primal(self, primals, params)
        moving = tuple([dx is not None for dx in spread(tangents[n:], active)])
        given = [dx for dx in tangents[n:] if dx is not None]
        return outs, self(*primals[:n], *given, pullback=pullback, active=moving)

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        pullback, active = params["pullback"], params["active"]
        n = len(args) - sum(active)
        cts = spread(ct, [is_inexact(y.dtype) for y in pullback.out_types])
        found = pullback.run(args[:n], cts)
        return [*[None] * n, *[c for c, a in zip(found, active, strict=True) if a]]

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        pullback, active = params["pullback"], params["active"]
        n = len(args) - sum(active)
        types = tuple([typeof(x).without_axis(d) for x, d in zip(args[:n], dims, strict=False)])
        moved = [t.move(x, d, 0) for x, d in zip(args[n:], dims[n:], strict=True)]
        places = spread([None if d is None else 0 for d in dims[n:]], active)
        batched = pullback.batched(t, types, dims[:n], places)
        outs = self(*args[:n], *moved, pullback=batched, active=active)
        return outs, [0] * len(outs)

    def transposes_zeros(self, params: dict[str, Any]) -> bool:
        return True  # its bwd rule may return more than multiples of the cotangents


def forwards(pullback: Pullback, types: tuple[ArrayType, ...], active: tuple[bool, ...]) -> Program:
    """Return the transposed bwd rule: `residuals, tangents of active -> tangents of results`."""
    n = len(types)
    given = tuple([is_inexact(t.dtype) for t in pullback.out_types])
    back, found = pullback.staged(types, pullback.out_types, given)
    back, captured = hoist_constants(back)
    linear = (False,) * (len(captured) + n) + (True,) * sum(given)
    wanted = tuple([a for a, f in zip(active, found, strict=True) if f])
    try:
        pushed = runtime.transpose_program(back, linear, wanted)
    except errors.NotLinear as error:
        raise errors.NotLinear(
            f"forward mode through the custom_vjp function {pullback.name} transposes its bwd "
            f"rule, but that is not linear in the cotangent: {error}"
        ) from None
    k, rest = len(captured), iter(pushed.inputs[len(captured) + n :])
    moving = compress(zip(pullback.in_types, found, strict=True), active)
    tangents = [next(rest) if used else Var(t) for t, used in moving]
    inputs, constants = [*pushed.inputs[k : k + n], *tangents], pushed.inputs[:k]
    return closed(pushed.replace(inputs=inputs, constants=constants, values=captured, name=pullback.name))


def is_differentiated(trace: Any) -> bool:
    """Return whether a trace is inside of one that differentiates."""
    while trace is not None and isinstance(trace, Recording):
        trace = trace.parent
    return trace is not None


def as_type(x: Any, t: ArrayType) -> Any:
    """Convert x, which may differ from the type in the weak-type flag only."""
    if typeof(x).weak_type == t.weak_type:
        return x
    return convert_element_type(x, dtype=t.dtype, weak_type=t.weak_type)


custom_jvp_call: CustomJVP = CustomJVP()
custom_vjp_call: CustomVJP = CustomVJP()
custom_lin: CustomLin = CustomLin()


# --- vmap rules -----------------------------------------------------------------------------------
#
# `rule(axis_size, in_batched, args) -> (outs, out_batched)` takes and returns flat lists; batched
# operands and results have the batch axis at 0. Forward mode differentiates the rule along with the
# function, so `vmap` of the derivative is the derivative of the rule. Reverse mode, which JAX does
# not support, differentiates the function itself.


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class BatchRule:
    """A `def_vmap` rule as a function of flat lists. Of a derivative, `active` says which primals have
    a tangent among the operands."""

    function: Callable[[int, Values, Values], tuple[Values, Values]]
    name: str
    active: Sequence[bool] = ()

    def unpaired(self, batched: Sequence[bool]) -> bool:
        """Return whether of each batched primal and its tangent only one is batched."""
        n = len(self.active)
        tangents = spread(batched[n:], self.active)
        return n > 0 and not any(b and t is not False for b, t in zip(batched[:n], tangents, strict=True))

    def __repr__(self) -> str:
        return f"vmap rule of {self.name}"

    def jvp(self, t: Any, active: tuple[bool, ...], out_active: tuple[bool, ...]) -> BatchRule:
        """Return the rule of `primals, tangents of active -> outs, tangents of active outs`."""
        n = len(active)
        which = [i for i, a in enumerate(active) if a]

        def function(size: int, batched: Values, args: Values) -> tuple[Values, Values]:
            primals, primal_batched = list(args[:n]), list(batched[:n])
            tangents: list[Any] = [None] * n
            for i, dx, b in zip(which, args[n:], batched[n:], strict=True):
                # a primal and its tangent must be both batched or both unbatched
                if primal_batched[i] and not b:
                    dx = broadcast_to_axis(dx, 0, size)
                elif b and not primal_batched[i]:
                    primals[i], primal_batched[i] = broadcast_to_axis(primals[i], 0, size), True
                tangents[i] = dx
            mask: list[Any] = []

            def call(*values: Any) -> Values:
                outs, out_batched = self.function(size, primal_batched, values)
                mask.extend(out_batched)
                return outs

            outs, found = t.run_dual(call, primals, tangents)
            moved = or_zeros(compress(found, out_active), map(typeof, compress(outs, out_active)))
            return [*outs, *moved], [*mask, *compress(mask, out_active)]

        return BatchRule(function, self.name, active)


class CustomVmap(RuleCall):
    """Run `program`; batch by `rule`, a BatchRule."""

    name = "custom_vmap_call"

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        program, n = params["program"], params.get("n_consts", 0)
        active = tuple([dx is not None for dx in tangents])
        if t.linear is not None or any(active[:n]):  # the rule does not handle captured values
            return jit.differentiate(t, primals, tangents, {"program": program})
        both, patterns = t.pushed(program, tuple([(a,) for a in active]))
        out_active = tuple([a for (a,) in patterns])
        rule = params["rule"].jvp(t, active[n:], out_active)
        given = [dx for dx in tangents if dx is not None]
        results = self(*primals, *given, program=both, rule=rule, n_consts=n)
        return results[: len(out_active)], spread(results[len(out_active) :], out_active)

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        n, rule = params.get("n_consts", 0), params["rule"]
        if any(d is not None for d in dims[:n]):
            raise errors.ClosedOverTracer(
                f"{rule.name} closes over a value that vmap batches, but its vmap rule covers only "
                f"its arguments, {here()}\n"
                "Pass the value as an argument."
            )
        given = [d is not None for d in dims[n:]]
        if rule.unpaired(given):  # as in JAX, the rule sees operands without a batch axis
            types = [typeof(x).without_axis(d) for x, d in zip(args[n:], dims[n:], strict=True)]
            fixed = (False,) * len(types)
            program, mask = stage_with(lambda *xs: rule.function(t.size, fixed, xs), types, rule.name)
            if not any(mask):
                return t.run(program, args[n:], dims[n:])
        moved = [t.move(x, d, 0) for x, d in zip(args[n:], dims[n:], strict=True)]
        outs, batched = rule.function(t.size, given, moved)
        self._check(outs, batched, t.size, params)
        return list(outs), [0 if b else None for b in batched]

    def _check(self, outs: Values, batched: Values, size: int, params: dict[str, Any]) -> None:
        for y, b, one in zip(outs, batched, params["program"].out_types, strict=True):
            wanted = one.update(shape=(size, *one.shape)) if b else one
            if not typeof(y).same(wanted):
                raise errors.BatchRuleMismatch(
                    f"the {params['rule']} returned {typeof(y)}, which it says is "
                    f"{'batched' if b else 'not batched'}; for a result {one} of the function it "
                    f"must return {wanted}, {here()}"
                )


custom_vmap_call: CustomVmap = CustomVmap()
