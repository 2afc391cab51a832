"""Functions with a custom vmap rule.

    custom_vmap_call[program, rule]  captured, args -> results

`rule(axis_size, in_batched, args) -> (outs, out_batched)` takes and returns flat lists; batched
operands and results have the batch axis at 0. Forward mode differentiates the rule along with the
function, so `vmap` of the derivative is the derivative of the rule. Reverse mode, which JAX does
not support, differentiates the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans import errors
from functrans.ir.program import Program
from functrans.ir.source import describe, user_source
from functrans.primitives.base import Cost, Primitive
from functrans.primitives.calls.jit import Jit, jit
from functrans.primitives.shape.moving import broadcast_to_axis
from functrans.trace import literal, state, tracing, typeof

Flat = Sequence[Any]


class BatchRule:
    """A `def_vmap` rule as a function of flat lists."""

    __slots__ = ("__weakref__", "function", "name")

    def __init__(self, function: Callable[[int, Flat, Flat], tuple[Flat, Flat]], name: str):
        self.function: Callable[[int, Flat, Flat], tuple[Flat, Flat]] = function
        self.name: str = name

    def __repr__(self) -> str:
        return f"vmap rule of {self.name}"

    def jvp(self, t: Any, active: tuple[bool, ...], out_active: tuple[bool, ...]) -> BatchRule:
        """Return the rule of `primals, tangents of active -> outs, tangents of active outs`."""
        n = len(active)
        which = [i for i, a in enumerate(active) if a]

        def function(size: int, batched: Flat, args: Flat) -> tuple[Flat, Flat]:
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

            def call(*values: Any) -> Flat:
                outs, out_batched = self.function(size, primal_batched, values)
                mask.extend(out_batched)
                return outs

            outs, found = _dual(t, call, primals, tangents)
            moved = [
                literal(0, typeof(y)) if dy is None else dy
                for y, dy, a in zip(outs, found, out_active, strict=True)
                if a
            ]
            return [*outs, *moved], [*mask, *[b for b, a in zip(mask, out_active, strict=True) if a]]

        return BatchRule(function, self.name)


def _dual(t: Any, function: Callable[..., Flat], primals: Flat, tangents: Flat) -> tuple[Any, ...]:
    """Run a function on dual numbers in the current trace, under a new transformation of the class
    of `t`."""
    trace = t.__class__(state.trace)
    duals = [trace.pair(x, dx) for x, dx in zip(primals, tangents, strict=True)]
    with tracing(trace):
        outs = function(*duals)
    own = [getattr(y, "owner", None) is trace for y in outs]
    return (
        [y.ref if mine else y for y, mine in zip(outs, own, strict=True)],
        [y.tangent if mine else None for y, mine in zip(outs, own, strict=True)],
    )


class CustomVmap(Jit):
    """Run `program`; batch by `rule`, a BatchRule."""

    name = "custom_vmap_call"
    reached: Callable[..., Sequence[bool]] = Primitive.reached  # its rule computes all results

    def abstract_eval(self, *types: Any, program: Program, rule: Any, n_consts: int = 0) -> Any:
        return super().abstract_eval(*types, program=program)

    def lower(self, ctx: Any, *operands: Any, program: Program, **_: Any) -> Any:
        return ctx.call(program, operands)

    def cost(self, in_types: Any, out_types: Any, *, program: Program, **_: Any) -> Cost:
        return super().cost(in_types, out_types, program=program)

    def differentiate(self, t: Any, primals: Flat, tangents: Flat, params: dict[str, Any]) -> tuple[Any, Any]:
        program, n = params["program"], params.get("n_consts", 0)
        if t.linear is not None:
            return jit.differentiate(t, primals, tangents, {"program": program})
        active = tuple([dx is not None for dx in tangents])
        both, out_active = t.jvp(program, active)
        if any(active[:n]):  # the rule does not handle captured values
            return jit.differentiate(t, primals, tangents, {"program": program})
        rule = params["rule"].jvp(t, active[n:], out_active)
        given = [dx for dx in tangents if dx is not None]
        results = self(*primals, *given, program=both, rule=rule, n_consts=n)
        outs, moving = results[: len(out_active)], iter(results[len(out_active) :])
        return outs, [next(moving) if a else None for a in out_active]

    def transpose_with(self, t: Any, ct: Flat, args: Flat, params: dict[str, Any]) -> Sequence[Any]:
        return jit.transpose_with(t, ct, args, {"program": params["program"]})

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        n, rule = params.get("n_consts", 0), params["rule"]
        if any(d is not None for d in dims[:n]):
            raise errors.ClosedOverTracer(
                f"{rule.name} closes over a value that vmap batches, but its vmap rule covers only "
                f"its arguments, at\n    {describe(user_source())}\n"
                "Pass the value as an argument."
            )
        moved = [t.move(x, d, 0) for x, d in zip(args[n:], dims[n:], strict=True)]
        outs, batched = rule.function(t.size, [d is not None for d in dims[n:]], moved)
        self._check(outs, batched, t.size, params)
        return list(outs), [0 if b else None for b in batched]

    def _check(self, outs: Flat, batched: Flat, size: int, params: dict[str, Any]) -> None:
        for y, b, one in zip(outs, batched, params["program"].out_types, strict=True):
            wanted = one.update(shape=(size, *one.shape)) if b else one
            if not typeof(y).same(wanted):
                raise errors.BatchRuleMismatch(
                    f"the {params['rule']} returned {typeof(y)}, which it says is "
                    f"{'batched' if b else 'not batched'}; for a result {one} of the function it "
                    f"must return {wanted}, at\n    {describe(user_source())}"
                )


custom_vmap_call: CustomVmap = CustomVmap()
