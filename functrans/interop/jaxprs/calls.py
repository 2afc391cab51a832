"""JAX's calls, branches, loops and functions with custom rules."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import jax
import numpy as np
from jax._src.core import Primitive, jaxpr_as_fun, no_axis_name
from jax._src.interpreters import batching

from functrans.caching import memo
from functrans.interop.jaxprs.walk import (
    Flat,
    Imported,
    OneEquation,
    abstract,
    close,
    constants_of,
    exactly,
    kind_of,
    means,
    program,
    read_literal,
    run,
    spread_front,
    traced,
    type_of_aval,
)
from functrans.ir.program import Equation, Literal, Program, Var, hoist_constants
from functrans.ir.types import ArrayType, is_inexact
from functrans.primitives.calls.checkpoint import checkpoint
from functrans.primitives.calls.jax_call import at_places, jax_call
from functrans.primitives.calls.jit import is_inlined, jit
from functrans.primitives.control_flow.cond import INDEX
from functrans.primitives.control_flow.cond import cond as choose
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.custom.calls import (
    BatchRule,
    custom_jvp_call,
    custom_lin,
    custom_vjp_call,
    custom_vmap_call,
)
from functrans.primitives.custom.implicit import linear_solve
from functrans.primitives.custom.tracing import JvpRule, Pullback, VjpRule
from functrans.primitives.distributed.platforms import platform_index
from functrans.primitives.distributed.sharding import sharding_constraint
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.selection import optimization_barrier, select_n
from functrans.primitives.reductions.folds import reduce_or
from functrans.trace import bind, evaluate, literal, materialize, stage, staging_trace, typeof

# --- calls ----------------------------------------------------------------------------------------

_SHORT = 6  # most equations of a call that is inlined
_WITH_RULES = ("custom_jvp_call", "custom_vjp_call")


@means("jit closed_call call eval_jaxpr custom_partitioning")
def _call(eqn: Any, *operands: Any) -> Any:
    p = eqn.params
    closed = close(p.get("jaxpr") or p.get("call_jaxpr") or p["call"])
    values = _laid_out(operands, p.get("in_shardings", ()))
    if _is_written_out(closed.jaxpr, is_inlined(p.get("inline"))):
        outs = run(closed.jaxpr, constants_of(closed), values)
    else:
        made, consts = program(closed, p.get("name", ""))
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


@means("functrans functrans_calling")
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


@means("remat2")
def _checkpoint(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    made, consts = program(close(p["jaxpr"]), "checkpoint")
    if p.get("differentiated"):  # recomputed in the backward pass, not now
        if p["prevent_cse"]:
            values = optimization_barrier(*values)
        return jit(*consts, *values, program=made)
    options: dict[str, Any] = {}
    if p["policy"] is not None:
        options["policy"] = Policy(p["policy"])
    if not p["prevent_cse"]:
        options["prevent_cse"] = False
    return checkpoint(*consts, *values, program=made, **options)


@dataclass(frozen=True, repr=False)
class Policy:
    """A JAX `checkpoint` policy, which tests JAX primitives, as one of ours: it is called with the JAX
    primitive of the same name."""

    policy: Any

    def __repr__(self) -> str:
        return f"<{getattr(self.policy, '__name__', type(self.policy).__name__)}>"

    def __call__(self, primitive: Any, *types: ArrayType, **params: Any) -> bool:
        name = primitive.name
        theirs = _theirs().get(name) or Primitive(name)
        if primitive is jax_call:
            called = params["body"].equation
            theirs, params = called.primitive, called.params
        if name == "dot_general":
            params = {"dimension_numbers": _numbers(**params)}
        avals = [jax.core.ShapedArray(t.shape, t.dtype) for t in types]
        found = self.policy(theirs, *avals, **params)
        return found if isinstance(found, bool) else "recompute" not in repr(found).lower()


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


@means("cond")
def _cond(eqn: Any, index: Any, *values: Any) -> Any:
    branches = eqn.params["branches"]
    known = getattr(index, "ref", None)
    if isinstance(known, Literal):
        which: Any = known.value
        chosen = branches[min(max(int(which), 0), len(branches) - 1)]
        return run(chosen.jaxpr, constants_of(chosen), values)
    made = [program(b, f"branch_{i}") for i, b in enumerate(branches)]
    consts = [x for _, mine in made for x in mine]
    types, at = list(map(typeof, consts)), 0
    programs: list[Program] = []
    for branch, mine in made:
        programs.append(_of_some(branch, at, at + len(mine), types))
        at += len(mine)
    return choose(cast(index, INDEX.dtype), *consts, *values, branches=tuple(programs))


@means("platform_index")
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


@means("scan")
def _scan(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    made, consts = program(p["jaxpr"], "body")
    if "num_consts" in p:
        constant, carried = p["num_consts"], p["num_carry"]
    else:  # from JAX 0.11 on the operands are grouped by trees
        constant, carried = (len(part) for part in p["ft_in"].unpack()[:2])
    options: dict[str, Any] = {}
    if p["reverse"]:
        options["reverse"] = True
    if p["unroll"] != 1:
        options["unroll"] = int(p["unroll"])
    return scan(
        *consts,
        *values,
        program=made,
        length=int(p["length"]),
        consts=len(consts) + constant,
        carry=carried,
        **options,
    )


@means("while")
def _while(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    n, m = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    test, test_consts = program(p["cond_jaxpr"], "cond")
    body, body_consts = program(p["body_jaxpr"], "body")
    first, fixed = [*test_consts, *values[:n]], [*body_consts, *values[n:m]]
    if test.out_types[0].shape:
        test, body = _one_by_one(test, body, len(first), len(fixed))
        fixed = [*first, *fixed]
    return while_loop(
        *first, *fixed, *values[m:], cond=test, body=body, cond_consts=len(first), body_consts=len(fixed)
    )


def _one_by_one(test: Program, body: Program, n: int, m: int) -> tuple[Program, Program]:
    """A while loop batched by JAX's vmap: it runs while the condition holds for any example, and
    leaves examples whose condition is false unchanged."""
    axes = tuple(range(len(test.out_types[0].shape)))

    def some(*values: Any) -> list[Any]:
        return [reduce_or(evaluate(test, values)[0], axes=axes)]

    def step(*values: Any) -> list[Any]:
        first, fixed, carry = values[:n], values[n : n + m], values[n + m :]
        going = evaluate(test, [*first, *carry])[0]
        new = evaluate(body, [*fixed, *carry])
        return [select_n(spread_front(going, typeof(x).shape), x, y) for x, y in zip(carry, new, strict=True)]

    types = [*test.in_types[:n], *body.in_types[:m], *body.in_types[m:]]
    return stage(some, test.in_types, "cond"), stage(step, types, "body")


# --- solvers --------------------------------------------------------------------------------------


@means("custom_linear_solve")
def _linear_solve(eqn: Any, *values: Any) -> Any:
    """Our operation has one list of constants for all its programs, JAX's has one for each."""
    jaxprs, lengths = eqn.params["jaxprs"], eqn.params["const_lengths"]
    parts = ("matvec", "vecmat", "solve", "transpose_solve")
    made = {k: program(getattr(jaxprs, k), k) for k in parts if getattr(jaxprs, k) is not None}
    consts: list[Any] = []
    where: dict[str, tuple[int, int]] = {}
    at = 0
    for k in parts:
        n = getattr(lengths, k)
        own = made[k][1] if k in made else ()
        where[k] = len(consts), len(consts) + len(own) + n
        consts += [*own, *values[at : at + n]]
        at += n
    types = [typeof(x) for x in consts]
    programs = {k: _of_some(made[k][0], *where[k], types) for k in made}
    return linear_solve(*consts, *values[at:], **{k: programs.get(k) for k in parts}, consts=len(consts))


def _of_some(program: Program, start: int, stop: int, types: Sequence[ArrayType]) -> Program:
    """Return the program with more leading inputs, of which it reads those from start to stop."""
    n = stop - start
    before, after = [Var(t) for t in types[:start]], [Var(t) for t in types[stop:]]
    return program.replace(inputs=[*before, *program.inputs[:n], *after, *program.inputs[n:]])


# --- functions with custom rules ------------------------------------------------------------------
# The form in which JAX's equation holds these rules changes between versions, so the rules are
# obtained by running JAX's own transformations (walk.py), and become rules of ours.


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
        rule = self.imported(("jvp", active), *self.pushing(active))
        found = rule([*primals, *[dx for dx in tangents if dx is not None]])
        outs, moved = found[: len(self.outputs)], found[len(self.outputs) :]
        return outs, at_places(moved, self.moving, len(outs))

    def vjp(self, primals: Flat, active: tuple[bool, ...]) -> tuple[Flat, Flat, Pullback]:
        """Return the vjp rule of a VjpRule."""

        def forward(*values: Any) -> Any:
            return jax.vjp(self.of_some(active, values), *compress(values, active))

        rule = self.imported(("vjp", active), forward, self.kinds)
        found = [materialize(x) for x in rule(primals)]
        n = len(self.outputs)
        pullback_tree = rule.out_tree.children()[1]

        def backward(*values: Any) -> Any:
            pull = jax.tree.unflatten(pullback_tree, values[: len(rule.types) - n])
            return pull(self.cotangents(values[len(rule.types) - n :]))

        pulled = self.pulled(("pull", active), backward, rule.kinds[n:], active)
        return found[:n], found[n:], Pullback(pulled, self.name, self.types, self.out_types)

    def cotangents(self, moving: Flat) -> list[Any]:
        """Return the cotangents of all results; JAX expects float0 for integers."""
        rest = iter(moving)
        return [
            next(rest) if is_inexact(t.dtype) else np.zeros(t.shape, jax.dtypes.float0)
            for t in self.out_types
        ]

    def pulled(
        self, key: Any, backward: Any, residuals: Sequence[Any], active: Sequence[bool]
    ) -> Callable[[Flat, Flat], Flat]:
        """Return our bwd rule for JAX's, which returns cotangents of the active operands."""
        moving = [kind_of(self.outputs[i].aval) for i in self.moving]
        places = [i for i, a in enumerate(active) if a]

        def pull(values: Flat, cts: Flat) -> Flat:
            rule = self.imported(key, backward, [*residuals, *moving])
            given = [literal(0, self.out_types[i]) if cts[i] is None else cts[i] for i in self.moving]
            return at_places(rule([*values, *given]), places, len(active))

        return pull

    def batched(self, size: int, in_batched: Flat, args: Flat) -> tuple[Flat, Flat]:
        """Return the vmap rule of a BatchRule."""
        types = [
            t.update(shape=(size, *t.shape)) if b else t for t, b in zip(self.types, in_batched, strict=True)
        ]
        alone = not any(in_batched) and all(is_inexact(t.dtype) for t in self.types)

        def make() -> tuple[Imported, Flat]:
            closed, given = self.closed_alone, list(in_batched)
            if alone:  # then JAX calls the rule for batched tangents only
                n = len(self.types)
                closed = jax.make_jaxpr(lambda *v: jax.jvp(self.fun, v[:n], v[n:])[0])(*self.kinds * 2)
                given = [False] * n + [True] * n
            axis = batching.AxisData(no_axis_name, size, None, None)
            mapped, batched = batching.batch_jaxpr(closed, axis, given, False)
            zeros = [np.zeros((size, *t.shape), t.dtype) for t in self.types if alone]
            fun = jaxpr_as_fun(mapped)
            return Imported(*traced(lambda *values: fun(*values, *zeros), types), self.name), batched

        rule, batched = self.known(("vmap", size, tuple(in_batched)), make)
        return [materialize(y) for y in rule(args)], batched


# --- their table ----------------------------------------------------------------------------------


@means("custom_jvp_call")
def _custom_jvp(eqn: Any, *values: Any) -> Any:
    call = Call(eqn, eqn.params["call_jaxpr"])
    return call.bind(custom_jvp_call, values, JvpRule(call.jvp, call.name))


@means("custom_vjp_call linear_call")
def _custom_vjp(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    call = Call(eqn, p.get("call_jaxpr") or p["callee"])
    return call.bind(custom_vjp_call, values, VjpRule(call.vjp, call.name, linear="callee" in p))


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

    pullback = Pullback(pull, name, types[n:], tuple([outs[i] for i in moving]))
    found = bind(custom_lin, values, {"pullback": pullback, "active": (True,) * len(types[n:])})
    return at_places(found, moving, len(outs))
