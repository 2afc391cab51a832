"""JAX's transformation rules for our programs.

In: an equation of the JAX primitive `functrans` (`functrans_calling` with Python callbacks), which
holds a program. Out: its derivative, transpose or batched form, made by our transformations, again
as equations of that primitive.

    derivative  two equations: the program with the residuals as extra results, and its linear part,
                a function of residuals and tangents. JAX's partial evaluation splits between the
                two, so nothing is computed twice. One equation if a rule is not linear in the
                tangents, for forward mode only
    transpose   the transposed program of an equation that is linear in the operands whose
                cotangents are wanted
    batch       the batched program
    dead code   the part of the program that computes the used results
    checkpoint  the program with the values that the policy saves as extra results, and the part
                that recomputes the rest
    jet         the program of the Taylor coefficients

A derived program is cached on the program it was made from. It is optimized when it is lowered, by
the passes that the user chose. JAX evaluates eagerly while our transformations run, so that its
outer trace records only the equations bound here and no intermediate constants.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import compress
from typing import Any

import jax
from jax._src import core
from jax._src.interpreters import ad, batching
from jax._src.interpreters import partial_eval as pe

from functrans import errors, runtime
from functrans.backends import xla
from functrans.backends.xla import Preparation
from functrans.caching import memo
from functrans.interop.jaxprs.calls import Policy
from functrans.ir.program import Equation, Literal, Program, Var, prune
from functrans.ir.types import ArrayType, float0, is_inexact
from functrans.loading import when_imported
from functrans.primitives.calls.checkpoint import divided
from functrans.primitives.dependence import fewer, reading, restricted, spread, take, transposes_zeros
from functrans.primitives.distributed.sharding import of_type, sharding_constraint
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.trace import at_once, stage, typeof
from functrans.tracer import aval_of
from functrans.transforms.batch import Batching
from functrans.transforms.jet import jet_program
from functrans.transforms.jvp import jvp_program, split
from functrans.transforms.transpose import Transposition


def derivative(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, preparation: Preparation
) -> tuple[list[Any], list[Any]]:
    """Apply the JVP rule."""
    active = tuple([dx.__class__ is not ad.Zero and core.typeof(dx).dtype != float0 for dx in tangents])
    given = [dx for dx, a in zip(tangents, active, strict=True) if a]
    n = len(program.outputs)
    try:
        with at_once():
            part = fewer(split(program, active, ()))
    except (errors.NotLinear, errors.MissingRule, errors.OpaqueCallback):
        if any([isinstance(dx, pe.JaxprTracer) for dx in given]):  # JAX wants the linear part
            raise
        with at_once():
            both, out_active = jvp_program(program, active)
        results = xla.bind(both, [*primals, *given], preparation)
        outs, moved = results[:n], results[n:]
    else:
        results = xla.bind(part.forward, primals, preparation)
        outs, out_active = results[:n], part.out_active
        moving = [t for t, a in zip(program.out_types, out_active, strict=True) if a]
        moved = _nonzero(part.linear, moving, take(part.places, primals, results, tangents), preparation)
    return outs, [
        ad.Zero(core.typeof(y).to_tangent_aval()) if dy is None else _laid_out(dy, core.typeof(y))
        for y, dy in zip(outs, spread(moved, out_active), strict=True)
    ]


def transpose(cts: Sequence[Any], *operands: Any, program: Program, preparation: Preparation) -> list[Any]:
    """Apply the transpose rule: None for operands that are not linear, and for zeros."""
    linear = tuple([ad.is_undefined_primal(x) for x in operands])
    answers_zeros = transposes_zeros(program)
    if answers_zeros and all([ct.__class__ is ad.Zero for ct in cts]):
        cts = [ad.instantiate_zeros(ct) for ct in cts]  # else the rules in it would not be called
    given = tuple([ct.__class__ is not ad.Zero for ct in cts])
    with at_once():
        back = Transposition().program(program, linear, given, called=True)
    known = [x for x, is_linear in zip(operands, linear, strict=True) if not is_linear]
    active = [ct for ct, g in zip(cts, given, strict=True) if g]
    wanted = [t for t, is_linear in zip(program.in_types, linear, strict=True) if is_linear]
    found = spread(_nonzero(back, wanted, [*known, *active], preparation), linear)
    of = _instantiated if answers_zeros else _laid_out
    rows = zip(found, operands, linear, strict=True)
    return [of(ct, x.aval) if is_linear else None for ct, x, is_linear in rows]


def _instantiated(ct: Any, primal: Any) -> Any:
    """Return a cotangent as an array even if it is zero: then JAX goes on, as it does with its own
    custom rules, and rules further back are called."""
    return ad.instantiate_zeros(ad.Zero(primal.to_tangent_aval())) if ct is None else _laid_out(ct, primal)


def _laid_out(x: Any, primal: Any) -> Any:
    """Return a tangent or cotangent with the sharding over explicit axes that its primal's type has,
    and in that memory."""
    if x is not None and primal.memory_space == jax.memory.Space.Host:
        x = jax.device_put(x, primal.memory_space)
    if x is None or primal.sharding.mesh.empty:
        return x
    return _typed(x, of_type(primal.sharding, primal.ndim))


def _typed(x: Any, sharding: Any) -> Any:
    """Return a value with a sharding in its type."""
    if sharding is None:
        return x
    with at_once():
        program = stage(lambda x: [sharding_constraint(x, sharding=sharding, typed=True)], [typeof(x)])
    return xla.bind(program, [x])[0]


def _nonzero(
    program: Program, types: Sequence[ArrayType], operands: Sequence[Any], preparation: Preparation
) -> list[Any]:
    """Run a program; convert its results to `types`, which may differ in weak type. None for
    results that are literal zeros."""
    made, moving = memo(program, _without_zeros, tuple(types))
    return spread(xla.bind(made, operands, preparation) if any(moving) else (), moving)


def _without_zeros(program: Program, types: Sequence[ArrayType]) -> tuple[Program, list[bool]]:
    moving = [not (y.__class__ is Literal and y.value == 0) for y in program.outputs]
    equations, outs = list(program.equations), []
    for y, t in zip(compress(program.outputs, moving), compress(types, moving), strict=True):
        if y.type is not t:
            params = {"dtype": t.dtype, "weak_type": t.weak_type}
            equations.append(Equation(convert_element_type, (y,), (Var(t),), params))
            (y,) = equations[-1].outputs
        outs.append(y)
    equations = prune(equations, outs)
    return program.replace(equations=equations, outputs=outs), moving


def batch(
    axis: Any,
    operands: Sequence[Any],
    dims: Sequence[int | None],
    *,
    program: Program,
    preparation: Preparation,
) -> tuple[list[Any], Sequence[int | None]]:
    """Apply the batching rule, for an axis with its names."""
    name = None if axis.name is core.no_axis_name else axis.name
    spmd = axis.spmd_name or axis.explicit_mesh_axis or ()
    with at_once():
        running = Batching(axis.size, name, spmd if isinstance(spmd, tuple) else (spmd,))
        made, out_dims = running.program(program, tuple(dims))
    outs = xla.bind(made, operands, preparation)
    if axis.explicit_mesh_axis:  # which the type of each batched result must have
        outs = [_along(axis.explicit_mesh_axis, y, d) for y, d in zip(outs, out_dims, strict=True)]
    return outs, out_dims


def _along(mesh_axis: Any, y: Any, dim: int | None) -> Any:
    """Return a result without a sharding in its type sharded along its batch axis."""
    aval = core.typeof(y)
    if dim is None or not aval.sharding.mesh.empty:
        return y
    spec = jax.P(*[mesh_axis if i == dim else None for i in range(aval.ndim)])
    return _typed(y, jax.sharding.NamedSharding(jax.sharding.get_abstract_mesh(), spec))


def without_unread(used: list[bool], *rest: Any) -> tuple[list[bool], Any]:
    """Apply the DCE rule: return which operands are used, and the equation (None: it is dead). JAX
    0.12 tells between `used` and the equation which references are read later: we take none."""
    eqn = rest[-1]
    if eqn.effects:
        return [True] * len(eqn.invars), eqn
    if not any(used):
        return [False] * len(eqn.invars), None
    program = eqn.params["program"]
    read = reading(program, used)
    if all(used) and all(read):
        return read, eqn
    smaller = restricted(program, read, used)
    return read, eqn.replace(
        invars=[v for v, r in zip(eqn.invars, read, strict=True) if r],
        outvars=[v for v, u in zip(eqn.outvars, used, strict=True) if u],
        params={**eqn.params, "program": smaller},
    )


def partly_kept(
    saveable: Any, unknown: Sequence[bool], there: Sequence[bool], eqn: Any
) -> tuple[Any, Any, list[bool], list[bool], list[Any]]:
    """Apply the partial evaluation rule for the body of `jax.checkpoint`. Return the equation of
    the forward pass, that of the backward pass, which results are unknown in the forward pass,
    which are instantiated in the backward pass, and the residuals. The policy is applied to the
    operations of the program. `there`: which operands are available in the backward pass.
    """
    n = len(eqn.outvars)
    missing = [v for v, t in zip(eqn.invars, there, strict=True) if not t]
    if any(unknown):
        return None, eqn, [True] * n, [True] * n, missing
    program = eqn.params["program"]
    first, rerun, read = memo(program, divided, program.outputs, program.outputs, Policy(saveable))
    if eqn.effects or not rerun.equations:
        return eqn, None, [False] * n, [False] * n, []
    kept = [core.Var(aval_of(t)) for t in first.out_types[n:]]
    inputs = [eqn.invars[i] for i in read]
    forward = eqn.replace(outvars=[*eqn.outvars, *kept], params={**eqn.params, "program": first})
    again = eqn.replace(invars=[*kept, *inputs], params={**eqn.params, "program": rerun})
    missing = [eqn.invars[i] for i in read if not there[i]]
    return forward, again, [False] * n, [True] * n, [*kept, *missing]


def jet(
    primals: Sequence[Any], series: Sequence[Sequence[Any]], *, program: Program, preparation: Preparation
) -> tuple[list[Any], list[list[Any]]]:
    """Apply the rule of `jax.experimental.jet`: the series hold Taylor coefficients."""
    order = len(series[0])

    def moving(types: Sequence[ArrayType]) -> tuple[tuple[bool, ...], ...]:
        return tuple([(is_inexact(t.dtype),) * order for t in types])

    given, wanted = moving(program.in_types), moving(program.out_types)
    with at_once():
        made, _ = jet_program(program, order, given, wanted)
    terms = [c for cs, moves in zip(series, given, strict=True) if all(moves) for c in cs]
    n = len(program.outputs)
    outs = xla.bind(made, [*primals, *terms], preparation)
    found = iter(outs[n:])
    return outs[:n], [
        [next(found) if moves else jax.numpy.zeros_like(y) for moves in pattern]
        for y, pattern in zip(outs[:n], wanted, strict=True)
    ]


for _primitive in xla.PRIMITIVES:
    ad.primitive_jvps[_primitive] = derivative
    ad.primitive_transposes[_primitive] = transpose
    batching.fancy_primitive_batchers[_primitive] = batch
    pe.dce_rules[_primitive] = without_unread
    pe.partial_eval_jaxpr_custom_rules[_primitive] = partly_kept

# Three more rule tables are in modules that JAX imports lazily.

when_imported(
    "jax.experimental.jet",
    lambda: sys.modules["jax.experimental.jet"].jet_rules.update(dict.fromkeys(xla.PRIMITIVES, jet)),
)
when_imported("jax._src.checkify", lambda: runtime.load("rules in checkify"))
when_imported("jax.experimental.key_reuse._core", lambda: runtime.load("rules in key_reuse"))
