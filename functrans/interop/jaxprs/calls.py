"""JAX's calls, branches, loops and functions with custom rules."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any

import jax
from jax._src.core import Primitive
from jax._src.interpreters.partial_eval import Recompute, ensure_enum

from functrans import runtime
from functrans.caching import memo
from functrans.interop.jaxprs import walk
from functrans.interop.jaxprs.opaque import Body
from functrans.interop.jaxprs.walk import Flat
from functrans.ir.program import Equation, Literal, Program, hoist_constants
from functrans.ir.types import ArrayType, is_inexact
from functrans.primitives.calls.checkpoint import checkpoint
from functrans.primitives.calls.jax_call import at_places, jax_call
from functrans.primitives.calls.jit import is_inlined, jit
from functrans.primitives.control_flow.cond import INDEX, with_common_captures
from functrans.primitives.control_flow.cond import cond as choose
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import one_by_one, while_loop
from functrans.primitives.custom.calls import (
    BatchRule,
    custom_jvp_call,
    custom_lin,
    custom_vjp_call,
    custom_vmap_call,
)
from functrans.primitives.custom.implicit import linear_solve
from functrans.primitives.custom.tracing import JvpRule, Pullback, VjpRule, longer
from functrans.primitives.distributed.platforms import platform_index
from functrans.primitives.distributed.sharding import sharding_constraint
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.selection import optimization_barrier
from functrans.trace import bind, evaluate, literal, materialize, stage, staging_trace

# --- calls ----------------------------------------------------------------------------------------

_SHORT = 6  # most equations of a call that is inlined
_WITH_RULES = ("custom_jvp_call", "custom_vjp_call")


@walk.means("jit closed_call call eval_jaxpr custom_partitioning")
def _call(eqn: Any, *operands: Any) -> Any:
    p = eqn.params
    closed = walk.close(p.get("jaxpr") or p.get("call_jaxpr") or p["call"])
    values = _laid_out(operands, p.get("in_shardings", ()))
    if _is_written_out(closed.jaxpr, is_inlined(p.get("inline"))):
        outs = walk.run(closed.jaxpr, walk.constants_of(closed), values)
    else:
        made, consts = walk.program(closed, p.get("name", ""))
        outs = jit(*consts, *values, program=made)
    return _laid_out(outs, p.get("out_shardings", ()))


def _is_written_out(jaxpr: Any, inline: bool) -> bool:
    """Return whether a call is replaced by its equations. Without `jit` it is one operation, as in JAX:
    each equation would be dispatched, and a custom rule traced anew, every time. Random draws stay
    calls: XLA would fuse them with what follows and round differently from JAX."""
    names = {e.primitive.name for e in jaxpr.eqns}
    if staging_trace() is None:
        return len(jaxpr.eqns) <= 1 and names.isdisjoint(_WITH_RULES)
    return inline or (len(jaxpr.eqns) <= _SHORT and "random_bits" not in names)


def _laid_out(values: Sequence[Any], shardings: Sequence[Any]) -> Sequence[Any]:
    """Return values with the shardings that a jitted function requests."""
    if not any(isinstance(s, jax.sharding.Sharding) for s in shardings):
        return values
    return [
        sharding_constraint(x, sharding=s) if isinstance(s, jax.sharding.Sharding) else x
        for x, s in zip(values, shardings, strict=True)
    ]


@walk.means("functrans functrans_calling")
def _ours(eqn: Any, *values: Any) -> Any:
    """Bind a functrans program that a JAX function calls; its constants come first."""
    made, _ = hoist_constants(eqn.params["program"])
    made = memo(made, _without_types)
    if len(made.equations) <= 1:
        return evaluate(made, values)
    return jit(*values, program=made)


def _without_types(program: Program) -> Program:
    """Return the program without the constraints that keep the types of its results: it becomes a
    part of another one."""
    if not any([e.params.get("typed") for e in program.equations]):
        return program

    def bare(e: Equation, values: list[Any]) -> Any:
        return values[0] if e.params.get("typed") else bind(e.primitive, values, e.params)

    return stage(lambda *xs: evaluate(program, xs, bare), program.in_types, program.name)


# --- calls that are computed again ----------------------------------------------------------------


@walk.means("remat2")
def _checkpoint(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    made, consts = walk.program(walk.close(p["jaxpr"]), "checkpoint")
    if p.get("differentiated"):  # recomputed in the backward pass, not now
        if p["prevent_cse"]:
            values = optimization_barrier(*values)
        return jit(*consts, *values, program=made)
    how = {"policy": p["policy"], "prevent_cse": bool(p["prevent_cse"])}
    return checkpoint(*consts, *values, program=made, **how)


@runtime.answers("jax_policy")
@dataclass(frozen=True)
class Policy:
    """A JAX `checkpoint` policy, which tests JAX primitives, as a function of ours that returns whether
    the results are stored: it is called with the JAX primitive of the same name."""

    policy: Callable[..., Any]

    def __call__(self, primitive: Any, *types: ArrayType, **params: Any) -> bool:
        name = primitive.name
        theirs = _theirs().get(name) or Primitive(name)
        if primitive is jax_call:
            called = params["body"].equation
            theirs, params = called.primitive, called.params
        if name == "dot_general":
            params = {"dimension_numbers": _numbers(**params)}
        avals = [jax.core.ShapedArray(t.shape, t.dtype) for t in types]
        return ensure_enum(self.policy(theirs, *avals, **params)) is not Recompute


@functools.cache
def _theirs() -> dict[str, Any]:
    """Return JAX's primitives by name. Imported late: their module imports Pallas."""
    primitives = importlib.import_module("jax.extend.core.primitives")
    return {p.name: p for p in vars(primitives).values() if isinstance(p, Primitive)}


def _numbers(*, lhs: Any, rhs: Any, out: Any, **_: Any) -> Any:
    """Return JAX's `dimension_numbers` of a `dot_general`."""
    batch = [n for n in out if n in lhs and n in rhs]
    summed = [n for n in lhs if n in rhs and n not in out]
    pairs = [[tuple([axes.index(n) for n in names]) for axes in (lhs, rhs)] for names in (summed, batch)]
    return tuple(map(tuple, pairs))


# --- choices --------------------------------------------------------------------------------------


@walk.means("cond")
def _cond(eqn: Any, index: Any, *values: Any) -> Any:
    branches = eqn.params["branches"]
    known = getattr(index, "ref", None)
    if isinstance(known, Literal):
        which: Any = known.value
        chosen = branches[min(max(int(which), 0), len(branches) - 1)]
        return walk.run(chosen.jaxpr, walk.constants_of(chosen), values)
    consts, programs = with_common_captures([walk.program(b, f"branch_{i}") for i, b in enumerate(branches)])
    return choose(cast(index, INDEX.dtype), *consts, *values, branches=tuple(programs))


@walk.means("platform_index")
def _platform(eqn: Any) -> Any:
    """The index of the group of platforms that contains the one compiled for; None matches any. It is known
    if the others are of Pallas, for which no program of ours is compiled."""
    groups = [None if g is None else tuple(g) for g in eqn.params["platforms"]]
    possible = [i for i, g in enumerate(groups) if g is None or not _OF_PALLAS.issuperset(g)]
    if possible == [len(groups) - 1] and groups[-1] is None:
        return literal(possible[0], INDEX)
    return platform_index(platforms=tuple(groups))


_OF_PALLAS = frozenset(["mosaic"])


# --- loops ----------------------------------------------------------------------------------------


@walk.means("scan")
def _scan(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    made, consts = walk.program(p["jaxpr"], "body")
    if "num_consts" in p:
        constant, carried = p["num_consts"], p["num_carry"]
    else:  # from JAX 0.11 on the operands are grouped by trees
        constant, carried = (len(part) for part in p["ft_in"].unpack()[:2])
    return scan(
        *consts,
        *values,
        program=made,
        length=int(p["length"]),
        consts=len(consts) + constant,
        carry=carried,
        reverse=bool(p["reverse"]),
        unroll=int(p["unroll"]),
    )


@walk.means("while")
def _while(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    n, m = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    test, test_consts = walk.program(p["cond_jaxpr"], "cond")
    body, body_consts = walk.program(p["body_jaxpr"], "body")
    first, fixed = [*test_consts, *values[:n]], [*body_consts, *values[n:m]]
    if test.out_types[0].shape:  # batched by JAX's vmap
        test, body = one_by_one(test, body, len(first), [None] * len(fixed) + [0] * len(body.outputs))
        fixed = [*first, *fixed]
    return while_loop(
        *first, *fixed, *values[m:], cond=test, body=body, cond_consts=len(first), body_consts=len(fixed)
    )


# --- solvers --------------------------------------------------------------------------------------


@walk.means("custom_linear_solve")
def _linear_solve(eqn: Any, *values: Any) -> Any:
    """Our operation has one list of constants for all its programs, JAX's has one for each."""
    names = ("matvec", "vecmat", "solve", "transpose_solve")
    rest, parts = iter(values), {}
    for name in names:
        closed = getattr(eqn.params["jaxprs"], name)
        mine = [*islice(rest, getattr(eqn.params["const_lengths"], name))]
        if closed is not None:
            made, consts = walk.program(closed, name)
            parts[name] = made, [*consts, *mine]
    shared, programs = with_common_captures([*parts.values()])
    given = dict.fromkeys(names) | dict(zip(parts, programs, strict=True))
    return linear_solve(*shared, *rest, **given, consts=len(shared))


# --- functions with custom rules ------------------------------------------------------------------
# The form in which JAX's equation holds these rules changes between versions, so the rules are
# obtained by running JAX's own transformations (walk.py), and become rules of ours.


class Call(walk.OneEquation):
    """An equation that calls a function with a custom rule, as a function of all its operands, equal ones
    and literals too; `closed` is the function's jaxpr."""

    def __init__(self, eqn: Any, closed: Any):
        known = closed.jaxpr.debug_info
        super().__init__(walk.with_variables(eqn), known.func_name or eqn.primitive.name, known)
        self.closed = closed

    def bind(self, primitive: Any, values: Flat, rule: Any) -> list[Any]:
        """Bind our operation for the equation, and return its results."""
        made, consts = walk.program(self.closed, self.name)
        return bind(primitive, [*consts, *values], {"program": made, "rule": rule, "n_consts": len(consts)})

    # --- rules

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
        """Return the jvp rule of a JvpRule."""
        active = tuple([dx is not None for dx in tangents])
        rule = self.imported(("jvp", active), *self.pushing(active))
        found = rule([*primals, *[dx for dx in tangents if dx is not None]])
        outs, moved = found[: len(self.outputs)], found[len(self.outputs) :]
        return outs, at_places(moved, self.moving, len(outs))

    def vjp(self, primals: Flat, active: tuple[bool, ...]) -> tuple[Flat, Flat, Pullback]:
        """Return the vjp rule of a VjpRule."""

        def forward(*values: Any) -> Any:
            def divided(*moving: Any) -> Any:
                outs = self.of_some(active, values)(*moving)
                return [outs[i] for i in self.moving], outs

            _, pull, outs = jax.vjp(divided, *compress(values, active), has_aux=True)
            return outs, pull

        rule = self.imported(("vjp", active), forward, self.kinds)
        n = len(self.outputs)
        k = len(rule.kinds) - n
        pullback_tree = rule.out_tree.children()[1]
        moving = [walk.kind_of(self.outputs[i].aval) for i in self.moving]
        places = [i for i, a in enumerate(active) if a]

        def backward(*values: Any) -> Any:
            return jax.tree.unflatten(pullback_tree, values[:k])([*values[k:]])

        def pull(residuals: Flat, cts: Flat) -> Flat:
            back = self.imported(("pull", active), backward, [*rule.kinds[n:], *moving])
            return at_places(back([*residuals, *self.cotangents(cts)]), places, len(active))

        found = [materialize(x) for x in rule(primals)]
        return found[:n], found[n:], Pullback(pull, self.name, self.types, self.out_types)

    def batched(self, size: int, in_batched: Flat, args: Flat) -> tuple[Flat, Flat]:
        """Return the vmap rule of a BatchRule."""
        dims, n = tuple([0 if b else None for b in in_batched]), len(args)

        def with_tangents(*values: Any) -> Any:
            return jax.jvp(self.fun, values[:n], values[n:])[0]

        if any(in_batched) or not all(is_inexact(t.dtype) for t in self.types):
            rule, axes = self.mapped(self.fun, self.types, dims, size)
        else:  # then JAX calls the rule for batched tangents only
            rule, axes = self.mapped(with_tangents, self.types * 2, dims + (0,) * n, size)
            args = [*args, *[literal(0, longer(t, size)) for t in self.types]]
        return [materialize(y) for y in rule(args)], [d is not None for d in axes]


# --- their table ----------------------------------------------------------------------------------


@walk.means("custom_jvp_call")
def _custom_jvp(eqn: Any, *values: Any) -> Any:
    call = Call(eqn, eqn.params["call_jaxpr"])
    return call.bind(custom_jvp_call, values, JvpRule(call.jvp, call.name))


@walk.means("custom_vjp_call linear_call")
def _custom_vjp(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    call = Call(eqn, p.get("call_jaxpr") or p["callee"])
    return call.bind(custom_vjp_call, values, VjpRule(call.vjp, call.name, linear="callee" in p))


@walk.means("custom_vmap_call")
def _custom_vmap(eqn: Any, *values: Any) -> Any:
    call = Call(eqn, eqn.params["call"])
    return call.bind(custom_vmap_call, values, BatchRule(call.batched, call.name))


@walk.means("custom_lin")
def _custom_lin(eqn: Any, *values: Any) -> Any:
    """The derivative of a custom_vjp function, from residuals and tangents: bwd transposed."""
    eqn = walk.with_variables(eqn)
    body = Body(eqn)
    tangents = set(eqn.invars[eqn.params["num_res"] :])
    linear = tuple([v in tangents for v in body.inputs])

    def pull(residuals: Flat, cts: Flat) -> Flat:
        return body.transposed(linear)([*residuals, *body.cotangents(cts)])

    types = tuple(compress(body.types, linear))
    name = eqn.params["bwd"].debug_info.func_name or "custom_lin"
    rule = {"pullback": Pullback(pull, name, types, body.out_types), "active": (True,) * len(types)}
    found = bind(custom_lin, body.operands(values), rule)
    return body.results(at_places(found, body.moving, len(body.outputs)))
