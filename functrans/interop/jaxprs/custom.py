"""Functions with rules of their own.

JAX's equation of such a function holds its rules in forms that change from version to version. Its
derivative is therefore asked of JAX itself: `jax.jvp`, `jax.vjp` and `jax.vmap` of a function that
is this one equation run the user's rule, and what they give is traced, and imported, when our own
transformation needs the rule. Nothing is traced for a rule that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.config import eager_constant_folding
from jax.extend.core import ClosedJaxpr, DropVar, Jaxpr, jaxpr_as_fun

from functrans.interop.jaxprs.walk import (
    abstract,
    constants_of,
    exactly,
    means,
    read_literal,
    run,
    type_of_aval,
)
from functrans.ir.program import Literal, Program, hoist_constants
from functrans.ir.types import ArrayType, is_inexact
from functrans.primitives.custom import custom_jvp_call, custom_lin, custom_vjp_call
from functrans.primitives.custom_vmap import BatchRule, custom_vmap_call
from functrans.primitives.rules import JvpRule, Pullback, VjpRule
from functrans.trace import (
    bind,
    evaluate,
    full,
    literal,
    materialize,
    stage,
    state,
    tracing,
    typeof,
)

Flat = Sequence[Any]


# --- JAX functions as programs --------------------------------------------------------------------


def traced(fun: Callable[..., Any], types: Sequence[ArrayType]) -> tuple[Any, Any]:
    """JAX's program of a function of flat values, and the structure of its result."""
    trace = jax.make_jaxpr(fun, axis_env=list(state.axes), return_shape=True)
    # jax arrays in there are JAX's alone, and what it fills or counts stays an operation
    with tracing(None), eager_constant_folding(False):
        closed, out = trace(*map(abstract, types))
    return closed, jax.tree.structure(out)


class Imported:
    """A program of JAX's, with the structure of its result, as one of ours."""

    __slots__ = ("consts", "out_tree", "program")

    def __init__(self, closed: Any, out_tree: Any, name: str):
        consts = constants_of(closed)
        n = len(consts)

        def body(*values: Any) -> list[Any]:
            return exactly(run(closed.jaxpr, values[:n], values[n:]), closed.out_avals)

        types = [*map(typeof, consts), *map(type_of_aval, closed.in_avals)]
        self.program, captured = hoist_constants(stage(body, types, name))
        self.consts: tuple[Any, ...] = (*captured, *consts)
        self.out_tree = out_tree

    def __call__(self, values: Flat) -> list[Any]:
        return evaluate(self.program, [*self.consts, *values])

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """Of the results."""
        return self.program.out_types


class Call:
    """One equation, with its rules, as a JAX function `fun` of its operands: each once, and without
    the literals among them."""

    def __init__(self, eqn: Any, closed: Any):
        self.closed = closed
        self.name = closed.jaxpr.debug_info.func_name or eqn.primitive.name
        self.atoms, self.all_outputs = eqn.invars, eqn.outvars
        self.inputs = list(dict.fromkeys([v for v in eqn.invars if not hasattr(v, "val")]))
        dropped = DropVar
        self.outputs = [v for v in eqn.outvars if not isinstance(v, dropped)]
        known = closed.jaxpr.debug_info
        alone = Jaxpr([], self.inputs, self.outputs, [eqn], eqn.effects, debug_info=known)
        self.fun = jaxpr_as_fun(ClosedJaxpr(alone, ()))
        self.types = tuple([type_of_aval(v.aval) for v in self.inputs])
        self.out_types = tuple([type_of_aval(v.aval) for v in self.outputs])
        self.moving = [i for i, t in enumerate(self.out_types) if is_inexact(t.dtype)]
        self.made: dict[Any, Any] = {}

    def bind(self, primitive: Any, values: Flat, rule: Any) -> list[Any]:
        """Our operation for the equation; the results that nobody reads are zeros."""
        env = {v: x for v, x in zip(self.atoms, values, strict=True) if not hasattr(v, "val")}
        program, consts = self.program()
        params: dict[str, Any] = {"program": program, "rule": rule}
        if consts:
            params["n_consts"] = len(consts)
        found = bind(primitive, [*consts, *[env[v] for v in self.inputs]], params)
        outs = iter(found)
        used = set(self.outputs)
        return [
            next(outs) if v in used else full(0, type_of_aval(v.aval)) for v in self.all_outputs
        ]

    def program(self) -> tuple[Program, tuple[Any, ...]]:
        """What it computes, with its constants as first inputs; and these."""
        consts = constants_of(self.closed)
        n = len(consts)

        def body(*values: Any) -> list[Any]:
            env = dict(zip(self.inputs, values[n:], strict=True))
            args = [read_literal(v) if hasattr(v, "val") else env[v] for v in self.atoms]
            outs = dict(
                zip(self.all_outputs, run(self.closed.jaxpr, values[:n], args), strict=True)
            )
            return exactly([outs[v] for v in self.outputs], [v.aval for v in self.outputs])

        types = [*map(typeof, consts), *self.types]
        made, captured = hoist_constants(stage(body, types, self.name))
        return made, (*captured, *consts)

    def known(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` makes, once for a key and the named axes in scope."""
        key = (*key, state.axes)
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def of_some(self, active: Sequence[bool], primals: Flat) -> Callable[..., Any]:
        """The function of its active operands alone."""

        def fun(*moving: Any) -> Any:
            rest = iter(moving)
            return self.fun(*[
                next(rest) if a else x for a, x in zip(active, primals, strict=True)
            ])  # fmt: skip

        return fun

    # --- rules

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
        """The rule of a JvpRule."""
        active = tuple([dx is not None for dx in tangents])
        n = len(primals)

        def pushed(*values: Any) -> Any:
            given = [x for x, a in zip(values, active, strict=False) if a]
            outs, moved = jax.jvp(self.of_some(active, values[:n]), given, list(values[n:]))
            return outs, [moved[i] for i in self.moving]

        types = [*self.types, *only(self.types, active)]
        rule = self.known(("jvp", active), lambda: Imported(*traced(pushed, types), self.name))
        found = rule([*primals, *[dx for dx in tangents if dx is not None]])
        outs, moved = found[: len(self.outputs)], found[len(self.outputs) :]
        return outs, at_places(moved, self.moving, len(outs))

    def vjp(self, primals: Flat, active: tuple[bool, ...]) -> tuple[Flat, Flat, Pullback]:
        """The rule of a VjpRule."""

        def forward(*values: Any) -> Any:
            given = [x for x, a in zip(values, active, strict=True) if a]
            return jax.vjp(self.of_some(active, values), *given)

        rule = self.known(
            ("vjp", active), lambda: Imported(*traced(forward, self.types), self.name)
        )
        found = [materialize(x) for x in rule(primals)]
        n = len(self.outputs)
        pullback_tree = rule.out_tree.children()[1]

        def backward(*values: Any) -> Any:
            pull = jax.tree.unflatten(pullback_tree, values[: len(rule.types) - n])
            return pull(self.cotangents(values[len(rule.types) - n :]))

        pulled = self.pulled(("pull", active), backward, rule.types[n:], active)
        return found[:n], found[n:], Pullback(pulled, self.types, self.out_types, self.name)

    def cotangents(self, moving: Flat) -> list[Any]:
        """Those of all results, of which JAX takes float0 for integers."""
        rest = iter(moving)
        return [
            next(rest) if is_inexact(t.dtype) else np.zeros(t.shape, jax.dtypes.float0)
            for t in self.out_types
        ]

    def pulled(
        self, key: Any, backward: Any, residuals: Sequence[ArrayType], active: Sequence[bool]
    ) -> Callable[[Flat, Flat], Flat]:
        """A bwd rule of ours, of one of JAX's that gives cotangents of the active operands."""
        moving = [self.out_types[i] for i in self.moving]
        places = [i for i, a in enumerate(active) if a]

        def pull(values: Flat, cts: Flat) -> Flat:
            rule = self.known(
                key, lambda: Imported(*traced(backward, [*residuals, *moving]), self.name)
            )
            given = [
                literal(0, self.out_types[i]) if cts[i] is None else cts[i] for i in self.moving
            ]
            return at_places(rule([*values, *given]), places, len(active))

        return pull

    def batched(self, size: int, in_batched: Flat, args: Flat) -> tuple[Flat, Flat]:
        """The rule of a BatchRule."""
        axes = tuple([0 if b else None for b in in_batched])
        types = [
            t.update(shape=(size, *t.shape)) if b else t
            for t, b in zip(self.types, in_batched, strict=True)
        ]

        def mapped(*values: Any) -> Any:
            return jax.vmap(self.fun, in_axes=axes, axis_size=size)(*values)

        rule = self.known(("vmap", size, axes), lambda: Imported(*traced(mapped, types), self.name))
        outs = [materialize(y) for y in rule(args)]
        return outs, [True] * len(outs)


def only(values: Sequence[Any], chosen: Sequence[bool]) -> list[Any]:
    return [x for x, c in zip(values, chosen, strict=True) if c]


def at_places(values: Flat, places: Sequence[int], n: int) -> list[Any]:
    """A list of n with these values at these places; None, and None for zeros, else."""
    made: list[Any] = [None] * n
    for i, x in zip(places, values, strict=True):
        made[i] = None if x.__class__ is Literal and x.value == 0 else x
    return made


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
    """The derivative of a custom_vjp function, of residuals and tangents: its bwd rule reversed."""
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
