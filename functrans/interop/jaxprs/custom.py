"""Functions with custom rules.

The form in which JAX's equation holds these rules changes between versions, so the rules are
obtained by running JAX's own transformations (equation.py), and become rules of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans.interop.jaxprs.equation import Imported, OneEquation, at_places, traced
from functrans.interop.jaxprs.walk import (
    abstract,
    constants_of,
    exactly,
    means,
    read_literal,
    run,
    type_of_aval,
)
from functrans.ir.program import Program, hoist_constants
from functrans.ir.types import ArrayType, is_inexact
from functrans.primitives.custom.calls import (
    BatchRule,
    custom_jvp_call,
    custom_lin,
    custom_vjp_call,
    custom_vmap_call,
)
from functrans.primitives.custom.tracing import JvpRule, Pullback, VjpRule
from functrans.trace import bind, literal, materialize, stage, typeof

Flat = Sequence[Any]


class Call(OneEquation):
    """An equation that calls a function with a custom rule; `closed` is the function's jaxpr."""

    def __init__(self, eqn: Any, closed: Any):
        known = closed.jaxpr.debug_info
        super().__init__(eqn, known.func_name or eqn.primitive.name, known)
        self.closed = closed

    def bind(self, primitive: Any, values: Flat, rule: Any) -> list[Any]:
        """Bind our operation for the equation, and return its results."""
        program, consts = self.program()
        params: dict[str, Any] = {"program": program, "rule": rule}
        if consts:
            params["n_consts"] = len(consts)
        return self.results(bind(primitive, [*consts, *self.operands(values)], params))

    def program(self) -> tuple[Program, tuple[Any, ...]]:
        """Return the function's program, with its constants as first inputs, and them."""
        consts = constants_of(self.closed)
        n = len(consts)

        def body(*values: Any) -> list[Any]:
            env = dict(zip(self.inputs, values[n:], strict=True))
            args = [read_literal(v) if hasattr(v, "val") else env[v] for v in self.atoms]
            outs = dict(zip(self.all_outputs, run(self.closed.jaxpr, values[:n], args), strict=True))
            return exactly([outs[v] for v in self.outputs], [v.aval for v in self.outputs])

        types = [*map(typeof, consts), *self.types]
        made, captured = hoist_constants(stage(body, types, self.name))
        return made, (*captured, *consts)

    # --- rules

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
        """Return the jvp rule of a JvpRule."""
        active = tuple([dx is not None for dx in tangents])
        rule = self.known(("jvp", active), lambda: Imported(*traced(*self.pushing(active)), self.name))
        found = rule([*primals, *[dx for dx in tangents if dx is not None]])
        outs, moved = found[: len(self.outputs)], found[len(self.outputs) :]
        return outs, at_places(moved, self.moving, len(outs))

    def vjp(self, primals: Flat, active: tuple[bool, ...]) -> tuple[Flat, Flat, Pullback]:
        """Return the vjp rule of a VjpRule."""

        def forward(*values: Any) -> Any:
            given = [x for x, a in zip(values, active, strict=True) if a]
            return jax.vjp(self.of_some(active, values), *given)

        rule = self.known(("vjp", active), lambda: Imported(*traced(forward, self.types), self.name))
        found = [materialize(x) for x in rule(primals)]
        n = len(self.outputs)
        pullback_tree = rule.out_tree.children()[1]

        def backward(*values: Any) -> Any:
            pull = jax.tree.unflatten(pullback_tree, values[: len(rule.types) - n])
            return pull(self.cotangents(values[len(rule.types) - n :]))

        pulled = self.pulled(("pull", active), backward, rule.types[n:], active)
        return found[:n], found[n:], Pullback(pulled, self.types, self.out_types, self.name)

    def cotangents(self, moving: Flat) -> list[Any]:
        """Return the cotangents of all results; JAX expects float0 for integers."""
        rest = iter(moving)
        return [
            next(rest) if is_inexact(t.dtype) else np.zeros(t.shape, jax.dtypes.float0)
            for t in self.out_types
        ]

    def pulled(
        self, key: Any, backward: Any, residuals: Sequence[ArrayType], active: Sequence[bool]
    ) -> Callable[[Flat, Flat], Flat]:
        """Return our bwd rule for JAX's, which returns cotangents of the active operands."""
        moving = [self.out_types[i] for i in self.moving]
        places = [i for i, a in enumerate(active) if a]

        def pull(values: Flat, cts: Flat) -> Flat:
            rule = self.known(key, lambda: Imported(*traced(backward, [*residuals, *moving]), self.name))
            given = [literal(0, self.out_types[i]) if cts[i] is None else cts[i] for i in self.moving]
            return at_places(rule([*values, *given]), places, len(active))

        return pull

    def batched(self, size: int, in_batched: Flat, args: Flat) -> tuple[Flat, Flat]:
        """Return the vmap rule of a BatchRule."""
        axes = tuple([0 if b else None for b in in_batched])
        types = [
            t.update(shape=(size, *t.shape)) if b else t for t, b in zip(self.types, in_batched, strict=True)
        ]

        def mapped(*values: Any) -> Any:
            return jax.vmap(self.fun, in_axes=axes, axis_size=size)(*values)

        rule = self.known(("vmap", size, axes), lambda: Imported(*traced(mapped, types), self.name))
        outs = [materialize(y) for y in rule(args)]
        return outs, [True] * len(outs)


# --- the table ------------------------------------------------------------------------------------


@means("custom_jvp_call")
def _custom_jvp(eqn: Any, *values: Any) -> Any:
    call = Call(eqn, eqn.params["call_jaxpr"])
    return call.bind(custom_jvp_call, values, JvpRule(call.jvp, call.name))


@means("custom_vjp_call", "custom_vjp_call_jaxpr")
def _custom_vjp(eqn: Any, *values: Any) -> Any:
    call = Call(eqn, eqn.params.get("call_jaxpr") or eqn.params["fun_jaxpr"])
    return call.bind(custom_vjp_call, values, VjpRule(call.vjp, call.name))


@means("linear_call")
def _linear_call(eqn: Any, *values: Any) -> Any:
    call = Call(eqn, eqn.params["callee"])
    return call.bind(custom_vjp_call, values, VjpRule(call.vjp, call.name))


@means("custom_vmap_call")
def _custom_vmap(eqn: Any, *values: Any) -> Any:
    call = Call(eqn, eqn.params["call"])
    return call.bind(custom_vmap_call, values, BatchRule(call.batched, call.name))


@means("custom_lin")
def _custom_lin(eqn: Any, *values: Any) -> Any:
    """The derivative of a custom_vjp function, from residuals and tangents: bwd transposed."""
    n, params = eqn.params["num_res"], eqn.params
    types = tuple([typeof(x) for x in values])
    outs = [type_of_aval(v.aval) for v in eqn.outvars]
    moving = [i for i, t in enumerate(outs) if is_inexact(t.dtype)]
    name = params["bwd"].debug_info.func_name or "custom_lin"

    def backward(*given: Any) -> Any:
        def forward(*tangents: Any) -> list[Any]:
            found = eqn.primitive.bind(*given[:n], *tangents, **params)
            return [found[i] for i in moving]

        return jax.linear_transpose(forward, *map(abstract, types[n:]))(list(given[n:]))

    made: list[Imported] = []

    def pull(residuals: Flat, cts: Flat) -> Flat:
        kept = tuple([outs[i] for i in moving])
        if not made:
            made.append(Imported(*traced(backward, [*types[:n], *kept]), name))
        given = [literal(0, t) if c is None else c for c, t in zip(cts, kept, strict=True)]
        return made[0]([*residuals, *given])

    pullback = Pullback(pull, types[n:], tuple([outs[i] for i in moving]), name)
    found = bind(custom_lin, values, {"pullback": pullback, "active": (True,) * len(types[n:])})
    return at_places(found, moving, len(outs))
