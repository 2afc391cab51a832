"""Calls whose intermediate values are recomputed in reverse mode instead of stored
(rematerialization).

    checkpoint[program, policy, prevent_cse] *args -> results
    name[name="x"] x -> x

Linearizing runs the call forward and stores its arguments and the values chosen by the policy. The
linear part is a program of (stored values, arguments, tangents) that recomputes the rest; its
transpose is one of (stored values, arguments, cotangents). A policy is one of JAX's: a function of a
JAX primitive, its operands' types and its parameters. None stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans import runtime
from functrans.caching import memo_as
from functrans.ir.program import Program, Var, prune
from functrans.ir.types import ArrayType
from functrans.primitives.base import LinearInput, Params, Primitive, Values
from functrans.primitives.calls.callback import refuse_io
from functrans.primitives.calls.jit import Jit
from functrans.primitives.dependence import Split, spread, without_zeros
from functrans.primitives.elementwise.selection import optimization_barrier
from functrans.trace import bind, evaluate, stage


class Checkpoint(Jit):
    """Run `program`; recompute its residuals in reverse mode."""

    name = "checkpoint"
    mergeable = False

    def abstract_eval(
        self, *types: Any, program: Program, policy: Any = None, prevent_cse: bool = True
    ) -> Any:
        return super().abstract_eval(*types, program=program)

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        if t.linear is None:
            return t.along(self, primals, tangents, params)
        program, policy = params["program"], params.get("policy")
        active = tuple([dx is not None for dx in tangents])
        n = len(program.outputs)
        part = t.split(program, active)
        forward, linear, reread = memo_as(program, (_kept, active, policy), lambda: _kept(part, n, policy))
        results = t.bind_primal(self, primals, {**params, "program": forward})
        outs = results[:n]
        if not any(part.out_active):
            return outs, [None] * n
        operands = [*results[n:], *[primals[i] for i in reread], *[tangents[i] for i in part.tangents]]
        moved = self(*operands, **{**params, "program": linear})
        return outs, spread(moved, part.out_active)

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        linear = tuple([isinstance(x, LinearInput) for x in args])
        back = t.program(params["program"], linear, tuple([c is not None for c in ct]))
        known = [x for x, lin in zip(args, linear, strict=True) if not lin]
        cts = [c for c in ct if c is not None]
        if params.get("prevent_cse", True):
            # Without the barrier XLA's CSE would reuse the values of the forward pass. The
            # cotangents pass it too, so that recomputation starts only once they are available.
            behind = optimization_barrier(*known, *cts)
            known, cts = behind[: len(known)], behind[len(known) :]
        return spread(without_zeros(self(*known, *cts, **{**params, "program": back}), back), linear)


checkpoint: Checkpoint = Checkpoint()


def _kept(part: Split, n: int, policy: Any) -> tuple[Program, Program, list[int]]:
    """Return args -> outs, stored values; (stored values, args, tangents) -> tangents; and which
    args the second program reads."""
    forward, linear, needed = part.forward, part.linear, part.residuals
    keep = None if policy is None else runtime.jax_policy(policy)
    first, rerun, read = divided(forward, forward.outputs[:n], needed, keep)
    refuse_io([rerun], "a checkpoint that reverse mode runs again")
    fixed = len(rerun.inputs)
    types = (*rerun.in_types, *linear.in_types[len(needed) :])

    def run(*values: Any) -> list[Any]:
        residuals = evaluate(rerun, values[:fixed])
        return evaluate(linear, [*residuals, *values[fixed:]])

    return first, stage(run, types, linear.name), read


def divided(
    forward: Program, outs: Sequence[Any], needed: Sequence[Any], keep: Callable[..., bool] | None
) -> tuple[Program, Program, list[int]]:
    """Return args -> outs, stored values; (stored values, args) -> the needed values; and which
    args the second program reads."""
    allowed = set(forward.inputs)
    settled = set()  # equations not run again; effects happen again unless the policy stores them
    for e in forward.equations:
        if keep is not None and keep(e.primitive, *[v.type for v in e.inputs], **e.params):
            allowed.update(e.outputs)
            settled.add(e)
    # backwards from the needed values to the stored ones
    again, kept = [], []
    wanted = {v for v in needed if v.__class__ is Var}
    for v in needed:
        if v in allowed and v not in forward.inputs and v not in kept:
            kept.append(v)
    for e in reversed(forward.equations):
        made = [v for v in e.outputs if v in wanted and v not in allowed]
        if made or (e.primitive.has_effects(e.params) and e not in settled):
            again.append(e)
            for v in e.inputs:
                if v.__class__ is Var and v not in wanted:
                    wanted.add(v)
                    if v in allowed and v not in forward.inputs:
                        kept.append(v)
    again.reverse()
    first = forward.replace(outputs=(*outs, *kept))
    first.equations = prune(first.equations, first.outputs)
    read = [i for i, v in enumerate(forward.inputs) if v in wanted]
    inputs = [forward.inputs[i] for i in read]
    return first, Program((*kept, *inputs), again, needed, name=forward.name), read


class Name(Primitive):
    """The identity, with a name for checkpoint policies."""

    in_kernel = True
    name: str = "name"
    linear_in: tuple[int, ...] = (0,)

    def abstract_eval(self, x: ArrayType, *, name: str) -> ArrayType:
        return x

    def reference(self, x: Any, *, name: str) -> Any:
        return x

    def lower(self, ctx: Any, x: Any, *, name: str) -> Any:
        return x

    def jvp(self, primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        return tangents[0]

    def transpose(self, ct: Any, x: Any, *, name: str) -> Any:
        return (ct,)

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        return bind(self, args, params), dims[0]


name: Name = Name()
