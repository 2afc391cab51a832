"""Operations of JAX that have no counterpart in functrans.

    jax_call   operands -> results of one equation of JAX that has no counterpart here

Its parameter `body` (interop/jaxprs/opaque.py) is that equation, with JAX's own rules. The program
that a JAX rule returns is imported as any jaxpr is, and bound in the current trace with the call as
origin. Operations in it without a counterpart become such calls again. A body has

    name, types, out_types   of JAX's primitive, its operands and results
    moving                   the positions of its inexact results
    fun, compiled            a JAX function of its operands; the same, for concrete arrays
    calls, axes, mesh        its effects and Python calls; the mapped axes it names; its devices
    listing(), repr          JAX's text of it; its name, and a digest of that text
    lowered()                the program of the function that JAX lowers in its place, or None
    parts()                  the programs of ours that a `shard_map` runs on each device
    whole()                  for tools: the program of whole arrays that a `shard_map` computes, or None
    pushed, linearized, transposed, batched   its rules: programs of ours, with their constants
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from functrans.ir.program import Equation, Literal, Origin
from functrans.ir.text import object_shown, show_object
from functrans.ir.types import ArrayType, is_key_dtype, same_types
from functrans.primitives.base import HigherOrderPrimitive, LinearInput, Params, Values, is_zero
from functrans.primitives.calls.callback import Calls, on_host
from functrans.trace import bind_in, derive_from, derived_here, state


class JaxCall(HigherOrderPrimitive):
    """One equation of JAX, with JAX's rules."""

    # It holds a JAX equation, not a Program: nothing is cached per signature.
    name = "jax_call"
    runs_eagerly = True
    counted = False

    def abstract_eval(self, *types: ArrayType, body: Any) -> Any:
        if not same_types(types, body.types):
            wanted = ", ".join(map(str, body.types))
            raise self.mismatch(types, f"JAX's {body.name} was traced for ({wanted})")
        return body.out_types

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        program = params["body"].whole()
        if program is not None:
            return run(program, values)
        with on_host():
            outs = params["body"].compiled(*values)
        return [y if is_key_dtype(y.dtype) else np.asarray(y) for y in outs]

    def run_eagerly(self, values: Values, params: Params) -> Any:
        body = params["body"]
        try:
            return list(body.compiled(*values))
        except (NotImplementedError, ValueError):  # no lowering, but an implementation: `checkify.check`
            return list(body.fun(*values))

    def lower(self, ctx: Any, *operands: Any, body: Any) -> Any:
        return ctx.via_jax(body.fun, *operands)

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        body = params["body"]
        n = len(body.out_types)
        if not body.moving:
            return t.bind_primal(self, primals, params), [None] * n
        active = tuple([dx is not None for dx in tangents])
        given = [dx for dx in tangents if dx is not None]
        source, origin = derived_here()
        derive_from(source, Origin("jvp of", Equation(self, (), (), params, source, origin)))
        if t.linear is None:
            found = _bound(state.trace, body.pushed(active), [*primals, *given])
            outs, moved = found[:n], found[n:]
        else:
            forward, push = body.linearized(active)
            found = _bound(t.parent, forward, primals)
            outs, residuals = found[:n], found[n:]
            moved = _bound(t.rules_in, push, [*residuals, *given])
        return outs, at_places(moved, body.moving, n)

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        body = params["body"]
        linear = tuple([isinstance(x, LinearInput) for x in args])
        values = [x for x in args if not isinstance(x, LinearInput)]
        found = _bound(state.trace, body.transposed(linear), [*values, *body.cotangents(ct)])
        return at_places(found, [i for i, lin in enumerate(linear) if lin], len(args))

    def batch(self, t: Any, args: Any, dims: Any, *, body: Any) -> Any:
        batched, axes = body.batched(t, tuple(dims))
        return _bound(state.trace, batched, args), axes

    def calls(self, params: dict[str, Any]) -> Calls:
        return params["body"].calls

    def called(self, params: dict[str, Any]) -> str:
        return f"JAX's {params['body'].name}"

    def has_effects(self, params: dict[str, Any]) -> bool:
        return bool(params["body"].calls.effects)

    def named_axes(self, params: dict[str, Any]) -> Container[Any]:
        return params["body"].axes

    def listing(self, params: dict[str, Any]) -> list[str]:
        return params["body"].listing().splitlines()

    def numpy_source(self, w: Any, *xs: Any, body: Any) -> Any:
        found = body.lowered() or body.whole()
        if found is None:
            raise w.unwritable()
        return w.call(found, xs)

    # --- text

    def short_params(self, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        rest = dict(params)
        return show_object(rest.pop("body"))[1:-1], rest

    def read_params(self, short: str) -> dict[str, Any]:
        body = object_shown(f"<{short}>")
        if body is None:
            raise ValueError(
                f"{short!r} is unknown here: it stands for an equation of JAX's, which text cannot "
                "hold: it can be read back only in the process that wrote it, while that program "
                "exists. Make the program again from the function"
            )
        return {"body": body}


def _bound(trace: Any, imported: Any, values: Sequence[Any]) -> list[Any]:
    """Bind an imported program's equations in a trace, with the current source line and origin."""
    program = imported.program
    env: dict[Any, Any] = dict(zip(program.inputs, [*imported.consts, *values], strict=True))
    for e in program.equations:
        given = [v if v.__class__ is Literal else env[v] for v in e.inputs]
        outs = bind_in(trace, e.primitive, given, e.params)
        env.update(zip(e.outputs, outs if e.primitive.multiple_results else [outs], strict=True))
    return [v if v.__class__ is Literal else env[v] for v in program.outputs]


def at_places(values: Sequence[Any], places: Sequence[int], n: int) -> list[Any]:
    """Return a list of n with these values at these places, and None elsewhere and for zeros."""
    made: list[Any] = [None] * n
    for i, x in zip(places, values, strict=True):
        made[i] = None if is_zero(x) else x
    return made


jax_call: JaxCall = JaxCall()
