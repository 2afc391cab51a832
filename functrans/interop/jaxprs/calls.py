"""JAX's calls, branches and loops."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import jax
from jax._src.core import Primitive

from functrans.interop.jaxprs.walk import closed_like, constants_of, means, program, run, spread_front
from functrans.ir.program import Literal, Program, Var, hoist_constants
from functrans.ir.types import ArrayType
from functrans.primitives.calls.checkpoint import checkpoint
from functrans.primitives.calls.jax_call import jax_call
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.cond import INDEX
from functrans.primitives.control_flow.cond import cond as choose
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop
from functrans.primitives.custom.implicit import linear_solve
from functrans.primitives.distributed.platforms import platform_index
from functrans.primitives.distributed.sharding import sharding_constraint
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.selection import optimization_barrier, select_n
from functrans.primitives.reductions.folds import reduce_or
from functrans.trace import evaluate, stage, typeof

# --- calls ----------------------------------------------------------------------------------------

_SHORT = 6  # most equations of a call that is inlined


@means("jit", "pjit", "closed_call", "core_call", "call", "eval_jaxpr", "composite", "custom_partitioning")
def _call(eqn: Any, *operands: Any) -> Any:
    p = eqn.params
    inner = p.get("jaxpr") or p.get("call_jaxpr") or p["call"]
    closed = inner if hasattr(inner, "consts") else closed_like(inner)
    values = _laid_out(operands, p.get("in_shardings", ()))
    if p.get("inline") or _is_short(closed.jaxpr):
        outs = run(closed.jaxpr, constants_of(closed), values)
    else:
        made, consts = program(closed, p.get("name", ""))
        outs = jit(*consts, *values, program=made)
    return _laid_out(outs, p.get("out_shardings", ()))


def _is_short(jaxpr: Any) -> bool:
    """Return whether to inline a call. Random draws stay calls: XLA would fuse them with what
    follows and round differently from JAX."""
    return len(jaxpr.eqns) <= _SHORT and not any(e.primitive.name == "random_bits" for e in jaxpr.eqns)


def _laid_out(values: Sequence[Any], shardings: Sequence[Any]) -> Sequence[Any]:
    """Return values with the shardings that a jitted function requests."""
    if not any(isinstance(s, jax.sharding.Sharding) for s in shardings):
        return values
    return [
        sharding_constraint(x, sharding=s) if isinstance(s, jax.sharding.Sharding) else x
        for x, s in zip(values, shardings, strict=True)
    ]


@means("functrans", "functrans_calling")
def _ours(eqn: Any, *values: Any) -> Any:
    """Bind a functrans program that a JAX function calls; its constants come first."""
    made, _ = hoist_constants(eqn.params["program"])
    if len(made.equations) == 1:
        return evaluate(made, values)
    return jit(*values, program=made)


# --- calls that are computed again ----------------------------------------------------------------


@means("remat2", "checkpoint", "remat")
def _checkpoint(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    inner = p["jaxpr"]
    made, consts = program(inner if hasattr(inner, "consts") else closed_like(inner), "checkpoint")
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


class Policy:
    """A JAX `checkpoint` policy, which tests JAX primitives, as one of ours: it is called with the JAX
    primitive of the same name."""

    def __init__(self, policy: Any):
        self.policy = policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.policy == other.policy

    def __hash__(self) -> int:
        return hash(self.policy)

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
    consts: list[Any] = []
    programs: list[Program] = []
    for branch, mine in made:
        before = [Var(typeof(x)) for x in consts]
        after = [Var(typeof(x)) for _, theirs in made[len(programs) + 1 :] for x in theirs]
        n = len(mine)
        inputs = [*before, *branch.inputs[:n], *after, *branch.inputs[n:]]
        programs.append(branch.replace(inputs=inputs))
        consts += mine
    return choose(cast(index, INDEX.dtype), *consts, *values, branches=tuple(programs))


@means("platform_index")
def _platform(eqn: Any) -> Any:
    """The index of the group of platforms that contains the one compiled for; None matches any."""
    groups = [None if g is None else tuple(g) for g in eqn.params["platforms"]]
    return platform_index(platforms=tuple(groups))


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
    programs = {}
    for k in parts:
        if k in made:
            programs[k] = _of_some(made[k][0], *where[k], types)
    return linear_solve(*consts, *values[at:], **{k: programs.get(k) for k in parts}, consts=len(consts))


def _of_some(program: Program, start: int, stop: int, types: Sequence[ArrayType]) -> Program:
    """Return the program with more leading inputs, of which it reads those from start to stop."""
    n = stop - start
    before, after = [Var(t) for t in types[:start]], [Var(t) for t in types[stop:]]
    return program.replace(inputs=[*before, *program.inputs[:n], *after, *program.inputs[n:]])
